//! Arithmetic of one and two operands.
//!
//! Integer division by zero raises on the CPU. Here the divisor is not known before the program runs: a quotient
//! by zero is -1 (all bits set), a remainder is the dividend, as XLA defines them.

use tpulab_stablehlo::{Binary, DType, Unary};

use super::formula::{
    Formula, common, finish, float_unary, floats, refused, sign_bit, unsupported, wide,
};
use crate::error::{Error, Result};
use crate::key::NumberKind;
use crate::lower::{Ctx, Number, Operand, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("add", |c| scaled(c, Binary::Add)).pointwise();
    r.op("sub", |c| {
        check_sub(c)?;
        scaled(c, Binary::Subtract)
    })
    .pointwise();
    r.op("rsub", |c| {
        check_sub(c)?;
        scaled_reversed(c)
    })
    .pointwise();
    r.op("mul", multiply).pointwise();
    r.op("div", div).pointwise();
    r.op("floor_divide", |c| divide_down(c, "div_floor_cpu"))
        .pointwise();
    r.op("remainder", remainder).pointwise();
    r.op("fmod", fmod).pointwise();
    r.op("neg", neg).pointwise();
    r.op("abs", abs).pointwise();
    r.op("sign", sign).pointwise();
    r.op("sgn", sign).pointwise();
    r.op("conj_physical", identity).pointwise();
    r.op("reciprocal", |c| float_unary(c, |x| 1.0 / x))
        .pointwise();
    r.op("exp", |c| float_unary(c, Formula::exp)).pointwise();
    r.direct(&[
        "add.Tensor",
        "add.Scalar",
        "add_.Tensor",
        "add_.Scalar",
        "sub.Tensor",
        "sub.Scalar",
        "sub_.Tensor",
        "sub_.Scalar",
        "rsub.Scalar",
        "mul.Tensor",
        "mul.Scalar",
        "mul_.Tensor",
        "mul_.Scalar",
        "div.Tensor",
        "div.Scalar",
        "div_.Tensor",
        "div_.Scalar",
        "neg",
        "neg_",
        "abs",
        "abs_",
        "reciprocal",
        "exp",
        "exp_",
    ]);
}

/// self ± alpha·other
fn scaled(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    match alpha(c, "self", "other")? {
        None => two(c, op),
        Some(alpha) => {
            let ([a, b], dtype) = common(c, ["self", "other"])?;
            let alpha = c.number_value(&alpha, wide(dtype))?;
            finish(c, &a.binary(op, &b * alpha), dtype)
        }
    }
}

/// other - alpha·self
fn scaled_reversed(c: &mut Ctx<'_>) -> Result<Lowered> {
    let alpha = alpha(c, "other", "self")?;
    let ([a, b], dtype) = common(c, ["self", "other"])?;
    let scaled = match alpha {
        None => a,
        Some(alpha) => a * c.number_value(&alpha, wide(dtype))?,
    };
    finish(c, &(b - scaled), dtype)
}

/// The factor of the second operand, if it is not one.
fn alpha(c: &mut Ctx<'_>, a: &str, b: &str) -> Result<Option<Number>> {
    let Some(alpha) = c.opt_number("alpha")? else {
        return Ok(None);
    };
    if alpha.as_f64() == 1.0 && alpha.kind == NumberKind::Int && c.pin(&alpha) == 1.0 {
        return Ok(None);
    }
    let (a, b) = (c.operand(a)?, c.operand(b)?);
    let dtype = c.result_type(&[&a, &b]);
    if alpha.kind == NumberKind::Bool && dtype != DType::Bool {
        return Err(Error::runtime(
            "Boolean alpha only supported for Boolean results.",
        ));
    }
    if alpha.kind == NumberKind::Float && !dtype.is_float() && !dtype.is_complex() {
        return Err(Error::runtime(
            "For integral input tensors, argument alpha must not be a floating point number.",
        ));
    }
    if alpha.as_f64() == 1.0 && c.pin(&alpha) == 1.0 {
        return Ok(None);
    }
    Ok(Some(alpha))
}

fn is_bool(c: &Ctx<'_>, operand: &Operand) -> bool {
    match operand {
        Operand::Tensor(value) => value.dtype == DType::Bool,
        Operand::Number(number) => number.dtype(c.default_dtype()) == DType::Bool,
    }
}

