//! Layer, group and root-mean-square normalisation.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::moments::moments;
use super::util::{acc_type, like, reduced_count, stretch};
use crate::error::{Error, Result};
use crate::lower::Ctx;
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("native_layer_norm", layer_norm);
    r.op("native_layer_norm_backward", layer_norm_backward);
    r.op("native_group_norm", group_norm)
        .channels_last(&["input"]);
    r.op("native_group_norm_backward", group_norm_backward)
        .channels_last(&["input"]);
    r.op("_fused_rms_norm", rms_norm);
    r.op("_fused_rms_norm_backward", rms_norm_backward);
    r.direct(&[
        "native_layer_norm",
        "native_group_norm",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
    ]);
}

/// float32 weights beside a narrower input keep the statistics in float32.
fn statistics_type(c: &Ctx<'_>, input: DType) -> DType {
    let mixed = ["weight", "bias"]
        .iter()
        .filter_map(|name| c.type_of(name))
        .any(|(dtype, _)| dtype == DType::F32);
    if mixed { acc_type(input) } else { input }
}

/// Checks the arguments of layer norm and gives the first normalised dimension.
fn first_normalized(c: &Ctx<'_>, x: &Value) -> Result<usize> {
    let shape = c.ints("normalized_shape")?;
    if shape.is_empty() {
        return Err(Error::runtime(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got \
             normalized_shape = []",
        ));
    }
    for name in ["weight", "bias"] {
        if let Some((_, sizes)) = c.type_of(name)
            && sizes.as_slice() != shape
        {
            return Err(Error::runtime(format!(
                "Expected {name} to be of same shape as normalized_shape, but got {name} of shape {:?} and \
                 normalized_shape = {shape:?}",
                sizes.as_slice()
            )));
        }
    }
    match x.rank().checked_sub(shape.len()) {
        Some(first) if x.dims[first..] == shape[..] => Ok(first),
        _ => {
            let wanted: Vec<String> = shape.iter().map(i64::to_string).collect();
            Err(Error::runtime(format!(
                "Given normalized_shape={shape:?}, expected input with shape [*, {}], but got input of size{:?}",
                wanted.join(", "),
                x.dims.as_slice()
            )))
        }
    }
}

/// A parameter in the dtype of the computation, stretched over `sizes` along the dims of `map`.
fn parameter(
    c: &mut Ctx<'_>,
    name: &str,
    dtype: DType,
    sizes: &[i64],
    shape: &[i64],
    map: &[usize],
) -> Result<Option<Value>> {
    let Some(value) = c.opt_tensor(name)? else {
        return Ok(None);
    };
    let value = c.b.convert(&value, dtype)?;
    let value = c.b.reshape(&value, shape)?;
    Ok(Some(c.b.broadcast_in_dim(&value, sizes, map)?))
}

/// 1 / √(x + eps)
fn inverse_root(c: &mut Ctx<'_>, x: &Value, eps: &Value) -> Result<Value> {
    let eps = c.b.broadcast_to(eps, &x.dims)?;
    let sum = c.b.add(x, &eps)?;
    Ok(c.b.rsqrt(&sum)?)
}

/// Mean and 1/deviation over `dims`, without them.
fn statistics(c: &mut Ctx<'_>, x: &Value, dims: &[usize]) -> Result<(Value, Value)> {
    let (mean, total) = moments(c, x, dims)?;
    let count = like(&mut c.b, &total, reduced_count(&x.dims, dims) as f64)?;
    let variance = c.b.div(&total, &count)?;
    let eps = c.number("eps")?;
    let eps = c.number_value(&eps, x.dtype)?;
    Ok((mean, inverse_root(c, &variance, &eps)?))
}

/// (x − mean)·rstd
fn normalized(
    c: &mut Ctx<'_>,
    x: &Value,
    mean: Option<&Value>,
    rstd: &Value,
    dims: &[usize],
) -> Result<Value> {
    let mut centred = x.clone();
    if let Some(mean) = mean {
        let mean = stretch(&mut c.b, mean, &x.dims, dims)?;
        centred = c.b.sub(x, &mean)?;
    }
    let rstd = stretch(&mut c.b, rstd, &x.dims, dims)?;
    Ok(c.b.mul(&centred, &rstd)?)
}

/// normal·weight + bias
fn affine(
    c: &mut Ctx<'_>,
    normal: Value,
    weight: Option<Value>,
    bias: Option<Value>,
) -> Result<Value> {
    let mut value = normal;
    if let Some(weight) = weight {
        value = c.b.mul(&value, &weight)?;
    }
    if let Some(bias) = bias {
        value = c.b.add(&value, &bias)?;
    }
    Ok(value)
}

