//! Sampling at the points of a grid, and its gradients.
//!
//! Per axis a point has one to four taps: a place, its weight, and the weight's slope. Points of all batches are rows;
//! a tap combination gathers a row of channels each. Coordinates as in torch's `native/GridSamplerUtils.h`.

use tpulab_stablehlo::{DType, GatherDims, Reducer, ScatterDims, Unary, Value};

use super::formula::Formula;
use super::util::{acc_type, index_type};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    for name in ["grid_sampler_2d", "grid_sampler_3d"] {
        r.op(name, forward);
    }
    for name in ["grid_sampler_2d_backward", "grid_sampler_3d_backward"] {
        r.op(name, backward);
    }
}

/// One place of an axis that a point draws from.
struct Tap {
    place: Formula,
    weight: Formula,
    slope: Formula,
}

/// The taps of all points along one axis, and how fast the place moves with the grid's number.
struct Axis {
    size: i64,
    taps: Vec<Tap>,
    speed: Formula,
}

struct Rules {
    interpolation: i64,
    padding: i64,
    align_corners: bool,
}

impl Rules {
    fn of(c: &Ctx<'_>) -> Result<Self> {
        Ok(Self {
            interpolation: c.int("interpolation_mode")?,
            padding: c.int("padding_mode")?,
            align_corners: c.bool("align_corners")?,
        })
    }

    /// The place of a grid number in -1..1, and its slope.
    fn unnormalized(&self, x: &Formula, size: i64) -> (Formula, f64) {
        let size = size as f64;
        if self.align_corners {
            ((x + 1.0) / 2.0 * (size - 1.0), (size - 1.0) / 2.0)
        } else {
            (((x + 1.0) * size - 1.0) / 2.0, size / 2.0)
        }
    }

    /// The place after padding (border: clipped, reflection: folded back), and its slope, 0 or ±1.
    fn padded(&self, x: &Formula, size: i64) -> (Formula, Formula) {
        let unit = || x.is_nan().choose(1.0, x * 0.0 + 1.0);
        let last = (size - 1) as f64;
        match self.padding {
            1 => clipped(x, unit(), last),
            2 => {
                let (low, span) = if self.align_corners {
                    (0.0, last)
                } else {
                    (-0.5, size as f64)
                };
                if span == 0.0 {
                    return (x * 0.0, x * 0.0);
                }
                let offset = x - low;
                let distance = offset.abs();
                let flips = (&distance / span).floor();
                let extra = &distance - &flips * span;
                let odd = (&flips - (&flips / 2.0).floor() * 2.0).ne(0.0);
                let folded = odd.choose(span - &extra + low, &extra + low);
                let direction = offset.lt(0.0).choose(-unit(), unit());
                let direction = odd.choose(-&direction, &direction);
                clipped(&folded, direction, last)
            }
            _ => (x.clone(), unit()),
        }
    }

    fn axis(&self, x: &Formula, size: i64) -> Axis {
        let (x, scale) = self.unnormalized(x, size);
        if self.interpolation == 2 {
            return Axis {
                size,
                taps: self.cubic(&x, size),
                speed: &x * 0.0 + scale,
            };
        }
        let (x, speed) = self.padded(&x, size);
        let taps = if self.interpolation == 1 {
            let place = x.unary(Unary::RoundNearestEven);
            let (weight, slope) = (&place * 0.0 + 1.0, &place * 0.0);
            vec![Tap {
                place,
                weight,
                slope,
            }]
        } else {
            let low = x.floor();
            let (t, one) = (&x - &low, &low * 0.0 + 1.0);
            vec![
                Tap {
                    weight: 1.0 - &t,
                    slope: -&one,
                    place: low.clone(),
                },
                Tap {
                    place: low + 1.0,
                    weight: t,
                    slope: one,
                },
            ]
        };
        Axis {
            size,
            taps,
            speed: speed * scale,
        }
    }

