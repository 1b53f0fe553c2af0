//! Softmax and its kin, with their gradients.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::util::{
    acc_type, keep_dims, nan_mask, reduce_stretched, reduced_dims, stretch, unimplemented, wrap_dim,
};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("_softmax", |c| softmax(c, false));
    r.op("_log_softmax", |c| softmax(c, true));
    r.op("_softmax_backward_data", softmax_backward);
    r.op("_log_softmax_backward_data", log_softmax_backward);
    r.op("_masked_softmax", masked_softmax);
    r.op("_masked_softmax_backward", masked_softmax_backward);
    r.op("logsumexp", logsumexp);
    r.direct(&[
        "_softmax",
        "_log_softmax",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
        "logsumexp",
        "logsumexp.out",
    ]);
}

/// The dims of a softmax: none for a value without dimensions, whose only element is a row.
fn row(x: &Value, dim: i64) -> Result<Vec<usize>> {
    let dim = wrap_dim(dim, x.rank())?;
    Ok(if x.rank() == 0 { Vec::new() } else { vec![dim] })
}

fn softmax(c: &mut Ctx<'_>, log: bool) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dims = row(&x, c.int("dim")?)?;
    if !x.dtype.is_float() {
        if x.numel() == 0 {
            return Ok(one(x));
        }
        let prefix = if log { "log_" } else { "" };
        let last = dims.iter().all(|&dim| dim + 1 == x.rank());
        let infix = if last { "_lastdim" } else { "" };
        return Err(unimplemented(
            &format!("{prefix}softmax{infix}_kernel_impl"),
            x.dtype,
        ));
    }
    let result = if c.bool("half_to_float")? {
        if x.dtype != DType::F16 && x.dtype != DType::BF16 {
            return Err(Error::runtime(
                "conversion is supported for Half and BFloat16 types only",
            ));
        }
        DType::F32
    } else {
        x.dtype
    };
    let wide = c.b.convert(&x, acc_type(x.dtype))?;
    let soft = rows(c, &wide, &dims, log)?;
    Ok(one(c.b.convert(&soft, result)?))
}

/// Softmax over `dims` of a float value in the dtype it is computed in.
pub(crate) fn rows(c: &mut Ctx<'_>, x: &Value, dims: &[usize], log: bool) -> Result<Value> {
    let most = reduce_stretched(&mut c.b, Reducer::Max, x, dims)?;
    let shifted = c.b.sub(x, &most)?;
    let powers = c.b.exp(&shifted)?;
    let total = c.b.reduce_with(Reducer::Sum, &powers, dims)?;
    if log {
        let total = c.b.log(&total)?;
        let total = stretch(&mut c.b, &total, &x.dims, dims)?;
        return Ok(c.b.sub(&shifted, &total)?);
    }
    let total = stretch(&mut c.b, &total, &x.dims, dims)?;
    Ok(c.b.div(&powers, &total)?)
}

/// Gradient and output in the dtype of the computation, the dims, and the dtype of the result.
fn backward_operands(c: &mut Ctx<'_>) -> Result<(Value, Value, Vec<usize>, DType)> {
    let grad = c.tensor("grad_output")?;
    let output = c.tensor("output")?;
    let dims = row(&output, c.int("dim")?)?;
    let result = c.opt_dtype("input_dtype")?.unwrap_or(grad.dtype);
    let wide = acc_type(grad.dtype);
    let grad = c.b.convert(&grad, wide)?;
    let output = c.b.convert(&output, wide)?;
    Ok((grad, output, dims, result))
}

/// (g − Σ g·y)·y
fn softmax_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (grad, output, dims, result) = backward_operands(c)?;
    let product = c.b.mul(&grad, &output)?;
    let total = reduce_stretched(&mut c.b, Reducer::Sum, &product, &dims)?;
    let centred = c.b.sub(&grad, &total)?;
    let value = c.b.mul(&centred, &output)?;
    Ok(one(c.b.convert(&value, result)?))
}