/// The gradient through a normalisation over `dims`:
/// rstd·(g − mean(g) − normal·mean(g·normal)), without mean(g) if nothing was centred.
fn gradient(
    c: &mut Ctx<'_>,
    grad: &Value,
    normal: &Value,
    rstd: &Value,
    dims: &[usize],
    centred: bool,
) -> Result<Value> {
    let count = reduced_count(&grad.dims, dims) as f64;
    let mean_of = |c: &mut Ctx<'_>, value: &Value| -> Result<Value> {
        let sum = c.b.reduce_with(Reducer::Sum, value, dims)?;
        let count = like(&mut c.b, &sum, count)?;
        let mean = c.b.div(&sum, &count)?;
        stretch(&mut c.b, &mean, &value.dims, dims)
    };
    let product = c.b.mul(grad, normal)?;
    let tilt = mean_of(c, &product)?;
    let tilt = c.b.mul(normal, &tilt)?;
    let mut inner = grad.clone();
    if centred {
        let level = mean_of(c, grad)?;
        inner = c.b.sub(&inner, &level)?;
    }
    let inner = c.b.sub(&inner, &tilt)?;
    let rstd = stretch(&mut c.b, rstd, &grad.dims, dims)?;
    Ok(c.b.mul(&inner, &rstd)?)
}

/// Statistics with ones in place of the normalised dims, as torch returns them.
fn saved(c: &mut Ctx<'_>, value: &Value, x: &Value, first: usize, dtype: DType) -> Result<Value> {
    let mut sizes = x.dims.clone();
    sizes[first..].fill(1);
    let value = c.b.convert(value, dtype)?;
    Ok(c.b.reshape(&value, &sizes)?)
}

/// A saved statistic in the dtype of the computation, without the normalised dims.
fn loaded(c: &mut Ctx<'_>, name: &str, x: &Value, first: usize) -> Result<Value> {
    let value = c.tensor(name)?;
    let value = c.b.convert(&value, x.dtype)?;
    Ok(c.b.reshape(&value, &x.dims[..first])?)
}

fn layer_norm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let input = c.tensor("input")?;
    let first = first_normalized(c, &input)?;
    let dims: Vec<usize> = (first..input.rank()).collect();
    let kept = statistics_type(c, input.dtype);
    let x = c.b.convert(&input, acc_type(input.dtype))?;
    let (mean, rstd) = statistics(c, &x, &dims)?;
    let normal = normalized(c, &x, Some(&mean), &rstd, &dims)?;
    let shape = x.dims[first..].to_vec();
    let weight = parameter(c, "weight", x.dtype, &x.dims, &shape, &dims)?;
    let bias = parameter(c, "bias", x.dtype, &x.dims, &shape, &dims)?;
    let output = affine(c, normal, weight, bias)?;
    let output = c.b.convert(&output, input.dtype)?;
    let mean = saved(c, &mean, &x, first, kept)?;
    let rstd = saved(c, &rstd, &x, first, kept)?;
    Ok(vec![Some(output), Some(mean), Some(rstd)])
}

fn layer_norm_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad_out = c.tensor("grad_out")?;
    let input = c.tensor("input")?;
    let first = first_normalized(c, &input)?;
    let x = c.b.convert(&input, acc_type(input.dtype))?;
    let grad = c.b.convert(&grad_out, x.dtype)?;
    let mean = loaded(c, "mean", &x, first)?;
    let rstd = loaded(c, "rstd", &x, first)?;
    layer_gradients(c, &input, &x, &grad, first, Some(&mean), &rstd)
}

/// Gradients of input, weight and (where there is one) bias.
fn layer_gradients(
    c: &mut Ctx<'_>,
    input: &Value,
    x: &Value,
    grad: &Value,
    first: usize,
    mean: Option<&Value>,
    rstd: &Value,
) -> Result<Lowered> {
    let mask = c.bools("output_mask")?;
    let dims: Vec<usize> = (first..x.rank()).collect();
    let outer: Vec<usize> = (0..first).collect();
    let normal = normalized(c, x, mean, rstd, &dims)?;
    let shape = x.dims[first..].to_vec();
    let mut results: Lowered = vec![None; mask.len()];
    if mask.first() == Some(&true) {
        let weight = parameter(c, "weight", x.dtype, &x.dims, &shape, &dims)?;
        let scaled = affine(c, grad.clone(), weight, None)?;
        let value = gradient(c, &scaled, &normal, rstd, &dims, mean.is_some())?;
        results[0] = Some(c.b.convert(&value, input.dtype)?);
    }
    let weight_type = c.type_of("weight").map_or(input.dtype, |(dtype, _)| dtype);
    if mask.get(1) == Some(&true) {
        let product = c.b.mul(grad, &normal)?;
        let value = c.b.reduce_with(Reducer::Sum, &product, &outer)?;
        results[1] = Some(c.b.convert(&value, weight_type)?);
    }
    if mask.get(2) == Some(&true) {
        let dtype = c.type_of("bias").map_or(weight_type, |(dtype, _)| dtype);
        let value = c.b.reduce_with(Reducer::Sum, grad, &outer)?;
        results[2] = Some(c.b.convert(&value, dtype)?);
    }
    Ok(results)
}

