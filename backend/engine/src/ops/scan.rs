//! Running sums, products and extremes.
//!
//! A running reduction is one `reduce_window` whose window reaches back to the start. The compiler turns it into
//! blocks, in measurements as fast as, or faster than, doubling steps or blocks written out.

use tpulab_stablehlo::{Builder, DType, Reducer, Value, WindowSpec};

use super::util::{acc_type, index_type, nan_mask, sum_type, unimplemented, wrap_dim};
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("cumsum", |c| running_total(c, Reducer::Sum));
    r.op("cumprod", |c| running_total(c, Reducer::Prod));
    r.op("cummax", |c| running_extreme(c, Reducer::Max));
    r.op("cummin", |c| running_extreme(c, Reducer::Min));
    r.op("_cummax_helper", |c| running_extreme(c, Reducer::Max));
    r.op("_cummin_helper", |c| running_extreme(c, Reducer::Min));
    r.op("logcumsumexp", logcumsumexp);
    r.op("_logcumsumexp", logcumsumexp);
    r.direct(&[
        "cumsum",
        "cumprod",
        "cummax",
        "cummax.out",
        "cummin",
        "cummin.out",
        "logcumsumexp",
        "logcumsumexp.out",
    ]);
}

/// The combination of all elements up to each one along `dim`.
fn running(
    b: &mut Builder,
    x: &Value,
    dim: usize,
    init: &Value,
    combine: impl FnOnce(&mut Builder, &Value, &Value) -> tpulab_stablehlo::Result<Value>,
) -> Result<Value> {
    if x.numel() == 0 {
        return Ok(x.clone());
    }
    let mut sizes = vec![1; x.rank()];
    sizes[dim] = x.dims[dim];
    let mut window = WindowSpec::new(&sizes);
    window.padding[dim] = (x.dims[dim] - 1, 0);
    let made = b.reduce_window(
        std::slice::from_ref(x),
        std::slice::from_ref(init),
        &window,
        |b, acc, new| Ok(vec![combine(b, &acc[0], &new[0])?]),
    )?;
    made.into_iter()
        .next()
        .ok_or_else(|| Error::runtime("a running reduction gave no result"))
}

/// [`running`] with one operation.
pub(crate) fn running_with(b: &mut Builder, op: Reducer, x: &Value, dim: usize) -> Result<Value> {
    let init = b.reducer_init(op, x.dtype)?;
    running(b, x, dim, &init, |b, acc, new| {
        b.binary(op.binary(), acc, new)
    })
}

fn running_total(c: &mut Ctx<'_>, op: Reducer) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let dtype = match (c.type_of("out"), c.opt_dtype("dtype")?) {
        (Some((dtype, _)), _) | (None, Some(dtype)) => dtype,
        (None, None) if c.op.schema.name.ends_with('_') => x.dtype,
        (None, None) => sum_type(x.dtype),
    };
    if dtype == DType::Bool {
        return Err(unimplemented(&format!("{}_out_cpu", c.base_name()), dtype));
    }
    let cast = c.b.convert(&x, dtype)?;
    if x.rank() == 0 {
        return Ok(one(cast));
    }
    let wide = c.b.convert(&cast, acc_type(dtype))?;
    let total = running_with(&mut c.b, op, &wide, dim)?;
    Ok(one(c.b.convert(&total, dtype)?))
}

/// Extreme so far, and the last place it was met; from the first NaN on, NaN and the place of the last one.
fn running_extreme(c: &mut Ctx<'_>, op: Reducer) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    if x.rank() == 0 {
        let place = c.b.scalar(DType::I64, 0)?;
        return Ok(many([x, place]));
    }
    let extreme = running_with(&mut c.b, op, &x, dim)?;
    let mut met = c.b.eq(&x, &extreme)?;
    if let Some(nan) = nan_mask(&mut c.b, &x)? {
        met = c.b.or(&met, &nan)?;
    }
    let places = c.b.iota(index_type(x.dims[dim]), &x.dims, dim)?;
    let first = c.b.splat_like(&places, 0)?;
    let places = c.b.select(&met, &places, &first)?;
    let place = running_with(&mut c.b, Reducer::Max, &places, dim)?;
    let place = c.b.convert(&place, DType::I64)?;
    Ok(many([extreme, place]))
}

fn logcumsumexp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    if !x.dtype.is_float() {
        return Err(unimplemented("logcumsumexp_out_cpu", x.dtype));
    }
    if x.rank() == 0 {
        return Ok(one(x));
    }
    let wide = c.b.convert(&x, acc_type(x.dtype))?;
    let nothing = c.b.scalar(wide.dtype, f64::NEG_INFINITY)?;
    let total = running(&mut c.b, &wide, dim, &nothing, log_add_exp)?;
    Ok(one(c.b.convert(&total, x.dtype)?))
}

/// log(eᵃ + eᵇ). The difference of equal infinities is taken as zero.
fn log_add_exp(b: &mut Builder, x: &Value, y: &Value) -> tpulab_stablehlo::Result<Value> {
    let most = b.max(x, y)?;
    let least = b.min(x, y)?;
    let apart = b.sub(&least, &most)?;
    let same = b.eq(&least, &most)?;
    let zero = b.scalar(x.dtype, 0)?;
    let apart = b.select(&same, &zero, &apart)?;
    let power = b.exp(&apart)?;
    let more = b.log1p(&power)?;
    let finite = b.is_finite(&most)?;
    let sum = b.add(&most, &more)?;
    b.select(&finite, &sum, &most)
}
