//! Filling tensors with random numbers.

use tpulab_stablehlo::{DType, Unary, Value};

use super::stream::{Stream, precision_of};
use super::util::{not_implemented, unimplemented};
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, Operand, broadcast_dims, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("uniform", uniform).random();
    r.op("normal", normal).random().casts();
    r.op("log_normal", log_normal).random();
    r.op("cauchy", cauchy).random();
    r.op("exponential", exponential).random();
    r.op("geometric", geometric).random().casts();
    r.op("bernoulli", bernoulli).random().casts().uploads();
    r.op("random", integers).random().casts();
    r.op("randperm", permutation).random().casts();
}

fn target(c: &Ctx<'_>) -> Result<(DType, Vec<i64>)> {
    let (dtype, dims) = c
        .type_of("self")
        .or_else(|| c.type_of("out"))
        .ok_or_else(|| Error::runtime("argument 'self' must be a tensor"))?;
    Ok((dtype, dims.to_vec()))
}

/// A number's value for an argument check; it stays out of the key.
fn given(c: &Ctx<'_>, name: &str, default: f64) -> Result<f64> {
    Ok(c.opt_number(name)?
        .map_or(default, |number| number.as_f64()))
}

/// A number or tensor argument, or a default.
fn opt_operand(c: &mut Ctx<'_>, name: &str, default: f64) -> Result<Operand> {
    if c.has(name) {
        return c.operand(name);
    }
    Ok(Operand::Number(Number::float(default)))
}

fn spread(c: &mut Ctx<'_>, name: &str, default: f64, like: &Value) -> Result<Value> {
    let value = c.scalar_or(name, default, like.dtype)?;
    Ok(c.b.broadcast_to(&value, &like.dims)?)
}

fn uniform(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    if !dtype.is_float() {
        return Err(unimplemented("check_uniform_bounds", dtype));
    }
    let (from, to) = (given(c, "from", 0.0)?, given(c, "to", 1.0)?);
    if from > to {
        return Err(Error::runtime(format!(
            "uniform_ expects to return a [from, to) range, but found from={from} > to={to}"
        )));
    }
    let (wide, digits) = precision_of(dtype);
    let unit = Stream::new(c).unit(c, wide, digits, &dims)?;
    let from = spread(c, "from", 0.0, &unit)?;
    let to = spread(c, "to", 1.0, &unit)?;
    let span = c.b.sub(&to, &from)?;
    let value = c.b.mul(&unit, &span)?;
    let value = c.b.add(&value, &from)?;
    // Rounding may reach the upper bound, which is not part of the range.
    let value = c.b.convert(&value, dtype)?;
    let (from, to) = (c.b.convert(&from, dtype)?, c.b.convert(&to, dtype)?);
    let below = c.b.lt(&value, &to)?;
    Ok(one(c.b.select(&below, &value, &from)?))
}