    /// Four places around, each padded by itself.
    fn cubic(&self, x: &Formula, size: i64) -> Vec<Tap> {
        const A: f64 = -0.75;
        let low = x.floor();
        let t = x - &low;
        let near = |d: &Formula| ((d * (A + 2.0) - (A + 3.0)) * d * d) + 1.0;
        let far = |d: &Formula| ((d * A - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A;
        let near_slope = |d: &Formula| (d * (3.0 * (A + 2.0)) - 2.0 * (A + 3.0)) * d;
        let far_slope = |d: &Formula| (d * (3.0 * A) - 10.0 * A) * d + 8.0 * A;
        let (before, after, beyond) = (&t + 1.0, 1.0 - &t, 2.0 - &t);
        let weights = [
            (far(&before), far_slope(&before)),
            (near(&t), near_slope(&t)),
            (near(&after), -near_slope(&after)),
            (far(&beyond), -far_slope(&beyond)),
        ];
        let tap = |(k, (weight, slope)): (i32, (Formula, Formula))| Tap {
            place: self.padded(&(&low + f64::from(k)), size).0,
            weight,
            slope,
        };
        (-1..).zip(weights).map(tap).collect()
    }
}

fn clipped(x: &Formula, slope: Formula, last: f64) -> (Formula, Formula) {
    let outside = x.le(0.0) | x.ge(last);
    (x.max(0.0).min(last), outside.choose(0.0, slope))
}

/// One combination of taps: flat places, which of them are inside, the weight, and its slope along each axis.
struct Corner {
    place: Value,
    inside: Value,
    weight: Value,
    slopes: Vec<Value>,
}

fn corner(c: &mut Ctx<'_>, axes: &[Axis], choice: &[usize]) -> Result<Corner> {
    let taps: Vec<&Tap> = axes
        .iter()
        .zip(choice)
        .map(|(axis, &k)| &axis.taps[k])
        .collect();
    let product = |skip: Option<usize>| {
        let weights = taps.iter().enumerate().map(|(axis, tap)| {
            if skip == Some(axis) {
                &tap.slope
            } else {
                &tap.weight
            }
        });
        let mut weights = weights.cloned();
        let first = weights.next();
        first.map(|first| weights.fold(first, |product, weight| product * weight))
    };
    let missing = || Error::runtime("a grid without axes");
    let mut inside: Option<Formula> = None;
    let mut flat: Option<Value> = None;
    let total: i64 = axes.iter().map(|axis| axis.size).product();
    for (axis, tap) in axes.iter().zip(&taps) {
        let within = tap.place.ge(0.0) & tap.place.le((axis.size - 1) as f64);
        // Outside, any place will do: its value does not count.
        let place = within.choose(&tap.place, 0.0).build(&mut c.b)?;
        let place = c.b.convert(&place, index_type(total))?;
        flat = Some(match flat {
            None => place,
            Some(flat) => {
                let size = c.b.splat_like(&flat, axis.size)?;
                let row = c.b.mul(&flat, &size)?;
                c.b.add(&row, &place)?
            }
        });
        inside = Some(match inside {
            None => within,
            Some(inside) => inside & within,
        });
    }
    let slopes =
        (0..axes.len()).map(|axis| product(Some(axis)).ok_or_else(missing)?.build(&mut c.b));
    let slopes = slopes.collect::<Result<_>>()?;
    Ok(Corner {
        place: flat.ok_or_else(missing)?,
        inside: inside.ok_or_else(missing)?.build(&mut c.b)?,
        weight: product(None).ok_or_else(missing)?.build(&mut c.b)?,
        slopes,
    })
}

/// All combinations of taps, the first axis slowest.
fn corners(c: &mut Ctx<'_>, axes: &[Axis]) -> Result<Vec<Corner>> {
    let mut choices = vec![Vec::new()];
    for axis in axes {
        choices = choices
            .into_iter()
            .flat_map(|before: Vec<usize>| {
                (0..axis.taps.len()).map(move |k| [before.as_slice(), &[k]].concat())
            })
            .collect();
    }
    choices
        .iter()
        .map(|choice| corner(c, axes, choice))
        .collect()
}

/// Input and grid as rows: (batch, places, channels) and an axis each of (batch, points).
struct Problem {
    dtype: DType,
    sizes: Vec<i64>,
    points: Vec<i64>,
    rows: Value,
    axes: Vec<Axis>,
}

fn problem(c: &mut Ctx<'_>) -> Result<Problem> {
    let (input, grid) = (c.tensor("input")?, c.tensor("grid")?);
    let dtype = input.dtype;
    if !dtype.is_float() || grid.dtype != dtype {
        return Err(Error::runtime(format!(
            "grid_sampler(): expected input and grid to have the same floating dtype, but input has {} and grid has {}",
            dtype.name(),
            grid.dtype.name()
        )));
    }
    let wide = acc_type(dtype);
    let batch = input.dims[0];
    let sizes = input.dims[2..].to_vec();
    let points = grid.dims[1..grid.rank() - 1].to_vec();
    let rows = to_rows(c, &input, wide)?;
    let count: i64 = points.iter().product();
    let grid = c.b.convert(&grid, wide)?;
    let n = sizes.len();
    let grid = c.b.reshape(&grid, &[batch, count, n as i64])?;
    let rules = Rules::of(c)?;
    let mut axes = Vec::new();
    for (axis, &size) in sizes.iter().enumerate() {
        // The grid names the last axis first.
        let at = (n - 1 - axis) as i64;
        let own = c.b.slice_dim(&grid, 2, at, at + 1, 1)?;
        let own = c.b.reshape(&own, &[batch, count])?;
        let axis = rules.axis(&Formula::from(own), size);
        axes.push(built(c, axis)?);
    }
    Ok(Problem {
        dtype,
        sizes,
        points,
        rows,
        axes,
    })
}

/// The axis with its formulas built, once for all corners.
fn built(c: &mut Ctx<'_>, axis: Axis) -> Result<Axis> {
    let mut build =
        |formula: &Formula| -> Result<Formula> { Ok(Formula::from(formula.build(&mut c.b)?)) };
    let mut taps = Vec::new();
    for tap in &axis.taps {
        taps.push(Tap {
            place: build(&tap.place)?,
            weight: build(&tap.weight)?,
            slope: build(&tap.slope)?,
        });
    }
    let (size, speed) = (axis.size, build(&axis.speed)?);
    Ok(Axis { size, taps, speed })
}

/// (batch, channels, spatial…) as (batch, places, channels).
fn to_rows(c: &mut Ctx<'_>, x: &Value, dtype: DType) -> Result<Value> {
    let places: i64 = x.dims[2..].iter().product();
    let x = c.b.convert(x, dtype)?;
    let flat = c.b.reshape(&x, &[x.dims[0], x.dims[1], places])?;
    Ok(c.b.transpose(&flat, &[0, 2, 1])?)
}

fn from_rows(c: &mut Ctx<'_>, rows: &Value, sizes: &[i64], dtype: DType) -> Result<Value> {
    let planes = c.b.transpose(rows, &[0, 2, 1])?;
    let dims = [&planes.dims[..2], sizes].concat();
    let x = c.b.reshape(&planes, &dims)?;
    Ok(c.b.convert(&x, dtype)?)
}

/// The rows at a corner's places, zero outside.
fn drawn(c: &mut Ctx<'_>, rows: &Value, corner: &Corner) -> Result<Value> {
    let dims = GatherDims {
        offset_dims: vec![2],
        collapsed_slice_dims: vec![1],
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![0],
        start_index_map: vec![1],
        index_vector_dim: 2,
    };
    let found =
        c.b.gather(rows, &corner.place, &dims, &[1, 1, rows.dims[2]], false)?;
    let inside = c.b.broadcast_in_dim(&corner.inside, &found.dims, &[0, 1])?;
    let zero = c.b.splat_like(&found, 0i64)?;
    Ok(c.b.select(&inside, &found, &zero)?)
}

fn forward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let p = problem(c)?;
    let mut sum: Option<Value> = None;
    for corner in corners(c, &p.axes)? {
        let value = drawn(c, &p.rows, &corner)?;
        let weight = c.b.broadcast_in_dim(&corner.weight, &value.dims, &[0, 1])?;
        let part = c.b.mul(&value, &weight)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => c.b.add(&sum, &part)?,
        });
    }
    let sum = sum.ok_or_else(|| Error::runtime("a grid without axes"))?;
    Ok(one(from_rows(c, &sum, &p.points, p.dtype)?))
}

