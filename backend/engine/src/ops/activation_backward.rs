//! Gradients of activations, with torch's choices at the kinks.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::activation::{GELU_BETA, GELU_KAPPA, approximate, halves, halving, scalar};
use super::formula::{Formula, common, finish, unsupported, wide};
use crate::error::Result;
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("sigmoid_backward", |c| {
        with_grad(c, "output", |grad, y| grad * (1.0 - y) * y)
    })
    .pointwise();
    r.op("tanh_backward", |c| {
        with_grad(c, "output", |grad, y| grad * (1.0 - y * y))
    })
    .pointwise();
    r.op("threshold_backward", threshold).pointwise();
    r.op("gelu_backward", gelu).pointwise();
    r.op("silu_backward", |c| {
        with_grad(c, "self", |grad, x| {
            let gate = x.logistic();
            grad * &gate * (x * (1.0 - &gate) + 1.0)
        })
    })
    .pointwise();
    r.op("mish_backward", |c| {
        with_grad(c, "self", |grad, x| {
            let inner = x.exp().log1p().tanh();
            grad * (&inner + x * x.logistic() * (1.0 - inner.square()))
        })
    })
    .pointwise();
    r.op("elu_backward", elu).pointwise();
    r.op("leaky_relu_backward", leaky_relu).pointwise();
    r.op("hardtanh_backward", hardtanh).pointwise();
    r.op("hardsigmoid_backward", |c| {
        with_grad(c, "self", |grad, x| {
            (x.gt(-3.0) & x.lt(3.0)).choose(grad / 6.0, 0.0)
        })
    })
    .pointwise();
    r.op("hardswish_backward", |c| {
        with_grad(c, "self", |grad, x| {
            let inside = x.ge(3.0).choose(grad, grad * (x / 3.0 + 0.5));
            x.le(-3.0).choose(0.0, inside)
        })
    })
    .pointwise();
    r.op("hardshrink_backward", |c| shrink(c, "grad_out"))
        .pointwise();
    r.op("softshrink_backward", |c| shrink(c, "grad_output"))
        .pointwise();
    r.op("softplus_backward", softplus).pointwise();
    r.op("log_sigmoid_backward", log_sigmoid).pointwise();
    r.op("glu_backward", glu).like("self");
    r.op("glu_jvp", glu_jvp).like("glu");
    r.op("glu_backward_jvp", glu_backward_jvp).like("x");
    r.op("_prelu_kernel_backward", prelu).like("self");
    r.direct(&[
        "threshold_backward",
        "gelu_backward",
        "silu_backward",
        "mish_backward",
        "sigmoid_backward",
        "tanh_backward",
    ]);
}

/// A gradient and one other argument.
fn with_grad(
    c: &mut Ctx<'_>,
    name: &str,
    f: impl Fn(&Formula, &Formula) -> Formula,
) -> Result<Lowered> {
    let ([grad, x], dtype) = common(c, ["grad_output", name])?;
    if !dtype.is_float() {
        return Err(unsupported(c.base_name(), dtype));
    }
    finish(c, &f(&grad, &x), dtype)
}

/// Integers too.
fn threshold(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (grad, x, dtype) = c.binary("grad_output", "self")?;
    let limit = c.number("threshold")?;
    let limit = c.number_value(&limit, dtype)?;
    let dead = Formula::from(x).le(limit);
    finish(c, &dead.choose(0i64, grad), dtype)
}

fn gelu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let approximate = approximate(c)?;
    with_grad(c, "self", |grad, x| {
        if approximate {
            let square = x.square();
            let inner = (x + &square * x * GELU_KAPPA) * GELU_BETA;
            let tanh = inner.tanh();
            let left = (&tanh + 1.0) * 0.5;
            let slope = (square * (3.0 * GELU_KAPPA) + 1.0) * GELU_BETA;
            let right = x * 0.5 * (1.0 - tanh.square()) * slope;
            grad * (left + right)
        } else {
            let below = ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
            let density = (x.square() * -0.5).exp() * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5);
            grad * (below + x * density)
        }
    })
}

/// From the input, or from the result of an in-place call.
fn elu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([grad, x], dtype) = common(c, ["grad_output", "self_or_result"])?;
    let scale = scalar(c, "scale", 1.0, dtype)?;
    let alpha = scalar(c, "alpha", 1.0, dtype)? * &scale;
    let input_scale = scalar(c, "input_scale", 1.0, dtype)?;
    let below = if c.bool("is_result")? {
        &grad * &input_scale * (&x + alpha)
    } else {
        &grad * &input_scale * alpha * (&x * &input_scale).exp()
    };
    finish(c, &x.gt(0.0).choose(grad * scale, below), dtype)
}

