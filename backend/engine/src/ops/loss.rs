//! Losses of two tensors element by element, with their gradients.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::util::{acc_type, like, number_like, unimplemented};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("mse_loss", mse).pointwise();
    r.op("mse_loss_backward", mse_backward).pointwise();
    r.op("smooth_l1_loss", smooth_l1).pointwise();
    r.op("smooth_l1_loss_backward", smooth_l1_backward)
        .pointwise();
    r.op("huber_loss", huber).pointwise();
    r.op("huber_loss_backward", huber_backward).pointwise();
    r.op("binary_cross_entropy", bce).pointwise();
    r.op("binary_cross_entropy_backward", bce_backward)
        .pointwise();
    r.op("binary_cross_entropy_with_logits", bce_with_logits)
        .pointwise();
    r.op("soft_margin_loss", soft_margin).pointwise();
    r.direct(&[
        "mse_loss",
        "smooth_l1_loss",
        "smooth_l1_loss_backward",
        "huber_loss_backward",
        "binary_cross_entropy_with_logits",
        "soft_margin_loss",
    ]);
}

/// What becomes of the losses of all elements (torch's codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    None,
    Mean,
    Sum,
}

impl Reduction {
    pub(crate) fn of(c: &Ctx<'_>) -> Result<Self> {
        match c.opt_int("reduction")?.unwrap_or(1) {
            0 => Ok(Self::None),
            1 => Ok(Self::Mean),
            2 => Ok(Self::Sum),
            other => Err(Error::value(format!(
                "{other} is not a valid value for reduction"
            ))),
        }
    }

    /// The loss from the losses of all elements.
    pub(crate) fn apply(self, c: &mut Ctx<'_>, losses: &Value) -> Result<Value> {
        if self == Self::None {
            return Ok(losses.clone());
        }
        let dims: Vec<usize> = (0..losses.rank()).collect();
        let sum = c.b.reduce_with(Reducer::Sum, losses, &dims)?;
        if self == Self::Sum {
            return Ok(sum);
        }
        let count = like(&mut c.b, &sum, losses.numel() as f64)?;
        Ok(c.b.div(&sum, &count)?)
    }

    /// What the gradient of each of `count` losses is multiplied by.
    pub(crate) fn weight(self, count: i64) -> f64 {
        if self == Self::Mean {
            1.0 / count as f64
        } else {
            1.0
        }
    }
}

/// Input and target, promoted and broadcast, in the dtype they are computed in; and their own.
fn pair(c: &mut Ctx<'_>, kernel: &str) -> Result<(Value, Value, DType)> {
    let (input, target, dtype) = c.binary("self", "target")?;
    if !dtype.is_float() {
        return Err(unimplemented(kernel, dtype));
    }
    let wide = acc_type(dtype);
    let (input, target) = (c.b.convert(&input, wide)?, c.b.convert(&target, wide)?);
    Ok((input, target, dtype))
}

/// Gradient, input and target, promoted and broadcast; the result's dtype; the weight of each loss.
fn triple(c: &mut Ctx<'_>) -> Result<(Value, Value, Value, DType, f64)> {
    let operands = [
        c.operand("grad_output")?,
        c.operand("self")?,
        c.operand("target")?,
    ];
    let all: Vec<_> = operands.iter().collect();
    let dtype = c.result_type(&all);
    let count = operands[1].dims().iter().product();
    let weight = Reduction::of(c)?.weight(count);
    let mut values = c.aligned(&all, acc_type(dtype))?.into_iter();
    match (values.next(), values.next(), values.next()) {
        (Some(grad), Some(input), Some(target)) => Ok((grad, input, target, dtype, weight)),
        _ => Err(Error::runtime("three operands were expected")),
    }
}

fn finish(c: &mut Ctx<'_>, losses: &Value, dtype: DType) -> Result<Lowered> {
    let loss = Reduction::of(c)?.apply(c, losses)?;
    Ok(one(c.b.convert(&loss, dtype)?))
}

/// x·number
fn scaled(c: &mut Ctx<'_>, x: &Value, number: f64) -> Result<Value> {
    let factor = like(&mut c.b, x, number)?;
    Ok(c.b.mul(x, &factor)?)
}

fn mse(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (input, target, dtype) = pair(c, "mse_cpu")?;
    let difference = c.b.sub(&input, &target)?;
    let losses = c.b.mul(&difference, &difference)?;
    finish(c, &losses, dtype)
}

fn mse_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (grad, input, target, dtype, weight) = triple(c)?;
    let difference = c.b.sub(&input, &target)?;
    let slope = scaled(c, &difference, 2.0 * weight)?;
    let value = c.b.mul(&slope, &grad)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// Quadratic within `edge` of the target, linear beyond: (|d|, d², edge, |d| < edge).
fn huber_parts(c: &mut Ctx<'_>, kernel: &str, edge: &str) -> Result<(Value, Value, Value, DType)> {
    let (input, target, dtype) = pair(c, kernel)?;
    let difference = c.b.sub(&input, &target)?;
    let size = c.b.abs(&difference)?;
    let edge = number_like(c, edge, 1.0, &size)?;
    let square = c.b.mul(&size, &size)?;
    let half_square = scaled(c, &square, 0.5)?;
    Ok((size, half_square, edge, dtype))
}

fn smooth_l1(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (size, half_square, beta, dtype) = huber_parts(c, "smooth_l1_cpu", "beta")?;
    let inner = c.b.div(&half_square, &beta)?;
    let half = scaled(c, &beta, 0.5)?;
    let outer = c.b.sub(&size, &half)?;
    let within = c.b.lt(&size, &beta)?;
    let losses = c.b.select(&within, &inner, &outer)?;
    finish(c, &losses, dtype)
}