/// (gradient of the input, of the grid), each only if the mask asks for it.
fn backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let mask = c.bools("output_mask")?;
    let wanted = |index: usize| mask.get(index).copied().unwrap_or(true);
    let p = problem(c)?;
    let grad = c.tensor("grad_output")?;
    let grad = to_rows(c, &grad, p.rows.dtype)?;
    let corners = corners(c, &p.axes)?;
    let mut grads = vec![None, None];
    if wanted(0) {
        let rows = input_gradient(c, &p, &grad, &corners)?;
        grads[0] = Some(from_rows(c, &rows, &p.sizes, p.dtype)?);
    }
    if wanted(1) {
        grads[1] = Some(grid_gradient(c, &p, &grad, &corners)?);
    }
    Ok(grads)
}

/// All corners' shares scattered in one go.
fn input_gradient(c: &mut Ctx<'_>, p: &Problem, grad: &Value, corners: &[Corner]) -> Result<Value> {
    let (mut places, mut shares) = (Vec::new(), Vec::new());
    for corner in corners {
        let weight = c.b.broadcast_in_dim(&corner.weight, &grad.dims, &[0, 1])?;
        let inside = c.b.broadcast_in_dim(&corner.inside, &grad.dims, &[0, 1])?;
        let share = c.b.mul(grad, &weight)?;
        let zero = c.b.splat_like(&share, 0i64)?;
        shares.push(c.b.select(&inside, &share, &zero)?);
        places.push(corner.place.clone());
    }
    let places = c.b.concatenate(&places, 1)?;
    let shares = c.b.concatenate(&shares, 1)?;
    let zeros = c.b.splat_like(&p.rows, 0i64)?;
    let dims = ScatterDims {
        update_window_dims: vec![2],
        inserted_window_dims: vec![1],
        input_batching_dims: vec![0],
        scatter_indices_batching_dims: vec![0],
        scatter_dims_to_operand_dims: vec![1],
        index_vector_dim: 2,
    };
    Ok(c.b.scatter(
        &zeros,
        &places,
        &shares,
        &dims,
        false,
        false,
        |b, old, new| b.add(old, new),
    )?)
}

