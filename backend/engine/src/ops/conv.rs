//! Convolutions of any rank, transposed or not, grouped or not, and their gradients.
//!
//! Both gradients are convolutions themselves: that of the input runs the kernel mirrored over the spread gradient,
//! that of the weight runs the gradient as a kernel over the input with batch and channels exchanged.

use tpulab_stablehlo::{ConvDims, ConvSpec, DType, Precision, Reducer, Value};

use super::matmul::bf16_split;
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    for name in ["convolution", "convolution_overrideable"] {
        r.op(name, convolution)
            .reads_precision()
            .channels_last(&["input", "weight"]);
    }
    for name in ["convolution_backward", "convolution_backward_overrideable"] {
        r.op(name, backward)
            .reads_precision()
            .channels_last(&["input", "weight"]);
    }
    r.direct(&["convolution", "convolution_backward"]);
}

struct Window {
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    output_padding: Vec<i64>,
    groups: i64,
    transposed: bool,
}

fn window(c: &Ctx<'_>, spatial: usize) -> Result<Window> {
    let list = |name: &str| -> Result<Vec<i64>> {
        let given = c.ints(name)?;
        match given.len() {
            1 => Ok(vec![given[0]; spatial]),
            n if n == spatial => Ok(given),
            n => Err(Error::runtime(format!(
                "expected {name} to be a single integer value or a list of {spatial} values, but got a list of {n}"
            ))),
        }
    };
    let window = Window {
        stride: list("stride")?,
        padding: list("padding")?,
        dilation: list("dilation")?,
        output_padding: list("output_padding")?,
        groups: c.int("groups")?,
        transposed: c.bool("transposed")?,
    };
    for (name, values, least) in [
        ("stride", &window.stride, 1),
        ("dilation", &window.dilation, 1),
        ("padding", &window.padding, 0),
    ] {
        if values.iter().any(|&v| v < least) {
            return Err(Error::runtime(format!(
                "{name} must be at least {least}, but got {values:?}"
            )));
        }
    }
    if window.groups < 1 {
        return Err(Error::runtime("non-positive groups is not supported"));
    }
    Ok(window)
}

fn check(input: &Value, weight: &Value, bias: Option<&Value>, w: &Window) -> Result<()> {
    let spatial = weight.rank().saturating_sub(2);
    if input.rank() != weight.rank() || spatial == 0 {
        return Err(Error::runtime(format!(
            "Expected {}D (unbatched) or {}D (batched) input to conv{spatial}d, but got input of size: {:?}",
            spatial + 1,
            spatial + 2,
            input.dims.as_slice()
        )));
    }
    let channels = if w.transposed {
        weight.dims[0]
    } else {
        weight.dims[1] * w.groups
    };
    if input.dims[1] != channels || weight.dims[0] % w.groups != 0 {
        return Err(Error::runtime(format!(
            "Given groups={}, weight of size {:?}, expected input{:?} to have {channels} channels, but got {} channels \
             instead",
            w.groups,
            weight.dims.as_slice(),
            input.dims.as_slice(),
            input.dims[1]
        )));
    }
    if let Some(bias) = bias {
        let outputs = if w.transposed {
            weight.dims[1] * w.groups
        } else {
            weight.dims[0]
        };
        if bias.dims.as_slice() != [outputs] {
            return Err(Error::runtime(format!(
                "Given weight of size {:?}, expected bias to be 1-dimensional with {outputs} elements, but got bias of \
                 size {:?} instead",
                weight.dims.as_slice(),
                bias.dims.as_slice()
            )));
        }
    }
    if input.dtype != weight.dtype {
        return Err(Error::runtime(format!(
            "Input type ({}) and weight type ({}) should be the same",
            input.dtype.name(),
            weight.dtype.name()
        )));
    }
    for axis in 0..spatial {
        let padded = input.dims[2 + axis] + 2 * w.padding[axis];
        let kernel = w.dilation[axis] * (weight.dims[2 + axis] - 1) + 1;
        if !w.transposed && padded < kernel {
            return Err(Error::runtime(format!(
                "Calculated padded input size per channel: ({padded}). Kernel size: ({kernel}). Kernel size can't be \
                 greater than actual input size"
            )));
        }
    }
    Ok(())
}