/// In-place with numbers; functional and `out=` with tensors for mean or deviation.
fn normal(c: &mut Ctx<'_>) -> Result<Lowered> {
    let mean = opt_operand(c, "mean", 0.0)?;
    let std = opt_operand(c, "std", 1.0)?;
    if let Operand::Number(number) = &std
        && number.as_f64() < 0.0
    {
        return Err(Error::runtime(format!(
            "normal expects std >= 0.0, but found std {}",
            number.as_f64()
        )));
    }
    let given = |operand: &Operand| match operand {
        Operand::Tensor(value) => Some((value.dtype, value.dims.clone())),
        Operand::Number(_) => None,
    };
    let (dtype, dims) = match (c.type_of("self"), given(&mean), given(&std)) {
        (Some((dtype, dims)), _, _) => (dtype, dims),
        (_, Some((dtype, a)), Some((_, b))) => (dtype, broadcast_dims(&[&a, &b])?),
        (_, Some(mean), None) => mean,
        (_, None, Some(std)) => std,
        (None, None, None) => {
            let (dtype, dims) = target(c)?;
            (dtype, dims.into())
        }
    };
    if !dtype.is_float() {
        return Err(unimplemented("normal_kernel_cpu", dtype));
    }
    let (wide, _) = precision_of(dtype);
    let unit = Stream::new(c).normal(c, wide, &dims)?;
    let value = scaled(c, &unit, &mean, &std)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

fn scaled(c: &mut Ctx<'_>, unit: &Value, mean: &Operand, std: &Operand) -> Result<Value> {
    let std = c.value(std, unit.dtype)?;
    let std = c.b.broadcast_to(&std, &unit.dims)?;
    let mean = c.value(mean, unit.dtype)?;
    let mean = c.b.broadcast_to(&mean, &unit.dims)?;
    let spread = c.b.mul(unit, &std)?;
    Ok(c.b.add(&spread, &mean)?)
}

fn log_normal(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let std = given(c, "std", 2.0)?;
    if std <= 0.0 {
        return Err(Error::runtime(format!(
            "log_normal_ expects std > 0.0, but found std={std}"
        )));
    }
    if !dtype.is_float() {
        return Err(unimplemented("log_normal_cpu", dtype));
    }
    let (wide, _) = precision_of(dtype);
    let unit = Stream::new(c).normal(c, wide, &dims)?;
    let (mean, std) = (opt_operand(c, "mean", 1.0)?, opt_operand(c, "std", 2.0)?);
    let log = scaled(c, &unit, &mean, &std)?;
    let value = c.b.exp(&log)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// median + sigma·tan(pi·(u - 1/2))
fn cauchy(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let sigma = given(c, "sigma", 1.0)?;
    if sigma <= 0.0 {
        return Err(Error::runtime(format!(
            "cauchy_ expects sigma > 0.0, but found sigma={sigma}"
        )));
    }
    if !dtype.is_float() {
        return Err(Error::runtime(format!(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you \
             specified {}",
            c_name(dtype)
        )));
    }
    let (wide, _) = precision_of(dtype);
    let unit = Stream::new(c).open_unit(c, wide, &dims)?;
    let half = c.b.splat_like(&unit, 0.5)?;
    let pi = c.b.splat_like(&unit, std::f64::consts::PI)?;
    let angle = c.b.sub(&unit, &half)?;
    let angle = c.b.mul(&angle, &pi)?;
    let slope = c.b.unary(Unary::Tan, &angle)?;
    let (median, sigma) = (
        opt_operand(c, "median", 0.0)?,
        opt_operand(c, "sigma", 1.0)?,
    );
    let value = scaled(c, &slope, &median, &sigma)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// The C++ name of a type, as some of torch's messages have it.
pub(super) fn c_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "unsigned char",
        DType::I8 => "signed char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long int",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "c10::Half",
        DType::BF16 => "c10::BFloat16",
        other => other.torch_name(),
    }
}

fn exponential(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let rate = given(c, "lambd", 1.0)?;
    if rate <= 0.0 {
        return Err(Error::runtime(format!(
            "exponential_ expects lambda > 0.0, but found lambda={rate}"
        )));
    }
    if !dtype.is_float() {
        return Err(Error::runtime(format!(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but \
             you specified {}",
            dtype.torch_name()
        )));
    }
    let (wide, _) = precision_of(dtype);
    let unit = Stream::new(c).exponential(c, wide, &dims)?;
    let rate = spread(c, "lambd", 1.0, &unit)?;
    let value = c.b.div(&unit, &rate)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// ceil(log(u) / log(1 - p)), at least one
fn geometric(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let p = given(c, "p", 0.5)?;
    if !(p > 0.0 && p < 1.0) {
        return Err(Error::runtime(format!(
            "geometric_ expects p to be in (0, 1), but got p={p}"
        )));
    }
    if dtype == DType::Bool {
        return Err(unimplemented("geometric_cpu", dtype));
    }
    let wide = if dtype.size() == 8 {
        DType::F64
    } else {
        DType::F32
    };
    let unit = Stream::new(c).open_unit(c, wide, &dims)?;
    let log = c.b.log(&unit)?;
    let p = spread(c, "p", 0.5, &unit)?;
    let minus = c.b.neg(&p)?;
    let fail = c.b.unary(Unary::Log1p, &minus)?;
    let trials = c.b.div(&log, &fail)?;
    let trials = c.b.ceil(&trials)?;
    let least = c.b.splat_like(&trials, 1.0)?;
    let trials = c.b.max(&trials, &least)?;
    Ok(one(c.b.convert(&trials, dtype)?))
}

/// `bernoulli(p)` draws for a tensor of probabilities; `x.bernoulli_(p)` fills self.
fn bernoulli(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (own, dims) = target(c)?;
    let p = if c.op.arg("p").is_some() {
        let p = opt_operand(c, "p", 0.5)?;
        if let Operand::Number(number) = &p {
            let p = number.as_f64();
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::runtime(format!(
                    "bernoulli_ expects p to be in [0, 1], but got p={p}"
                )));
            }
        }
        p
    } else {
        if !own.is_float() {
            return Err(unimplemented("bernoulli_tensor_cpu_p_", own));
        }
        Operand::Tensor(c.tensor("self")?)
    };
    let (wide, digits) = match &p {
        Operand::Tensor(p) if p.dtype == DType::F64 => (DType::F64, 53),
        _ => (DType::F32, 24),
    };
    let unit = Stream::new(c).unit(c, wide, digits, &dims)?;
    let p = c.value(&p, wide)?;
    let p = c.b.broadcast_to(&p, &dims)?;
    let hit = c.b.lt(&unit, &p)?;
    Ok(one(c.b.convert(&hit, own)?))
}