/// x·rstd·weight with rstd = 1/√(mean(x²) + eps); eps is that of the dtype unless given.
fn rms_norm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let input = c.tensor("input")?;
    if !input.dtype.is_float() {
        return Err(Error::not_lowered(format!(
            "rms_norm of {}",
            input.dtype.name()
        )));
    }
    let first = first_normalized(c, &input)?;
    let dims: Vec<usize> = (first..input.rank()).collect();
    let x = c.b.convert(&input, acc_type(input.dtype))?;
    let squares = c.b.mul(&x, &x)?;
    let total = c.b.reduce_with(Reducer::Sum, &squares, &dims)?;
    let count = like(&mut c.b, &total, reduced_count(&x.dims, &dims) as f64)?;
    let mean = c.b.div(&total, &count)?;
    let least = match x.dtype {
        DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let eps = c.scalar_or("eps", least, x.dtype)?;
    let rstd = inverse_root(c, &mean, &eps)?;
    let normal = normalized(c, &x, None, &rstd, &dims)?;
    let shape = x.dims[first..].to_vec();
    let weight = parameter(c, "weight", x.dtype, &x.dims, &shape, &dims)?;
    let output = affine(c, normal, weight, None)?;
    let output = c.b.convert(&output, input.dtype)?;
    let rstd = saved(c, &rstd, &x, first, x.dtype)?;
    Ok(vec![Some(output), Some(rstd)])
}

fn rms_norm_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad_out = c.tensor("grad_out")?;
    let input = c.tensor("input")?;
    let first = first_normalized(c, &input)?;
    let x = c.b.convert(&input, acc_type(input.dtype))?;
    let grad = c.b.convert(&grad_out, x.dtype)?;
    let rstd = loaded(c, "rstd", &x, first)?;
    layer_gradients(c, &input, &x, &grad, first, None, &rstd)
}

/// The input of group norm as [N, groups, channels of a group, places].
fn grouped(c: &mut Ctx<'_>, value: &Value) -> Result<Value> {
    let (n, channels) = (c.int("N")?, c.int("C")?);
    let (places, groups) = (c.int("HxW")?, c.int("group")?);
    if groups <= 0 || channels % groups != 0 {
        return Err(Error::runtime(format!(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape {:?} and \
             num_groups={groups}",
            value.dims.as_slice()
        )));
    }
    Ok(c.b.reshape(value, &[n, groups, channels / groups, places])?)
}

/// Dims of a group, and those a weight per channel runs along, in the shape of [`grouped`].
const GROUP: [usize; 2] = [2, 3];
const CHANNELS: [usize; 2] = [1, 2];

fn group_norm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let input = c.tensor("input")?;
    let kept = statistics_type(c, input.dtype);
    let x = c.b.convert(&input, acc_type(input.dtype))?;
    let x = grouped(c, &x)?;
    let (mean, rstd) = statistics(c, &x, &GROUP)?;
    let normal = normalized(c, &x, Some(&mean), &rstd, &GROUP)?;
    let shape = x.dims[1..3].to_vec();
    let weight = parameter(c, "weight", x.dtype, &x.dims, &shape, &CHANNELS)?;
    let bias = parameter(c, "bias", x.dtype, &x.dims, &shape, &CHANNELS)?;
    let output = affine(c, normal, weight, bias)?;
    let output = c.b.reshape(&output, &input.dims)?;
    let output = c.b.convert(&output, input.dtype)?;
    let mean = c.b.convert(&mean, kept)?;
    let rstd = c.b.convert(&rstd, kept)?;
    Ok(vec![Some(output), Some(mean), Some(rstd)])
}

fn group_norm_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad_out = c.tensor("grad_out")?;
    let input = c.tensor("input")?;
    let mask = c.bools("output_mask")?;
    let wide = acc_type(input.dtype);
    let x = c.b.convert(&input, wide)?;
    let x = grouped(c, &x)?;
    let grad = c.b.convert(&grad_out, wide)?;
    let grad = grouped(c, &grad)?;
    let mean = loaded(c, "mean", &x, 2)?;
    let rstd = loaded(c, "rstd", &x, 2)?;
    let normal = normalized(c, &x, Some(&mean), &rstd, &GROUP)?;
    let mut results: Lowered = vec![None; 3];
    if mask.first() == Some(&true) {
        let shape = x.dims[1..3].to_vec();
        let weight = parameter(c, "weight", wide, &x.dims, &shape, &CHANNELS)?;
        let scaled = affine(c, grad.clone(), weight, None)?;
        let value = gradient(c, &scaled, &normal, &rstd, &GROUP, true)?;
        let value = c.b.reshape(&value, &input.dims)?;
        results[0] = Some(c.b.convert(&value, input.dtype)?);
    }
    let weight_type = c.type_of("weight").map_or(input.dtype, |(dtype, _)| dtype);
    let channels = x.dims[1] * x.dims[2];
    if mask.get(1) == Some(&true) {
        let product = c.b.mul(&grad, &normal)?;
        let value = c.b.reduce_with(Reducer::Sum, &product, &[0, 3])?;
        let value = c.b.reshape(&value, &[channels])?;
        results[1] = Some(c.b.convert(&value, weight_type)?);
    }
    if mask.get(2) == Some(&true) {
        let value = c.b.reduce_with(Reducer::Sum, &grad, &[0, 3])?;
        let value = c.b.reshape(&value, &[channels])?;
        results[2] = Some(c.b.convert(&value, weight_type)?);
    }
    Ok(results)
}
