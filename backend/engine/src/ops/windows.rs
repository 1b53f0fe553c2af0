//! Sliding windows as columns, and back: `im2col`, `col2im`, the gradient of `unfold`.

use tpulab_stablehlo::{Dims, Value};

use super::util::{acc_type, wrap_dim};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("im2col", im2col);
    r.op("col2im", col2im);
}

/// One spatial dim of a sliding window.
#[derive(Clone, Copy)]
struct Axis {
    size: i64,
    kernel: i64,
    dilation: i64,
    padding: i64,
    stride: i64,
}

impl Axis {
    /// Number of window positions.
    fn places(self) -> i64 {
        (self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1)
            .div_euclid(self.stride)
            + 1
    }

    fn padded(self) -> i64 {
        self.size + 2 * self.padding
    }
}

fn axes(c: &Ctx<'_>, sizes: &[i64]) -> Result<[Axis; 2]> {
    let pair = |name: &str| -> Result<[i64; 2]> {
        match *c.ints(name)? {
            [one] => Ok([one, one]),
            [a, b] => Ok([a, b]),
            _ => Err(Error::runtime(format!(
                "It is expected {name} equals to 2, but got size {}",
                c.ints(name)?.len()
            ))),
        }
    };
    let (kernel, dilation) = (pair("kernel_size")?, pair("dilation")?);
    let (padding, stride) = (pair("padding")?, pair("stride")?);
    let positive = [
        ("kernel size", kernel),
        ("dilation", dilation),
        ("stride", stride),
    ];
    for (name, [h, w]) in positive {
        if h <= 0 || w <= 0 {
            return Err(Error::runtime(format!(
                "{name} should be greater than zero, but got {}_height: {h} {}_width: {w}",
                name.replace(' ', "_"),
                name.replace(' ', "_")
            )));
        }
    }
    if padding.iter().any(|p| *p < 0) {
        return Err(Error::runtime(format!(
            "padding should be non-negative, but got pad_height: {} pad_width: {}",
            padding[0], padding[1]
        )));
    }
    Ok([0, 1].map(|i| Axis {
        size: sizes[i],
        kernel: kernel[i],
        dilation: dilation[i],
        padding: padding[i],
        stride: stride[i],
    }))
}

fn im2col(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let rank = x.rank();
    if !(rank == 3 || rank == 4) || x.dims[rank - 3..].contains(&0) {
        return Err(Error::runtime(format!(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for \
             input, but got: {:?}",
            x.dims.as_slice()
        )));
    }
    let (n, channels) = (if rank == 4 { x.dims[0] } else { 1 }, x.dims[rank - 3]);
    let [h, w] = axes(c, &x.dims[rank - 2..])?;
    let (rows, columns) = (h.places(), w.places());
    if rows < 1 || columns < 1 {
        return Err(Error::runtime(format!(
            "Given input with spatial size ({}, {}), kernel_size=({}, {}), dilation=({}, {}), padding=({}, {}), \
             calculated shape of the array of sliding blocks as ({rows}, {columns}), but its components must be at \
             least one.",
            h.size, w.size, h.kernel, w.kernel, h.dilation, w.dilation, h.padding, w.padding
        )));
    }
    let x = c.b.reshape(&x, &[n, channels, h.size, w.size])?;
    let zero = c.b.scalar(x.dtype, 0)?;
    let edge = [0, 0, h.padding, w.padding];
    let x = c.b.pad(&x, &zero, &edge, &edge, &[0; 4])?;
    let mut taps = Vec::new();
    for i in 0..h.kernel {
        for j in 0..w.kernel {
            let (top, left) = (i * h.dilation, j * w.dilation);
            let bottom = top + (rows - 1) * h.stride + 1;
            let right = left + (columns - 1) * w.stride + 1;
            let tap = c.b.slice(
                &x,
                &[0, 0, top, left],
                &[n, channels, bottom, right],
                &[1, 1, h.stride, w.stride],
            )?;
            taps.push(c.b.reshape(&tap, &[n, channels, 1, rows * columns])?);
        }
    }
    let joined = c.b.concatenate(&taps, 2)?;
    let taps = channels * h.kernel * w.kernel;
    let sizes: &[i64] = &[n, taps, rows * columns];
    let sizes = if rank == 4 { sizes } else { &sizes[1..] };
    Ok(one(c.b.reshape(&joined, sizes)?))
}