fn check_sub(c: &mut Ctx<'_>) -> Result<()> {
    let (a, b) = (c.operand("self")?, c.operand("other")?);
    match (is_bool(c, &a), is_bool(c, &b)) {
        (true, true) => Err(refused(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` \
             operator instead.",
        )),
        (false, false) => Ok(()),
        _ => Err(refused(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, \
             use the `~` or `logical_not()` operator instead.",
        )),
    }
}

fn two(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    let (a, b, _) = c.binary("self", "other")?;
    Ok(one(c.b.binary(op, &a, &b)?))
}

fn multiply(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (a, b) = (c.operand("self")?, c.operand("other")?);
    product(c, &a, &b)
}

/// Two operands promoted and multiplied.
pub(crate) fn product(c: &mut Ctx<'_>, a: &Operand, b: &Operand) -> Result<Lowered> {
    let dtype = c.result_type(&[a, b]);
    let values = c.aligned(&[a, b], dtype)?;
    if !dtype.is_float() || is_bool(c, a) == is_bool(c, b) {
        return Ok(one(c.b.mul(&values[0], &values[1])?));
    }
    // XLA makes a choice between x and 0 of x times a converted bool, which loses the NaN of infinity times zero.
    let (mask, x) = if is_bool(c, a) {
        (&values[0], &values[1])
    } else {
        (&values[1], &values[0])
    };
    let x = Formula::from(x);
    finish(c, &Formula::from(mask).ne(0.0).choose(&x, &x * 0.0), dtype)
}

fn div(c: &mut Ctx<'_>) -> Result<Lowered> {
    match c.opt_str("rounding_mode") {
        None => {
            let ([a, b], dtype) = floats(c, ["self", "other"])?;
            finish(c, &(a / b), dtype)
        }
        Some("trunc") => {
            let ([a, b], dtype) = common(c, ["self", "other"])?;
            check_not_bool("div_trunc_cpu", dtype)?;
            let quotient = a / b;
            let rounded = if dtype.is_float() {
                // The CPU rounds the quotient to a half type first.
                quotient.to(dtype).trunc()
            } else {
                quotient
            };
            finish(c, &rounded, dtype)
        }
        Some("floor") => divide_down(c, "div_floor_cpu"),
        Some(other) => Err(Error::runtime(format!(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'"
        ))),
    }
}

fn check_not_bool(kernel: &str, dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        Err(unsupported(kernel, dtype))
    } else {
        Ok(())
    }
}

/// Python's floor division.
fn divide_down(c: &mut Ctx<'_>, kernel: &str) -> Result<Lowered> {
    let ([a, b], dtype) = common(c, ["self", "other"])?;
    check_not_bool(kernel, dtype)?;
    let result = if dtype.is_float() {
        floor_quotient(&a, &b)
    } else {
        let (quotient, rest) = (&a / &b, &a % &b);
        let inexact = rest.ne(0i64) & opposite(&rest, &b);
        inexact.choose(&quotient - 1i64, &quotient)
    };
    finish(c, &result, dtype)
}

/// Whether one is negative and the other not.
fn opposite(a: &Formula, b: &Formula) -> Formula {
    a.lt(0i64) ^ b.lt(0i64)
}

/// CPython's float floor division (`float_floor_div`), which is exact where a / b rounds up to an integer.
fn floor_quotient(a: &Formula, b: &Formula) -> Formula {
    let rest = a % b;
    let whole = (a - &rest) / b;
    let inexact = rest.ne(0.0) & opposite(&rest, b);
    let whole = inexact.choose(&whole - 1.0, &whole);
    let floor = whole.floor();
    let floor = (&whole - &floor).gt(0.5).choose(&floor + 1.0, &floor);
    let quotient = a / b;
    // A zero takes the sign of the true quotient.
    let zero = sign_bit(&quotient).choose(&quotient * 0.0, 0.0);
    let result = whole.ne(0.0).choose(floor, zero);
    b.eq(0.0).choose(quotient, result)
}

/// The remainder with the sign of the divisor.
fn remainder(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([a, b], dtype) = common(c, ["self", "other"])?;
    check_not_bool("remainder_cpu", dtype)?;
    let rest = &a % &b;
    let wrong = rest.ne(0i64) & opposite(&rest, &b);
    let result = wrong.choose(&rest + &b, &rest);
    finish(c, &result, dtype)
}

fn fmod(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ([a, b], dtype) = common(c, ["self", "other"])?;
    check_not_bool("fmod_cpu", dtype)?;
    finish(c, &(a % b), dtype)
}

fn neg(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype == DType::Bool {
        return Err(refused(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use \
             the `~` or `logical_not()` operator instead.",
        ));
    }
    Ok(one(c.b.neg(&x)?))
}

pub(crate) fn identity(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if x.dtype.is_complex() {
        return Err(Error::not_lowered("conjugation"));
    }
    Ok(one(x))
}

fn abs(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    match x.dtype {
        DType::Bool => Ok(one(x)),
        _ => Ok(one(c.b.unary(Unary::Abs, &x)?)),
    }
}

/// (x > 0) - (x < 0): NaN has sign 0 in torch.
fn sign(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    match x.dtype {
        DType::Bool => Ok(one(x)),
        dtype if dtype.is_float() => {
            let x = Formula::from(&x);
            let sign = x.gt(0.0).to(dtype) - x.lt(0.0).to(dtype);
            finish(c, &sign, dtype)
        }
        _ => Ok(one(c.b.sign(&x)?)),
    }
}
