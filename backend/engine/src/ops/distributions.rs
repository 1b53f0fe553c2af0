//! Draws from distributions whose parameters are tensors.

use tpulab_stablehlo::{Cmp, DType, Reducer, Rng, Unary, Value};

use super::stream::Stream;
use super::util::{acc_type, reduce_stretched, unimplemented};
use crate::error::{Error, Result};
use crate::lower::{Ctx, broadcast_dims, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("poisson", poisson).random();
    r.op("binomial", binomial).random();
    r.op("_standard_gamma", standard_gamma).random();
    r.op("_sample_dirichlet", dirichlet).random();
}

/// Runs `next` until it leaves no element undone: (state, done) with a drawn value each.
fn retry(
    c: &mut Ctx<'_>,
    stream: &mut Stream,
    dims: &[i64],
    dtype: DType,
    mut next: impl FnMut(&mut Ctx<'_>, &mut Stream) -> Result<(Value, Value)>,
    rounds: usize,
) -> Result<Value> {
    let mut value = c.b.splat(dtype, 0, dims)?;
    let mut done = c.b.splat(DType::Bool, false, dims)?;
    for _ in 0..rounds {
        let (drawn, accepted) = next(c, stream)?;
        let open = c.b.not(&done)?;
        let take = c.b.and(&open, &accepted)?;
        value = c.b.select(&take, &drawn, &value)?;
        done = c.b.or(&done, &accepted)?;
    }
    Ok(value)
}

/// Marsaglia and Tsang, "A simple method for generating gamma variables": a round is accepted with probability above
/// 0.95, so eight leave one in 10^10 undone; those keep the mean.
fn gamma(c: &mut Ctx<'_>, stream: &mut Stream, shape: &Value) -> Result<Value> {
    const ROUNDS: usize = 8;
    let dtype = shape.dtype;
    let dims = shape.dims.clone();
    let one_ = c.b.splat_like(shape, 1.0)?;
    let small = c.b.lt(shape, &one_)?;
    let raised = c.b.add(shape, &one_)?;
    let alpha = c.b.select(&small, &raised, shape)?;
    let third = c.b.splat_like(shape, 1.0 / 3.0)?;
    let d = c.b.sub(&alpha, &third)?;
    let three = c.b.splat_like(shape, 3.0)?;
    let root = c.b.sqrt(&d)?;
    let scale = c.b.mul(&root, &three)?;
    let scale = c.b.div(&one_, &scale)?;
    let zero = c.b.splat_like(shape, 0.0)?;
    let half = c.b.splat_like(shape, 0.5)?;
    let drawn = retry(
        c,
        stream,
        &dims,
        dtype,
        |c, stream| {
            let x = stream.normal(c, dtype, &dims)?;
            let wait = stream.exponential(c, dtype, &dims)?;
            let way = c.b.mul(&scale, &x)?;
            let y = c.b.add(&one_, &way)?;
            let positive = c.b.compare(Cmp::Gt, &y, &zero)?;
            let safe = c.b.select(&positive, &y, &one_)?;
            let square = c.b.mul(&safe, &safe)?;
            let v = c.b.mul(&square, &safe)?;
            // log(u) < x²/2 + d - d·v + d·log(v)
            let log = c.b.log(&v)?;
            let gap = c.b.sub(&one_, &v)?;
            let gap = c.b.add(&gap, &log)?;
            let gap = c.b.mul(&d, &gap)?;
            let bend = c.b.mul(&x, &x)?;
            let bend = c.b.mul(&bend, &half)?;
            let bound = c.b.add(&bend, &gap)?;
            let minus = c.b.neg(&wait)?;
            let below = c.b.lt(&minus, &bound)?;
            let accepted = c.b.and(&positive, &below)?;
            Ok((c.b.mul(&d, &v)?, accepted))
        },
        ROUNDS,
    )?;
    let missing = c.b.compare(Cmp::Le, &drawn, &zero)?;
    let drawn = c.b.select(&missing, &d, &drawn)?;
    // Below one: a draw for alpha + 1 times u^(1/alpha).
    let wait = stream.exponential(c, dtype, &dims)?;
    let exponent = c.b.div(&wait, shape)?;
    let exponent = c.b.neg(&exponent)?;
    let factor = c.b.exp(&exponent)?;
    let factor = c.b.select(&small, &factor, &one_)?;
    Ok(c.b.mul(&drawn, &factor)?)
}

fn standard_gamma(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if !x.dtype.is_float() {
        return Err(unimplemented("gamma", x.dtype));
    }
    let shape = c.b.convert(&x, acc_type(x.dtype))?;
    let mut stream = Stream::new(c);
    let drawn = gamma(c, &mut stream, &shape)?;
    let least = smallest(&x)?;
    let least = c.b.splat_like(&drawn, least)?;
    let drawn = c.b.max(&drawn, &least)?;
    Ok(one(c.b.convert(&drawn, x.dtype)?))
}

/// The least positive normal number of a float dtype.
fn smallest(x: &Value) -> Result<f64> {
    Ok(match x.dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F32 | DType::BF16 => f64::from(f32::MIN_POSITIVE),
        DType::F16 => (-14.0f64).exp2(),
        other => return Err(unimplemented("gamma", other)),
    })
}

