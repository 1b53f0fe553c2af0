//! Functions of two operands beyond arithmetic.

use tpulab_stablehlo::{Binary, DType, Unary};

use super::formula::{
    Formula, common, finish, float_binary, float_only_binary, floats, promoted, sign_bit,
    unsupported, wide,
};
use super::integer;
use super::pointwise::product;
use crate::error::Result;
use crate::lower::{Ctx, Operand, broadcast_dims, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("maximum", |c| extreme(c, Binary::Maximum)).pointwise();
    r.op("minimum", |c| extreme(c, Binary::Minimum)).pointwise();
    r.op("fmax", |c| extreme_of_numbers(c, Binary::Maximum))
        .pointwise();
    r.op("fmin", |c| extreme_of_numbers(c, Binary::Minimum))
        .pointwise();
    r.op("atan2", |c| {
        float_binary(c, |a, b| a.binary(Binary::Atan2, b))
    })
    .pointwise();
    r.op("hypot", |c| float_only_binary(c, "hypot_cpu", hypot))
        .pointwise();
    r.op("copysign", |c| {
        float_binary(c, |a, b| sign_bit(b).choose(-a.abs(), a.abs()))
    })
    .pointwise();
    r.op("nextafter", next_after).pointwise();
    r.op("logaddexp", |c| {
        float_only_binary(c, "logaddexp_cpu", |a, b| {
            log_of_sum(a, b, |gap| gap.exp().log1p())
        })
    })
    .pointwise();
    r.op("logaddexp2", |c| {
        float_only_binary(c, "logaddexp2_cpu", logaddexp2)
    })
    .pointwise();
    r.op("xlogy", |c| float_binary(c, |a, b| a_log_b(a, b, b.log())))
        .pointwise();
    r.op("special_xlog1py", |c| {
        float_binary(c, |a, b| a_log_b(a, b, b.log1p()))
    })
    .pointwise();
    r.op("heaviside", heaviside).pointwise();
    r.op("pow", pow).pointwise();
    r.op("ldexp", ldexp).pointwise();
    r.direct(&[
        "ldexp.Tensor",
        "maximum",
        "minimum",
        "pow.Tensor_Scalar",
        "pow.Tensor_Tensor",
        "pow_.Scalar",
        "pow_.Tensor",
    ]);
}

/// StableHLO's extremes are NaN if an operand is, as torch's are.
fn extreme(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    let (a, b, _) = c.binary("self", "other")?;
    Ok(one(c.b.binary(op, &a, &b)?))
}

fn extreme_of_numbers(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    let (a, b, dtype) = c.binary("self", "other")?;
    let (a, b) = (Formula::from(a), Formula::from(b));
    let extreme = a.binary(op, &b);
    if !dtype.is_float() {
        return finish(c, &extreme, dtype);
    }
    let numbers = a.is_nan().choose(&b, b.is_nan().choose(&a, extreme));
    finish(c, &numbers, dtype)
}

/// Scaled by the greater, so that no square overflows; infinite beside NaN too.
fn hypot(a: &Formula, b: &Formula) -> Formula {
    let (a, b) = (a.abs(), b.abs());
    let (high, low) = (a.max(&b), a.min(&b));
    let length = &high * ((&low / &high).square() + 1.0).sqrt();
    let length = high.eq(0.0).choose(0.0, length);
    let infinite = a.eq(f64::INFINITY) | b.eq(f64::INFINITY);
    infinite.choose(f64::INFINITY, length)
}

/// In the dtype itself: the next number is another in a wider one.
fn next_after(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (a, b, dtype) = c.binary("self", "other")?;
    if !dtype.is_float() {
        return Err(unsupported("nextafter_cpu", dtype));
    }
    Ok(one(c.b.binary(Binary::NextAfter, &a, &b)?))
}

/// The greater, and the log of one plus the exponential of the gap; equal infinities have none.
fn log_of_sum(a: &Formula, b: &Formula, rest: impl Fn(&Formula) -> Formula) -> Formula {
    let high = a.max(b);
    let sum = &high + rest(&-(a - b).abs());
    let same = a.eq(b) & a.abs().eq(f64::INFINITY);
    same.choose(a, sum)
}