fn huber(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (size, half_square, delta, dtype) = huber_parts(c, "huber_cpu", "delta")?;
    let half = scaled(c, &delta, 0.5)?;
    let outer = c.b.sub(&size, &half)?;
    let outer = c.b.mul(&delta, &outer)?;
    let within = c.b.le(&size, &delta)?;
    let losses = c.b.select(&within, &half_square, &outer)?;
    finish(c, &losses, dtype)
}

/// The slope within the edge is `inner(d)`, beyond it ±`outer`.
fn huber_slope(
    c: &mut Ctx<'_>,
    difference: &Value,
    edge: &Value,
    inner: &Value,
    outer: &Value,
) -> Result<Value> {
    let down = c.b.neg(outer)?;
    let low = c.b.neg(edge)?;
    let above = c.b.ge(difference, edge)?;
    let below = c.b.le(difference, &low)?;
    let slope = c.b.select(&above, outer, inner)?;
    Ok(c.b.select(&below, &down, &slope)?)
}

fn smooth_l1_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (grad, input, target, dtype, weight) = triple(c)?;
    let difference = c.b.sub(&input, &target)?;
    let beta = number_like(c, "beta", 1.0, &difference)?;
    let inner = c.b.div(&difference, &beta)?;
    let unit = like(&mut c.b, &difference, 1.0)?;
    let slope = huber_slope(c, &difference, &beta, &inner, &unit)?;
    let slope = scaled(c, &slope, weight)?;
    let value = c.b.mul(&slope, &grad)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

fn huber_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (grad, input, target, dtype, weight) = triple(c)?;
    let difference = c.b.sub(&input, &target)?;
    let delta = number_like(c, "delta", 1.0, &difference)?;
    let slope = huber_slope(c, &difference, &delta, &difference, &delta)?;
    let slope = scaled(c, &slope, weight)?;
    let value = c.b.mul(&slope, &grad)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// An optional weight, converted and broadcast to `x`.
fn weight_like(c: &mut Ctx<'_>, name: &str, x: &Value) -> Result<Option<Value>> {
    match c.opt_tensor(name)? {
        Some(weight) => {
            let weight = c.b.convert(&weight, x.dtype)?;
            Ok(Some(c.b.broadcast_to(&weight, &x.dims)?))
        }
        None => Ok(None),
    }
}

/// −(t·log x + (1 − t)·log(1 − x)), each logarithm at least −100.
fn bce(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, target, dtype) = pair(c, "binary_cross_entropy")?;
    let floor = like(&mut c.b, &x, -100.0)?;
    let one_value = like(&mut c.b, &x, 1.0)?;
    let log = c.b.log(&x)?;
    let log = c.b.max(&log, &floor)?;
    let minus = c.b.neg(&x)?;
    let log_rest = c.b.log1p(&minus)?;
    let log_rest = c.b.max(&log_rest, &floor)?;
    let rest = c.b.sub(&target, &one_value)?;
    let negative = c.b.mul(&rest, &log_rest)?;
    let positive = c.b.mul(&target, &log)?;
    let mut losses = c.b.sub(&negative, &positive)?;
    if let Some(weight) = weight_like(c, "weight", &losses)? {
        losses = c.b.mul(&losses, &weight)?;
    }
    finish(c, &losses, dtype)
}

fn bce_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (grad, x, target, dtype, weight) = triple(c)?;
    let least = like(&mut c.b, &x, 1e-12)?;
    let one_value = like(&mut c.b, &x, 1.0)?;
    let rest = c.b.sub(&one_value, &x)?;
    let spread = c.b.mul(&rest, &x)?;
    let spread = c.b.max(&spread, &least)?;
    let difference = c.b.sub(&x, &target)?;
    let value = c.b.mul(&grad, &difference)?;
    let mut value = c.b.div(&value, &spread)?;
    if let Some(factor) = weight_like(c, "weight", &value)? {
        value = c.b.mul(&value, &factor)?;
    }
    let value = scaled(c, &value, weight)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// (1 − t)·x + (1 + (pos_weight − 1)·t)·(log1p(exp(−|x|)) + max(−x, 0))
fn bce_with_logits(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, target, dtype) = pair(c, "binary_cross_entropy_with_logits")?;
    let zero = like(&mut c.b, &x, 0.0)?;
    let unit = like(&mut c.b, &x, 1.0)?;
    let minus = c.b.neg(&x)?;
    let size = c.b.abs(&x)?;
    let down = c.b.neg(&size)?;
    let power = c.b.exp(&down)?;
    let soft = c.b.log1p(&power)?;
    let hard = c.b.max(&minus, &zero)?;
    let mut penalty = c.b.add(&soft, &hard)?;
    if let Some(positive) = weight_like(c, "pos_weight", &x)? {
        let extra = c.b.sub(&positive, &unit)?;
        let extra = c.b.mul(&extra, &target)?;
        let factor = c.b.add(&extra, &unit)?;
        penalty = c.b.mul(&penalty, &factor)?;
    }
    let rest = c.b.sub(&unit, &target)?;
    let linear = c.b.mul(&rest, &x)?;
    let mut losses = c.b.add(&linear, &penalty)?;
    if let Some(weight) = weight_like(c, "weight", &losses)? {
        losses = c.b.mul(&losses, &weight)?;
    }
    finish(c, &losses, dtype)
}

/// log(1 + exp(−x·t))
fn soft_margin(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, target, dtype) = pair(c, "soft_margin_loss")?;
    let minus = c.b.neg(&x)?;
    let product = c.b.mul(&minus, &target)?;
    let power = c.b.exp(&product)?;
    let losses = c.b.log1p(&power)?;
    finish(c, &losses, dtype)
}
