//! Average pooling, adaptive or not, and its gradients: sums over windows, one axis after the other.

use tpulab_stablehlo::{DType, Dims, Reducer, Value};

use super::axis::{Spread, along, keep_along, pad_axis, pick, spread};
use super::pool_window::{Spans, Window, output_size, regular, windows};
use super::util::acc_type as wide;
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("avg_pool2d", |c| avg_pool(c, 2));
    r.op("avg_pool2d_backward", |c| avg_pool_backward(c, 2));
    r.op("avg_pool3d", |c| avg_pool(c, 3));
    r.op("avg_pool3d_backward", |c| avg_pool_backward(c, 3));
    for name in ["_adaptive_avg_pool2d", "adaptive_avg_pool2d"] {
        r.op(name, |c| adaptive(c, 2)).channels_last(&["self"]);
    }
    for name in ["_adaptive_avg_pool3d", "adaptive_avg_pool3d"] {
        r.op(name, |c| adaptive(c, 3)).channels_last(&["self"]);
    }
    r.op("_adaptive_avg_pool2d_backward", |c| adaptive_backward(c, 2))
        .channels_last(&["self"]);
    for name in [
        "_adaptive_avg_pool3d_backward",
        "adaptive_avg_pool3d_backward",
    ] {
        r.op(name, |c| adaptive_backward(c, 3))
            .channels_last(&["self"]);
    }
}

fn add_up(c: &mut Ctx<'_>, terms: impl IntoIterator<Item = Value>) -> Result<Value> {
    let mut terms = terms.into_iter();
    let mut sum = terms
        .next()
        .ok_or_else(|| Error::runtime("a window without elements"))?;
    for term in terms {
        sum = c.b.add(&sum, &term)?;
    }
    Ok(sum)
}

/// Sums over regular windows of one axis.
fn window_sums(c: &mut Ctx<'_>, x: &Value, axis: usize, w: &Window) -> Result<Value> {
    let zero = c.b.scalar(x.dtype, 0i64)?;
    let padded = pad_axis(c, x, axis, &zero, w.pads())?;
    if w.output == 1 {
        let only = c.b.slice_dim(&padded, axis, 0, w.kernel, 1)?;
        let sum = c.b.reduce_with(Reducer::Sum, &only, &[axis])?;
        let mut dims = x.dims.clone();
        dims[axis] = 1;
        return Ok(c.b.reshape(&sum, &dims)?);
    }
    let mut terms = Vec::new();
    for i in 0..w.kernel {
        let last = i + (w.output - 1) * w.stride;
        terms.push(c.b.slice_dim(&padded, axis, i, last + 1, w.stride)?);
    }
    add_up(c, terms)
}

/// The adjoint: each place gets the sum over the windows that lie on it.
fn windows_over(c: &mut Ctx<'_>, grad: &Value, axis: usize, w: &Window) -> Result<Value> {
    let zero = c.b.scalar(grad.dtype, 0i64)?;
    let mut terms = Vec::new();
    for back in 0..w.overlap() {
        let at = Spread {
            times: w.stride,
            shift: w.padding,
            size: w.input,
            back,
        };
        let value = spread(c, grad, axis, &zero, &at)?;
        let inside: Vec<bool> = (0..w.input)
            .map(|place| (place + w.padding) % w.stride + back * w.stride < w.kernel)
            .collect();
        terms.push(keep_along(c, &value, axis, &inside)?);
    }
    add_up(c, terms)
}

/// Sums over windows of any places.
fn span_sums(c: &mut Ctx<'_>, x: &Value, axis: usize, spans: &Spans) -> Result<Value> {
    let mut terms = Vec::new();
    for offset in 0..spans.longest() {
        let value = pick(c, x, axis, &spans.places(offset))?;
        terms.push(keep_along(c, &value, axis, &spans.inside(offset))?);
    }
    add_up(c, terms)
}

/// How many elements each window of an axis counts.
fn counts(w: &Window, padding_counts: bool) -> Vec<i64> {
    (0..w.output)
        .map(|q| {
            let start = w.start(q);
            let end = (start + w.kernel).min(w.input + w.padding);
            if padding_counts {
                end - start
            } else {
                end.min(w.input) - start.max(0)
            }
        })
        .collect()
}

/// What each window's sum is divided by, over the last axes of `dims`.
fn divisor(c: &mut Ctx<'_>, dtype: DType, dims: &[i64], counts: &[Vec<i64>]) -> Result<Value> {
    let first = dims.len() - counts.len();
    let mut divisor: Option<Value> = None;
    for (axis, counts) in counts.iter().enumerate() {
        let own = along(c, dtype, counts, dims, first + axis)?;
        divisor = Some(match divisor {
            Some(product) => c.b.mul(&product, &own)?,
            None => own,
        });
    }
    divisor.ok_or_else(|| Error::runtime("a pooling over no axis"))
}

