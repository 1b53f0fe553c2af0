//! Copies, casts and fills.

use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("copy", copy).casts();
    r.op("fill", fill).casts();
    r.op("zero", zero);
    r.op("tpulab::contiguous", contiguous);
    r.op("tpulab::cast", cast);
    r.op("tpulab::bitcast", bitcast);
}

fn target(c: &Ctx<'_>) -> Result<(tpulab_stablehlo::DType, tpulab_stablehlo::Dims)> {
    c.type_of("self")
        .ok_or_else(|| Error::runtime("argument 'self' must be a tensor"))
}

fn copy(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let src = c.tensor("src")?;
    let value = c.b.convert(&src, dtype)?;
    Ok(one(c.b.broadcast_to(&value, &dims)?))
}

fn fill(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let operand = c.operand("value")?;
    if !operand.dims().is_empty() {
        return Err(Error::runtime(format!(
            "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.",
            operand.dims().len()
        )));
    }
    let value = c.value(&operand, dtype)?;
    Ok(one(c.b.broadcast_to(&value, &dims)?))
}

fn zero(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let value = c.number_value(&Number::int(0), dtype)?;
    Ok(one(c.b.broadcast_to(&value, &dims)?))
}

fn contiguous(c: &mut Ctx<'_>) -> Result<Lowered> {
    Ok(one(c.tensor("self")?))
}

fn cast(c: &mut Ctx<'_>) -> Result<Lowered> {
    let value = c.tensor("self")?;
    let dtype = c.opt_dtype("dtype")?.unwrap_or(value.dtype);
    Ok(one(c.b.convert(&value, dtype)?))
}

/// Bytes as another dtype, of the given sizes.
fn bitcast(c: &mut Ctx<'_>) -> Result<Lowered> {
    let bytes = c.tensor("self")?;
    let dtype = c.opt_dtype("dtype")?.unwrap_or(bytes.dtype);
    let sizes = c.ints("sizes")?;
    let mut shaped = bytes.clone();
    if dtype.size() > 1 {
        let item = dtype.size() as i64;
        shaped = c.b.reshape(&bytes, &[bytes.numel() / item, item])?;
    }
    let typed = c.b.bitcast(&shaped, dtype)?;
    Ok(one(c.b.reshape(&typed, &sizes)?))
}
