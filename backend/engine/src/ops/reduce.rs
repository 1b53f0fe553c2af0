//! Sums, products, means and truth over dimensions.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::util::{
    acc_type, index_type, keep_dims, nan_mask, not_implemented, reduced_count, reduced_dims,
    sum_type, unimplemented,
};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("sum", sum);
    r.op("nansum", nansum);
    r.op("mean", mean);
    r.op("prod", prod);
    r.op("any", |c| truth(c, Reducer::Or));
    r.op("all", |c| truth(c, Reducer::And));
    r.op("count_nonzero", count_nonzero);
    r.op("trace", trace);
    r.direct(&[
        "sum",
        "sum.dim_IntList",
        "mean",
        "mean.dim",
        "prod.dim_int",
        "any",
        "any.dim",
        "any.dims",
        "all",
        "all.dim",
        "all.dims",
        "count_nonzero",
        "trace.out",
    ]);
}

/// dtype of the result: asked for, or that of `out`, or `inferred`.
fn result_type(c: &Ctx<'_>, inferred: DType) -> Result<DType> {
    Ok(match c.opt_dtype("dtype")? {
        Some(dtype) => dtype,
        None => c.type_of("out").map_or(inferred, |(dtype, _)| dtype),
    })
}

/// Operand and sum as torch takes them: cast to the result's dtype, then summed in a wider one.
fn reduce(c: &mut Ctx<'_>, x: &Value, op: Reducer, dtype: DType, narrow: bool) -> Result<Value> {
    let dims = reduced_dims(c, x.rank())?;
    let keepdim = c.bool("keepdim")?;
    let cast = c.b.convert(x, dtype)?;
    let wide = c.b.convert(&cast, acc_type(dtype))?;
    let reduced = if dtype == DType::Bool {
        // Sums and products of booleans are "or" and "and".
        let op = if op == Reducer::Prod {
            Reducer::And
        } else {
            Reducer::Or
        };
        c.b.reduce_with(op, &wide, &dims)?
    } else {
        c.b.reduce_with(op, &wide, &dims)?
    };
    let kept = keep_dims(&mut c.b, &reduced, &x.dims, &dims, keepdim)?;
    if narrow {
        return Ok(c.b.convert(&kept, dtype)?);
    }
    Ok(kept)
}

fn sum(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dtype = result_type(c, sum_type(x.dtype))?;
    Ok(one(reduce(c, &x, Reducer::Sum, dtype, true)?))
}

fn prod(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dtype = result_type(c, sum_type(x.dtype))?;
    Ok(one(reduce(c, &x, Reducer::Prod, dtype, true)?))
}

fn nansum(c: &mut Ctx<'_>) -> Result<Lowered> {
    let mut x = c.tensor("self")?;
    if x.dtype.is_complex() {
        return Err(Error::runtime("nansum does not support complex inputs"));
    }
    let dtype = result_type(c, sum_type(x.dtype))?;
    if let Some(nan) = nan_mask(&mut c.b, &x)? {
        let zero = c.b.splat_like(&x, 0)?;
        x = c.b.select(&nan, &zero, &x)?;
    }
    Ok(one(reduce(c, &x, Reducer::Sum, dtype, true)?))
}

fn mean(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let asked = c.opt_dtype("dtype")?;
    let dtype = result_type(c, x.dtype)?;
    if !dtype.is_float() && !dtype.is_complex() {
        let which = if asked.is_some() { "Optional" } else { "Input" };
        return Err(not_implemented(format!(
            "mean(): could not infer output dtype. {which} dtype must be either a floating point or complex dtype. \
             Got: {}",
            dtype.torch_name()
        )));
    }
    let dims = reduced_dims(c, x.rank())?;
    let count = reduced_count(&x.dims, &dims);
    let sum = reduce(c, &x, Reducer::Sum, dtype, false)?;
    let count = c.b.splat_like(&sum, count as f64)?;
    let mean = c.b.div(&sum, &count)?;
    Ok(one(c.b.convert(&mean, dtype)?))
}

/// `any` and `all`: booleans, but uint8 for uint8.
fn truth(c: &mut Ctx<'_>, op: Reducer) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dims = match c.opt_ints("dim")? {
        // Here, unlike elsewhere, an empty list reduces nothing.
        Some(dims) if dims.is_empty() => Vec::new(),
        _ => reduced_dims(c, x.rank())?,
    };
    let keepdim = c.bool("keepdim")?;
    let truth = c.b.convert(&x, DType::Bool)?;
    let reduced = c.b.reduce_with(op, &truth, &dims)?;
    let kept = keep_dims(&mut c.b, &reduced, &x.dims, &dims, keepdim)?;
    let dtype = if x.dtype == DType::U8 {
        DType::U8
    } else {
        DType::Bool
    };
    Ok(one(c.b.convert(&kept, dtype)?))
}

fn count_nonzero(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dims = reduced_dims(c, x.rank())?;
    let narrow = index_type(x.numel());
    let truth = c.b.convert(&x, DType::Bool)?;
    let ones = c.b.convert(&truth, narrow)?;
    let count = c.b.reduce_with(Reducer::Sum, &ones, &dims)?;
    Ok(one(c.b.convert(&count, DType::I64)?))
}

fn trace(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let &[rows, columns] = x.dims() else {
        return Err(Error::runtime(format!(
            "trace: expected a matrix, but got tensor with dim {}",
            x.rank()
        )));
    };
    if x.dtype == DType::Bool {
        return Err(unimplemented("trace", x.dtype));
    }
    let dtype = sum_type(x.dtype);
    let side = rows.min(columns);
    let square = c.b.slice(&x, &[0, 0], &[side, side], &[1, 1])?;
    // One more column shifts each row by one: the diagonal becomes the first column.
    let flat = c.b.reshape(&square, &[side * side])?;
    let zero = c.b.scalar(x.dtype, 0)?;
    let padded = c.b.pad(&flat, &zero, &[0], &[side], &[0])?;
    let shifted = c.b.reshape(&padded, &[side, side + 1])?;
    let diagonal = c.b.slice_dim(&shifted, 1, 0, 1, 1)?;
    let diagonal = c.b.convert(&diagonal, acc_type(dtype))?;
    let sum = c.b.reduce_with(Reducer::Sum, &diagonal, &[0, 1])?;
    Ok(one(c.b.convert(&sum, dtype)?))
}
