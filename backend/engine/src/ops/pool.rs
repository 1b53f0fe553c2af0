//! Max pooling, its indices and gradients.
//!
//! The maximum goes over the offsets in a window, each a strided slice of the whole input. A gradient is summed at
//! its target: each place looks at the few windows over it and takes what their indices say is its own.

use tpulab_stablehlo::{DType, Dims, ScatterDims, Value};

use super::axis::{Spread, along, pad_axis, pick, spread};
use super::pool_window::{Spans, Window, output_size, regular, windows};
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

/// Windows up to this size are gone through in one pass, larger ones axis by axis.
const ONE_PASS: i64 = 16;
/// More windows over a place than this, and gradients are scattered instead.
const MOST_OVERLAPS: i64 = 128;

pub(crate) fn register(r: &mut Registry) {
    r.op("max_pool2d_with_indices", |c| max_pool(c, 2));
    r.op("max_pool2d_with_indices_backward", |c| {
        max_pool_backward(c, 2)
    });
    r.op("max_pool3d_with_indices", |c| max_pool(c, 3))
        .channels_last(&["self"]);
    r.op("max_pool3d_with_indices_backward", |c| {
        max_pool_backward(c, 3)
    })
    .channels_last(&["self"]);
    r.op("adaptive_max_pool2d", |c| adaptive_max_pool(c, 2));
    r.op("adaptive_max_pool2d_backward", |c| {
        adaptive_max_pool_backward(c, 2)
    });
    r.op("adaptive_max_pool3d", |c| adaptive_max_pool(c, 3));
    r.op("adaptive_max_pool3d_backward", |c| {
        adaptive_max_pool_backward(c, 3)
    });
    r.op("max_unpool2d", |c| unpool(c, 2));
    r.op("max_unpool3d", |c| unpool(c, 3));
}

/// Pooled axes of a value: the last ones.
fn first_axis(rank: usize, n: usize) -> usize {
    rank - n
}

/// Elements from one index of each pooled axis to the next, in the flat plane.
fn plane_strides(sizes: &[i64]) -> Vec<i64> {
    (0..sizes.len())
        .map(|axis| sizes[axis + 1..].iter().product())
        .collect()
}

/// One offset into the windows: how to take its elements, and how far they lie behind the windows' starts.
struct Step {
    places: Vec<i64>,
    ahead: Vec<i64>,
}

/// The windows of one axis.
struct Steps {
    pads: (i64, i64),
    steps: Vec<Step>,
    /// Where each window starts in the input, and how far behind that its first place inside is.
    start: Vec<i64>,
    first: Vec<i64>,
}

fn regular_steps(w: &Window) -> Steps {
    let windows = 0..w.output;
    let first = |q| (-w.start(q)).max(0).div_ceil_by(w.dilation) * w.dilation;
    Steps {
        pads: w.pads(),
        steps: (0..w.kernel)
            .map(|i| Step {
                places: windows
                    .clone()
                    .map(|q| q * w.stride + i * w.dilation)
                    .collect(),
                ahead: vec![i * w.dilation; w.output as usize],
            })
            .collect(),
        start: windows.clone().map(|q| w.start(q)).collect(),
        first: windows.map(first).collect(),
    }
}

trait DivCeil {
    fn div_ceil_by(self, by: i64) -> i64;
}

impl DivCeil for i64 {
    fn div_ceil_by(self, by: i64) -> i64 {
        (self + by - 1).div_euclid(by)
    }
}

fn adaptive_steps(input: i64, output: i64) -> Steps {
    let spans = Spans::adaptive(input, output);
    let steps = (0..spans.longest())
        .map(|offset| {
            let places = spans.places(offset);
            let ahead = places
                .iter()
                .zip(&spans.start)
                .map(|(p, s)| p - s)
                .collect();
            Step { places, ahead }
        })
        .collect();
    Steps {
        pads: (0, 0),
        steps,
        first: vec![0; spans.start.len()],
        start: spans.start,
    }
}

