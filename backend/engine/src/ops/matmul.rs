//! Matrix products. float32 products follow `torch.set_float32_matmul_precision` on every plugin: "medium" multiplies
//! operands rounded to bfloat16, "high" adds the three leading products of a two-term bfloat16 split, both summed in float32.

use tpulab_stablehlo::{DType, Precision, Value};

use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("mm", mm).reads_precision();
    r.op("bmm", bmm).reads_precision();
    r.op("addmm", addmm).reads_precision();
    r.op("baddbmm", baddbmm).reads_precision();
    r.op("addbmm", addbmm).reads_precision();
    r.op("mv", mv).reads_precision();
    r.op("addmv", addmv).reads_precision();
    r.op("dot", dot).reads_precision();
    r.op("vdot", dot).reads_precision();
    r.direct(&["mm", "bmm", "addmm", "baddbmm", "mv", "dot"]);
}

/// Dimension numbers of a product: batch and contracted dims of each side.
type Dimensions<'a> = ((&'a [usize], &'a [usize]), (&'a [usize], &'a [usize]));

const MATRIX: Dimensions<'static> = ((&[], &[]), (&[1], &[0]));
const BATCHED: Dimensions<'static> = ((&[0], &[0]), (&[2], &[1]));

/// The parts of a float32 operand that a reduced precision multiplies: its bfloat16 value, then what that left out.
pub(crate) fn bf16_split(c: &mut Ctx<'_>, x: &Value) -> Result<(Value, Value)> {
    let high = c.b.convert(x, DType::BF16)?;
    let back = c.b.convert(&high, DType::F32)?;
    let rest = c.b.sub(x, &back)?;
    Ok((high, c.b.convert(&rest, DType::BF16)?))
}

/// A product of two values of one dtype, in that dtype.
pub(crate) fn product(
    c: &mut Ctx<'_>,
    a: &Value,
    b: &Value,
    dims: Dimensions<'_>,
) -> Result<Value> {
    let (batch, contract) = dims;
    let dtype = a.dtype;
    match dtype {
        DType::F16 | DType::BF16 => {
            let wide =
                c.b.dot_general(a, b, batch, contract, Precision::Highest, DType::F32)?;
            Ok(c.b.convert(&wide, dtype)?)
        }
        DType::F32 => match c.precision() {
            Precision::Highest => {
                Ok(c.b.dot_general(a, b, batch, contract, Precision::Highest, dtype)?)
            }
            Precision::High => {
                let (a_high, a_low) = bf16_split(c, a)?;
                let (b_high, b_low) = bf16_split(c, b)?;
                let main =
                    c.b.dot_general(&a_high, &b_high, batch, contract, Precision::Default, dtype)?;
                let left =
                    c.b.dot_general(&a_high, &b_low, batch, contract, Precision::Default, dtype)?;
                let right =
                    c.b.dot_general(&a_low, &b_high, batch, contract, Precision::Default, dtype)?;
                let small = c.b.add(&left, &right)?;
                Ok(c.b.add(&main, &small)?)
            }
            Precision::Default => {
                let a = c.b.convert(a, DType::BF16)?;
                let b = c.b.convert(b, DType::BF16)?;
                Ok(c.b.dot_general(&a, &b, batch, contract, Precision::Default, dtype)?)
            }
        },
        DType::Bool => Err(Error::not_lowered("a matrix product of bool")),
        _ => {
            Ok(c.b.dot_general(a, b, batch, contract, Precision::Highest, dtype)?)
        }
    }
}

fn pair(c: &mut Ctx<'_>, a: &str, b: &str, rank: (usize, usize)) -> Result<(Value, Value)> {
    let (left, right) = (c.tensor(a)?, c.tensor(b)?);
    if (left.rank(), right.rank()) != rank {
        return Err(Error::runtime(format!(
            "{}: expected {a} of {} and {b} of {} dimensions, but got {} and {}",
            c.base_name(),
            rank.0,
            rank.1,
            left.rank(),
            right.rank()
        )));
    }
    if left.dtype != right.dtype {
        return Err(Error::runtime(format!(
            "expected m1 and m2 to have the same dtype, but got: {} != {}",
            left.dtype.name(),
            right.dtype.name()
        )));
    }
    Ok((left, right))
}

fn matrices(c: &mut Ctx<'_>, a: &str, b: &str) -> Result<Value> {
    let (left, right) = pair(c, a, b, (2, 2))?;
    if left.dims[1] != right.dims[0] {
        return Err(Error::runtime(format!(
            "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
            left.dims[0], left.dims[1], right.dims[0], right.dims[1]
        )));
    }
    product(c, &left, &right, MATRIX)
}

