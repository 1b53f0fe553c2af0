//! Activations.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use tpulab_stablehlo::{Binary, DType, Rng, Value};

use super::clamp::number_bound;
use super::formula::{Formula, common, finish, refused, unsupported, wide};
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("relu", relu).pointwise();
    r.op("threshold", threshold).pointwise();
    r.op("gelu", gelu).pointwise();
    r.op("silu", |c| float_only(c, "silu_cpu", |x| x * x.logistic()))
        .pointwise();
    r.op("mish", |c| {
        float_only(c, "mish_cpu", |x| x * x.exp().log1p().tanh())
    })
    .pointwise();
    r.op("elu", elu).pointwise();
    r.op("leaky_relu", leaky_relu).pointwise();
    r.op("hardtanh", hardtanh).pointwise();
    r.op("hardsigmoid", |c| float_only(c, "hardsigmoid_cpu", gate))
        .pointwise();
    r.op("hardswish", |c| {
        float_only(c, "hardswish_cpu", |x| x * gate(x))
    })
    .pointwise();
    r.op("hardshrink", hardshrink).pointwise();
    r.op("softshrink", softshrink).pointwise();
    r.op("softplus", softplus).pointwise();
    r.op("log_sigmoid_forward", log_sigmoid).like("self");
    r.op("glu", glu).pointwise();
    r.op("_prelu_kernel", prelu).pointwise();
    r.op("rrelu_with_noise", rrelu).like("self").random();
    r.op("_add_relu", add_relu).pointwise();
    r.direct(&["gelu", "silu"]);
}

/// The argument as a float in its wide dtype; integers have no kernel.
pub(crate) fn float_argument(
    c: &mut Ctx<'_>,
    name: &str,
    kernel: &str,
) -> Result<(Formula, DType)> {
    let x = c.tensor(name)?;
    if !x.dtype.is_float() {
        return Err(unsupported(kernel, x.dtype));
    }
    let x_wide = c.b.convert(&x, wide(x.dtype))?;
    Ok((Formula::from(x_wide), x.dtype))
}

fn float_only(c: &mut Ctx<'_>, kernel: &str, f: impl Fn(&Formula) -> Formula) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", kernel)?;
    finish(c, &f(&x), dtype)
}

/// A number argument as a formula.
pub(crate) fn scalar(c: &mut Ctx<'_>, name: &str, default: f64, dtype: DType) -> Result<Formula> {
    Ok(Formula::from(c.scalar_or(name, default, wide(dtype))?))
}

fn relu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype == DType::Bool {
        return Err(refused("Boolean inputs not supported for relu"));
    }
    finish(c, &Formula::from(&x).max(0i64), x.dtype)
}

fn add_relu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([a, b], dtype) = common(c, ["self", "other"])?;
    let alpha = scalar(c, "alpha", 1.0, dtype)?;
    finish(c, &(a + b * alpha).max(0i64), dtype)
}

/// x where it is above the threshold or NaN, else the value.
fn threshold(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dtype = x.dtype;
    let limit = c.number("threshold")?;
    let limit = c.number_value(&limit, dtype)?;
    let value = c.number("value")?;
    let value = c.number_value(&value, dtype)?;
    let x = Formula::from(x);
    finish(c, &x.le(limit).choose(value, &x), dtype)
}

/// sqrt(2 / π)
pub(crate) const GELU_BETA: f64 = SQRT_2 * FRAC_2_SQRT_PI * 0.5;
pub(crate) const GELU_KAPPA: f64 = 0.044715;

/// Whether GELU is to be approximated by tanh.
pub(crate) fn approximate(c: &Ctx<'_>) -> Result<bool> {
    match c.opt_str("approximate") {
        None | Some("none") => Ok(false),
        Some("tanh") => Ok(true),
        Some(_) => Err(Error::runtime(
            "approximate argument must be either none or tanh.",
        )),
    }
}

fn gelu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let approximate = approximate(c)?;
    float_only(c, "GeluKernelImpl", |x| {
        if approximate {
            let inner = (x + x * x * x * GELU_KAPPA) * GELU_BETA;
            x * 0.5 * (inner.tanh() + 1.0)
        } else {
            x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1.0)
        }
    })
}

fn elu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "elu_cpu")?;
    let alpha = scalar(c, "alpha", 1.0, dtype)?;
    let scale = scalar(c, "scale", 1.0, dtype)?;
    let input_scale = scalar(c, "input_scale", 1.0, dtype)?;
    let below = (&x * input_scale).expm1() * (alpha * &scale);
    finish(c, &x.le(0.0).choose(below, &x * scale), dtype)
}

fn leaky_relu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "leaky_relu_cpu")?;
    let slope = scalar(c, "negative_slope", 0.01, dtype)?;
    finish(c, &x.gt(0.0).choose(&x, &x * slope), dtype)
}

fn hardtanh(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dtype = x.dtype;
    if dtype == DType::Bool {
        return Err(refused("Bool inputs not supported for hardtanh"));
    }
    let mut result = Formula::from(x);
    for (name, default, least) in [("min_val", -1.0, true), ("max_val", 1.0, false)] {
        let number = c.opt_number(name)?.unwrap_or(Number::float(default));
        if let Some(bound) = number_bound(c, &number, least, dtype)? {
            result = if least {
                result.max(bound)
            } else {
                result.min(bound)
            };
        }
    }
    finish(c, &result, dtype)
}