/// (maxima, their flat places in the plane). Of equals the first wins; NaN wins over all, the last one, as on the CPU.
fn maxima(c: &mut Ctx<'_>, x: &Value, axes: &[Steps]) -> Result<(Value, Value)> {
    let first = first_axis(x.rank(), axes.len());
    let plane = x.dims[first..].to_vec();
    let strides = plane_strides(&plane);
    let narrow = if plane.iter().product::<i64>() < i64::from(i32::MAX) {
        DType::I32
    } else {
        DType::I64
    };
    let volume: i64 = axes.iter().map(|axis| axis.steps.len() as i64).product();
    let all: Vec<usize> = (0..axes.len()).collect();
    let passes: Vec<Vec<usize>> = if volume <= ONE_PASS {
        vec![all]
    } else {
        all.iter().rev().map(|&axis| vec![axis]).collect()
    };
    let (mut value, mut place) = (x.clone(), None);
    for pass in passes {
        (value, place) = {
            let (value, place) = best_of(c, &value, place, axes, &pass, &strides, narrow)?;
            (value, Some(place))
        };
    }
    let Some(mut place) = place else {
        return Err(Error::runtime("a pooling over no axis"));
    };
    for (axis, steps) in axes.iter().enumerate() {
        let start: Vec<i64> = steps.start.iter().map(|s| s * strides[axis]).collect();
        let start = along(c, narrow, &start, &place.dims.clone(), first + axis)?;
        place = c.b.add(&place, &start)?;
    }
    Ok((value, c.b.convert(&place, DType::I64)?))
}

/// One pass over some axes: the best element of each window, and how far it lies behind the window's start.
fn best_of(
    c: &mut Ctx<'_>,
    x: &Value,
    ahead: Option<Value>,
    axes: &[Steps],
    pass: &[usize],
    strides: &[i64],
    narrow: DType,
) -> Result<(Value, Value)> {
    let first = first_axis(x.rank(), axes.len());
    let lowest = c.b.min_value(x.dtype)?;
    let none = c.b.scalar(narrow, 0i64)?;
    let (mut padded, mut padded_ahead) = (x.clone(), ahead);
    for &axis in pass {
        padded = pad_axis(c, &padded, first + axis, &lowest, axes[axis].pads)?;
        if let Some(ahead) = padded_ahead {
            padded_ahead = Some(pad_axis(c, &ahead, first + axis, &none, axes[axis].pads)?);
        }
    }
    let mut dims = x.dims.clone();
    for &axis in pass {
        dims[first + axis] = axes[axis].start.len() as i64;
    }
    let mut best: Option<(Value, Value)> = None;
    if pass.iter().any(|&axis| axes[axis].pads.0 > 0) {
        // Where all is lowest, the first place that is no padding wins.
        let lowest = c.b.broadcast_to(&lowest, &dims)?;
        let mut place = c.b.splat(narrow, 0i64, &dims)?;
        for &axis in pass {
            let offsets: Vec<i64> = axes[axis].first.iter().map(|f| f * strides[axis]).collect();
            let offsets = along(c, narrow, &offsets, &dims, first + axis)?;
            place = c.b.add(&place, &offsets)?;
        }
        if let Some(ahead) = &padded_ahead {
            let own = pick_first(c, ahead, axes, pass, first)?;
            place = c.b.add(&place, &own)?;
        }
        best = Some((lowest, place));
    }
    for offset in offsets(axes, pass) {
        let (mut value, mut place) = (padded.clone(), padded_ahead.clone());
        let mut behind: Option<Value> = None;
        for (&axis, &index) in pass.iter().zip(&offset) {
            let step = &axes[axis].steps[index];
            value = pick(c, &value, first + axis, &step.places)?;
            if let Some(ahead) = place {
                place = Some(pick(c, &ahead, first + axis, &step.places)?);
            }
            let scaled: Vec<i64> = step.ahead.iter().map(|a| a * strides[axis]).collect();
            let more = along(c, narrow, &scaled, &dims, first + axis)?;
            behind = Some(match behind {
                Some(sum) => c.b.add(&sum, &more)?,
                None => more,
            });
        }
        let place = match (place, behind) {
            (Some(place), Some(behind)) => c.b.add(&place, &behind)?,
            (Some(place), None) | (None, Some(place)) => place,
            (None, None) => continue,
        };
        best = Some(match best {
            None => (value, place),
            Some((top, at)) => {
                let mut better = c.b.gt(&value, &top)?;
                if value.dtype.is_float() {
                    let nan = c.b.ne(&value, &value)?;
                    better = c.b.or(&better, &nan)?;
                }
                (
                    c.b.select(&better, &value, &top)?,
                    c.b.select(&better, &place, &at)?,
                )
            }
        });
    }
    best.ok_or_else(|| Error::runtime("a pooling window without elements"))
}