fn leaky_relu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([grad, x], dtype) = common(c, ["grad_output", "self"])?;
    let slope = scalar(c, "negative_slope", 0.01, dtype)?;
    finish(c, &x.gt(0.0).choose(&grad, &grad * slope), dtype)
}

fn hardtanh(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([grad, x], dtype) = common(c, ["grad_output", "self"])?;
    let low = scalar(c, "min_val", -1.0, dtype)?;
    let high = scalar(c, "max_val", 1.0, dtype)?;
    let inside = x.gt(low) & x.lt(high);
    finish(c, &inside.choose(grad, 0.0), dtype)
}

fn shrink(c: &mut Ctx<'_>, grad: &str) -> Result<Lowered> {
    let ([grad, x], dtype) = common(c, [grad, "self"])?;
    let limit = scalar(c, "lambd", 0.5, dtype)?;
    let outside = x.lt(-&limit) | x.gt(limit);
    finish(c, &outside.choose(grad, 0.0), dtype)
}

fn softplus(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([grad, x], dtype) = common(c, ["grad_output", "self"])?;
    let beta = scalar(c, "beta", 1.0, dtype)?;
    let limit = scalar(c, "threshold", 20.0, dtype)?;
    let scaled = x * beta;
    let curve = &grad * scaled.logistic();
    finish(c, &scaled.gt(limit).choose(&grad, curve), dtype)
}

/// grad · σ(-x); the buffer of the forward pass holds exp(-|x|), which is as cheap to have again.
fn log_sigmoid(c: &mut Ctx<'_>) -> Result<Lowered> {
    with_grad(c, "self", |grad, x| grad * (-x).logistic())
}

fn joined(
    c: &mut Ctx<'_>,
    first: &Formula,
    second: &Formula,
    dim: usize,
    dtype: tpulab_stablehlo::DType,
) -> Result<Lowered> {
    let first = first.to(dtype).build(&mut c.b)?;
    let second = second.to(dtype).build(&mut c.b)?;
    Ok(one(c.b.concatenate(&[first, second], dim)?))
}

fn widened(c: &mut Ctx<'_>, name: &str) -> Result<Formula> {
    let value = c.tensor(name)?;
    Ok(Formula::from(c.b.convert(&value, wide(value.dtype))?))
}

fn glu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let (dim, half) = halving(c, &x.dims)?;
    let (a, b) = halves(c, "self", dim, half)?;
    let grad = widened(c, "grad_output")?;
    let gate = b.logistic();
    let first = &grad * &gate;
    let second = (1.0 - &gate) * &gate * grad * a;
    joined(c, &first, &second, dim, x.dtype)
}

/// The tangent of a·σ(b).
fn glu_jvp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("x")?;
    let (dim, half) = halving(c, &x.dims)?;
    let (_, b) = halves(c, "x", dim, half)?;
    let (da, db) = halves(c, "dx", dim, half)?;
    let glu = widened(c, "glu")?;
    let gate = b.logistic();
    let tangent = da * &gate + glu * (1.0 - gate) * db;
    finish(c, &tangent, x.dtype)
}

/// The tangent of (g·s, g·a·s·(1 - s)) with s = σ(b).
fn glu_backward_jvp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("x")?;
    let (dim, half) = halving(c, &x.dims)?;
    let (a, b) = halves(c, "x", dim, half)?;
    let (da, db) = halves(c, "dx", dim, half)?;
    let grad = widened(c, "grad_glu")?;
    let dgrad = widened(c, "dgrad_glu")?;
    let gate = b.logistic();
    let slope = &gate * (1.0 - &gate);
    let first = &dgrad * &gate + &grad * &slope * &db;
    let bend = &slope * (1.0 - &gate * 2.0) * db;
    let second = dgrad * &a * &slope + &grad * da * &slope + grad * a * bend;
    joined(c, &first, &second, dim, x.dtype)
}

fn prelu(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([grad, x, weight], dtype) = common(c, ["grad_output", "self", "weight"])?;
    let positive = x.gt(0.0);
    let of_x = positive.choose(&grad, weight * &grad).to(dtype);
    let of_weight = positive.choose(0.0, x * &grad).to(dtype);
    let of_x = of_x.build(&mut c.b)?;
    Ok(many([of_x, of_weight.build(&mut c.b)?]))
}