fn avg_divisor(c: &mut Ctx<'_>, dtype: DType, dims: &[i64], ws: &[Window]) -> Result<Value> {
    if let Some(fixed) = c.opt_int("divisor_override")? {
        if fixed == 0 {
            return Err(Error::runtime("divisor must be not zero"));
        }
        return Ok(c.b.splat(dtype, fixed, dims)?);
    }
    let padding_counts = c.bool("count_include_pad")?;
    let counts: Vec<Vec<i64>> = ws.iter().map(|w| counts(w, padding_counts)).collect();
    divisor(c, dtype, dims, &counts)
}

fn avg_pool(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let ws = windows(c, &x.dims, n)?;
    let first = x.rank() - n;
    let mut sum = c.b.convert(&x, wide(x.dtype))?;
    for (axis, w) in ws.iter().enumerate().rev() {
        sum = window_sums(c, &sum, first + axis, w)?;
    }
    let divisor = avg_divisor(c, sum.dtype, &sum.dims.clone(), &ws)?;
    let mean = c.b.div(&sum, &divisor)?;
    Ok(one(c.b.convert(&mean, x.dtype)?))
}

fn self_sizes(c: &Ctx<'_>) -> Result<Dims> {
    let (_, sizes) = c
        .type_of("self")
        .ok_or_else(|| Error::runtime("argument 'self' must be a tensor"))?;
    Ok(sizes)
}

fn avg_pool_backward(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let sizes = self_sizes(c)?;
    let ws = windows(c, &sizes, n)?;
    let grad = c.tensor("grad_output")?;
    let dtype = grad.dtype;
    let grad = c.b.convert(&grad, wide(dtype))?;
    let divisor = avg_divisor(c, grad.dtype, &grad.dims.clone(), &ws)?;
    let mut value = c.b.div(&grad, &divisor)?;
    for (axis, w) in ws.iter().enumerate() {
        value = windows_over(c, &value, sizes.len() - n + axis, w)?;
    }
    Ok(one(c.b.convert(&value, dtype)?))
}

fn lengths(input: i64, output: i64) -> Vec<i64> {
    let spans = Spans::adaptive(input, output);
    let ends = spans.start.iter().zip(&spans.end);
    ends.map(|(start, end)| end - start).collect()
}

fn adaptive(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let wanted = output_size(c, &x.dims, n)?;
    let first = x.rank() - n;
    let mut dims = x.dims.clone();
    dims[first..].copy_from_slice(&wanted);
    if wanted.contains(&0) {
        return Ok(one(c.b.splat(x.dtype, 0i64, &dims)?));
    }
    let mut sum = c.b.convert(&x, wide(x.dtype))?;
    for (axis, &output) in wanted.iter().enumerate().rev() {
        let input = x.dims[first + axis];
        sum = match regular(input, output) {
            Some(w) => window_sums(c, &sum, first + axis, &w)?,
            None => span_sums(c, &sum, first + axis, &Spans::adaptive(input, output))?,
        };
    }
    let counts: Vec<Vec<i64>> = (0..n)
        .map(|axis| lengths(x.dims[first + axis], wanted[axis]))
        .collect();
    let divisor = divisor(c, sum.dtype, &dims, &counts)?;
    let mean = c.b.div(&sum, &divisor)?;
    Ok(one(c.b.convert(&mean, x.dtype)?))
}

/// The windows over a place are themselves adaptive windows, with input and output exchanged.
fn adaptive_backward(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let sizes = self_sizes(c)?;
    let grad = c.tensor("grad_output")?;
    let dtype = grad.dtype;
    let first = sizes.len() - n;
    if grad.numel() == 0 {
        return Ok(one(c.b.splat(dtype, 0i64, &sizes)?));
    }
    let counts: Vec<Vec<i64>> = (first..sizes.len())
        .map(|axis| lengths(sizes[axis], grad.dims[axis]))
        .collect();
    let grad = c.b.convert(&grad, wide(dtype))?;
    let divisor = divisor(c, grad.dtype, &grad.dims.clone(), &counts)?;
    let mut value = c.b.div(&grad, &divisor)?;
    for axis in first..sizes.len() {
        let (input, output) = (sizes[axis], grad.dims[axis]);
        value = match regular(input, output) {
            Some(w) => windows_over(c, &value, axis, &w)?,
            None => span_sums(c, &value, axis, &Spans::adaptive(output, input))?,
        };
    }
    Ok(one(c.b.convert(&value, dtype)?))
}