fn grid_gradient(c: &mut Ctx<'_>, p: &Problem, grad: &Value, corners: &[Corner]) -> Result<Value> {
    let mut sums: Vec<Option<Value>> = vec![None; p.axes.len()];
    for corner in corners {
        let value = drawn(c, &p.rows, corner)?;
        let product = c.b.mul(&value, grad)?;
        let product = c.b.reduce_with(Reducer::Sum, &product, &[2])?;
        for (sum, slope) in sums.iter_mut().zip(&corner.slopes) {
            let part = c.b.mul(&product, slope)?;
            *sum = Some(match sum.take() {
                None => part,
                Some(sum) => c.b.add(&sum, &part)?,
            });
        }
    }
    let mut columns = Vec::new();
    for (axis, sum) in p.axes.iter().zip(sums).rev() {
        let sum = sum.ok_or_else(|| Error::runtime("a grid without axes"))?;
        let speed = axis.speed.build(&mut c.b)?;
        let moved = c.b.mul(&sum, &speed)?;
        columns.push(c.b.reshape(&moved, &[moved.dims[0], moved.dims[1], 1])?);
    }
    let grid = c.b.concatenate(&columns, 2)?;
    let dims = [&[grid.dims[0]], p.points.as_slice(), &[grid.dims[2]]].concat();
    let grid = c.b.reshape(&grid, &dims)?;
    Ok(c.b.convert(&grid, p.dtype)?)
}
