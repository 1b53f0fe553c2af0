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

<<<<<<< HEAD
/// The random bits of one call.
pub(super) struct Stream {
    state: Value,
}

impl Stream {
    pub(super) fn new(c: &mut Ctx<'_>) -> Self {
        Self {
            state: c.rng_state(),
        }
    }

    pub(super) fn bits(&mut self, c: &mut Ctx<'_>, dtype: DType, dims: &[i64]) -> Result<Value> {
        if dims.contains(&0) {
            return Ok(c.b.splat(dtype, 0, dims)?);
        }
        let (state, bits) = c.b.rng_bits(&self.state, dtype, dims, Rng::Philox)?;
        self.state = state;
        Ok(bits)
    }

    /// Whole numbers below 2^digits as floats; `dtype` is F32 or F64.
    fn whole(&mut self, c: &mut Ctx<'_>, dtype: DType, digits: i64, dims: &[i64]) -> Result<Value> {
        let (word, width) = if dtype == DType::F64 {
            (DType::U64, 64)
        } else {
            (DType::U32, 32)
        };
        let bits = self.bits(c, word, dims)?;
        let by = c.b.splat_like(&bits, width - digits)?;
        let bits = c.b.shr_logical(&bits, &by)?;
        Ok(c.b.convert(&bits, dtype)?)
    }

    /// Multiples of 2^-digits in [0, 1), as F32 or F64.
    pub(super) fn unit(
        &mut self,
        c: &mut Ctx<'_>,
        dtype: DType,
        digits: i64,
        dims: &[i64],
    ) -> Result<Value> {
        let whole = self.whole(c, dtype, digits, dims)?;
        let scale = c.b.splat_like(&whole, (-digits as f64).exp2())?;
        Ok(c.b.mul(&whole, &scale)?)
    }

    /// In (0, 1): the middles of equal intervals, fine enough for tails.
    fn open_unit(&mut self, c: &mut Ctx<'_>, dtype: DType, dims: &[i64]) -> Result<Value> {
        let digits = if dtype == DType::F64 { 52 } else { 31 };
        let whole = self.whole(c, dtype, digits, dims)?;
        let half = c.b.splat_like(&whole, 0.5)?;
        let middle = c.b.add(&whole, &half)?;
        let scale = c.b.splat_like(&middle, (-digits as f64).exp2())?;
        let unit = c.b.mul(&middle, &scale)?;
        // Float32 rounds the topmost middles up to one.
        let top = if dtype == DType::F64 {
            1.0 - f64::EPSILON / 2.0
        } else {
            1.0 - f64::from(f32::EPSILON) / 2.0
        };
        let top = c.b.splat_like(&unit, top)?;
        Ok(c.b.min(&unit, &top)?)
    }

    /// Standard normal values, as F32 or F64.
    pub(super) fn normal(&mut self, c: &mut Ctx<'_>, dtype: DType, dims: &[i64]) -> Result<Value> {
        let root = std::f64::consts::SQRT_2;
        if dtype == DType::F64 {
            let tail = self.open_unit(c, dtype, dims)?;
            let one = c.b.splat_like(&tail, 1.0)?;
            let two = c.b.splat_like(&tail, 2.0)?;
            let twice = c.b.mul(&tail, &two)?;
            let x = c.b.sub(&one, &twice)?;
            let z = c.b.unary(Unary::ErfInv, &x)?;
            let root = c.b.splat_like(&z, root)?;
            return Ok(c.b.mul(&z, &root)?);
        }
        let bits = self.bits(c, DType::U32, dims)?;
        let one_bit = c.b.splat_like(&bits, 1)?;
        let whole = c.b.shr_logical(&bits, &one_bit)?;
        let whole = c.b.convert(&whole, DType::F32)?;
        let half = c.b.splat_like(&whole, 0.5)?;
        let middle = c.b.add(&whole, &half)?;
        // Probability of the tail beyond the value, in (0, 1/2].
        let scale = c.b.splat_like(&middle, (-32.0f64).exp2())?;
        let tail = c.b.mul(&middle, &scale)?;
        let size = normal_quantile(c, &tail)?;
        let sign = c.b.and(&bits, &one_bit)?;
        let zero = c.b.splat_like(&sign, 0)?;
        let negative = c.b.ne(&sign, &zero)?;
        let minus = c.b.neg(&size)?;
        Ok(c.b.select(&negative, &minus, &size)?)
    }

