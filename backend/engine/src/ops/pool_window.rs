//! Where the windows of a pooling lie along each axis.

use crate::error::{Error, Result};
use crate::lower::Ctx;

/// Regular windows along one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Size of the input, and how many windows there are.
    pub input: i64,
    pub output: i64,
    pub kernel: i64,
    pub stride: i64,
    pub padding: i64,
    pub dilation: i64,
}

impl Window {
    /// First place of window `q`, which may lie in the padding.
    pub(crate) fn start(&self, q: i64) -> i64 {
        q * self.stride - self.padding
    }

    /// Places from the first to behind the last.
    pub(crate) fn reach(&self) -> i64 {
        (self.kernel - 1) * self.dilation + 1
    }

    /// Padding before and behind with which every window lies inside.
    pub(crate) fn pads(&self) -> (i64, i64) {
        let end = self.start(self.output - 1) + self.reach();
        (self.padding, (end - self.input).max(0))
    }

    /// How many windows at most lie over one place, counted by their starts.
    pub(crate) fn overlap(&self) -> i64 {
        (self.reach() + self.stride - 1) / self.stride
    }
}

/// An int list argument for `n` axes; one number stands for all, none for `default`.
fn per_axis(c: &Ctx<'_>, name: &str, n: usize, default: &[i64]) -> Result<Vec<i64>> {
    let given = c.opt_ints(name)?.unwrap_or_default();
    match given.len() {
        0 => Ok(default.to_vec()),
        1 => Ok(vec![given[0]; n]),
        len if len == n => Ok(given),
        _ => Err(Error::runtime(format!(
            "{}: {name} must either be a single int, or a tuple of {n} ints",
            c.base_name()
        ))),
    }
}

/// The windows of arguments `kernel_size`, `stride`, `padding`, `dilation` and `ceil_mode` over the last `n` sizes.
pub(crate) fn windows(c: &Ctx<'_>, sizes: &[i64], n: usize) -> Result<Vec<Window>> {
    if sizes.len() != n + 1 && sizes.len() != n + 2 {
        return Err(Error::runtime(format!(
            "{}: Expected {}D or {}D tensor, but got {:?}",
            c.base_name(),
            n + 1,
            n + 2,
            sizes
        )));
    }
    let ones = vec![1; n];
    let kernel = per_axis(c, "kernel_size", n, &ones)?;
    let stride = per_axis(c, "stride", n, &kernel)?;
    let padding = per_axis(c, "padding", n, &vec![0; n])?;
    let dilation = per_axis(c, "dilation", n, &ones)?;
    let ceil = c.bool("ceil_mode")?;
    (0..n)
        .map(|axis| {
            let window = Window {
                input: sizes[sizes.len() - n + axis],
                output: 0,
                kernel: kernel[axis],
                stride: stride[axis],
                padding: padding[axis],
                dilation: dilation[axis],
            };
            counted(window, ceil)
        })
        .collect()
}

fn counted(mut w: Window, ceil: bool) -> Result<Window> {
    if w.kernel < 1 || w.stride < 1 || w.dilation < 1 {
        let (what, value) = match (w.kernel < 1, w.stride < 1) {
            (true, _) => ("kernel size", w.kernel),
            (_, true) => ("stride", w.stride),
            _ => ("dilation", w.dilation),
        };
        return Err(Error::runtime(format!(
            "{what} should be greater than zero, but got {value}"
        )));
    }
    if w.padding < 0 {
        return Err(Error::runtime(format!(
            "pad must be non-negative, but got pad: {}",
            w.padding
        )));
    }
    if w.padding > w.reach() / 2 {
        return Err(Error::runtime(format!(
            "pad should be at most half of effective kernel size, but got pad={}, kernel_size={} and dilation={}",
            w.padding, w.kernel, w.dilation
        )));
    }
    let room = w.input + 2 * w.padding - w.reach();
    let rounding = if ceil { w.stride - 1 } else { 0 };
    w.output = (room + rounding).div_euclid(w.stride) + 1;
    // The last window must start inside the input or the padding before it.
    if ceil && w.start(w.output - 1) >= w.input {
        w.output -= 1;
    }
    if w.output < 1 {
        return Err(Error::runtime(format!(
            "Given input size: {}. Calculated output size: {}. Output size is too small",
            w.input, w.output
        )));
    }
    Ok(w)
}

/// An adaptive pooling's windows along one axis: places `start[q]..end[q]`.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    pub start: Vec<i64>,
    pub end: Vec<i64>,
}

impl Spans {
    pub(crate) fn adaptive(input: i64, output: i64) -> Self {
        Self {
            start: (0..output).map(|q| q * input / output).collect(),
            end: (0..output)
                .map(|q| ((q + 1) * input + output - 1) / output)
                .collect(),
        }
    }

    pub(crate) fn longest(&self) -> i64 {
        let lengths = self
            .start
            .iter()
            .zip(&self.end)
            .map(|(start, end)| end - start);
        lengths.max().unwrap_or(0)
    }

    /// Place `offset` of each window, the last one if it is shorter.
    pub(crate) fn places(&self, offset: i64) -> Vec<i64> {
        let ends = self.start.iter().zip(&self.end);
        ends.map(|(start, end)| (start + offset).min(end - 1))
            .collect()
    }

    pub(crate) fn inside(&self, offset: i64) -> Vec<bool> {
        let ends = self.start.iter().zip(&self.end);
        ends.map(|(start, end)| start + offset < *end).collect()
    }
}

/// Adaptive windows that all have one size and do not overlap are regular ones.
pub(crate) fn regular(input: i64, output: i64) -> Option<Window> {
    (output > 0 && input > 0 && input % output == 0).then(|| Window {
        input,
        output,
        kernel: input / output,
        stride: input / output,
        padding: 0,
        dilation: 1,
    })
}

/// Argument `output_size` for the last `n` dims; one number stands for all.
pub(crate) fn output_size(c: &Ctx<'_>, sizes: &[i64], n: usize) -> Result<Vec<i64>> {
    let wanted = per_axis(c, "output_size", n, &[])?;
    let name = c.base_name().trim_start_matches('_');
    if wanted.len() != n {
        return Err(Error::runtime(format!(
            "{name}: internal error: output_size.size() must be {n}"
        )));
    }
    if wanted.iter().any(|&size| size < 0) {
        return Err(Error::runtime(format!(
            "{name}: elements of output_size must be greater than or equal to 0 but received {{{}}}",
            join(&wanted)
        )));
    }
    if sizes.len() != n + 1 && sizes.len() != n + 2 {
        return Err(Error::runtime(format!(
            "{name}(): Expected {}D or {}D tensor, but got [{}]",
            n + 1,
            n + 2,
            join(sizes)
        )));
    }
    Ok(wanted)
}

fn join(sizes: &[i64]) -> String {
    let texts: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
