//! Searching in sorted sequences, and membership.

use tpulab_stablehlo::{DType, GatherDims, Reducer, Value};

use super::sort::sort_values;
use super::util::index_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, Operand, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("searchsorted", searchsorted);
    r.op("bucketize", bucketize);
    r.op("isin", isin);
    r.direct(&[
        "bucketize.Scalar_out",
        "isin.Tensor_Tensor",
        "isin.Tensor_Scalar",
        "isin.Scalar_Tensor",
    ]);
}

/// Up to this many comparisons, comparing everything with everything beats a search by halves.
pub(crate) const COMPARISONS: i64 = 1 << 22;
/// And always with so few bounds.
const FEW: i64 = 32;

/// For each of `values` [.., m], how many of the ascending `bounds` [.., n] come before it (or, with `right`, are
/// not after it). The leading dims agree.
pub(crate) fn insertion_places(
    c: &mut Ctx<'_>,
    bounds: &Value,
    values: &Value,
    right: bool,
) -> Result<Value> {
    let last = values.rank() - 1;
    let n = bounds.dims[last];
    let dtype = index_type(n);
    if n == 0 || values.numel() == 0 {
        return Ok(c.b.splat(dtype, 0, &values.dims)?);
    }
    if n <= FEW || values.numel().saturating_mul(n) <= COMPARISONS {
        let mut dims = values.dims.clone();
        dims.push(n);
        let each: Vec<usize> = (0..=last).collect();
        let mut bound_map: Vec<usize> = (0..last).collect();
        bound_map.push(last + 1);
        let value = c.b.broadcast_in_dim(values, &dims, &each)?;
        let bound = c.b.broadcast_in_dim(bounds, &dims, &bound_map)?;
        let passed = passed(c, &bound, &value, right)?;
        let passed = c.b.convert(&passed, dtype)?;
        return Ok(c.b.reduce_with(Reducer::Sum, &passed, &[last + 1])?);
    }
    halving(c, bounds, values, right)
}

/// Whether the place lies beyond the bound. NaN lies beyond all, as in torch's search.
fn passed(c: &mut Ctx<'_>, bound: &Value, value: &Value, right: bool) -> Result<Value> {
    let stops = if right {
        c.b.gt(bound, value)?
    } else {
        c.b.ge(bound, value)?
    };
    Ok(c.b.not(&stops)?)
}

/// Binary search, all values at once: one gather for each doubling of the number of bounds.
fn halving(c: &mut Ctx<'_>, bounds: &Value, values: &Value, right: bool) -> Result<Value> {
    let last = values.rank() - 1;
    let n = bounds.dims[last];
    let leading: Vec<usize> = (0..last).collect();
    let dims = GatherDims {
        collapsed_slice_dims: vec![last],
        operand_batching_dims: leading.clone(),
        start_indices_batching_dims: leading,
        start_index_map: vec![last],
        index_vector_dim: last + 1,
        ..GatherDims::default()
    };
    let slices = vec![1; last + 1];
    let mut count = c.b.splat(index_type(n), 0, &values.dims)?;
    let mut step = 1_i64 << (63 - n.leading_zeros());
    // `count` bounds are known to be passed; the next `step` are if the last of them is.
    while step > 0 {
        let ahead = c.b.splat_like(&count, step)?;
        let next = c.b.add(&count, &ahead)?;
        let unit = c.b.splat_like(&count, 1)?;
        let place = c.b.sub(&next, &unit)?;
        let end = c.b.splat_like(&count, n)?;
        let inside = c.b.le(&next, &end)?;
        let bound = c.b.gather(bounds, &place, &dims, &slices, false)?;
        let beyond = passed(c, &bound, values, right)?;
        let take = c.b.and(&inside, &beyond)?;
        count = c.b.select(&take, &next, &count)?;
        step /= 2;
    }
    Ok(count)
}

/// The dtype of the places.
fn place_type(c: &Ctx<'_>) -> Result<DType> {
    Ok(if c.bool("out_int32")? {
        DType::I32
    } else {
        DType::I64
    })
}

fn searchsorted(c: &mut Ctx<'_>) -> Result<Lowered> {
    let right = match (c.opt_str("side"), c.bool("right")?) {
        (None, right) => right,
        (Some("left"), true) => {
            return Err(Error::runtime(
                "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True",
            ));
        }
        (Some(side @ ("left" | "right")), _) => side == "right",
        (Some(side), _) => {
            return Err(Error::runtime(format!(
                "torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
            )));
        }
    };
    let mut bounds = c.tensor("sorted_sequence")?;
    if let Some(sorter) = c.opt_tensor("sorter")? {
        bounds = sorted_by(c, &bounds, &sorter)?;
    }
    let values = c.operand("self")?;
    place(c, bounds, &values, right)
}