/// g − exp(y)·Σ g
fn log_softmax_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (grad, output, dims, result) = backward_operands(c)?;
    let total = reduce_stretched(&mut c.b, Reducer::Sum, &grad, &dims)?;
    let soft = c.b.exp(&output)?;
    let share = c.b.mul(&soft, &total)?;
    let value = c.b.sub(&grad, &share)?;
    Ok(one(c.b.convert(&value, result)?))
}

/// The mask, stretched to the shape of `x`: (L, L) for `mask_type` 0, (B, L) for 1, all four dims for 2.
fn mask_like(c: &mut Ctx<'_>, x: &Value) -> Result<Value> {
    let mask = c.tensor("mask")?;
    if mask.dtype != DType::Bool {
        return Err(Error::runtime("Mask should be a boolean tensor"));
    }
    let kind = c.opt_int("mask_type")?;
    if kind == Some(1) && x.rank() == 4 && mask.rank() == 2 {
        return Ok(c.b.broadcast_in_dim(&mask, &x.dims, &[0, 3])?);
    }
    Ok(c.b.broadcast_to(&mask, &x.dims)?)
}

/// Softmax over the places where the mask is false; others get zero, rows without any get NaN.
fn masked_softmax(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dims = row(&x, c.opt_int("dim")?.unwrap_or(-1))?;
    let mask = mask_like(c, &x)?;
    let wide = c.b.convert(&x, acc_type(x.dtype))?;
    let lowest = c.b.splat_like(&wide, f64::NEG_INFINITY)?;
    let open = c.b.select(&mask, &lowest, &wide)?;
    let soft = rows(c, &open, &dims, false)?;
    Ok(one(c.b.convert(&soft, x.dtype)?))
}

fn masked_softmax_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad = c.tensor("grad_output")?;
    let output = c.tensor("output")?;
    let dims = row(&output, c.opt_int("dim")?.unwrap_or(-1))?;
    let mask = mask_like(c, &output)?;
    let wide = acc_type(grad.dtype);
    let (dy, y) = (c.b.convert(&grad, wide)?, c.b.convert(&output, wide)?);
    let zero = c.b.splat_like(&y, 0)?;
    let product = c.b.mul(&dy, &y)?;
    let product = c.b.select(&mask, &zero, &product)?;
    let total = reduce_stretched(&mut c.b, Reducer::Sum, &product, &dims)?;
    let centred = c.b.sub(&dy, &total)?;
    let value = c.b.mul(&centred, &y)?;
    let value = c.b.select(&mask, &zero, &value)?;
    Ok(one(c.b.convert(&value, grad.dtype)?))
}

/// log Σ exp, shifted by the maximum where that is finite.
fn logsumexp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype.is_complex() {
        return Err(Error::not_lowered("logsumexp of complex numbers"));
    }
    let dims = reduced_dims(c, x.rank())?;
    let keepdim = c.bool("keepdim")?;
    let dtype = c.float_type(x.dtype);
    let cast = c.b.convert(&x, dtype)?;
    let wide = c.b.convert(&cast, acc_type(dtype))?;
    let most = c.b.reduce_with(Reducer::Max, &wide, &dims)?;
    let finite = c.b.is_finite(&most)?;
    let zero = c.b.splat_like(&most, 0)?;
    let mut shift = c.b.select(&finite, &most, &zero)?;
    if let Some(nan) = nan_mask(&mut c.b, &most)? {
        shift = c.b.select(&nan, &most, &shift)?;
    }
    let around = stretch(&mut c.b, &shift, &wide.dims, &dims)?;
    let shifted = c.b.sub(&wide, &around)?;
    let powers = c.b.exp(&shifted)?;
    let total = c.b.reduce_with(Reducer::Sum, &powers, &dims)?;
    let total = c.b.log(&total)?;
    let value = c.b.add(&total, &shift)?;
    let value = c.b.convert(&value, dtype)?;
    Ok(one(keep_dims(&mut c.b, &value, &x.dims, &dims, keepdim)?))
}