/// The piecewise linear sigmoid.
fn gate(x: &Formula) -> Formula {
    (x + 3.0).max(0.0).min(6.0) / 6.0
}

fn hardshrink(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "hardshrink_cpu")?;
    let limit = scalar(c, "lambd", 0.5, dtype)?;
    let inside = x.ge(-&limit) & x.le(&limit);
    finish(c, &inside.choose(0.0, &x), dtype)
}

/// Towards zero by lambd; NaN stays.
fn softshrink(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "softshrink_cpu")?;
    let limit = scalar(c, "lambd", 0.5, dtype)?;
    let inside = x.lt(-&limit).choose(&x + &limit, &x * 0.0);
    finish(c, &x.gt(&limit).choose(&x - &limit, inside), dtype)
}

/// log(1 + exp(βx)) / β, linear above the threshold.
fn softplus(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "softplus_cpu")?;
    let beta = scalar(c, "beta", 1.0, dtype)?;
    let limit = scalar(c, "threshold", 20.0, dtype)?;
    let scaled = &x * &beta;
    let curve = scaled.exp().log1p() / beta;
    finish(c, &scaled.gt(limit).choose(&x, curve), dtype)
}

/// min(x, 0) - log(1 + exp(-|x|)), and the exponential for the gradient.
fn log_sigmoid(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "log_sigmoid_cpu")?;
    let buffer = (-x.abs()).exp();
    let output = x.min(0.0) - buffer.log1p();
    let output = output.to(dtype).build(&mut c.b)?;
    Ok(many([output, buffer.to(dtype).build(&mut c.b)?]))
}

/// The dim of GLU ops, and the size of a half.
pub(crate) fn halving(c: &Ctx<'_>, dims: &[i64]) -> Result<(usize, i64)> {
    let rank = dims.len() as i64;
    if rank == 0 {
        return Err(Error::runtime("glu does not support 0-dimensional tensors"));
    }
    let given = c.opt_int("dim")?.unwrap_or(-1);
    if given < -rank || given >= rank {
        return Err(Error::index(format!(
            "Dimension out of range (expected to be in range of [{}, {}], but got {given})",
            -rank,
            rank - 1
        )));
    }
    let dim = given.rem_euclid(rank) as usize;
    if dims[dim] % 2 != 0 {
        return Err(Error::runtime(format!(
            "Halving dimension must be even, but dimension {dim} is size {}",
            dims[dim]
        )));
    }
    Ok((dim, dims[dim] / 2))
}

/// The first and the second half along a dim, widened.
pub(crate) fn halves(
    c: &mut Ctx<'_>,
    name: &str,
    dim: usize,
    half: i64,
) -> Result<(Formula, Formula)> {
    let x = c.tensor(name)?;
    let x = c.b.convert(&x, wide(x.dtype))?;
    let first = c.b.slice_dim(&x, dim, 0, half, 1)?;
    let second = c.b.slice_dim(&x, dim, half, 2 * half, 1)?;
    Ok((Formula::from(first), Formula::from(second)))
}

fn glu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if !x.dtype.is_float() {
        return Err(unsupported("glu_cpu", x.dtype));
    }
    let (dim, half) = halving(c, &x.dims)?;
    let (a, b) = halves(c, "self", dim, half)?;
    finish(c, &(a * b.logistic()), x.dtype)
}

fn prelu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([x, weight], dtype) = common(c, ["self", "weight"])?;
    finish(c, &x.gt(0.0).choose(&x, weight * &x), dtype)
}

/// A slope drawn for each negative element while training, else the mean slope.
fn rrelu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "rrelu_with_noise_out_cpu")?;
    let lower = scalar(c, "lower", 0.125, dtype)?;
    let upper = scalar(c, "upper", 1.0 / 3.0, dtype)?;
    if !c.bool("training")? {
        let slope = (lower + upper) * 0.5;
        let value = x.gt(0.0).choose(&x, &x * slope).to(dtype).build(&mut c.b)?;
        return Ok(beside_noise(c, value, None));
    }
    let dims = c.type_of("self").map(|(_, dims)| dims).unwrap_or_default();
    let state = c.rng_state();
    let (_, bits) = c.b.rng_bits(&state, DType::U32, &dims, Rng::Philox)?;
    let bits = Formula::from(bits).binary(Binary::ShiftRightLogical, 8i64);
    let uniform = bits.to(wide(dtype)) * 2f64.powi(-24);
    let slope = &lower + uniform * (upper - &lower);
    let noise = x.le(0.0).choose(slope, 1.0).to(dtype);
    let value = (&x * noise.to(wide(dtype))).to(dtype).build(&mut c.b)?;
    let noise = noise.build(&mut c.b)?;
    if c.written_places().len() < 2 {
        c.write("noise", None, noise)?;
        return Ok(one(value));
    }
    Ok(beside_noise(c, value, Some(noise)))
}

/// Results in the order of the arguments they go to: `noise` is written too.
fn beside_noise(c: &Ctx<'_>, value: Value, noise: Option<Value>) -> Lowered {
    if c.written_places().len() < 2 {
        one(value)
    } else if c.overload() == "out" {
        vec![noise, Some(value)]
    } else {
        vec![Some(value), noise]
    }
}
