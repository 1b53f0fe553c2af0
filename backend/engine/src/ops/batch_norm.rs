//! Batch normalisation: statistics per channel over the batch and all places.

use tpulab_stablehlo::{DType, Dims, Reducer, Value};

use super::moments::moments;
use super::util::{acc_type, along, like, reduced_count};
use crate::error::{Error, Result};
use crate::lower::Ctx;
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    const LAYOUT: &[&str] = &["input"];
    r.op("native_batch_norm", |c| {
        let training = c.bool("training")?;
        batch_norm(c, training)
    })
    .channels_last(LAYOUT);
    r.op("_native_batch_norm_legit", |c| {
        let training = c.bool("training")?;
        batch_norm(c, training)
    })
    .channels_last(LAYOUT);
    r.op("_native_batch_norm_legit_no_training", |c| {
        batch_norm(c, false)
    })
    .channels_last(LAYOUT);
    r.op("_batch_norm_with_update", |c| with_reserve(c, true))
        .channels_last(LAYOUT);
    r.op("_batch_norm_no_update", |c| with_reserve(c, false))
        .channels_last(LAYOUT);
    r.op("native_batch_norm_backward", |c| {
        let train = c.bool("train")?;
        backward(c, train, "save_invstd")
    })
    .channels_last(LAYOUT);
    r.op("batch_norm_backward", |c| {
        let update = c.bool("update")?;
        backward(c, update, "save_var")
    })
    .channels_last(LAYOUT);
    r.direct(&[
        "_native_batch_norm_legit_no_training",
        "_batch_norm_no_update",
    ]);
}

/// All dims but the channels'.
fn places(x: &Value) -> Result<Vec<usize>> {
    if x.rank() < 2 {
        return Err(Error::runtime(format!(
            "expected at least 2D input for batch norm (got {}D input)",
            x.rank()
        )));
    }
    Ok((0..x.rank()).filter(|&dim| dim != 1).collect())
}

/// float32 parameters beside a narrower input keep their statistics in float32.
fn statistics_type(c: &Ctx<'_>, input: DType, parameters: &[&str]) -> DType {
    let mixed = parameters
        .iter()
        .filter_map(|name| c.type_of(name))
        .any(|(dtype, _)| dtype == DType::F32);
    if mixed { acc_type(input) } else { input }
}

const PARAMETERS: [&str; 4] = ["weight", "bias", "running_mean", "running_var"];

/// 1 / √(variance + eps); a variance and eps of zero give zero.
fn inverse_deviation(c: &mut Ctx<'_>, variance: &Value) -> Result<Value> {
    let eps = c.number("eps")?;
    let eps = c.number_value(&eps, variance.dtype)?;
    let eps = c.b.broadcast_to(&eps, &variance.dims)?;
    let sum = c.b.add(variance, &eps)?;
    let root = c.b.sqrt(&sum)?;
    let one = like(&mut c.b, &root, 1.0)?;
    let inverse = c.b.div(&one, &root)?;
    let zero = like(&mut c.b, &root, 0.0)?;
    let none = c.b.eq(&sum, &zero)?;
    Ok(c.b.select(&none, &zero, &inverse)?)
}

/// An optional parameter of the op in the dtype of the computation.
fn parameter(c: &mut Ctx<'_>, name: &str, dtype: DType) -> Result<Option<Value>> {
    match c.opt_tensor(name)? {
        Some(value) => Ok(Some(c.b.convert(&value, dtype)?)),
        None => Ok(None),
    }
}

fn running_statistic(c: &mut Ctx<'_>, name: &str, dtype: DType) -> Result<Value> {
    parameter(c, name, dtype)?
        .ok_or_else(|| Error::value(format!("{name} must be defined in evaluation mode")))
}

/// running ← (1 − momentum)·running + momentum·new
fn update(c: &mut Ctx<'_>, name: &str, new: &Value) -> Result<()> {
    let Some((dtype, _)) = c.type_of(name) else {
        return Ok(());
    };
    let running = running_statistic(c, name, new.dtype)?;
    let momentum = c.number("momentum")?;
    let momentum = c.number_value(&momentum, new.dtype)?;
    let momentum = c.b.broadcast_to(&momentum, &new.dims)?;
    let one = like(&mut c.b, new, 1.0)?;
    let rest = c.b.sub(&one, &momentum)?;
    let kept = c.b.mul(&running, &rest)?;
    let added = c.b.mul(new, &momentum)?;
    let value = c.b.add(&kept, &added)?;
    let value = c.b.convert(&value, dtype)?;
    c.write(name, None, value)
}