/// The bounds in the order `sorter` gives.
fn sorted_by(c: &mut Ctx<'_>, bounds: &Value, sorter: &Value) -> Result<Value> {
    if sorter.dims != bounds.dims {
        return Err(Error::runtime(format!(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor {:?}and got \
             sorter tensor {:?}",
            bounds.dims.as_slice(),
            sorter.dims.as_slice()
        )));
    }
    if sorter.dtype != DType::I64 {
        return Err(Error::runtime(format!(
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {}",
            sorter.dtype.torch_name()
        )));
    }
    let last = bounds.rank().saturating_sub(1);
    let leading: Vec<usize> = (0..last).collect();
    let dims = GatherDims {
        collapsed_slice_dims: vec![last],
        operand_batching_dims: leading.clone(),
        start_indices_batching_dims: leading,
        start_index_map: vec![last],
        index_vector_dim: last + 1,
        ..GatherDims::default()
    };
    Ok(c.b.gather(bounds, sorter, &dims, &vec![1; last + 1], false)?)
}

fn bucketize(c: &mut Ctx<'_>) -> Result<Lowered> {
    let bounds = c.tensor("boundaries")?;
    if bounds.rank() != 1 {
        return Err(Error::runtime(format!(
            "boundaries tensor must be 1 dimension, but got dim({})",
            bounds.rank()
        )));
    }
    let right = c.bool("right")?;
    let values = c.operand("self")?;
    place(c, bounds, &values, right)
}

fn place(c: &mut Ctx<'_>, bounds: Value, values: &Operand, right: bool) -> Result<Lowered> {
    let dtype = c.result_type(&[&Operand::Tensor(bounds.clone()), values]);
    let sizes = values.dims().to_vec();
    check_places(&bounds, &sizes)?;
    let values = c.value(values, dtype)?;
    let mut bounds = c.b.convert(&bounds, dtype)?;
    // Vectors of bounds serve values of any shape.
    let shaped = if bounds.rank() == 1 {
        c.b.reshape(&values, &[values.numel()])?
    } else {
        values
    };
    if dtype == DType::Bool {
        bounds = c.b.convert(&bounds, DType::U8)?;
    }
    let shaped = c.b.convert(&shaped, bounds.dtype)?;
    let places = insertion_places(c, &bounds, &shaped, right)?;
    let places = c.b.reshape(&places, &sizes)?;
    let dtype = place_type(c)?;
    Ok(one(c.b.convert(&places, dtype)?))
}

fn check_places(bounds: &Value, sizes: &[i64]) -> Result<()> {
    let rank = bounds.rank();
    if sizes.is_empty() && rank != 1 {
        return Err(Error::runtime(format!(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got \
             boundaries tensor dim({rank}) and input value's dim(0) numel(1)"
        )));
    }
    if rank == 0 {
        return Err(Error::runtime(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension",
        ));
    }
    let leading = rank == sizes.len() && bounds.dims[..rank - 1] == sizes[..rank - 1];
    if rank != 1 && !leading {
        return Err(Error::runtime(format!(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries \
             tensor and input value tensor must match, but we got boundaries tensor {:?} and input value tensor {sizes:?}",
            bounds.dims.as_slice()
        )));
    }
    Ok(())
}

/// Whether each element is among the test elements.
fn isin(c: &mut Ctx<'_>) -> Result<Lowered> {
    let named = |c: &mut Ctx<'_>, many: &str, single: &str| {
        if c.has(many) {
            c.operand(many)
        } else {
            c.operand(single)
        }
    };
    let elements = named(c, "elements", "element")?;
    let tests = named(c, "test_elements", "test_element")?;
    let dtype = c.result_type(&[&elements, &tests]);
    let sizes = elements.dims().to_vec();
    let (elements, tests) = (c.value(&elements, dtype)?, c.value(&tests, dtype)?);
    let elements = c.b.reshape(&elements, &[elements.numel()])?;
    let tests = c.b.reshape(&tests, &[tests.numel()])?;
    let (m, n) = (elements.numel(), tests.numel());
    let found = if n == 0 || m == 0 {
        c.b.splat(DType::Bool, false, &[m])?
    } else if n <= FEW || m.saturating_mul(n) <= COMPARISONS || dtype.is_complex() {
        let element = c.b.broadcast_in_dim(&elements, &[m, n], &[0])?;
        let test = c.b.broadcast_in_dim(&tests, &[m, n], &[1])?;
        let same = c.b.eq(&element, &test)?;
        c.b.reduce_with(Reducer::Or, &same, &[1])?
    } else {
        let sorted = sort_values(&mut c.b, &tests, 0)?;
        let places = halving(c, &sorted, &elements, false)?;
        // The first test element that is not less; if there is none, the last, which is less.
        let end = c.b.splat_like(&places, n - 1)?;
        let places = c.b.min(&places, &end)?;
        let dims = GatherDims {
            collapsed_slice_dims: vec![0],
            start_index_map: vec![0],
            index_vector_dim: 1,
            ..GatherDims::default()
        };
        let candidate = c.b.gather(&sorted, &places, &dims, &[1], false)?;
        c.b.eq(&candidate, &elements)?
    };
    let found = c.b.reshape(&found, &sizes)?;
    if c.bool("invert")? {
        return Ok(one(c.b.not(&found)?));
    }
    Ok(one(found))
}