/// What earlier passes found at the first inner place of each window.
fn pick_first(
    c: &mut Ctx<'_>,
    ahead: &Value,
    axes: &[Steps],
    pass: &[usize],
    first: usize,
) -> Result<Value> {
    let mut value = ahead.clone();
    for &axis in pass {
        let steps = &axes[axis];
        let places: Vec<i64> = (0..steps.start.len())
            .map(|q| steps.start[q] + steps.first[q] + steps.pads.0)
            .collect();
        value = pick(c, &value, first + axis, &places)?;
    }
    Ok(value)
}

/// All combinations of offsets along the axes of a pass, the last axis fastest.
fn offsets(axes: &[Steps], pass: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &axis in pass {
        all = all
            .iter()
            .flat_map(|before| {
                (0..axes[axis].steps.len()).map(|index| {
                    let mut next = before.clone();
                    next.push(index);
                    next
                })
            })
            .collect();
    }
    all
}

fn max_pool(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let windows = windows(c, &x.dims, n)?;
    let axes: Vec<Steps> = windows.iter().map(regular_steps).collect();
    let (value, place) = maxima(c, &x, &axes)?;
    Ok(many([value, place]))
}

fn adaptive_max_pool(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let wanted = output_size(c, &x.dims, n)?;
    let plane = &x.dims[first_axis(x.rank(), n)..];
    let axes: Vec<Steps> = plane
        .iter()
        .zip(&wanted)
        .map(|(&input, &output)| adaptive_steps(input, output))
        .collect();
    let (value, place) = if wanted.contains(&0) {
        let mut dims = x.dims.clone();
        let first = first_axis(x.rank(), n);
        dims[first..].copy_from_slice(&wanted);
        (
            c.b.splat(x.dtype, 0i64, &dims)?,
            c.b.splat(DType::I64, 0i64, &dims)?,
        )
    } else {
        maxima(c, &x, &axes)?
    };
    Ok(many([value, place]))
}

fn max_pool_backward(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let (_, sizes) = self_type(c)?;
    let windows = windows(c, &sizes, n)?;
    backward(c, &sizes, &windows)
}

fn adaptive_max_pool_backward(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let (_, sizes) = self_type(c)?;
    let grad = c.tensor("grad_output")?;
    let first = first_axis(sizes.len(), n);
    let windows: Option<Vec<Window>> = sizes[first..]
        .iter()
        .zip(&grad.dims[first..])
        .map(|(&input, &output)| regular(input, output))
        .collect();
    match windows {
        Some(windows) => backward(c, &sizes, &windows),
        None => {
            let indices = c.tensor("indices")?;
            Ok(one(scatter(c, &grad, &indices, &sizes, n, true)?))
        }
    }
}

fn self_type(c: &Ctx<'_>) -> Result<(DType, Dims)> {
    c.type_of("self")
        .ok_or_else(|| Error::runtime("argument 'self' must be a tensor"))
}

