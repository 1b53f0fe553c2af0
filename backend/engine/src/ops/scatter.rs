//! `gather` and the `scatter` family: an index per element, along one dimension.

use tpulab_stablehlo::{Builder, Cmp, DType, Dims, GatherDims, ScatterDims, Value};

use super::places::{Combine, Negative, normalize_index};
use super::util::{acc_type, at_least_1d, wrap_dim};
use crate::error::{Error, Result};
use crate::lower::{Ctx, Operand, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("gather", gather).uploads();
    r.op("scatter", scatter).uploads();
    r.op("scatter_add", scatter).uploads();
    r.op("scatter_reduce", scatter).uploads();
}

/// How `scatter_reduce` and `index_reduce` combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    Sum,
    Prod,
    Mean,
    Max,
    Min,
}

impl Reduction {
    pub(super) fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "sum" | "add" => Self::Sum,
            "prod" | "multiply" => Self::Prod,
            "mean" => Self::Mean,
            "amax" => Self::Max,
            "amin" => Self::Min,
            _ => {
                return Err(Error::runtime(format!(
                    "reduce argument must be either sum, prod, mean, amax or amin, got {name}"
                )));
            }
        })
    }

    fn combine(self) -> Combine {
        match self {
            Self::Sum | Self::Mean => Combine::Add,
            Self::Prod => Combine::Mul,
            Self::Max => Combine::Max,
            Self::Min => Combine::Min,
        }
    }

    /// 0-d value that leaves the other operand as it is.
    fn neutral(self, b: &mut Builder, dtype: DType) -> tpulab_stablehlo::Result<Value> {
        match self {
            Self::Sum | Self::Mean => b.scalar(dtype, 0),
            Self::Prod => b.scalar(dtype, 1),
            Self::Max => b.min_value(dtype),
            Self::Min => b.max_value(dtype),
        }
    }
}

/// An index tensor, and the part of self it runs over: dims beside `dim` may be longer in self.
struct Lanes {
    dim: usize,
    index: Value,
    /// Sizes of self with every other dim as long as the index.
    sizes: Dims,
}

impl Lanes {
    fn new(c: &mut Ctx<'_>, x: &Value) -> Result<Self> {
        let dim = wrap_dim(c.int("dim")?, x.rank())?;
        let index = c.tensor("index")?;
        let index = at_least_1d(&mut c.b, &index)?;
        if index.rank() != x.rank() && index.numel() != 0 {
            return Err(Error::runtime(
                "Index tensor must have the same number of dimensions as input tensor",
            ));
        }
        let mut sizes = index.dims.clone();
        if index.numel() != 0 {
            sizes[dim] = x.dims[dim];
            if x.dims[dim] == 0 {
                return Err(Error::runtime(format!(
                    "index is out of bounds for dimension {dim} with size 0"
                )));
            }
        }
        let size = x.dims.get(dim).copied().unwrap_or(1);
        let index = normalize_index(c, &index, size, Negative::Invalid)?;
        Ok(Self { dim, index, sizes })
    }

    fn others(&self) -> Vec<usize> {
        (0..self.index.rank())
            .filter(|dim| *dim != self.dim)
            .collect()
    }

    fn part(&self, c: &mut Ctx<'_>, x: &Value) -> Result<Value> {
        let zeros = vec![0; x.rank()];
        Ok(c.b.slice(x, &zeros, &self.sizes, &vec![1; x.rank()])?)
    }

    fn gather(&self, c: &mut Ctx<'_>, x: &Value) -> Result<Value> {
        let x = self.part(c, x)?;
        let dims = GatherDims {
            collapsed_slice_dims: vec![self.dim],
            operand_batching_dims: self.others(),
            start_indices_batching_dims: self.others(),
            start_index_map: vec![self.dim],
            index_vector_dim: self.index.rank(),
            ..GatherDims::default()
        };
        Ok(c.b.gather(&x, &self.index, &dims, &vec![1; x.rank()], false)?)
    }

    fn scatter(&self, c: &mut Ctx<'_>, x: &Value, src: &Value, combine: Combine) -> Result<Value> {
        let whole = x.dims == self.sizes;
        let part = self.part(c, x)?;
        let written = if self.is_short() {
            self.choose(c, &part, src, combine)?
        } else {
            let dims = ScatterDims {
                inserted_window_dims: vec![self.dim],
                input_batching_dims: self.others(),
                scatter_indices_batching_dims: self.others(),
                scatter_dims_to_operand_dims: vec![self.dim],
                index_vector_dim: self.index.rank(),
                ..ScatterDims::default()
            };
            let body = |b: &mut Builder, old: &Value, new: &Value| combine.apply(b, old, new);
            c.b.scatter(&part, &self.index, src, &dims, false, false, body)?
        };
        if whole {
            return Ok(written);
        }
        let zero = c.b.scalar(DType::I32, 0)?;
        let starts = vec![zero; x.rank()];
        Ok(c.b.dynamic_update_slice(x, &written, &starts)?)
    }

    /// Few indices into a short dim: cheaper to look at every place than to scatter one by one.
    fn is_short(&self) -> bool {
        self.index.dims[self.dim] <= 8 && self.sizes[self.dim] <= 1024
    }