fn dirichlet(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if !x.dtype.is_float() {
        return Err(unimplemented("dirichlet", x.dtype));
    }
    let shape = c.b.convert(&x, acc_type(x.dtype))?;
    let mut stream = Stream::new(c);
    let drawn = gamma(c, &mut stream, &shape)?;
    let least = c.b.splat_like(&drawn, smallest(&shape)?)?;
    let drawn = c.b.max(&drawn, &least)?;
    let Some(last) = x.rank().checked_sub(1) else {
        return Ok(one(c.b.splat_like(&x, 1.0)?));
    };
    let sum = reduce_stretched(&mut c.b, Reducer::Sum, &drawn, &[last])?;
    let share = c.b.div(&drawn, &sum)?;
    Ok(one(c.b.convert(&share, x.dtype)?))
}

/// Small rates by inversion, large ones by rejection.
fn poisson(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if !x.dtype.is_float() {
        return Err(unimplemented("poisson_cpu", x.dtype));
    }
    let wide = acc_type(x.dtype);
    let rate = c.b.convert(&x, wide)?;
    let mut stream = Stream::new(c);
    let few = few_events(c, &mut stream, &rate)?;
    let many = many_events(c, &mut stream, &rate)?;
    let limit = c.b.splat_like(&rate, FEW)?;
    let small = c.b.lt(&rate, &limit)?;
    let drawn = c.b.select(&small, &few, &many)?;
    Ok(one(c.b.convert(&drawn, x.dtype)?))
}

const FEW: f64 = 10.0;

/// Counts terms of the distribution while their sum stays below a uniform number.
fn few_events(c: &mut Ctx<'_>, stream: &mut Stream, rate: &Value) -> Result<Value> {
    let most = c.b.splat_like(rate, FEW)?;
    let rate = c.b.min(rate, &most)?;
    let unit = stream.unit(
        c,
        rate.dtype,
        if rate.dtype == DType::F64 { 53 } else { 24 },
        &rate.dims,
    )?;
    let minus = c.b.neg(&rate)?;
    let first = c.b.exp(&minus)?;
    let zero = c.b.splat_like(&rate, 0.0)?;
    let bound = c.b.scalar(rate.dtype, 64.0)?;
    let start = c.b.scalar(rate.dtype, 0.0)?;
    let results = c.b.while_loop(
        &[start, zero.clone(), first.clone(), first, unit, rate, bound],
        |b, s| b.lt(&s[0], &s[6]),
        |b, s| {
            let step = b.splat_like(&s[0], 1.0)?;
            let next = b.add(&s[0], &step)?;
            // Past u already: count stays.
            let passed = b.lt(&s[3], &s[4])?;
            let ones = b.convert(&passed, s[1].dtype)?;
            let count = b.add(&s[1], &ones)?;
            let k = b.broadcast_to(&next, &s[2].dims)?;
            let term = b.mul(&s[2], &s[5])?;
            let term = b.div(&term, &k)?;
            let sum = b.add(&s[3], &term)?;
            Ok(vec![
                next,
                count,
                term,
                sum,
                s[4].clone(),
                s[5].clone(),
                s[6].clone(),
            ])
        },
    )?;
    Ok(results[1].clone())
}

