//! Places in a tensor named by index tensors: one gather or scatter serves all indexing ops.

use tpulab_stablehlo::{Builder, DType, Dims, GatherDims, ScatterDims, Value};

use super::util::index_type;
use crate::error::{Error, Result};
use crate::lower::Ctx;

/// What an op makes of negative indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Negative {
    /// They count from the end.
    Wraps,
    /// They are out of range.
    Invalid,
}

/// An index tensor made ready for gather and scatter along a dimension of `size`. The one place that knows which
/// values are in range: `-size..size` if negative ones wrap, else `0..size`. Out of range, gather clamps and scatter
/// skips.
pub(super) fn normalize_index(
    c: &mut Ctx<'_>,
    index: &Value,
    size: i64,
    negative: Negative,
) -> Result<Value> {
    let mut index = c.b.convert(index, DType::I64)?;
    if negative == Negative::Wraps {
        let zero = c.b.splat_like(&index, 0)?;
        let span = c.b.splat_like(&index, size)?;
        let below = c.b.lt(&index, &zero)?;
        let wrapped = c.b.add(&index, &span)?;
        index = c.b.select(&below, &wrapped, &index)?;
    }
    Ok(c.b.convert(&index, index_type(size))?)
}

/// How an update meets what stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

impl Combine {
    pub(super) fn apply(
        self,
        b: &mut Builder,
        old: &Value,
        new: &Value,
    ) -> tpulab_stablehlo::Result<Value> {
        match (self, old.dtype) {
            (Self::Replace, _) => Ok(new.clone()),
            (Self::Add | Self::Max, DType::Bool) => b.or(old, new),
            (Self::Mul | Self::Min, DType::Bool) => b.and(old, new),
            (Self::Add, _) => b.add(old, new),
            (Self::Mul, _) => b.mul(old, new),
            (Self::Max, _) => b.max(old, new),
            (Self::Min, _) => b.min(old, new),
        }
    }
}

/// Indexed dims of a tensor, and the indices into them.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Ascending.
    dims: Vec<usize>,
    /// [batch..., component]
    indices: Value,
    /// Where the batch dims stand among the dims that are not indexed.
    at: usize,
}

impl Places {
    /// Indices (dim, tensor) of a tensor of sizes `x`, broadcast to `batch`.
    pub(super) fn new(
        c: &mut Ctx<'_>,
        x: &[i64],
        given: Vec<(usize, Value)>,
        batch: &[i64],
        at: usize,
        negative: Negative,
    ) -> Result<Self> {
        let dims: Vec<usize> = given.iter().map(|(dim, _)| *dim).collect();
        let empty = batch.contains(&0);
        if dims.iter().any(|dim| x[*dim] == 0) && !empty {
            return Err(Error::index(
                "index is out of bounds for dimension with size 0",
            ));
        }
        let dtype = index_type(dims.iter().map(|dim| x[*dim]).max().unwrap_or(0));
        let mut column = Dims::from_slice(batch);
        column.push(1);
        let mut components = Vec::with_capacity(given.len());
        for (dim, index) in given {
            let index = normalize_index(c, &index, x[dim], negative)?;
            let index = c.b.convert(&index, dtype)?;
            let index = c.b.broadcast_to(&index, batch)?;
            components.push(c.b.reshape(&index, &column)?);
        }
        let indices = c.b.concatenate(&components, batch.len())?;
        Ok(Self { dims, indices, at })
    }

    /// Places along one dimension.
    pub(super) fn along(
        c: &mut Ctx<'_>,
        x: &[i64],
        dim: usize,
        index: &Value,
        negative: Negative,
    ) -> Result<Self> {
        let batch = index.dims.clone();
        Self::new(c, x, vec![(dim, index.clone())], &batch, dim, negative)
    }

    fn batch(&self) -> &[i64] {
        let dims = self.indices.dims();
        &dims[..dims.len() - 1]
    }

    fn kept(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|dim| !self.dims.contains(dim)).collect()
    }

    /// Sizes of what [`Places::gather`] gives and [`Places::scatter`] takes.
    pub(super) fn result_dims(&self, x: &[i64]) -> Dims {
        let kept = self.kept(x.len());
        let sizes = |dims: &[usize]| dims.iter().map(|dim| x[*dim]).collect::<Dims>();
        let mut result = sizes(&kept[..self.at]);
        result.extend_from_slice(self.batch());
        result.extend(sizes(&kept[self.at..]));
        result
    }

    /// Dims of the result that run over what is not indexed.
    fn window(&self, rank: usize) -> Vec<usize> {
        let kept = rank - self.dims.len();
        let batch = self.batch().len();
        (0..self.at).chain(self.at + batch..kept + batch).collect()
    }

    pub(super) fn gather(&self, c: &mut Ctx<'_>, x: &Value) -> Result<Value> {
        let result = self.result_dims(&x.dims);
        if result.contains(&0) {
            return Ok(c.b.splat(x.dtype, 0, &result)?);
        }
        let mut slice = x.dims.clone();
        for dim in &self.dims {
            slice[*dim] = 1;
        }
        let dims = GatherDims {
            offset_dims: self.window(x.rank()),
            collapsed_slice_dims: self.dims.clone(),
            start_index_map: self.dims.clone(),
            index_vector_dim: self.batch().len(),
            ..GatherDims::default()
        };
        Ok(c.b.gather(x, &self.indices, &dims, &slice, false)?)
    }

    pub(super) fn scatter(
        &self,
        c: &mut Ctx<'_>,
        x: &Value,
        updates: &Value,
        combine: Combine,
    ) -> Result<Value> {
        if updates.numel() == 0 {
            return Ok(x.clone());
        }
        if self.batch().iter().product::<i64>() == 1 {
            return self.write_one(c, x, updates, combine);
        }
        let dims = ScatterDims {
            update_window_dims: self.window(x.rank()),
            inserted_window_dims: self.dims.clone(),
            scatter_dims_to_operand_dims: self.dims.clone(),
            index_vector_dim: self.batch().len(),
            ..ScatterDims::default()
        };
        let body = |b: &mut Builder, old: &Value, new: &Value| combine.apply(b, old, new);
        Ok(c.b.scatter(x, &self.indices, updates, &dims, false, false, body)?)
    }

    /// A single place: written where it stands, without a loop.
    fn write_one(
        &self,
        c: &mut Ctx<'_>,
        x: &Value,
        updates: &Value,
        combine: Combine,
    ) -> Result<Value> {
        let mut sizes = x.dims.clone();
        for dim in &self.dims {
            sizes[*dim] = 1;
        }
        let flat = c.b.reshape(&self.indices, &[self.dims.len() as i64])?;
        let zero = c.b.scalar(flat.dtype, 0)?;
        let mut starts = vec![zero; x.rank()];
        for (component, dim) in self.dims.iter().enumerate() {
            let component = component as i64;
            let start = c.b.slice_dim(&flat, 0, component, component + 1, 1)?;
            starts[*dim] = c.b.reshape(&start, &[])?;
        }
        let mut update = c.b.reshape(updates, &sizes)?;
        if combine != Combine::Replace {
            let old = c.b.dynamic_slice(x, &starts, &sizes)?;
            update = combine.apply(&mut c.b, &old, &update)?;
        }
        Ok(c.b.dynamic_update_slice(x, &update, &starts)?)
    }
}
