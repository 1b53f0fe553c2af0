//! Dimensions, types and errors that several families share.

use tpulab_stablehlo::{Builder, DType, Dims, Reducer, Value};

use crate::error::{Error, Kind, Result};
use crate::lower::Ctx;

/// A dimension counted from either end; a tensor without dimensions counts as having one.
pub(crate) fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    let span = rank.max(1) as i64;
    if dim < -span || dim >= span {
        return Err(Error::index(format!(
            "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
            -span,
            span - 1
        )));
    }
    Ok(if dim < 0 { dim + span } else { dim } as usize)
}

/// Dimensions of a list, ascending.
pub(crate) fn wrap_dims(dims: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut wrapped = Vec::with_capacity(dims.len());
    for &dim in dims {
        let dim = wrap_dim(dim, rank)?;
        if wrapped.contains(&dim) {
            return Err(Error::runtime(format!(
                "dim {dim} appears multiple times in the list of dims"
            )));
        }
        wrapped.push(dim);
    }
    wrapped.sort_unstable();
    wrapped.retain(|&dim| dim < rank);
    Ok(wrapped)
}

/// Dimensions to reduce, from argument `dim`: all of them if it is absent or an empty list.
pub(crate) fn reduced_dims(c: &Ctx<'_>, rank: usize) -> Result<Vec<usize>> {
    match c.opt_ints("dim")? {
        Some(dims) if !dims.is_empty() => wrap_dims(&dims, rank),
        _ => Ok((0..rank).collect()),
    }
}

/// Sizes after a reduction.
pub(crate) fn reduced_sizes(sizes: &[i64], dims: &[usize], keepdim: bool) -> Dims {
    sizes
        .iter()
        .enumerate()
        .filter_map(|(dim, &size)| match dims.contains(&dim) {
            false => Some(size),
            true => keepdim.then_some(1),
        })
        .collect()
}

/// Number of elements that meet in one element of a reduction.
pub(crate) fn reduced_count(sizes: &[i64], dims: &[usize]) -> i64 {
    dims.iter().map(|&dim| sizes[dim]).product()
}

/// A value reduced over `dims`, with those dimensions back as ones if `keepdim`.
pub(crate) fn keep_dims(
    b: &mut Builder,
    reduced: &Value,
    sizes: &[i64],
    dims: &[usize],
    keepdim: bool,
) -> Result<Value> {
    Ok(b.reshape(reduced, &reduced_sizes(sizes, dims, keepdim))?)
}

/// A value reduced over `dims` (and without them), stretched back to `sizes`.
pub(crate) fn stretch(
    b: &mut Builder,
    reduced: &Value,
    sizes: &[i64],
    dims: &[usize],
) -> Result<Value> {
    let left: Vec<usize> = (0..sizes.len()).filter(|dim| !dims.contains(dim)).collect();
    Ok(b.broadcast_in_dim(reduced, sizes, &left)?)
}

/// A reduction whose result keeps the shape of its operand.
pub(crate) fn reduce_stretched(
    b: &mut Builder,
    op: Reducer,
    x: &Value,
    dims: &[usize],
) -> Result<Value> {
    let reduced = b.reduce_with(op, x, dims)?;
    stretch(b, &reduced, &x.dims, dims)
}

/// A vector along dimension `dim` of a value of these sizes (a weight per channel).
pub(crate) fn along(b: &mut Builder, vector: &Value, sizes: &[i64], dim: usize) -> Result<Value> {
    Ok(b.broadcast_in_dim(vector, sizes, &[dim])?)
}

/// A constant with the type and shape of another value.
pub(crate) fn like(b: &mut Builder, x: &Value, value: f64) -> Result<Value> {
    Ok(b.splat_like(x, value)?)
}

/// The dtype that sums of `dtype` are kept in.
pub(crate) fn acc_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// Integers and booleans become int64, as their sums do.
pub(crate) fn sum_type(dtype: DType) -> DType {
    if dtype.is_int() || dtype == DType::Bool {
        DType::I64
    } else {
        dtype
    }
}

/// The dtype of indices that are computed inside a program: narrow ones are faster.
pub(crate) fn index_type(count: i64) -> DType {
    if count < i64::from(i32::MAX) {
        DType::I32
    } else {
        DType::I64
    }
}

/// Where a float is NaN; `None` for types that have none.
pub(crate) fn nan_mask(b: &mut Builder, x: &Value) -> Result<Option<Value>> {
    if x.dtype.is_float() {
        Ok(Some(b.ne(x, x)?))
    } else {
        Ok(None)
    }
}

/// torch's words for a kernel that a dtype lacks.
pub(crate) fn unimplemented(kernel: &str, dtype: DType) -> Error {
    not_implemented(format!(
        "\"{kernel}\" not implemented for '{}'",
        dtype.torch_name()
    ))
}

pub(crate) fn not_implemented(text: impl Into<String>) -> Error {
    Error::Message {
        kind: Kind::NotImplemented,
        text: text.into(),
    }
}

/// The 0-d value as one dimension of size one, since torch lets it be indexed as such.
pub(crate) fn at_least_1d(b: &mut Builder, x: &Value) -> Result<Value> {
    if x.rank() == 0 {
        Ok(b.reshape(x, &[1])?)
    } else {
        Ok(x.clone())
    }
}

/// `value` of an argument that must be a float tensor's parameter, broadcast to `sizes`.
pub(crate) fn number_like(c: &mut Ctx<'_>, name: &str, default: f64, x: &Value) -> Result<Value> {
    let number = c.scalar_or(name, default, x.dtype)?;
    Ok(c.b.broadcast_to(&number, &x.dims)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_wrap_as_in_torch() {
        assert_eq!(wrap_dim(-1, 3).ok(), Some(2));
        assert_eq!(wrap_dim(-1, 0).ok(), Some(0));
        assert_eq!(wrap_dims(&[-1, 0], 3).ok(), Some(vec![0, 2]));
        assert_eq!(wrap_dims(&[0], 0).ok(), Some(vec![]));
        let text = wrap_dim(5, 2).err().map(|error| error.to_string());
        let expected = "Dimension out of range (expected to be in range of [-2, 1], but got 5)";
        assert_eq!(text.as_deref(), Some(expected));
        assert_eq!(reduced_sizes(&[2, 3], &[1], true).as_slice(), &[2, 1]);
    }
}