/// W. Hörmann, "The transformed rejection method for generating Poisson random variables" (PTRS).
fn many_events(c: &mut Ctx<'_>, stream: &mut Stream, rate: &Value) -> Result<Value> {
    const ROUNDS: usize = 12;
    let dims = rate.dims.clone();
    let dtype = rate.dtype;
    let few = c.b.splat_like(rate, FEW)?;
    let rate = c.b.max(rate, &few)?;
    let number = |c: &mut Ctx<'_>, value: f64| c.b.splat(dtype, value, &dims);
    let root = c.b.sqrt(&rate)?;
    let log_rate = c.b.log(&rate)?;
    // b = 0.931 + 2.53·sqrt(rate); a = -0.059 + 0.02483·b; 1/alpha = 1.1239 + 1.1328/(b - 3.4)
    let k = number(c, 2.53)?;
    let b = c.b.mul(&root, &k)?;
    let k = number(c, 0.931)?;
    let b = c.b.add(&b, &k)?;
    let k = number(c, 0.02483)?;
    let a = c.b.mul(&b, &k)?;
    let k = number(c, -0.059)?;
    let a = c.b.add(&a, &k)?;
    let k = number(c, 3.4)?;
    let over = c.b.sub(&b, &k)?;
    let k = number(c, 1.1328)?;
    let inverse = c.b.div(&k, &over)?;
    let k = number(c, 1.1239)?;
    let inverse = c.b.add(&inverse, &k)?;
    let half = number(c, 0.5)?;
    let shift = number(c, 0.43)?;
    let two_a = c.b.add(&a, &a)?;
    let zero = number(c, 0.0)?;
    let one_ = number(c, 1.0)?;
    let tiny = number(c, 0.013)?;
    let drawn = retry(
        c,
        stream,
        &dims,
        dtype,
        |c, stream| {
            let digits = if dtype == DType::F64 { 53 } else { 24 };
            let u = stream.unit(c, dtype, digits, &dims)?;
            let u = c.b.sub(&u, &half)?;
            let v = stream.unit(c, dtype, digits, &dims)?;
            let v = c.b.sub(&one_, &v)?;
            let size = c.b.abs(&u)?;
            let us = c.b.sub(&half, &size)?;
            let wide = c.b.div(&two_a, &us)?;
            let wide = c.b.add(&wide, &b)?;
            let k = c.b.mul(&wide, &u)?;
            let k = c.b.add(&k, &rate)?;
            let k = c.b.add(&k, &shift)?;
            let k = c.b.floor(&k)?;
            let valid = c.b.compare(Cmp::Ge, &k, &zero)?;
            let narrow = c.b.compare(Cmp::Ge, &us, &tiny)?;
            let valid = c.b.and(&valid, &narrow)?;
            let safe = c.b.max(&k, &zero)?;
            // log(v / alpha / (a/us² + b)) <= k·log(rate) - rate - lgamma(k + 1)
            let square = c.b.mul(&us, &us)?;
            let fall = c.b.div(&a, &square)?;
            let fall = c.b.add(&fall, &b)?;
            let left = c.b.mul(&v, &inverse)?;
            let left = c.b.div(&left, &fall)?;
            let left = c.b.log(&left)?;
            let next = c.b.add(&safe, &one_)?;
            let factorial = c.b.unary(Unary::Lgamma, &next)?;
            let right = c.b.mul(&safe, &log_rate)?;
            let right = c.b.sub(&right, &rate)?;
            let right = c.b.sub(&right, &factorial)?;
            let below = c.b.le(&left, &right)?;
            Ok((safe, c.b.and(&valid, &below)?))
        },
        ROUNDS,
    )?;
    // One in many millions is still undone: it takes the mean.
    let missing = c.b.le(&drawn, &zero)?;
    let mean = c.b.floor(&rate)?;
    Ok(c.b.select(&missing, &mean, &drawn)?)
}