fn col2im(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let rank = x.rank();
    let output = c.ints("output_size")?;
    if !(rank == 2 || rank == 3) || x.dims[rank - 2..].contains(&0) {
        return Err(Error::runtime(format!(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for \
             input, but got: {:?}",
            x.dims.as_slice()
        )));
    }
    let [out_h, out_w] = output[..] else {
        return Err(Error::runtime(format!(
            "It is expected output_size equals to 2, but got size {}",
            output.len()
        )));
    };
    let [h, w] = axes(c, &[out_h, out_w])?;
    let (rows, columns) = (h.places(), w.places());
    let n = if rank == 3 { x.dims[0] } else { 1 };
    let (planes, length) = (x.dims[rank - 2], x.dims[rank - 1]);
    if planes % (h.kernel * w.kernel) != 0 {
        return Err(Error::runtime(format!(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got \
             input.size(1)={planes} and kernel_size=({}, {}).",
            h.kernel, w.kernel
        )));
    }
    if rows * columns != length || rows < 1 || columns < 1 {
        return Err(Error::runtime(format!(
            "Given output_size=({out_h}, {out_w}), kernel_size=({}, {}), dilation=({}, {}), padding=({}, {}), \
             stride=({}, {}), expected size of input's dimension 2 to match the calculated number of sliding blocks \
             {rows} * {columns} = {}, but got input.size(2)={length}.",
            h.kernel,
            w.kernel,
            h.dilation,
            w.dilation,
            h.padding,
            w.padding,
            h.stride,
            w.stride,
            rows * columns
        )));
    }
    let channels = planes / (h.kernel * w.kernel);
    let dtype = acc_type(x.dtype);
    let wide = c.b.convert(&x, dtype)?;
    let split = [n, channels, h.kernel, w.kernel, rows, columns];
    let wide = c.b.reshape(&wide, &split)?;
    let zero = c.b.scalar(dtype, 0)?;
    let mut sum: Option<Value> = None;
    for i in 0..h.kernel {
        for j in 0..w.kernel {
            let tap = c.b.slice_dim(&wide, 2, i, i + 1, 1)?;
            let tap = c.b.slice_dim(&tap, 3, j, j + 1, 1)?;
            let tap = c.b.reshape(&tap, &[n, channels, rows, columns])?;
            let (top, left) = (i * h.dilation, j * w.dilation);
            let below = h.padded() - top - (rows - 1) * h.stride - 1;
            let right = w.padded() - left - (columns - 1) * w.stride - 1;
            let tap = c.b.pad(
                &tap,
                &zero,
                &[0, 0, top, left],
                &[0, 0, below, right],
                &[0, 0, h.stride - 1, w.stride - 1],
            )?;
            sum = Some(match sum {
                Some(sum) => c.b.add(&sum, &tap)?,
                None => tap,
            });
        }
    }
    let sum = sum.ok_or_else(|| Error::runtime("a window without elements"))?;
    let start = [0, 0, h.padding, w.padding];
    let limit = [n, channels, h.padding + h.size, w.padding + w.size];
    let inner = c.b.slice(&sum, &start, &limit, &[1; 4])?;
    let inner = c.b.convert(&inner, x.dtype)?;
    let sizes: &[i64] = &[n, channels, h.size, w.size];
    let sizes = if rank == 3 { sizes } else { &sizes[1..] };
    Ok(one(c.b.reshape(&inner, sizes)?))
}

/// Windows of `size` every `step` along `dim` lie in the last dim; each goes back to where it came from. Cut into
/// pieces of `step`, no two windows' pieces of one number overlap, so each number takes one sum.
pub(super) fn unfold_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad = c.tensor("grad_in")?;
    let sizes = c.ints("input_sizes")?;
    let dim = wrap_dim(c.int("dim")?, sizes.len())?;
    let (size, step) = (c.int("size")?, c.int("step")?);
    if sizes.is_empty() {
        return Ok(one(c.b.reshape(&grad, &[])?));
    }
    let dtype = acc_type(grad.dtype);
    let zero = c.b.scalar(dtype, 0)?;
    let last = sizes.len();
    let windows = grad.dims[dim];
    let pieces = (size + step - 1) / step;
    let wide = c.b.convert(&grad, dtype)?;
    let mut high = vec![0; last + 1];
    high[last] = pieces * step - size;
    let none = vec![0; last + 1];
    let wide = c.b.pad(&wide, &zero, &none, &high, &none)?;
    // The window's elements right after the window's number.
    let mut order: Vec<usize> = (0..last).collect();
    order.insert(dim + 1, last);
    let mut joined: Dims = sizes.iter().copied().collect();
    joined[dim] = windows * step;
    let mut sum = c.b.splat(dtype, 0, &sizes)?;
    for piece in 0..pieces {
        let part =
            c.b.slice_dim(&wide, last, piece * step, (piece + 1) * step, 1)?;
        let part = c.b.transpose(&part, &order)?;
        let part = c.b.reshape(&part, &joined)?;
        let low = piece * step;
        let (mut before, mut after) = (vec![0; last], vec![0; last]);
        before[dim] = low;
        after[dim] = sizes[dim] - low - joined[dim];
        let part = c.b.pad(&part, &zero, &before, &after, &vec![0; last])?;
        sum = c.b.add(&sum, &part)?;
    }
    Ok(one(c.b.convert(&sum, grad.dtype)?))
}
