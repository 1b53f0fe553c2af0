//! Arithmetic of one and two operands.

use tpulab_stablehlo::{Binary, Unary};

use crate::error::Result;
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("add", |c| add_scaled(c, Binary::Add)).pointwise();
    r.op("sub", |c| add_scaled(c, Binary::Subtract)).pointwise();
    r.op("mul", |c| two(c, Binary::Multiply)).pointwise();
    r.op("div", div).pointwise();
    r.op("neg", |c| float_or_int(c, Unary::Negate)).pointwise();
    r.op("exp", |c| float_unary(c, Unary::Exp)).pointwise();
    r.direct(&[
        "add.Tensor",
        "add_.Tensor",
        "sub.Tensor",
        "sub_.Tensor",
        "mul.Tensor",
        "mul_.Tensor",
        "neg",
        "exp",
    ]);
}

/// self ± alpha·other
fn add_scaled(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    let (a, mut b, dtype) = c.binary("self", "other")?;
    if let Some(alpha) = c.opt_number("alpha")?
        && !(alpha.as_f64() == 1.0 && c.pin(&alpha) == 1.0)
    {
        let alpha = c.number_value(&alpha, dtype)?;
        let alpha = c.b.broadcast_to(&alpha, &b.dims)?;
        b = c.b.mul(&b, &alpha)?;
    }
    Ok(one(c.b.binary(op, &a, &b)?))
}

fn two(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    let (a, b, _) = c.binary("self", "other")?;
    Ok(one(c.b.binary(op, &a, &b)?))
}

/// True division: ints divide as floats of the default dtype.
fn div(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (a, b) = (c.operand("self")?, c.operand("other")?);
    let common = c.result_type(&[&a, &b]);
    let dtype = c.float_type(common);
    let values = c.aligned(&[&a, &b], dtype)?;
    Ok(one(c.b.div(&values[0], &values[1])?))
}

fn float_unary(c: &mut Ctx<'_>, op: Unary) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dtype = c.float_type(x.dtype);
    let x = c.b.convert(&x, dtype)?;
    Ok(one(c.b.unary(op, &x)?))
}

fn float_or_int(c: &mut Ctx<'_>, op: Unary) -> Result<Lowered> {
    let x = c.tensor("self")?;
    Ok(one(c.b.unary(op, &x)?))
}