/// A convolution in float32 (float64 for doubles, and for integers, which it holds up to 2⁵³) at the precision asked
/// for, then back in the operands' dtype.
fn convolve(c: &mut Ctx<'_>, lhs: &Value, rhs: &Value, mut spec: ConvSpec) -> Result<Value> {
    let dtype = lhs.dtype;
    spec.out_dtype = if dtype == DType::F64 || dtype.is_int() {
        DType::F64
    } else {
        DType::F32
    };
    spec.precision = Precision::Highest;
    if !dtype.is_float() && !dtype.is_int() {
        return Err(Error::not_lowered(format!(
            "a convolution of {}",
            dtype.name()
        )));
    }
    if dtype != DType::F32 || c.precision() == Precision::Highest {
        let (a, b) = (
            c.b.convert(lhs, spec.out_dtype)?,
            c.b.convert(rhs, spec.out_dtype)?,
        );
        let wide = c.b.convolution(&a, &b, &spec)?;
        return Ok(c.b.convert(&wide, dtype)?);
    }
    let ((a, a_rest), (b, b_rest)) = (bf16_split(c, lhs)?, bf16_split(c, rhs)?);
    let run = |c: &mut Ctx<'_>, a: &Value, b: &Value| -> Result<Value> {
        let (a, b) = (c.b.convert(a, DType::F32)?, c.b.convert(b, DType::F32)?);
        Ok(c.b.convolution(&a, &b, &spec)?)
    };
    let main = run(c, &a, &b)?;
    if c.precision() == Precision::Default {
        return Ok(main);
    }
    let (left, right) = (run(c, &a, &b_rest)?, run(c, &a_rest, &b)?);
    let small = c.b.add(&left, &right)?;
    Ok(c.b.add(&main, &small)?)
}

fn spec(spatial: usize) -> ConvSpec {
    ConvSpec::new(spatial, DType::F32)
}

fn forward(c: &mut Ctx<'_>, input: &Value, weight: &Value, w: &Window) -> Result<Value> {
    let spatial = input.rank() - 2;
    let mut s = spec(spatial);
    s.strides = w.stride.clone();
    s.padding = w.padding.iter().map(|&p| (p, p)).collect();
    s.rhs_dilation = w.dilation.clone();
    s.feature_group_count = w.groups;
    convolve(c, input, weight, s)
}

/// (groups·a, b, …) as (a, groups·b, …): what a kernel run backwards needs when channels are grouped.
fn swap_channels(c: &mut Ctx<'_>, weight: &Value, groups: i64) -> Result<Value> {
    let (outer, inner) = (weight.dims[0] / groups, weight.dims[1]);
    let kernel = weight.dims[2..].to_vec();
    let split = c.b.reshape(
        weight,
        &[&[groups, outer, inner], kernel.as_slice()].concat(),
    )?;
    let mut perm: Vec<usize> = (0..split.rank()).collect();
    perm.swap(0, 1);
    let moved = c.b.transpose(&split, &perm)?;
    Ok(c.b.reshape(
        &moved,
        &[&[outer, groups * inner], kernel.as_slice()].concat(),
    )?)
}

/// The mirrored kernel over `grad` spread by the stride: gives `sizes` (the spatial sizes of what is wanted).
fn mirrored(
    c: &mut Ctx<'_>,
    grad: &Value,
    weight: &Value,
    w: &Window,
    sizes: &[i64],
) -> Result<Value> {
    let spatial = grad.rank() - 2;
    let kernel = swap_channels(c, weight, w.groups)?;
    let mut s = spec(spatial);
    s.lhs_dilation = w.stride.clone();
    s.rhs_dilation = w.dilation.clone();
    s.reversal = vec![true; spatial];
    s.feature_group_count = w.groups;
    s.dims = ConvDims {
        kernel_in: 0,
        kernel_out: 1,
        ..ConvDims::channels_first(spatial)
    };
    s.padding = (0..spatial)
        .map(|axis| {
            let reach = w.dilation[axis] * (weight.dims[2 + axis] - 1);
            let spread = (grad.dims[2 + axis] - 1) * w.stride[axis] + 1;
            let low = reach - w.padding[axis];
            (low, sizes[axis] + reach - spread - low)
        })
        .collect();
    convolve(c, grad, &kernel, s)
}