fn backward(c: &mut Ctx<'_>, sizes: &[i64], windows: &[Window]) -> Result<Lowered> {
    let (grad, indices) = (c.tensor("grad_output")?, c.tensor("indices")?);
    if grad.dims != indices.dims {
        return Err(Error::runtime(format!(
            "Expected tensor for argument 'indices' to have the sizes of 'grad_output', {:?}, but got {:?}",
            grad.dims.as_slice(),
            indices.dims.as_slice()
        )));
    }
    let terms: i64 = windows.iter().map(Window::overlap).product();
    let wide = super::util::acc_type(grad.dtype);
    if terms > MOST_OVERLAPS {
        return Ok(one(scatter(
            c,
            &grad,
            &indices,
            sizes,
            windows.len(),
            true,
        )?));
    }
    let dtype = grad.dtype;
    let first = first_axis(sizes.len(), windows.len());
    let strides = plane_strides(&sizes[first..]);
    let narrow = if sizes[first..].iter().product::<i64>() < i64::from(i32::MAX) {
        DType::I32
    } else {
        DType::I64
    };
    let grad = c.b.convert(&grad, wide)?;
    let indices = c.b.convert(&indices, narrow)?;
    let mut own = c.b.splat(narrow, 0i64, sizes)?;
    for (axis, stride) in strides.iter().enumerate() {
        let places: Vec<i64> = (0..sizes[first + axis])
            .map(|place| place * stride)
            .collect();
        let places = along(c, narrow, &places, sizes, first + axis)?;
        own = c.b.add(&own, &places)?;
    }
    let (none, zero) = (c.b.scalar(narrow, -1i64)?, c.b.scalar(wide, 0i64)?);
    let zeros = c.b.broadcast_to(&zero, sizes)?;
    let mut sum: Option<Value> = None;
    for term in 0..terms {
        let (mut index, mut value, mut rest) = (indices.clone(), grad.clone(), term);
        for (axis, window) in windows.iter().enumerate() {
            let at = Spread {
                times: window.stride,
                shift: window.padding,
                size: window.input,
                back: rest % window.overlap(),
            };
            rest /= window.overlap();
            index = spread(c, &index, first + axis, &none, &at)?;
            value = spread(c, &value, first + axis, &zero, &at)?;
        }
        let mine = c.b.eq(&index, &own)?;
        let part = c.b.select(&mine, &value, &zeros)?;
        sum = Some(match sum {
            Some(sum) => c.b.add(&sum, &part)?,
            None => part,
        });
    }
    let sum = sum.unwrap_or(zeros);
    Ok(one(c.b.convert(&sum, dtype)?))
}

/// `x` added up (or put) at flat indices of each plane of zeros.
fn scatter(
    c: &mut Ctx<'_>,
    x: &Value,
    indices: &Value,
    sizes: &[i64],
    n: usize,
    sum: bool,
) -> Result<Value> {
    let first = first_axis(sizes.len(), n);
    let planes: i64 = sizes[..first].iter().product();
    let plane: i64 = sizes[first..].iter().product();
    let each: i64 = x.dims[first..].iter().product();
    let wide = if sum {
        super::util::acc_type(x.dtype)
    } else {
        x.dtype
    };
    let updates = c.b.convert(x, wide)?;
    let updates = c.b.reshape(&updates, &[planes, each])?;
    let indices = c.b.reshape(indices, &[planes, each])?;
    let zeros = c.b.splat(wide, 0i64, &[planes, plane])?;
    let dims = ScatterDims {
        inserted_window_dims: vec![1],
        input_batching_dims: vec![0],
        scatter_indices_batching_dims: vec![0],
        scatter_dims_to_operand_dims: vec![1],
        index_vector_dim: 2,
        ..ScatterDims::default()
    };
    let filled = c.b.scatter(
        &zeros,
        &indices,
        &updates,
        &dims,
        false,
        false,
        |b, old, new| {
            if sum {
                b.add(old, new)
            } else {
                Ok(new.clone())
            }
        },
    )?;
    let filled = c.b.convert(&filled, x.dtype)?;
    Ok(c.b.reshape(&filled, sizes)?)
}

fn unpool(c: &mut Ctx<'_>, n: usize) -> Result<Lowered> {
    let (x, indices) = (c.tensor("self")?, c.tensor("indices")?);
    if indices.dtype != DType::I64 {
        return Err(Error::runtime(
            "elements in indices should be type int64 but got: ".to_owned()
                + indices.dtype.torch_name(),
        ));
    }
    if x.dims != indices.dims {
        return Err(Error::runtime(format!(
            "Expected shape of indices to be same as that of the input tensor ({:?}) but got indices tensor with \
             shape: {:?}",
            x.dims.as_slice(),
            indices.dims.as_slice()
        )));
    }
    let mut sizes = x.dims.clone();
    let wanted = output_size(c, &x.dims, n)?;
    let first = first_axis(x.rank(), n);
    sizes[first..].copy_from_slice(&wanted);
    Ok(one(scatter(c, &x, &indices, &sizes, n, false)?))
}
