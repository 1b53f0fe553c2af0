//! Functions of integers that StableHLO lacks.

use tpulab_stablehlo::{Builder, DType, Reducer, Value};

use super::formula::{Formula, common, finish, unsupported};
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("gcd", |c| gcd_or_lcm(c, false)).pointwise();
    r.op("lcm", |c| gcd_or_lcm(c, true)).pointwise();
}

/// Euclid's algorithm on all elements until every remainder is zero.
fn gcd_or_lcm(c: &mut Ctx<'_>, multiple: bool) -> Result<Lowered> {
    let (a, b, dtype) = c.binary("self", "other")?;
    if !dtype.is_int() {
        return Err(unsupported(
            if multiple { "lcm_cpu" } else { "gcd_cpu" },
            dtype,
        ));
    }
    let start = [c.b.abs(&a)?, c.b.abs(&b)?];
    let ended = c.b.while_loop(
        &start,
        |b, state| any_left(b, &state[1]),
        |b, state| {
            let zero = b.splat_like(&state[1], 0i64)?;
            let done = b.eq(&state[1], &zero)?;
            let rest = b.rem(&state[0], &state[1])?;
            let high = b.select(&done, &state[0], &state[1])?;
            let low = b.select(&done, &zero, &rest)?;
            Ok(vec![high, low])
        },
    )?;
    let Some(divisor) = ended.into_iter().next() else {
        return Err(Error::runtime("a loop without results"));
    };
    if !multiple {
        return Ok(one(divisor));
    }
    // In C++ small integers multiply as ints, which matters to the absolute value.
    let wide = match dtype {
        DType::I8 | DType::I16 => DType::I32,
        other => other,
    };
    let divisor = Formula::from(divisor).to(wide);
    let product = (Formula::from(a).to(wide) / &divisor) * Formula::from(b).to(wide);
    let product = product.abs();
    finish(c, &divisor.eq(0i64).choose(0i64, product), dtype)
}

/// Whether any element differs from zero.
fn any_left(b: &mut Builder, x: &Value) -> tpulab_stablehlo::Result<Value> {
    let zero = b.splat_like(x, 0i64)?;
    let left = b.ne(x, &zero)?;
    let dims: Vec<usize> = (0..left.rank()).collect();
    b.reduce_with(Reducer::Or, &left, &dims)
}

/// An exponent known while building: its squarings are written out.
pub(crate) fn fixed_power(c: &mut Ctx<'_>, exponent: &Number) -> Result<Lowered> {
    let ([x], _) = common(c, ["self"])?;
    let exponent_value = c.pin(exponent);
    if exponent_value < 0.0 {
        return Err(Error::runtime(
            "Integers to negative integer powers are not allowed.",
        ));
    }
    let operands = [c.operand("self")?, c.operand("exponent")?];
    let dtype = c.result_type(&[&operands[0], &operands[1]]);
    let mut square = x.to(dtype);
    let mut result: Option<Formula> = None;
    let mut left = exponent.bits;
    while left > 0 {
        if left & 1 == 1 {
            result = Some(match result {
                Some(product) => product * &square,
                None => square.clone(),
            });
        }
        left >>= 1;
        if left > 0 {
            square = square.square();
        }
    }
    match result {
        Some(formula) => finish(c, &formula, dtype),
        None => Ok(one(c.b.splat(dtype, 1i64, operands[0].dims())?)),
    }
}

/// Repeated squaring; to a negative power only 1 and -1 have an integer, all others give 0.
pub(crate) fn power(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (base, exponent, dtype) = c.binary("self", "exponent")?;
    let ones = c.b.splat_like(&base, 1i64)?;
    let zeros = c.b.splat_like(&base, 0i64)?;
    let counted = c.b.max(&exponent, &zeros)?;
    let ended = c.b.while_loop(
        &[ones, base.clone(), counted],
        |b, state| any_left(b, &state[2]),
        |b, state| {
            let one = b.splat_like(&state[2], 1i64)?;
            let odd = b.and(&state[2], &one)?;
            let odd = b.eq(&odd, &one)?;
            let product = b.mul(&state[0], &state[1])?;
            let result = b.select(&odd, &product, &state[0])?;
            let square = b.mul(&state[1], &state[1])?;
            let left = b.shr_logical(&state[2], &one)?;
            Ok(vec![result, square, left])
        },
    )?;
    let Some(result) = ended.into_iter().next() else {
        return Err(Error::runtime("a loop without results"));
    };
    if dtype.is_unsigned() {
        return Ok(one(result));
    }
    let (base, exponent) = (Formula::from(base), Formula::from(exponent));
    let unit = base.eq(1i64) | base.eq(-1i64);
    let sign = (&exponent & 1i64).eq(0i64).choose(1i64, &base);
    let inverse = unit.choose(sign, 0i64);
    finish(c, &exponent.lt(0i64).choose(inverse, result), dtype)
}