fn logaddexp2(a: &Formula, b: &Formula) -> Formula {
    log_of_sum(a, b, |gap| {
        Formula::from(2.0).pow(gap).log1p() / std::f64::consts::LN_2
    })
}

/// a·log(b), but 0 for a = 0 unless b is NaN.
fn a_log_b(a: &Formula, b: &Formula, log: Formula) -> Formula {
    let product = a.eq(0.0).choose(0.0, a * log);
    b.is_nan().choose(f64::NAN, product)
}

fn heaviside(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, values, dtype) = c.binary("self", "values")?;
    if dtype == DType::Bool {
        return Ok(one(c.b.or(&x, &values)?));
    }
    let x = Formula::from(x);
    let step = x.gt(0i64).to(dtype);
    finish(c, &x.eq(0i64).choose(values, step), dtype)
}

fn pow(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (base, exponent) = (c.operand("self")?, c.operand("exponent")?);
    let dtype = c.result_type(&[&base, &exponent]);
    if let (Operand::Tensor(_), Operand::Number(number)) = (&base, &exponent) {
        let value = number.as_f64();
        // A CPU tensor as the exponent counts as a tensor, whose values torch does not check.
        if dtype.is_int() && number.host.is_none() {
            return integer::fixed_power(c, number);
        } else if dtype.is_float() && KNOWN.contains(&value) {
            c.pin(number);
            let ([x], _) = promoted(c, ["self"], |_, _| dtype)?;
            return match known_power(&x, value) {
                Some(formula) => finish(c, &formula, dtype),
                None => Ok(one(c.b.splat(dtype, 1i64, base.dims())?)),
            };
        }
    }
    if dtype == DType::Bool {
        return bool_power(c);
    }
    if dtype.is_int() {
        return integer::power(c);
    }
    let ([base, exponent], dtype) = common(c, ["self", "exponent"])?;
    finish(c, &base.pow(exponent), dtype)
}

/// Exponents of which [`known_power`] knows more.
const KNOWN: [f64; 8] = [0.0, 0.5, 1.0, 2.0, 3.0, -0.5, -1.0, -2.0];

/// Small powers by products and roots; `None` is one everywhere.
fn known_power(x: &Formula, exponent: f64) -> Option<Formula> {
    Some(match exponent {
        0.0 => return None,
        0.5 => x.sqrt(),
        1.0 => x.clone(),
        2.0 => x.square(),
        3.0 => x.square() * x,
        -0.5 => x.unary(Unary::Rsqrt),
        -1.0 => 1.0 / x,
        _ => 1.0 / x.square(),
    })
}

/// False only for false to the power true.
fn bool_power(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (base, exponent, _) = c.binary("self", "exponent")?;
    let not = c.b.not(&exponent)?;
    Ok(one(c.b.or(&base, &not)?))
}

/// x · 2^n. In three factors if n is an integer, so that none of them overflows before the product does.
fn ldexp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, n) = (c.operand("self")?, c.operand("other")?);
    let (of_x, of_n) = (c.result_type(&[&x]), c.result_type(&[&n]));
    if !of_x.is_float() || !of_n.is_int() {
        let ([n], power) = floats(c, ["other"])?;
        let power = Formula::from(2.0).pow(n).to(power).build(&mut c.b)?;
        return product(c, &x, &Operand::Tensor(power));
    }
    let inner = wide(of_x);
    let dims = broadcast_dims(&[x.dims(), n.dims()])?;
    let most: i64 = if inner == DType::F64 { 2100 } else { 280 };
    let x = c.value(&x, inner)?;
    let n = Formula::from(c.value(&n, DType::I64)?).max(-most).min(most);
    let n = n.to(DType::I32);
    let third = &n / 3i64;
    let half = (&n - &third) / 2i64;
    let rest = n - &third - &half;
    let mut result = Formula::from(c.b.broadcast_to(&x, &dims)?);
    for part in [third, half, rest] {
        let part = part.build(&mut c.b)?;
        let part = Formula::from(c.b.broadcast_to(&part, &dims)?);
        result = result * Formula::from(2.0).pow(part.to(inner));
    }
    finish(c, &result, of_x)
}