/// `random_`: whole numbers from `from` below `to`; without bounds, all that the dtype holds without gaps.
fn integers(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (dtype, dims) = target(c)?;
    let (from, to) = (c.opt_int("from")?, c.opt_int("to")?);
    let (low, high) = whole_range(dtype)?;
    let from = i128::from(from.unwrap_or(0));
    let to = match to {
        Some(to) => i128::from(to),
        None => high + 1,
    };
    if from >= to {
        return Err(Error::runtime(format!(
            "random_ expects 'from' to be less than 'to', but got from={from} >= to={to}"
        )));
    }
    if !dtype.is_float() {
        if from < low || from > high {
            return Err(Error::runtime(format!(
                "from is out of bounds for {}",
                c_name(dtype)
            )));
        }
        if to - 1 > high {
            return Err(Error::runtime(format!(
                "to - 1 is out of bounds for {}",
                c_name(dtype)
            )));
        }
    }
    let range = to - from;
    let (word, full) = if range > 1 << 28 {
        (DType::U64, 1i128 << 64)
    } else {
        (DType::U32, 1i128 << 32)
    };
    let mut stream = Stream::new(c);
    let mut bits = stream.bits(c, word, &dims)?;
    if range < full {
        if range & (range - 1) == 0 {
            let mask = c.b.splat(word, (range - 1) as u64, &dims)?;
            bits = c.b.and(&bits, &mask)?;
        } else {
            let range = c.b.splat(word, range as u64, &dims)?;
            bits = c.b.rem(&bits, &range)?;
        }
    }
    // The sum may wrap on its way, and ends where it should.
    let offset = c.b.convert(&bits, DType::I64)?;
    let from = c.b.splat(DType::I64, from as i64, &dims)?;
    let value = c.b.add(&offset, &from)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// Least and greatest whole number such that a dtype holds all between.
fn whole_range(dtype: DType) -> Result<(i128, i128)> {
    Ok(match dtype {
        DType::F64 => (-(1 << 53), 1 << 53),
        DType::F32 => (-(1 << 24), 1 << 24),
        DType::F16 => (-(1 << 11), 1 << 11),
        DType::BF16 => (-(1 << 8), 1 << 8),
        DType::Bool => (0, 1),
        other if other.is_int() => {
            let bits = 8 * other.size() as u32;
            let signed = u32::from(other.is_signed());
            let top = 1i128 << (bits - signed);
            (if other.is_signed() { -top } else { 0 }, top - 1)
        }
        other => return Err(not_implemented(format!("random_ of {}", other.name()))),
    })
}

/// The order of random 64-bit keys.
fn permutation(c: &mut Ctx<'_>) -> Result<Lowered> {
    let n = c.int("n")?;
    let dtype = match c.type_of("out") {
        Some((dtype, _)) => dtype,
        None => c.opt_dtype("dtype")?.unwrap_or(DType::I64),
    };
    let most = whole_range(dtype)?.1;
    if i128::from(n) > most + 1 {
        return Err(Error::runtime(format!(
            "n is too large for result tensor type: '{}'",
            dtype.torch_name()
        )));
    }
    if n < 2 {
        return Ok(one(c.b.splat(dtype, 0, &[n])?));
    }
    // The number stands in the low bits of its key: sorting one array of plain integers is fast.
    let keys = Stream::new(c).bits(c, DType::U64, &[n])?;
    let width = i64::from((n - 1).max(1).ilog2() + 1);
    let width = c.b.splat_like(&keys, width)?;
    let keys = c.b.shl(&keys, &width)?;
    let number = c.b.iota(DType::U64, &[n], 0)?;
    let keys = c.b.or(&keys, &number)?;
    let sorted =
        c.b.sort(&[keys], 0, false, |b, sides| b.lt(&sides[0], &sides[1]))?;
    let ones = c.b.splat_like(&number, -1i64 as u64)?;
    let high = c.b.shl(&ones, &width)?;
    let low = c.b.not(&high)?;
    let order = c.b.and(&sorted[0], &low)?;
    Ok(one(c.b.convert(&order, dtype)?))
}
