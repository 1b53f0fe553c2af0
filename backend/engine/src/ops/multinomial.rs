//! Draws of categories by weight.

use tpulab_stablehlo::{Cmp, DType, Dims, Reducer, Value};

use super::nonzero::count_not_greater;
use super::scan::running_with;
use super::sort::sort_pairs;
use super::stream::Stream;
use super::util::acc_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("multinomial", multinomial).random();
}

fn multinomial(c: &mut Ctx<'_>) -> Result<Lowered> {
    let weights = c.tensor("self")?;
    let count = c.int("num_samples")?;
    if !weights.dtype.is_float() {
        return Err(Error::runtime(format!(
            "multinomial only supports floating-point dtypes for input, got: {}",
            weights.dtype.torch_name()
        )));
    }
    if weights.rank() != 1 && weights.rank() != 2 {
        return Err(Error::runtime("prob_dist must be 1 or 2 dim"));
    }
    if count <= 0 {
        return Err(Error::runtime("cannot sample n_sample <= 0 samples"));
    }
    let n = weights.dims[weights.rank() - 1];
    let replacement = c.bool("replacement")?;
    if !replacement && count > n {
        return Err(Error::runtime(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        ));
    }
    let rows = if weights.rank() == 2 {
        weights.dims[0]
    } else {
        1
    };
    let wide = acc_type(weights.dtype);
    let p = c.b.convert(&weights, wide)?;
    let p = c.b.reshape(&p, &[rows, n])?;
    let drawn = if rows == 0 || n == 0 {
        c.b.splat(DType::I64, 0, &[rows, count])?
    } else if replacement && count > 1 {
        with_replacement(c, &p, count)?
    } else {
        without_replacement(c, &p, count)?
    };
    let mut sizes = Dims::from_slice(&weights.dims[..weights.rank() - 1]);
    sizes.push(count);
    let drawn = c.b.convert(&drawn, DType::I64)?;
    Ok(one(c.b.reshape(&drawn, &sizes)?))
}

/// The places of the largest p / e, with e exponential: each next one is a draw from what is left.
fn without_replacement(c: &mut Ctx<'_>, p: &Value, count: i64) -> Result<Value> {
    let waits = Stream::new(c).exponential(c, p.dtype, &p.dims)?;
    let rates = c.b.div(p, &waits)?;
    if count == 1 {
        let place = c.b.iota(DType::I32, &p.dims, 1)?;
        let low = c.b.min_value(p.dtype)?;
        let first = c.b.scalar(DType::I32, 0)?;
        let best =
            c.b.reduce(&[rates, place], &[low, first], &[1], |b, old, new| {
                let more = b.compare(Cmp::Gt, &new[0], &old[0])?;
                Ok(vec![
                    b.select(&more, &new[0], &old[0])?,
                    b.select(&more, &new[1], &old[1])?,
                ])
            })?;
        return Ok(best[1].clone());
    }
    let (_, order) = sort_pairs(&mut c.b, &rates, 1, true)?;
    Ok(c.b.slice_dim(&order, 1, 0, count, 1)?)
}

/// A uniform number's place among the running sums.
fn with_replacement(c: &mut Ctx<'_>, p: &Value, count: i64) -> Result<Value> {
    let (rows, n) = (p.dims[0], p.dims[1]);
    let sums = running_with(&mut c.b, Reducer::Sum, p, 1)?;
    // Sums in blocks may come out a little lower than the one before.
    let sums = running_with(&mut c.b, Reducer::Max, &sums, 1)?;
    let digits = if p.dtype == DType::F64 { 53 } else { 24 };
    let unit = Stream::new(c).unit(c, p.dtype, digits, &[rows, count])?;
    let total = c.b.slice_dim(&sums, 1, n - 1, n, 1)?;
    let total = c.b.reshape(&total, &[rows])?;
    let total = c.b.broadcast_in_dim(&total, &[rows, count], &[0])?;
    let at = c.b.mul(&unit, &total)?;
    // Rounded up to the total it would lie beyond every sum.
    let ulp = if p.dtype == DType::F64 {
        f64::EPSILON
    } else {
        f64::from(f32::EPSILON)
    };
    let below = c.b.splat_like(&total, 1.0 - ulp)?;
    let most = c.b.mul(&total, &below)?;
    let at = c.b.min(&at, &most)?;
    count_not_greater(c, &sums, &at)
}
