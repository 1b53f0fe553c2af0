//! Functions of one operand: roots, logarithms, angles, rounding, and what kind of number it is.

use tpulab_stablehlo::{Binary, DType, Unary};

use super::activation::float_argument;
use super::formula::{Formula, finish, float_unary, floats, sign_bit, wide};
use super::special;
use crate::error::Result;
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

macro_rules! float_functions {
    ($r:ident: $($name:literal => $f:expr;)+) => {
        $($r.op($name, |c| float_unary(c, $f)).pointwise();)+
    };
}

pub(crate) fn register(r: &mut Registry) {
    float_functions! { r:
        "sqrt" => Formula::sqrt;
        "rsqrt" => |x| x.unary(Unary::Rsqrt);
        "sin" => Formula::sin;
        "cos" => |x| x.unary(Unary::Cosine);
        "tan" => |x| x.unary(Unary::Tan);
        "sinh" => |x| x.unary(Unary::Sinh);
        "cosh" => |x| x.unary(Unary::Cosh);
        "tanh" => Formula::tanh;
        "asin" => |x| x.unary(Unary::Asin);
        "acos" => |x| x.unary(Unary::Acos);
        "atan" => |x| x.unary(Unary::Atan);
        "asinh" => |x| x.unary(Unary::Asinh);
        "acosh" => |x| x.unary(Unary::Acosh);
        "atanh" => |x| x.unary(Unary::Atanh);
        "expm1" => Formula::expm1;
        "exp2" => |x| Formula::from(2.0).pow(x);
        "log" => Formula::log;
        "log1p" => Formula::log1p;
        "sigmoid" => Formula::logistic;
        "erf" => Formula::erf;
        "erfc" => |x| x.unary(Unary::Erfc);
        "erfinv" => |x| x.unary(Unary::ErfInv);
        "lgamma" => Formula::lgamma;
        "digamma" => special::digamma;
        "i0" => special::i0;
        "sinc" => |x| {
            let angle = x * std::f64::consts::PI;
            x.eq(0.0).choose(1.0, angle.sin() / &angle)
        };
    }
    r.op("log2", |c| log_base(c, 2.0)).pointwise();
    r.op("log10", |c| log_base(c, 10.0)).pointwise();
    r.op("floor", |c| whole(c, Formula::floor)).pointwise();
    r.op("ceil", |c| whole(c, Formula::ceil)).pointwise();
    r.op("trunc", |c| whole(c, Formula::trunc)).pointwise();
    r.op("round", round).pointwise();
    r.op("frac", frac).pointwise();
    r.op("angle", angle).pointwise();
    r.op("nan_to_num", nan_to_num).pointwise();
    r.op("signbit", signbit).pointwise();
    r.op("isnan", |c| kind(c, Formula::is_nan)).pointwise();
    r.op("isinf", |c| kind(c, |x| x.unary(Unary::IsInf)))
        .pointwise();
    r.op("isposinf", |c| kind(c, |x| x.eq(f64::INFINITY)))
        .pointwise();
    r.op("isneginf", |c| kind(c, |x| x.eq(f64::NEG_INFINITY)))
        .pointwise();
    r.op("logit", logit).pointwise();
    r.op("logit_backward", logit_backward).pointwise();
    r.op("frexp", frexp).pointwise();
    r.direct(&[
        "sqrt", "sqrt_", "rsqrt", "sin", "cos", "tanh", "tanh_", "log", "sigmoid", "sigmoid_",
        "erf", "isinf",
    ]);
}

/// A quotient of logarithms, which may miss the whole number at a power of the base by the last bit: there the
/// power tells.
fn log_base(c: &mut Ctx<'_>, base: f64) -> Result<Lowered> {
    let ([x], dtype) = floats(c, ["self"])?;
    let epsilon = if dtype == DType::F64 {
        f64::EPSILON
    } else {
        f64::from(f32::EPSILON)
    };
    let log = x.log() / base.ln();
    let whole = log.unary(Unary::RoundNearestEven);
    let gap = (Formula::from(base).pow(&whole) - &x).abs();
    let close = gap.le(&x * epsilon) & whole.ne(0.0);
    finish(c, &close.choose(whole, log), dtype)
}

/// A rounding function; integers are whole already.
fn whole(c: &mut Ctx<'_>, f: impl Fn(&Formula) -> Formula) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype.is_float() {
        finish(c, &f(&Formula::from(&x)), x.dtype)
    } else {
        Ok(one(x))
    }
}

/// Half to even, at a decimal place.
fn round(c: &mut Ctx<'_>) -> Result<Lowered> {
    let even = |x: &Formula| x.unary(Unary::RoundNearestEven);
    let decimals = c.opt_int("decimals")?.unwrap_or(0);
    if decimals == 0 {
        return whole(c, even);
    }
    let (x, dtype) = float_argument(c, "self", "round_cpu")?;
    let scale = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
    let rounded = if decimals > 0 {
        even(&(x * scale)) / scale
    } else {
        even(&(x / scale)) * scale
    };
    finish(c, &rounded, dtype)
}

