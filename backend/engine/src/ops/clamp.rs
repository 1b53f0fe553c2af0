//! Clamps, where, and mixing of operands.

use super::formula::{Formula, common, finish, promoted, unsupported, wide};
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, Operand, broadcast_dims, one};
use crate::registry::{Lowered, Registry};
use tpulab_stablehlo::{Binary, DType, Value};

pub(crate) fn register(r: &mut Registry) {
    r.op("clamp", clamp).pointwise();
    r.op("clamp_min", clamp).pointwise();
    r.op("clamp_max", clamp).pointwise();
    r.op("where", choose).pointwise();
    r.op("lerp", lerp).pointwise();
    r.op("addcmul", |c| add_product(c, Binary::Multiply))
        .pointwise();
    r.op("addcdiv", |c| add_product(c, Binary::Divide))
        .pointwise();
    r.direct(&[
        "clamp",
        "clamp_",
        "clamp_min",
        "clamp_max",
        "lerp_.Scalar",
        "addcmul",
        "addcmul_",
        "addcdiv",
        "addcdiv_",
    ]);
}

/// min(max(x, low), high): the upper bound wins, and NaN anywhere is NaN.
fn clamp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let names: Vec<&str> = ["min", "max"]
        .into_iter()
        .filter(|name| c.has(name))
        .collect();
    if names.is_empty() {
        return Err(Error::runtime(
            "torch.clamp: At least one of 'min' or 'max' must not be None",
        ));
    }
    let mut operands = vec![c.operand("self")?];
    for name in &names {
        operands.push(c.operand(name)?);
    }
    let operands: Vec<&Operand> = operands.iter().collect();
    let dtype = c.result_type(&operands);
    let shapes: Vec<&[i64]> = operands.iter().map(|operand| operand.dims()).collect();
    let dims = broadcast_dims(&shapes)?;
    let x = c.value(operands[0], dtype)?;
    let mut result = c.b.broadcast_to(&x, &dims)?;
    for (name, bound) in names.iter().zip(&operands[1..]) {
        let bound = match bound {
            Operand::Number(number) => number_bound(c, number, *name == "min", dtype)?,
            Operand::Tensor(_) => Some(c.value(bound, dtype)?),
        };
        let Some(bound) = bound else { continue };
        let bound = c.b.broadcast_to(&bound, &dims)?;
        result = match *name {
            "min" => c.b.max(&result, &bound)?,
            _ => c.b.min(&result, &bound)?,
        };
    }
    Ok(one(result))
}

/// A bound as a value of `dtype`; `None` if every integer of the dtype is within it.
pub(crate) fn number_bound(
    c: &mut Ctx<'_>,
    number: &Number,
    least: bool,
    dtype: DType,
) -> Result<Option<Value>> {
    let (low, high) = match dtype {
        DType::U8 => (0, 255),
        DType::I8 => (-128, 127),
        DType::I16 => (-0x8000, 0x7fff),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => return c.number_value(number, dtype).map(Some),
    };
    let bound = c.pin(number) as i64;
    let (within, beyond) = if least {
        (bound < low, bound > high)
    } else {
        (bound > high, bound < low)
    };
    if beyond {
        return Err(Error::runtime(format!(
            "Clamp {} value {bound} is outside the representable range of {}",
            if least { "min" } else { "max" },
            dtype.torch_name()
        )));
    }
    if within {
        return Ok(None);
    }
    c.number_value(number, dtype).map(Some)
}

fn choose(c: &mut Ctx<'_>) -> Result<Lowered> {
    let condition = c.operand("condition")?;
    let (a, b) = (c.operand("self")?, c.operand("other")?);
    let kind = match &condition {
        Operand::Tensor(value) => value.dtype,
        Operand::Number(number) => number.dtype(c.default_dtype()),
    };
    if kind != DType::Bool && kind != DType::U8 {
        return Err(Error::runtime(format!(
            "where expected condition to be a boolean tensor, but got a tensor with dtype {}",
            kind.torch_name()
        )));
    }
    let dtype = c.result_type(&[&a, &b]);
    let dims = broadcast_dims(&[condition.dims(), a.dims(), b.dims()])?;
    let mut picked = Vec::new();
    for operand in [&a, &b] {
        let value = c.value(operand, dtype)?;
        picked.push(c.b.broadcast_to(&value, &dims)?);
    }
    let condition = c.value(&condition, DType::Bool)?;
    let condition = c.b.broadcast_to(&condition, &dims)?;
    Ok(one(c.b.select(&condition, &picked[0], &picked[1])?))
}

/// From the nearer end, which is exact at both.
fn lerp(c: &mut Ctx<'_>) -> Result<Lowered> {
    let ends = [c.operand("self")?, c.operand("end")?];
    let dtype = c.result_type(&[&ends[0]]);
    let other = c.result_type(&[&ends[1]]);
    if dtype != other {
        return Err(Error::runtime(format!(
            "expected dtype {} for `end` but got dtype {}",
            cpp_name(dtype),
            cpp_name(other)
        )));
    }
    if !dtype.is_float() {
        let kernel = match c.opt_number("weight")? {
            Some(_) => "lerp_kernel_scalar",
            None => "lerp_kernel_tensor",
        };
        return Err(unsupported(kernel, dtype));
    }
    let ([start, end, weight], _) = promoted(c, ["self", "end", "weight"], |_, _| dtype)?;
    let gap = &end - &start;
    let result = weight
        .abs()
        .lt(0.5)
        .choose(start + &weight * &gap, end - gap * (1.0 - &weight));
    finish(c, &result, dtype)
}

/// A dtype as C++ type names are printed.
fn cpp_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "c10::Half",
        DType::BF16 => "c10::BFloat16",
        DType::I64 => "long",
        DType::I32 => "int",
        DType::I16 => "short",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::Bool => "bool",
        other => other.torch_name(),
    }
}

/// self + value · tensor1 · tensor2, or a quotient.
fn add_product(c: &mut Ctx<'_>, op: Binary) -> Result<Lowered> {
    if op == Binary::Divide {
        refuse_integer_quotient(c)?;
    }
    let ([base, a, b], dtype) = common(c, ["self", "tensor1", "tensor2"])?;
    let value = Formula::from(c.scalar_or("value", 1.0, wide(dtype))?);
    let product = (value * a).binary(op, b);
    finish(c, &(base + product), dtype)
}

fn refuse_integer_quotient(c: &mut Ctx<'_>) -> Result<()> {
    let (a, b) = (c.operand("tensor1")?, c.operand("tensor2")?);
    let inexact = |dtype: DType| dtype.is_float() || dtype.is_complex();
    if inexact(c.result_type(&[&a])) || inexact(c.result_type(&[&b])) {
        return Ok(());
    }
    Err(Error::runtime(
        "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true \
         division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * \
         torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / \
         tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * \
         tensor1 / tensor2), for all dtypes.",
    ))
}