/// (output, save_mean, save_invstd). In evaluation the saved statistics are empty.
fn batch_norm(c: &mut Ctx<'_>, training: bool) -> Result<Lowered> {
    let input = c.tensor("input")?;
    let dims = places(&input)?;
    let saved_type = statistics_type(c, input.dtype, &PARAMETERS);
    let x = c.b.convert(&input, acc_type(input.dtype))?;
    let (mean, inverse) = if training {
        let (mean, total) = moments(c, &x, &dims)?;
        let count = reduced_count(&x.dims, &dims) as f64;
        let n = like(&mut c.b, &total, count)?;
        let variance = c.b.div(&total, &n)?;
        update(c, "running_mean", &mean)?;
        let freedom = like(&mut c.b, &total, count - 1.0)?;
        let unbiased = c.b.div(&total, &freedom)?;
        update(c, "running_var", &unbiased)?;
        (mean, inverse_deviation(c, &variance)?)
    } else {
        let mean = running_statistic(c, "running_mean", x.dtype)?;
        let variance = running_statistic(c, "running_var", x.dtype)?;
        (mean, inverse_deviation(c, &variance)?)
    };
    // x·scale + shift, with everything that is per channel folded into the two.
    let scale = match parameter(c, "weight", x.dtype)? {
        Some(weight) => c.b.mul(&inverse, &weight)?,
        None => inverse.clone(),
    };
    let around = along(&mut c.b, &mean, &x.dims, 1)?;
    let scales = along(&mut c.b, &scale, &x.dims, 1)?;
    let centred = c.b.sub(&x, &around)?;
    let mut output = c.b.mul(&centred, &scales)?;
    if let Some(bias) = parameter(c, "bias", x.dtype)? {
        let bias = along(&mut c.b, &bias, &x.dims, 1)?;
        output = c.b.add(&output, &bias)?;
    }
    let output = c.b.convert(&output, input.dtype)?;
    let (mean, inverse) = if training {
        (
            c.b.convert(&mean, saved_type)?,
            c.b.convert(&inverse, saved_type)?,
        )
    } else {
        let empty = c.b.splat(saved_type, 0, &[0])?;
        (empty.clone(), empty)
    };
    Ok(vec![Some(output), Some(mean), Some(inverse)])
}

/// The form with a fourth result, space that some backends need.
fn with_reserve(c: &mut Ctx<'_>, training: bool) -> Result<Lowered> {
    let mut results = batch_norm(c, training)?;
    results.push(Some(c.b.splat(DType::U8, 0, &[0])?));
    Ok(results)
}

/// Gradients of input, weight and bias, as far as `output_mask` asks for them.
fn backward(c: &mut Ctx<'_>, train: bool, saved_inverse: &str) -> Result<Lowered> {
    let grad_out = c.tensor("grad_out")?;
    let input = c.tensor("input")?;
    let mask = c.bools("output_mask")?;
    let wanted = |index: usize| mask.get(index).copied().unwrap_or(false);
    let dims = places(&input)?;
    let wide = acc_type(input.dtype);
    let (grad, x) = (c.b.convert(&grad_out, wide)?, c.b.convert(&input, wide)?);
    let statistics = ["weight", "running_mean", "running_var", "save_mean"];
    let saved_type = statistics_type(c, input.dtype, &statistics);
    let weight_type = c.type_of("weight").map_or(saved_type, |(dtype, _)| dtype);
    let (mean, inverse) = if train {
        let absent = || Error::runtime("batch norm needs its saved statistics in training");
        let mean = parameter(c, "save_mean", wide)?.ok_or_else(absent)?;
        let inverse = parameter(c, saved_inverse, wide)?.ok_or_else(absent)?;
        (mean, inverse)
    } else {
        let mean = running_statistic(c, "running_mean", wide)?;
        let variance = running_statistic(c, "running_var", wide)?;
        (mean, inverse_deviation(c, &variance)?)
    };
    let sizes: Dims = x.dims.clone();
    let around = along(&mut c.b, &mean, &sizes, 1)?;
    let centred = c.b.sub(&x, &around)?;
    let product = c.b.mul(&centred, &grad)?;
    let dot = c.b.reduce_with(Reducer::Sum, &product, &dims)?;
    let total = c.b.reduce_with(Reducer::Sum, &grad, &dims)?;
    let scale = match parameter(c, "weight", wide)? {
        Some(weight) => c.b.mul(&inverse, &weight)?,
        None => inverse.clone(),
    };
    let mut results: Lowered = vec![None, None, None];
    if wanted(0) {
        let scales = along(&mut c.b, &scale, &sizes, 1)?;
        let mut inner = grad;
        if train {
            // g − Σg/n − (x − mean)·invstd²·Σ(g·(x − mean))/n
            let n = like(&mut c.b, &total, reduced_count(&sizes, &dims) as f64)?;
            let grad_mean = c.b.div(&total, &n)?;
            let slope = c.b.mul(&dot, &inverse)?;
            let slope = c.b.mul(&slope, &inverse)?;
            let slope = c.b.div(&slope, &n)?;
            let slope = along(&mut c.b, &slope, &sizes, 1)?;
            let tilt = c.b.mul(&centred, &slope)?;
            let grad_mean = along(&mut c.b, &grad_mean, &sizes, 1)?;
            inner = c.b.sub(&inner, &tilt)?;
            inner = c.b.sub(&inner, &grad_mean)?;
        }
        let value = c.b.mul(&inner, &scales)?;
        results[0] = Some(c.b.convert(&value, input.dtype)?);
    }
    if wanted(1) {
        let value = c.b.mul(&dot, &inverse)?;
        results[1] = Some(c.b.convert(&value, weight_type)?);
    }
    if wanted(2) {
        results[2] = Some(c.b.convert(&total, weight_type)?);
    }
    Ok(results)
}
