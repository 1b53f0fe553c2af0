//! Filling and writing where a mask holds.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::places::{Negative, Places};
use super::random::c_name;
use super::scan::running_with;
use super::util::index_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, broadcast_dims, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("masked_fill", masked_fill).pointwise().casts();
    r.op("masked_scatter", masked_scatter).like("self");
    r.op("_masked_scale", masked_scale).pointwise();
    r.direct(&["masked_fill.Scalar", "masked_fill.Tensor", "masked_scatter"]);
}

fn masked_fill(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let mask = c.tensor("mask")?;
    if mask.dtype != DType::Bool {
        return Err(Error::runtime(format!(
            "masked_fill_ only supports boolean masks, but got mask with dtype {}",
            c_name(mask.dtype)
        )));
    }
    let operand = c.operand("value")?;
    if !operand.dims().is_empty() {
        return Err(Error::runtime(format!(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
            operand.dims().len()
        )));
    }
    let dims = broadcast_dims(&[&mask.dims, &x.dims])?;
    let value = c.value(&operand, x.dtype)?;
    let x = c.b.broadcast_to(&x, &dims)?;
    let mask = c.b.broadcast_to(&mask, &dims)?;
    let value = c.b.broadcast_to(&value, &dims)?;
    Ok(one(c.b.select(&mask, &value, &x)?))
}

/// The k-th true place takes the k-th element of the source.
fn masked_scatter(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let mask = c.tensor("mask")?;
    let source = c.tensor("source")?;
    if source.dtype != x.dtype {
        return Err(Error::runtime(format!(
            "masked_scatter: expected self and source to have same dtypes but got{} and {}",
            x.dtype.torch_name(),
            source.dtype.torch_name()
        )));
    }
    if mask.dtype != DType::Bool {
        return Err(Error::runtime(format!(
            "masked_scatter_ only supports boolean masks, but got mask with dtype {}",
            mask.dtype.torch_name()
        )));
    }
    let dims = broadcast_dims(&[&x.dims, &mask.dims])?;
    let x = c.b.broadcast_to(&x, &dims)?;
    if x.numel() == 0 || source.numel() == 0 {
        return Ok(one(x));
    }
    let mask = c.b.broadcast_to(&mask, &dims)?;
    let rank = rank_of_true(c, &mask)?;
    let flat = c.b.reshape(&source, &[source.numel()])?;
    let places = Places::along(c, &flat.dims, 0, &rank, Negative::Invalid)?;
    let taken = places.gather(c, &flat)?;
    let taken = c.b.reshape(&taken, &dims)?;
    Ok(one(c.b.select(&mask, &taken, &x)?))
}

/// For each element, how many true ones come before it; flat.
fn rank_of_true(c: &mut Ctx<'_>, mask: &Value) -> Result<Value> {
    let n = mask.numel();
    let flat = c.b.reshape(mask, &[1, n])?;
    let ones = c.b.convert(&flat, index_type(n))?;
    let through = running_with(&mut c.b, Reducer::Sum, &ones, 1)?;
    let before = c.b.sub(&through, &ones)?;
    Ok(c.b.reshape(&before, &[n])?)
}

fn masked_scale(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let mask = c.tensor("mask")?;
    let mask = c.b.convert(&mask, x.dtype)?;
    let scale = c.scalar_or("scale", 1.0, x.dtype)?;
    let scale = c.b.broadcast_to(&scale, &x.dims)?;
    let kept = c.b.mul(&x, &mask)?;
    Ok(one(c.b.mul(&kept, &scale)?))
}
