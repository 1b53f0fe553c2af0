//! Ops that drop or disturb elements at random while training.

use tpulab_stablehlo::{Cmp, DType, Value};

use super::stream::{Stream, precision_of};
use super::util::acc_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("native_dropout", native_dropout)
        .like("input")
        .random();
    r.op("native_dropout_backward", native_dropout_backward)
        .pointwise();
    r.op("rrelu_with_noise", rrelu_with_noise)
        .like("self")
        .random();
}

/// (kept elements scaled up, which were kept)
fn native_dropout(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("input")?;
    let training = c.bool("train")? || !c.has("train");
    if !training || x.numel() == 0 {
        let all = c.b.splat(DType::Bool, true, &x.dims)?;
        return Ok(many([x, all]));
    }
    if !x.dtype.is_float() {
        return Err(Error::runtime(format!(
            "result type Float can't be cast to the desired output type {}",
            x.dtype.torch_name()
        )));
    }
    let p = c.number("p")?;
    let chance = p.as_f64();
    if !(0.0..=1.0).contains(&chance) {
        return Err(Error::runtime(format!(
            "dropout probability has to be between 0 and 1, but got {chance}"
        )));
    }
    let wide = acc_type(x.dtype);
    let unit = Stream::new(c).unit(c, DType::F32, 24, &x.dims)?;
    let threshold = c.number_value(&p, DType::F32)?;
    let threshold = c.b.broadcast_to(&threshold, &x.dims)?;
    let kept = c.b.ge(&unit, &threshold)?;
    let p = c.number_value(&p, wide)?;
    let one_ = c.b.splat_like(&p, 1.0)?;
    let stays = c.b.sub(&one_, &p)?;
    let scale = c.b.div(&one_, &stays)?;
    // Where everything is dropped the scale is zero, not infinite.
    let zero = c.b.splat_like(&p, 0.0)?;
    let some = c.b.compare(Cmp::Gt, &stays, &zero)?;
    let scale = c.b.select(&some, &scale, &zero)?;
    let value = scaled_mask(c, &x, &kept, &scale)?;
    Ok(many([value, kept]))
}

/// x·mask·scale, as products: an infinite element that is dropped gives NaN, as on the CPU.
fn scaled_mask(c: &mut Ctx<'_>, x: &Value, mask: &Value, scale: &Value) -> Result<Value> {
    let wide = c.b.convert(x, scale.dtype)?;
    let mask = c.b.convert(mask, scale.dtype)?;
    let scale = c.b.broadcast_to(scale, &x.dims)?;
    let kept = c.b.mul(&wide, &mask)?;
    let value = c.b.mul(&kept, &scale)?;
    Ok(c.b.convert(&value, x.dtype)?)
}

fn native_dropout_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad = c.tensor("grad_output")?;
    let mask = c.tensor("mask")?;
    let scale = c.scalar_or("scale", 1.0, acc_type(grad.dtype))?;
    Ok(one(scaled_mask(c, &grad, &mask, &scale)?))
}

/// Negative elements times a random slope, which is kept in `noise`; the mean slope outside of training.
fn rrelu_with_noise(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let (wide, digits) = precision_of(x.dtype);
    let lower = c.scalar_or("lower", 0.125, wide)?;
    let upper = c.scalar_or("upper", 1.0 / 3.0, wide)?;
    let wide_x = c.b.convert(&x, wide)?;
    let zero = c.b.splat_like(&wide_x, 0.0)?;
    let ones = c.b.splat_like(&wide_x, 1.0)?;
    let lower = c.b.broadcast_to(&lower, &x.dims)?;
    let upper = c.b.broadcast_to(&upper, &x.dims)?;
    let negative = c.b.le(&wide_x, &zero)?;
    let mut noise = None;
    let slope = if c.bool("training")? {
        let unit = Stream::new(c).unit(c, wide, digits, &x.dims)?;
        let span = c.b.sub(&upper, &lower)?;
        let way = c.b.mul(&unit, &span)?;
        let drawn = c.b.add(&lower, &way)?;
        let drawn = c.b.select(&negative, &drawn, &ones)?;
        noise = Some(c.b.convert(&drawn, x.dtype)?);
        drawn
    } else {
        let sum = c.b.add(&lower, &upper)?;
        let half = c.b.splat_like(&sum, 0.5)?;
        let mean = c.b.mul(&sum, &half)?;
        c.b.select(&negative, &mean, &ones)?
    };
    let value = c.b.mul(&wide_x, &slope)?;
    let value = c.b.convert(&value, x.dtype)?;
    // Results of the forms that write stand in the order of the written arguments.
    if c.op.schema.name.ends_with('_') {
        return Ok(vec![Some(value), noise]);
    }
    if c.op.arg("out").is_some() {
        return Ok(vec![noise, Some(value)]);
    }
    if let Some(noise) = noise {
        c.write("noise", None, noise)?;
    }
    Ok(one(value))
}