    fn choose(&self, c: &mut Ctx<'_>, x: &Value, src: &Value, combine: Combine) -> Result<Value> {
        let place = c.b.iota(self.index.dtype, &self.sizes, self.dim)?;
        let all: Vec<usize> = (0..x.rank()).collect();
        let mut value = x.clone();
        for k in 0..self.index.dims[self.dim] {
            let index = c.b.slice_dim(&self.index, self.dim, k, k + 1, 1)?;
            let index = c.b.broadcast_in_dim(&index, &self.sizes, &all)?;
            let new = c.b.slice_dim(src, self.dim, k, k + 1, 1)?;
            let new = c.b.broadcast_in_dim(&new, &self.sizes, &all)?;
            let here = c.b.compare(Cmp::Eq, &index, &place)?;
            let combined = combine.apply(&mut c.b, &value, &new)?;
            value = c.b.select(&here, &combined, &value)?;
        }
        Ok(value)
    }
}

fn gather(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let (_, sizes) = c
        .type_of("index")
        .ok_or_else(|| Error::runtime("argument 'index' must be a tensor"))?;
    if sizes.contains(&0) {
        return Ok(one(c.b.splat(x.dtype, 0, &sizes)?));
    }
    let x = at_least_1d(&mut c.b, &x)?;
    let lanes = Lanes::new(c, &x)?;
    let gathered = lanes.gather(c, &x)?;
    Ok(one(c.b.reshape(&gathered, &sizes)?))
}

/// What is written: the part of `src` that the index covers, or a number.
fn source(c: &mut Ctx<'_>, lanes: &Lanes, dtype: DType) -> Result<Value> {
    let sizes = lanes.index.dims.clone();
    let name = if c.has("src") { "src" } else { "value" };
    let operand = c.operand(name)?;
    let value = c.value(&operand, dtype)?;
    match operand {
        Operand::Tensor(_) if name == "src" => {
            let src = at_least_1d(&mut c.b, &value)?;
            let zeros = vec![0; src.rank()];
            Ok(c.b.slice(&src, &zeros, &sizes, &vec![1; src.rank()])?)
        }
        _ => Ok(c.b.broadcast_to(&value, &sizes)?),
    }
}

fn scatter(c: &mut Ctx<'_>) -> Result<Lowered> {
    let original = c.tensor("self")?;
    let x = at_least_1d(&mut c.b, &original)?;
    let lanes = Lanes::new(c, &x)?;
    if lanes.index.numel() == 0 {
        return Ok(one(original));
    }
    let src = source(c, &lanes, x.dtype)?;
    let reduction = match (c.base_name(), c.opt_str("reduce")) {
        ("scatter_add", _) => Some(Reduction::Sum),
        (_, Some(name)) => Some(Reduction::parse(name)?),
        _ => None,
    };
    let written = match reduction {
        None => lanes.scatter(c, &x, &src, Combine::Replace)?,
        Some(reduction) => {
            let include = c.bool("include_self")? || !c.has("include_self");
            reduce_into(c, &x, &src, reduction, include, |c, x, src, combine| {
                lanes.scatter(c, x, src, combine)
            })?
        }
    };
    Ok(one(c.b.reshape(&written, &original.dims)?))
}

/// A reduction of `src` into `x` where `write` puts things; sums of narrow floats are kept in float32.
pub(super) fn reduce_into(
    c: &mut Ctx<'_>,
    x: &Value,
    src: &Value,
    reduction: Reduction,
    include_self: bool,
    write: impl Fn(&mut Ctx<'_>, &Value, &Value, Combine) -> Result<Value>,
) -> Result<Value> {
    if src.numel() == 0 {
        return Ok(x.clone());
    }
    let dtype = match reduction {
        Reduction::Max | Reduction::Min => x.dtype,
        _ => acc_type(x.dtype),
    };
    let wide = c.b.convert(x, dtype)?;
    let src = c.b.convert(src, dtype)?;
    let mut start = wide.clone();
    let mut touched = None;
    if !include_self || reduction == Reduction::Mean {
        let count_type = if reduction == Reduction::Mean {
            DType::I32
        } else {
            DType::Bool
        };
        let none = c.b.splat(count_type, 0, &x.dims)?;
        let ones = c.b.splat(count_type, 1, &src.dims)?;
        touched = Some(write(c, &none, &ones, Combine::Add)?);
    }
    if let Some(touched) = &touched
        && !include_self
    {
        let neutral = reduction.neutral(&mut c.b, dtype)?;
        let neutral = c.b.broadcast_to(&neutral, &x.dims)?;
        let hit = c.b.convert(touched, DType::Bool)?;
        start = c.b.select(&hit, &neutral, &wide)?;
    }
    let mut reduced = write(c, &start, &src, reduction.combine())?;
    if let (Reduction::Mean, Some(count)) = (reduction, touched) {
        let own = c.b.splat_like(&count, i64::from(include_self))?;
        let count = c.b.add(&count, &own)?;
        let least = c.b.splat_like(&count, 1)?;
        let count = c.b.max(&count, &least)?;
        let count = c.b.convert(&count, dtype)?;
        reduced = floor_div(&mut c.b, &reduced, &count)?;
    }
    Ok(c.b.convert(&reduced, x.dtype)?)
}

/// Division; integers round down.
fn floor_div(b: &mut Builder, x: &Value, count: &Value) -> Result<Value> {
    let quotient = b.div(x, count)?;
    if x.dtype.is_float() || !x.dtype.is_signed() {
        return Ok(quotient);
    }
    let back = b.mul(&quotient, count)?;
    let above = b.compare(Cmp::Gt, &back, x)?;
    let one = b.splat_like(x, 1)?;
    let less = b.sub(&quotient, &one)?;
    Ok(b.select(&above, &less, &quotient)?)
}