fn binomial(c: &mut Ctx<'_>) -> Result<Lowered> {
    let count = c.tensor("count")?;
    let prob = c.tensor("prob")?;
    if count.dtype != prob.dtype || !count.dtype.is_float() {
        return Err(Error::value(format!(
            "Binomial only supports floating-point dtypes for count, got: {}",
            count.dtype.torch_name()
        )));
    }
    let dims = broadcast_dims(&[&count.dims, &prob.dims])?;
    let dtype = acc_type(count.dtype);
    let n = c.b.convert(&count, dtype)?;
    let n = c.b.broadcast_to(&n, &dims)?;
    let p = c.b.convert(&prob, dtype)?;
    let p = c.b.broadcast_to(&p, &dims)?;
    let drawn = trials(c, &n, &p)?;
    Ok(one(c.b.convert(&drawn, count.dtype)?))
}

/// Geometric gaps between successes: the loop runs once for each success of the luckiest element.
fn trials(c: &mut Ctx<'_>, n: &Value, p: &Value) -> Result<Value> {
    let dims = n.dims.clone();
    let dtype = n.dtype;
    let half = c.b.splat_like(p, 0.5)?;
    let one_ = c.b.splat_like(p, 1.0)?;
    let flipped = c.b.compare(Cmp::Gt, p, &half)?;
    let other = c.b.sub(&one_, p)?;
    let q = c.b.select(&flipped, &other, p)?;
    let minus = c.b.neg(&q)?;
    let fail = c.b.unary(Unary::Log1p, &minus)?;
    let state = c.rng_state();
    let zero = c.b.splat(dtype, 0.0, &dims)?;
    let word = if dtype == DType::F64 {
        DType::U64
    } else {
        DType::U32
    };
    let digits: i64 = if dtype == DType::F64 { 52 } else { 31 };
    let shift = if dtype == DType::F64 { 12 } else { 1 };
    let results = c.b.while_loop(
        &[state, zero.clone(), zero, n.clone(), fail],
        |b, s| {
            let running = b.lt(&s[1], &s[3])?;
            let all: Vec<usize> = (0..running.rank()).collect();
            b.reduce_with(Reducer::Or, &running, &all)
        },
        |b, s| {
            let (state, bits) = b.rng_bits(&s[0], word, &dims, Rng::Philox)?;
            let by = b.splat_like(&bits, shift)?;
            let bits = b.shr_logical(&bits, &by)?;
            let whole = b.convert(&bits, dtype)?;
            let half = b.splat_like(&whole, 0.5)?;
            let whole = b.add(&whole, &half)?;
            let scale = b.splat_like(&whole, (-digits as f64).exp2())?;
            let unit = b.mul(&whole, &scale)?;
            let log = b.log(&unit)?;
            // log(u) may round to zero, and a probability of zero never succeeds.
            let gap = b.div(&log, &s[4])?;
            let gap = b.ceil(&gap)?;
            let least = b.splat_like(&gap, 1.0)?;
            let nan = b.ne(&gap, &gap)?;
            let gap = b.max(&gap, &least)?;
            let gap = b.select(&nan, &least, &gap)?;
            let at = b.add(&s[1], &gap)?;
            let inside = b.le(&at, &s[3])?;
            let hit = b.convert(&inside, dtype)?;
            let count = b.add(&s[2], &hit)?;
            Ok(vec![state, at, count, s[3].clone(), s[4].clone()])
        },
    )?;
    let successes = results[2].clone();
    let mirrored = c.b.sub(n, &successes)?;
    Ok(c.b.select(&flipped, &mirrored, &successes)?)
}
