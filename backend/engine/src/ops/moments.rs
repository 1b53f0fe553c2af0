//! Variances and norms.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::util::{
    acc_type, keep_dims, not_implemented, reduced_count, reduced_dims, reduced_sizes, stretch,
};
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("var", |c| spread(c, false, false));
    r.op("std", |c| spread(c, true, false));
    r.op("var_mean", |c| spread(c, false, true));
    r.op("std_mean", |c| spread(c, true, true));
    r.op("norm", norm);
    r.op("linalg_vector_norm", norm);
    r.direct(&[
        "norm.Scalar",
        "norm.ScalarOpt_dim",
        "norm.ScalarOpt_dim_dtype",
        "norm.ScalarOpt_dtype",
        "linalg_vector_norm",
        "linalg_vector_norm.out",
        "var_mean.correction_out",
        "std_mean.correction_out",
    ]);
}

/// Mean and centred sum of squares over `dims`, without them.
pub(crate) fn moments(c: &mut Ctx<'_>, x: &Value, dims: &[usize]) -> Result<(Value, Value)> {
    let sum = c.b.reduce_with(Reducer::Sum, x, dims)?;
    let count = reduced_count(&x.dims, dims) as f64;
    let count = c.b.splat_like(&sum, count)?;
    let mean = c.b.div(&sum, &count)?;
    let around = stretch(&mut c.b, &mean, &x.dims, dims)?;
    let centred = c.b.sub(x, &around)?;
    let squares = c.b.mul(&centred, &centred)?;
    let total = c.b.reduce_with(Reducer::Sum, &squares, dims)?;
    Ok((mean, total))
}

/// `var` and its relatives; the divisor is the number of elements less `correction`.
fn spread(c: &mut Ctx<'_>, root: bool, with_mean: bool) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if !x.dtype.is_float() && !x.dtype.is_complex() {
        let who = if with_mean {
            c.base_name()
        } else {
            "std and var"
        };
        return Err(not_implemented(format!(
            "{who} only support floating point and complex dtypes"
        )));
    }
    let dims = reduced_dims(c, x.rank())?;
    let keepdim = c.bool("keepdim")?;
    let (mean, total) = if x.dtype.is_complex() {
        complex_moments(c, &x, &dims)?
    } else {
        let wide = c.b.convert(&x, acc_type(x.dtype))?;
        moments(c, &wide, &dims)?
    };
    let correction = c.opt_number("correction")?.unwrap_or(Number::int(1));
    let correction = c.number_value(&correction, total.dtype)?;
    let count = reduced_count(&x.dims, &dims) as f64;
    let count = c.b.scalar(total.dtype, count)?;
    let zero = c.b.scalar(total.dtype, 0)?;
    let freedom = c.b.sub(&count, &correction)?;
    let freedom = c.b.max(&freedom, &zero)?;
    let freedom = c.b.broadcast_to(&freedom, &total.dims)?;
    let mut spread = c.b.div(&total, &freedom)?;
    if root {
        spread = c.b.sqrt(&spread)?;
    }
    let spread = c.b.convert(&spread, x.dtype.real())?;
    let spread = keep_dims(&mut c.b, &spread, &x.dims, &dims, keepdim)?;
    if !with_mean {
        return Ok(one(spread));
    }
    let mean = c.b.convert(&mean, x.dtype)?;
    let mean = keep_dims(&mut c.b, &mean, &x.dims, &dims, keepdim)?;
    Ok(many([spread, mean]))
}

/// A complex variance is the sum of those of both parts.
fn complex_moments(c: &mut Ctx<'_>, x: &Value, dims: &[usize]) -> Result<(Value, Value)> {
    let (re, im) = (c.b.real(x)?, c.b.imag(x)?);
    let (re_mean, re_total) = moments(c, &re, dims)?;
    let (im_mean, im_total) = moments(c, &im, dims)?;
    let mean = c.b.complex(&re_mean, &im_mean)?;
    Ok((mean, c.b.add(&re_total, &im_total)?))
}

/// `norm` (argument `p`) and `linalg_vector_norm` (argument `ord`).
fn norm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let order = match c.static_number("ord")? {
        Some(order) => order,
        None => c.static_number("p")?.unwrap_or(2.0),
    };
    if !x.dtype.is_float() && !x.dtype.is_complex() {
        return Err(not_implemented(format!(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
            x.dtype.torch_name()
        )));
    }
    let asked = c.opt_dtype("dtype")?.unwrap_or(x.dtype);
    let result = match (c.type_of("out"), c.has("dtype")) {
        (Some((dtype, _)), false) => dtype,
        _ => asked.real(),
    };
    let dims = reduced_dims(c, x.rank())?;
    let keepdim = c.bool("keepdim")?;
    check_order(&x, order, &dims)?;
    let cast = c.b.convert(&x, asked)?;
    let wide = c.b.convert(&cast, acc_type(asked))?;
    let reduced = reduce_norm(c, &wide, order, &dims)?;
    let reduced = c.b.convert(&reduced, result)?;
    Ok(one(keep_dims(&mut c.b, &reduced, &x.dims, &dims, keepdim)?))
}

/// Norms without a value for no elements.
fn check_order(x: &Value, order: f64, dims: &[usize]) -> Result<()> {
    if x.numel() != 0 || !(order < 0.0 || order == f64::INFINITY) {
        return Ok(());
    }
    if reduced_sizes(&x.dims, dims, false).is_empty() {
        return Err(Error::runtime(format!(
            "linalg.vector_norm cannot compute the {order} norm on an empty tensor because the operation does not \
             have an identity"
        )));
    }
    match dims.iter().find(|&&dim| x.dims[dim] == 0) {
        Some(dim) => Err(Error::runtime(format!(
            "linalg.vector_norm cannot compute the {order} norm on the dimension {dim}because this dimension is \
             empty and the operation does not have an identity"
        ))),
        None => Ok(()),
    }
}

/// The vector norm of a float or complex value over `dims`, without them.
pub(crate) fn reduce_norm(c: &mut Ctx<'_>, x: &Value, order: f64, dims: &[usize]) -> Result<Value> {
    if order == 2.0 {
        let squares = if x.dtype.is_complex() {
            let (re, im) = (c.b.real(x)?, c.b.imag(x)?);
            let (re, im) = (c.b.mul(&re, &re)?, c.b.mul(&im, &im)?);
            c.b.add(&re, &im)?
        } else {
            c.b.mul(x, x)?
        };
        let total = c.b.reduce_with(Reducer::Sum, &squares, dims)?;
        return Ok(c.b.sqrt(&total)?);
    }
    let size = c.b.abs(x)?;
    if order == f64::INFINITY {
        return Ok(c.b.reduce_with(Reducer::Max, &size, dims)?);
    }
    if order == f64::NEG_INFINITY {
        return Ok(c.b.reduce_with(Reducer::Min, &size, dims)?);
    }
    if order == 1.0 {
        return Ok(c.b.reduce_with(Reducer::Sum, &size, dims)?);
    }
    if order == 0.0 {
        let nonzero = c.b.convert(&size, DType::Bool)?;
        let ones = c.b.convert(&nonzero, size.dtype)?;
        return Ok(c.b.reduce_with(Reducer::Sum, &ones, dims)?);
    }
    let exponent = c.b.splat_like(&size, order)?;
    let powers = c.b.pow(&size, &exponent)?;
    let total = c.b.reduce_with(Reducer::Sum, &powers, dims)?;
    let inverse = c.b.splat_like(&total, 1.0 / order)?;
    Ok(c.b.pow(&total, &inverse)?)
}
