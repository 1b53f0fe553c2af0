//! Up- and downsampling and its gradients. One axis after the other; every kind is a sum of few picked and weighted
//! elements, or, where they are many, a product with a matrix of weights.

use tpulab_stablehlo::{DType, Precision, Value};

use super::axis::{keep_along, pick};
use super::taps::{Filter, Kind, Resize, Taps};
use super::util::acc_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

/// More elements to a sum than this, and a matrix product is cheaper.
const MOST_TAPS: usize = 16;

macro_rules! resamplings {
    ($r:ident: $($name:literal $backward:literal $kind:expr;)+) => {$(
        $r.op($name, |c| forward(c, $kind));
        $r.op($backward, |c| backward(c, $kind));
    )+};
}

pub(crate) fn register(r: &mut Registry) {
    resamplings! { r:
        "upsample_nearest1d" "upsample_nearest1d_backward" Kind::Nearest;
        "upsample_nearest2d" "upsample_nearest2d_backward" Kind::Nearest;
        "upsample_nearest3d" "upsample_nearest3d_backward" Kind::Nearest;
        "_upsample_nearest_exact1d" "_upsample_nearest_exact1d_backward" Kind::NearestExact;
        "_upsample_nearest_exact2d" "_upsample_nearest_exact2d_backward" Kind::NearestExact;
        "_upsample_nearest_exact3d" "_upsample_nearest_exact3d_backward" Kind::NearestExact;
        "upsample_linear1d" "upsample_linear1d_backward" Kind::Linear;
        "upsample_bilinear2d" "upsample_bilinear2d_backward" Kind::Linear;
        "upsample_trilinear3d" "upsample_trilinear3d_backward" Kind::Linear;
        "upsample_bicubic2d" "upsample_bicubic2d_backward" Kind::Cubic;
        "_upsample_bilinear2d_aa" "_upsample_bilinear2d_aa_backward" Kind::Smooth(Filter::Linear);
        "_upsample_bicubic2d_aa" "_upsample_bicubic2d_aa_backward" Kind::Smooth(Filter::Cubic);
        "_upsample_lanczos2d_aa" "_upsample_lanczos2d_aa_backward" Kind::Smooth(Filter::Lanczos);
    }
}

/// The axes to resample, first to last.
fn resizes(
    c: &mut Ctx<'_>,
    kind: Kind,
    inputs: &[i64],
    outputs: &[i64],
    double: bool,
) -> Result<Vec<Resize>> {
    let n = outputs.len();
    let names: &[&str] = match n {
        1 => &["scales"],
        2 => &["scales_h", "scales_w"],
        _ => &["scales_d", "scales_h", "scales_w"],
    };
    if inputs.len() != n + 2 {
        return Err(Error::runtime(format!(
            "It is expected input_size equals to {}, but got size {}",
            n + 2,
            inputs.len()
        )));
    }
    let align_corners = c.bool("align_corners")?;
    (0..n)
        .map(|axis| {
            let resize = Resize {
                kind,
                input: inputs[2 + axis],
                output: outputs[axis],
                align_corners,
                scale: c.static_number(names[axis])?,
                double,
            };
            if resize.input < 1 || resize.output < 1 {
                return Err(Error::runtime(format!(
                    "Input and output sizes should be greater than 0, but got input ({}) and output ({})",
                    resize.input, resize.output
                )));
            }
            Ok(resize)
        })
        .collect()
}

fn check(kind: Kind, dtype: DType) -> Result<()> {
    if dtype.is_float() || matches!(kind, Kind::Nearest | Kind::NearestExact) {
        return Ok(());
    }
    Err(Error::not_lowered(format!(
        "interpolation of {}",
        dtype.name()
    )))
}

fn forward(c: &mut Ctx<'_>, kind: Kind) -> Result<Lowered> {
    let x = c.tensor("self")?;
    check(kind, x.dtype)?;
    let outputs = c.ints("output_size")?;
    let resizes = resizes(c, kind, &x.dims.clone(), &outputs, x.dtype == DType::F64)?;
    let single = matches!(kind, Kind::Nearest | Kind::NearestExact);
    let mut value = if single {
        x.clone()
    } else {
        c.b.convert(&x, acc_type(x.dtype))?
    };
    for (axis, resize) in resizes.iter().enumerate() {
        value = apply(c, &value, 2 + axis, &resize.taps())?;
    }
    Ok(one(c.b.convert(&value, x.dtype)?))
}

fn backward(c: &mut Ctx<'_>, kind: Kind) -> Result<Lowered> {
    let grad = c.tensor("grad_output")?;
    check(kind, grad.dtype)?;
    let (inputs, outputs) = (c.ints("input_size")?, c.ints("output_size")?);
    let resizes = resizes(c, kind, &inputs, &outputs, grad.dtype == DType::F64)?;
    let mut value = c.b.convert(&grad, acc_type(grad.dtype))?;
    for (axis, resize) in resizes.iter().enumerate().rev() {
        value = apply(c, &value, 2 + axis, &resize.taps().transposed())?;
    }
    Ok(one(c.b.convert(&value, grad.dtype)?))
}

/// The sums along one axis.
fn apply(c: &mut Ctx<'_>, x: &Value, axis: usize, taps: &Taps) -> Result<Value> {
    if taps.width() > MOST_TAPS {
        return multiplied(c, x, axis, taps);
    }
    let mut sum: Option<Value> = None;
    for tap in 0..taps.width() {
        let column: Vec<(i64, f64)> = taps.rows.iter().map(|row| row[tap]).collect();
        let places: Vec<i64> = column.iter().map(|tap| tap.0).collect();
        let mut value = pick(c, x, axis, &places)?;
        if column.iter().any(|tap| tap.1 != 1.0) {
            let weights: Vec<f64> = column.iter().map(|tap| tap.1).collect();
            let line =
                c.b.dense_floats(x.dtype, &weights, &[weights.len() as i64])?;
            let weights = c.b.broadcast_in_dim(&line, &value.dims, &[axis])?;
            value = c.b.mul(&value, &weights)?;
        }
        if taps.filled {
            let real: Vec<bool> = column.iter().map(|tap| tap.1 != 0.0).collect();
            value = keep_along(c, &value, axis, &real)?;
        }
        sum = Some(match sum {
            Some(sum) => c.b.add(&sum, &value)?,
            None => value,
        });
    }
    match sum {
        Some(sum) => Ok(sum),
        None => {
            // No input went anywhere.
            let mut dims = x.dims.clone();
            dims[axis] = taps.rows.len() as i64;
            Ok(c.b.splat(x.dtype, 0i64, &dims)?)
        }
    }
}

fn multiplied(c: &mut Ctx<'_>, x: &Value, axis: usize, taps: &Taps) -> Result<Value> {
    let dims = [taps.rows.len() as i64, taps.input];
    let matrix = c.b.dense_floats(x.dtype, &taps.matrix(), &dims)?;
    let (batch, contract) = ((&[][..], &[][..]), (&[axis][..], &[1][..]));
    let product =
        c.b.dot_general(x, &matrix, batch, contract, Precision::Highest, x.dtype)?;
    // The new axis came last.
    let mut order: Vec<usize> = (0..x.rank() - 1).collect();
    order.insert(axis, x.rank() - 1);
    Ok(c.b.transpose(&product, &order)?)
}