fn frac(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dtype) = float_argument(c, "self", "frac_cpu")?;
    finish(c, &(&x - x.trunc()), dtype)
}

fn angle(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype.is_complex() {
        let x = Formula::from(&x);
        let (re, im) = (x.unary(Unary::Real), x.unary(Unary::Imag));
        let value = im.binary(Binary::Atan2, re).build(&mut c.b)?;
        return Ok(one(value));
    }
    float_unary(c, |x| {
        let zero = x.is_nan().choose(x, 0.0);
        x.lt(0.0).choose(std::f64::consts::PI, zero)
    })
}

fn nan_to_num(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dtype = x.dtype;
    if !dtype.is_float() {
        return Ok(one(x));
    }
    let largest = match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => f64::from(f32::from_bits(0x7f7f_0000)),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    let nan = Formula::from(c.scalar_or("nan", 0.0, dtype)?);
    let high = Formula::from(c.scalar_or("posinf", largest, dtype)?);
    let low = Formula::from(c.scalar_or("neginf", -largest, dtype)?);
    let x = Formula::from(&x);
    let finite = x
        .eq(f64::INFINITY)
        .choose(high, x.eq(f64::NEG_INFINITY).choose(low, &x));
    finish(c, &x.is_nan().choose(nan, finite), dtype)
}

fn signbit(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype.is_float() {
        finish(c, &sign_bit(&Formula::from(&x)), DType::Bool)
    } else if x.dtype.is_signed() {
        finish(c, &Formula::from(&x).lt(0i64), DType::Bool)
    } else {
        Ok(one(c.b.splat(DType::Bool, false, &x.dims)?))
    }
}

/// A test that no integer passes.
fn kind(c: &mut Ctx<'_>, f: impl Fn(&Formula) -> Formula) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype.is_float() {
        finish(c, &f(&Formula::from(&x)), DType::Bool)
    } else {
        Ok(one(c.b.splat(DType::Bool, false, &x.dims)?))
    }
}

/// log(x / (1 - x)), x first held in \[eps, 1 - eps\].
fn logit(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([x], dtype) = floats(c, ["self"])?;
    let held = match bounds(c, dtype)? {
        Some((low, high)) => x.lt(&low).choose(&low, x.gt(&high).choose(&high, &x)),
        None => x,
    };
    finish(c, &(&held / (1.0 - &held)).log(), dtype)
}

/// eps and 1 - eps, both rounded to the dtype.
fn bounds(c: &mut Ctx<'_>, dtype: DType) -> Result<Option<(Formula, Formula)>> {
    if !c.has("eps") {
        return Ok(None);
    }
    let low = Formula::from(c.scalar_or("eps", 0.0, dtype)?);
    let high = 1.0 - &low;
    Ok(Some((low.to(wide(dtype)), high.to(wide(dtype)))))
}

fn logit_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([grad, x], dtype) = floats(c, ["grad_output", "self"])?;
    // At 0 and 1 the quotient is grad · inf, as torch wants it.
    let slope = &grad / (&x * (1.0 - &x));
    let result = match bounds(c, dtype)? {
        Some((low, high)) => (x.ge(low) & x.le(high)).choose(slope, 0.0),
        None => (x.lt(0.0) | x.gt(1.0)).choose(f64::NAN, slope),
    };
    finish(c, &result, dtype)
}

/// x = mantissa · 2^exponent, the mantissa in [0.5, 1).
fn frexp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let value = c.tensor("self")?;
    let dtype = value.dtype;
    // Integer type, bits of the mantissa, exponent of the least subnormal, mask of the exponent.
    let (ints, fraction, least, mask) = match dtype {
        DType::F64 => (DType::I64, 52i64, -1074i64, 0x7ffi64),
        _ => (DType::I32, 23, -149, 0xff),
    };
    let half = -least - fraction;
    let sign_mask = if ints == DType::I64 {
        i64::MIN
    } else {
        i64::from(i32::MIN)
    };
    let x = Formula::from(&value).to(wide(dtype));
    let bits = x.bits(ints);
    let exponent_of = |bits: &Formula| bits.binary(Binary::ShiftRightLogical, fraction) & mask;
    let magnitude = &bits & !sign_mask;
    // A subnormal number is its bits, as an integer, times the least one. Only integers tell it from zero, as XLA
    // flushes it; as a float the integer has an exponent and a normalised mantissa.
    let subnormal = exponent_of(&bits).eq(0i64);
    let normalised = magnitude.to(wide(dtype)).bits(ints);
    let source = subnormal.choose(&normalised, &bits);
    let field = exponent_of(&source) - half;
    let exponent = subnormal.choose(&field + least, &field);
    let sign = &bits & sign_mask;
    let digits = source & ((1i64 << fraction) - 1);
    let mantissa = (sign | digits | (half << fraction)).bits(wide(dtype));
    let plain = magnitude.eq(0i64) | exponent_of(&bits).eq(mask);
    let mantissa = plain.choose(&x, mantissa).to(dtype).build(&mut c.b)?;
    let exponent = plain
        .choose(0i64, exponent)
        .to(DType::I32)
        .build(&mut c.b)?;
    Ok(many([mantissa, exponent]))
}
