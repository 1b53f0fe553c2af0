//! Bitwise and logical ops, shifts.

use tpulab_stablehlo::{Binary, DType};

use super::formula::{Formula, common, finish, unsupported};
use crate::error::Result;
use crate::lower::{Ctx, broadcast_dims, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("bitwise_and", |c| bits(c, Binary::And, "bitwise_and_cpu"))
        .pointwise();
    r.op("bitwise_or", |c| bits(c, Binary::Or, "bitwise_or_cpu"))
        .pointwise();
    r.op("bitwise_xor", |c| bits(c, Binary::Xor, "bitwise_xor_cpu"))
        .pointwise();
    r.op("bitwise_not", bitwise_not).pointwise();
    for name in ["bitwise_left_shift", "__lshift__", "__ilshift__"] {
        r.op(name, |c| shift(c, true)).pointwise();
    }
    for name in ["bitwise_right_shift", "__rshift__", "__irshift__"] {
        r.op(name, |c| shift(c, false)).pointwise();
    }
    r.op("logical_and", |c| logical(c, Binary::And)).pointwise();
    r.op("logical_or", |c| logical(c, Binary::Or)).pointwise();
    r.op("logical_xor", |c| logical(c, Binary::Xor)).pointwise();
    r.op("logical_not", logical_not).casts().pointwise();
    r.direct(&[
        "bitwise_and.Tensor",
        "bitwise_and_.Tensor",
        "bitwise_or.Tensor",
        "bitwise_or_.Tensor",
        "bitwise_xor.Tensor",
        "bitwise_not",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
    ]);
}

fn bits(c: &mut Ctx<'_>, op: Binary, kernel: &str) -> Result<Lowered> {
    let (a, b, dtype) = c.binary("self", "other")?;
    if !dtype.is_int() && dtype != DType::Bool {
        return Err(unsupported(kernel, dtype));
    }
    Ok(one(c.b.binary(op, &a, &b)?))
}

fn bitwise_not(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    if !x.dtype.is_int() && x.dtype != DType::Bool {
        return Err(unsupported("bitwise_not_cpu", x.dtype));
    }
    Ok(one(c.b.not(&x)?))
}

/// StableHLO's shifts by too much, and by negative amounts, give what torch's give: zero to the left, the sign to
/// the right. Floats scale by powers of two.
fn shift(c: &mut Ctx<'_>, left: bool) -> Result<Lowered> {
    let ([a, b], dtype) = common(c, ["self", "other"])?;
    let result = if dtype.is_float() && c.base_name().starts_with("__") {
        let power = Formula::from(2.0).pow(b);
        if left { a * power } else { a / power }
    } else if dtype.is_int() {
        let op = match (left, dtype.is_unsigned()) {
            (true, _) => Binary::ShiftLeft,
            (false, true) => Binary::ShiftRightLogical,
            (false, false) => Binary::ShiftRightArithmetic,
        };
        a.binary(op, b)
    } else {
        return Err(unsupported(
            if left { "lshift_cpu" } else { "rshift_cpu" },
            dtype,
        ));
    };
    finish(c, &result, dtype)
}

/// Each operand counts as whether it differs from zero.
fn logical(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    let (a, b) = (c.operand("self")?, c.operand("other")?);
    let dims = broadcast_dims(&[a.dims(), b.dims()])?;
    let mut truths = Vec::new();
    for operand in [a, b] {
        let value = c.value(&operand, DType::Bool)?;
        truths.push(c.b.broadcast_to(&value, &dims)?);
    }
    Ok(one(c.b.binary(op, &truths[0], &truths[1])?))
}

fn logical_not(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let truth = c.b.convert(&x, DType::Bool)?;
    Ok(one(c.b.not(&truth)?))
}