    /// Standard exponential values, above zero.
    pub(super) fn exponential(
        &mut self,
        c: &mut Ctx<'_>,
        dtype: DType,
        dims: &[i64],
    ) -> Result<Value> {
        let unit = self.open_unit(c, dtype, dims)?;
        let log = c.b.log(&unit)?;
        Ok(c.b.neg(&log)?)
    }
}

/// sqrt(2)·erfinv(1 - 2t) for tail probabilities t in (0, 1/2]: M. Giles, "Approximating the erfinv function", single
/// precision. Its w = -log((1-x)(1+x)) is found from t itself, which keeps the far tail exact.
fn normal_quantile(c: &mut Ctx<'_>, tail: &Value) -> Result<Value> {
    const CENTRAL: [f64; 9] = [
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    ];
    const OUTER: [f64; 9] = [
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    ];
    let one = c.b.splat_like(tail, 1.0)?;
    let four = c.b.splat_like(tail, 4.0)?;
    let rest = c.b.sub(&one, tail)?;
    let product = c.b.mul(tail, &rest)?;
    let product = c.b.mul(&product, &four)?;
    let product = c.b.min(&product, &one)?;
    let w = c.b.log(&product)?;
    let w = c.b.neg(&w)?;
    let five = c.b.splat_like(&w, 5.0)?;
    let central = c.b.lt(&w, &five)?;
    let shift = c.b.splat_like(&w, 2.5)?;
    let near = c.b.sub(&w, &shift)?;
    let root = c.b.sqrt(&w)?;
    let shift = c.b.splat_like(&w, 3.0)?;
    let far = c.b.sub(&root, &shift)?;
    let at = c.b.select(&central, &near, &far)?;
    let mut sum: Option<Value> = None;
    for (a, b) in CENTRAL.iter().zip(&OUTER) {
        let a = c.b.splat_like(tail, *a)?;
        let b = c.b.splat_like(tail, *b)?;
        let term = c.b.select(&central, &a, &b)?;
        sum = Some(match sum {
            None => term,
            Some(sum) => {
                let product = c.b.mul(&sum, &at)?;
                c.b.add(&product, &term)?
            }
        });
    }
    let sum = sum.ok_or_else(|| Error::runtime("a polynomial without terms"))?;
    let twice = c.b.add(tail, tail)?;
    let x = c.b.sub(&one, &twice)?;
    let z = c.b.mul(&sum, &x)?;
    let root = c.b.splat_like(&z, std::f64::consts::SQRT_2)?;
    Ok(c.b.mul(&z, &root)?)
}

/// Type to compute in, and binary digits of a uniform number of `dtype`.
pub(super) fn precision_of(dtype: DType) -> (DType, i64) {
    match dtype {
        DType::F64 => (DType::F64, 53),
        DType::F16 => (DType::F32, 11),
        DType::BF16 => (DType::F32, 8),
        _ => (DType::F32, 24),
    }
}

=======
>>>>>>> ops-c
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
    let keys = Stream::new(c).bits(c, DType::U64, &[n])?;
    let places = c.b.iota(super::util::index_type(n), &[n], 0)?;
    if n < 2 {
        return Ok(one(c.b.convert(&places, dtype)?));
    }
    let sorted = c.b.sort(&[keys, places], 0, true, |b, sides| {
        b.lt(&sides[0], &sides[1])
    })?;
    Ok(one(c.b.convert(&sorted[1], dtype)?))
}