/// Gradient of the weight of a convolution from `input` to something with gradient `grad`.
fn weight_gradient(
    c: &mut Ctx<'_>,
    input: &Value,
    grad: &Value,
    weight: &Value,
    w: &Window,
) -> Result<Value> {
    let spatial = grad.rank() - 2;
    let mut s = spec(spatial);
    s.strides = w.dilation.clone();
    s.rhs_dilation = w.stride.clone();
    s.batch_group_count = w.groups;
    s.dims = ConvDims {
        input_batch: 1,
        input_feature: 0,
        kernel_in: 0,
        kernel_out: 1,
        output_batch: 1,
        output_feature: 0,
        ..ConvDims::channels_first(spatial)
    };
    s.padding = (0..spatial)
        .map(|axis| {
            let span = (grad.dims[2 + axis] - 1) * w.stride[axis] + 1;
            let reach = (weight.dims[2 + axis] - 1) * w.dilation[axis];
            (
                w.padding[axis],
                reach + span - input.dims[2 + axis] - w.padding[axis],
            )
        })
        .collect();
    convolve(c, input, grad, s)
}

fn convolution(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (input, weight) = (c.tensor("input")?, c.tensor("weight")?);
    let bias = c.opt_tensor("bias")?;
    let spatial = weight.rank().saturating_sub(2);
    let w = window(c, spatial)?;
    check(&input, &weight, bias.as_ref(), &w)?;
    let mut result = if w.transposed {
        let sizes: Vec<i64> = (0..spatial)
            .map(|axis| {
                (input.dims[2 + axis] - 1) * w.stride[axis] - 2 * w.padding[axis]
                    + w.dilation[axis] * (weight.dims[2 + axis] - 1)
                    + w.output_padding[axis]
                    + 1
            })
            .collect();
        mirrored(c, &input, &weight, &w, &sizes)?
    } else {
        forward(c, &input, &weight, &w)?
    };
    if let Some(bias) = bias {
        let spread = c.b.broadcast_in_dim(&bias, &result.dims, &[1])?;
        result = c.b.add(&result, &spread)?;
    }
    Ok(one(result))
}

/// (gradient of input, of weight, of bias), each only if the mask asks for it.
fn backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad = c.tensor("grad_output")?;
    let (input, weight) = (c.tensor("input")?, c.tensor("weight")?);
    let spatial = weight.rank().saturating_sub(2);
    let w = window(c, spatial)?;
    let mask = c.bools("output_mask")?;
    let wanted = |index: usize| mask.get(index).copied().unwrap_or(false);
    let mut grads = vec![None, None, None];
    if wanted(0) {
        grads[0] = Some(if w.transposed {
            // A wide output padding makes room for more windows than there were inputs.
            let full = forward(c, &grad, &weight, &w)?;
            let (start, step) = (vec![0; full.rank()], vec![1; full.rank()]);
            c.b.slice(&full, &start, &input.dims, &step)?
        } else {
            mirrored(c, &grad, &weight, &w, &input.dims[2..])?
        });
    }
    if wanted(1) {
        grads[1] = Some(if w.transposed {
            weight_gradient(c, &grad, &input, &weight, &w)?
        } else {
            weight_gradient(c, &input, &grad, &weight, &w)?
        });
    }
    if wanted(2) {
        let dims: Vec<usize> = (0..grad.rank()).filter(|&d| d != 1).collect();
        let wide = if grad.dtype == DType::F64 {
            DType::F64
        } else {
            DType::F32
        };
        let sum = c.b.convert(&grad, wide)?;
        let sum = c.b.reduce_with(Reducer::Sum, &sum, &dims)?;
        grads[2] = Some(c.b.convert(&sum, grad.dtype)?);
    }
    Ok(grads)
}