fn batches(c: &mut Ctx<'_>, a: &str, b: &str) -> Result<Value> {
    let (left, right) = pair(c, a, b, (3, 3))?;
    if left.dims[0] != right.dims[0] || left.dims[2] != right.dims[1] {
        return Err(Error::runtime(format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].",
            left.dims[0], left.dims[2], right.dims[0], right.dims[1]
        )));
    }
    product(c, &left, &right, BATCHED)
}

fn vector(c: &mut Ctx<'_>, matrix: &str, vec: &str) -> Result<Value> {
    let (left, right) = pair(c, matrix, vec, (2, 1))?;
    if left.dims[1] != right.dims[0] {
        return Err(Error::runtime(format!(
            "size mismatch, got input ({}), mat ({}x{}), vec ({})",
            left.dims[0], left.dims[0], left.dims[1], right.dims[0]
        )));
    }
    product(c, &left, &right, MATRIX)
}

fn mm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let value = matrices(c, "self", "mat2")?;
    wide_result(c, value)
}

fn bmm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let value = batches(c, "self", "mat2")?;
    wide_result(c, value)
}

fn mv(c: &mut Ctx<'_>) -> Result<Lowered> {
    Ok(one(vector(c, "self", "vec")?))
}

/// The `.dtype` overloads ask for another result dtype.
fn wide_result(c: &mut Ctx<'_>, value: Value) -> Result<Lowered> {
    let dtype = c.opt_dtype("out_dtype")?.unwrap_or(value.dtype);
    Ok(one(c.b.convert(&value, dtype)?))
}

fn dot(c: &mut Ctx<'_>) -> Result<Lowered> {
    let other = if c.has("tensor") { "tensor" } else { "other" };
    let (a, b) = pair(c, "self", other, (1, 1))?;
    if a.dims != b.dims {
        return Err(Error::runtime(format!(
            "inconsistent tensor size, expected tensor [{}] and src [{}] to have the same number of elements, but got \
             {} and {} elements respectively",
            a.dims[0], b.dims[0], a.dims[0], b.dims[0]
        )));
    }
    Ok(one(product(c, &a, &b, ((&[], &[]), (&[0], &[0])))?))
}

fn addmm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let value = matrices(c, "mat1", "mat2")?;
    add_scaled(c, value)
}

fn baddbmm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let value = batches(c, "batch1", "batch2")?;
    add_scaled(c, value)
}

fn addmv(c: &mut Ctx<'_>) -> Result<Lowered> {
    let value = vector(c, "mat", "vec")?;
    add_scaled(c, value)
}

/// beta·self + alpha·Σ of the batch's products
fn addbmm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (a, b) = pair(c, "batch1", "batch2", (3, 3))?;
    let value = product(c, &a, &b, ((&[], &[]), (&[0, 2], &[0, 1])))?;
    add_scaled(c, value)
}

/// beta·self + alpha·product. With beta 0 self is not read, so that its NaNs do not spread.
fn add_scaled(c: &mut Ctx<'_>, product: Value) -> Result<Lowered> {
    let dtype = product.dtype;
    let beta = c.opt_number("beta")?.unwrap_or(Number::int(1));
    let alpha = c.opt_number("alpha")?.unwrap_or(Number::int(1));
    let mut result = product;
    if c.pin(&alpha) != 1.0 {
        result = scaled(c, &result, &alpha, dtype)?;
    }
    if c.pin(&beta) == 0.0 {
        return Ok(one(result));
    }
    let mut bias = c.tensor("self")?;
    if bias.dtype != dtype {
        return Err(Error::runtime(format!(
            "self and mat2 must have the same dtype, but got {} and {}",
            bias.dtype.torch_name(),
            dtype.torch_name()
        )));
    }
    if c.pin(&beta) != 1.0 {
        bias = scaled(c, &bias, &beta, dtype)?;
    }
    let expandable = bias.rank() <= result.rank()
        && bias
            .dims
            .iter()
            .rev()
            .zip(result.dims.iter().rev())
            .all(|(own, full)| own == full || *own == 1);
    if !expandable {
        return Err(Error::runtime(format!(
            "The expanded size of the tensor must match: self of size {:?} cannot be expanded to {:?}",
            bias.dims.as_slice(),
            result.dims.as_slice()
        )));
    }
    let bias = c.b.broadcast_to(&bias, &result.dims)?;
    Ok(one(c.b.add(&bias, &result)?))
}

fn scaled(c: &mut Ctx<'_>, x: &Value, by: &Number, dtype: DType) -> Result<Value> {
    let factor = c.number_value(by, dtype)?;
    let factor = c.b.broadcast_to(&factor, &x.dims)?;
    Ok(c.b.mul(x, &factor)?)
}
