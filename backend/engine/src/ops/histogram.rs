//! Counts of values in bins.

use tpulab_stablehlo::{DType, Reducer, ScatterDims, Value};

use super::search::COMPARISONS;
use super::util::{acc_type, like, unimplemented};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("histc", histc);
}

/// Counts of elements in bins of equal width between `min` and `max`, or the least and greatest element.
fn histc(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if !x.dtype.is_float() {
        return Err(unimplemented("histogram_cpu", x.dtype));
    }
    let bins = c.int("bins")?;
    if bins <= 0 {
        return Err(Error::runtime(format!(
            "torch.histogram(): bins must be > 0, but got {bins} for dimension 0"
        )));
    }
    let low = c.static_number("min")?.unwrap_or(0.0);
    let high = c.static_number("max")?.unwrap_or(0.0);
    if low > high {
        return Err(Error::runtime("torch.histc: max must be larger than min"));
    }
    if !low.is_finite() || !high.is_finite() {
        return Err(Error::runtime(format!(
            "torch.histc: range of [{low}, {high}] is not finite"
        )));
    }
    let n = x.numel();
    let flat = c.b.reshape(&x, &[n])?;
    let flat = c.b.convert(&flat, acc_type(x.dtype))?;
    if n == 0 {
        return Ok(one(c.b.splat(x.dtype, 0, &[bins])?));
    }
    let (low, high) = range(c, &flat, low, high)?;
    let low_each = c.b.broadcast_to(&low, &[n])?;
    let high_each = c.b.broadcast_to(&high, &[n])?;
    let above = c.b.ge(&flat, &low_each)?;
    let below = c.b.le(&flat, &high_each)?;
    let inside = c.b.and(&above, &below)?;
    let width = c.b.sub(&high_each, &low_each)?;
    let count = like(&mut c.b, &flat, bins as f64)?;
    let from_low = c.b.sub(&flat, &low_each)?;
    let scaled = c.b.mul(&from_low, &count)?;
    let bin = c.b.div(&scaled, &width)?;
    let zero = like(&mut c.b, &bin, 0.0)?;
    let bin = c.b.select(&inside, &bin, &zero)?;
    let bin = c.b.convert(&bin, DType::I32)?;
    let last = c.b.splat_like(&bin, bins - 1)?;
    let bin = c.b.min(&bin, &last)?;
    let outside = c.b.splat_like(&bin, bins)?;
    let bin = c.b.select(&inside, &bin, &outside)?;
    let ones = like(&mut c.b, &flat, 1.0)?;
    let counts = count_bins(c, &bin, &ones, bins)?;
    Ok(one(c.b.convert(&counts, x.dtype)?))
}

/// The bounds of a histogram; equal ones are taken from the data, and equal data get some room.
fn range(c: &mut Ctx<'_>, flat: &Value, low: f64, high: f64) -> Result<(Value, Value)> {
    if low != high {
        let low = c.b.scalar(flat.dtype, low)?;
        return Ok((low, c.b.scalar(flat.dtype, high)?));
    }
    let low = c.b.reduce_with(Reducer::Min, flat, &[0])?;
    let high = c.b.reduce_with(Reducer::Max, flat, &[0])?;
    let unit = c.b.scalar(flat.dtype, 1)?;
    let same = c.b.eq(&low, &high)?;
    let lower = c.b.sub(&low, &unit)?;
    let higher = c.b.add(&high, &unit)?;
    let low = c.b.select(&same, &lower, &low)?;
    let high = c.b.select(&same, &higher, &high)?;
    Ok((low, high))
}

/// Sum of `weights` \[n\] in each of `count` bins; numbers in `bins` \[n\] beyond them are left out.
pub(crate) fn count_bins(
    c: &mut Ctx<'_>,
    bins: &Value,
    weights: &Value,
    count: i64,
) -> Result<Value> {
    let n = bins.numel();
    if n == 0 || count == 0 {
        return Ok(c.b.splat(weights.dtype, 0, &[count])?);
    }
    if n.saturating_mul(count) <= COMPARISONS {
        let numbers = c.b.iota(bins.dtype, &[count, n], 0)?;
        let bin = c.b.broadcast_in_dim(bins, &[count, n], &[1])?;
        let weight = c.b.broadcast_in_dim(weights, &[count, n], &[1])?;
        let here = c.b.eq(&numbers, &bin)?;
        let zero = c.b.splat_like(&weight, 0)?;
        let each = c.b.select(&here, &weight, &zero)?;
        return Ok(c.b.reduce_with(Reducer::Sum, &each, &[1])?);
    }
    let zeros = c.b.splat(weights.dtype, 0, &[count])?;
    let dims = ScatterDims {
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..ScatterDims::default()
    };
    Ok(c.b
        .scatter(&zeros, bins, weights, &dims, false, false, |b, old, new| {
            b.add(old, new)
        })?)
}
