//! Greatest and least values with their places.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::extreme::{check_not_empty, reduce_extreme};
use super::util::{index_type, keep_dims, nan_mask, not_implemented, stretch, wrap_dim};
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("max", |c| extreme(c, Reducer::Max));
    r.op("min", |c| extreme(c, Reducer::Min));
    r.op("argmax", |c| arg(c, Reducer::Max));
    r.op("argmin", |c| arg(c, Reducer::Min));
    r.direct(&["max.dim", "min.dim", "argmax", "argmin"]);
}

/// The extreme along a dimension and the first place it, or a NaN, stands at; both without the dimension.
///
/// Two reductions of one operand each are faster than one of pairs: they vectorise.
pub(crate) fn first_extreme(
    c: &mut Ctx<'_>,
    x: &Value,
    op: Reducer,
    dim: usize,
) -> Result<(Value, Value)> {
    let extreme = reduce_extreme(c, x, op, &[dim])?;
    let around = stretch(&mut c.b, &extreme, &x.dims, &[dim])?;
    let mut found = c.b.eq(x, &around)?;
    // With a NaN the extreme is NaN, which equals nothing.
    if let Some(nan) = nan_mask(&mut c.b, x)? {
        found = c.b.or(&found, &nan)?;
    }
    let dtype = index_type(x.dims[dim]);
    let places = c.b.iota(dtype, &x.dims, dim)?;
    let beyond = c.b.splat_like(&places, x.dims[dim])?;
    let candidates = c.b.select(&found, &places, &beyond)?;
    let place = c.b.reduce_with(Reducer::Min, &candidates, &[dim])?;
    let place = c.b.convert(&place, DType::I64)?;
    Ok((extreme, place))
}

/// `max` and `min` of all elements, or along a dimension with indices.
fn extreme(c: &mut Ctx<'_>, op: Reducer) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let Some(dim) = c.opt_int("dim")? else {
        let dims: Vec<usize> = (0..x.rank()).collect();
        check_not_empty(c, &x, &dims, true)?;
        return Ok(one(reduce_extreme(c, &x, op, &dims)?));
    };
    let dim = wrap_dim(dim, x.rank())?;
    if x.dtype.is_complex() {
        return Err(not_implemented(format!(
            "{}(): does not support complex input",
            c.base_name()
        )));
    }
    if x.rank() == 0 {
        let zero = c.b.scalar(DType::I64, 0)?;
        return Ok(many([x, zero]));
    }
    check_not_empty(c, &x, &[dim], false)?;
    let keepdim = c.bool("keepdim")?;
    let (value, place) = first_extreme(c, &x, op, dim)?;
    let value = keep_dims(&mut c.b, &value, &x.dims, &[dim], keepdim)?;
    let place = keep_dims(&mut c.b, &place, &x.dims, &[dim], keepdim)?;
    Ok(many([value, place]))
}

fn arg(c: &mut Ctx<'_>, op: Reducer) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let name = c.base_name();
    for (wrong, what) in [
        (x.dtype == DType::Bool, "bool"),
        (x.dtype.is_complex(), "complex"),
    ] {
        if wrong {
            return Err(not_implemented(format!(
                "{name}(): does not support {what} input"
            )));
        }
    }
    let keepdim = c.bool("keepdim")?;
    let Some(dim) = c.opt_int("dim")? else {
        if x.numel() == 0 {
            return Err(Error::index(format!(
                "{name}(): Expected reduction dim to be specified for input.numel() == 0."
            )));
        }
        let flat = c.b.reshape(&x, &[x.numel()])?;
        let (_, place) = first_extreme(c, &flat, op, 0)?;
        let all: Vec<usize> = (0..x.rank()).collect();
        return Ok(one(keep_dims(&mut c.b, &place, &x.dims, &all, keepdim)?));
    };
    let dim = wrap_dim(dim, x.rank())?;
    if x.rank() == 0 {
        return Ok(one(c.b.scalar(DType::I64, 0)?));
    }
    check_not_empty(c, &x, &[dim], false)?;
    let (_, place) = first_extreme(c, &x, op, dim)?;
    Ok(one(keep_dims(&mut c.b, &place, &x.dims, &[dim], keepdim)?))
}
