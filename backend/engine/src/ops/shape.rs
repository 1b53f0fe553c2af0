//! Joining, turning and cutting tensors.

use tpulab_stablehlo::{Cmp, DType, Dims, Value};

use super::util::{wrap_dim, wrap_dims};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::promote::Promotion;
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("cat", cat).casts();
    r.op("stack", stack).casts();
    r.op("flip", flip).like("self");
    r.op("roll", roll);
    r.op("repeat", repeat);
    r.op("tril", |c| triangle(c, Cmp::Le));
    r.op("triu", |c| triangle(c, Cmp::Ge));
    r.op("channel_shuffle", channel_shuffle)
        .channels_last(&["self"]);
    r.op("narrow_copy", narrow_copy);
    r.op("unfold_backward", super::windows::unfold_backward);
    r.direct(&["stack", "repeat"]);
}

fn joined_type(tensors: &[Value]) -> DType {
    let mut promotion = Promotion::default();
    for tensor in tensors {
        promotion.tensor(tensor.dtype, tensor.rank());
    }
    promotion.result()
}

/// Vectors without elements join with anything, as they always did.
fn cat(c: &mut Ctx<'_>) -> Result<Lowered> {
    let tensors = c.tensors("tensors")?;
    if tensors.is_empty() {
        return Err(Error::value("expected a non-empty list of Tensors"));
    }
    let dtype = joined_type(&tensors);
    let mut parts = Vec::with_capacity(tensors.len());
    for tensor in tensors.iter().filter(|tensor| tensor.dims() != [0]) {
        parts.push(c.b.convert(tensor, dtype)?);
    }
    let Some(first) = parts.first() else {
        return Ok(one(c.b.splat(dtype, 0, &[0])?));
    };
    let dim = wrap_dim(c.int("dim")?, first.rank())?;
    Ok(one(c.b.concatenate(&parts, dim)?))
}

fn stack(c: &mut Ctx<'_>) -> Result<Lowered> {
    let tensors = c.tensors("tensors")?;
    let Some(first) = tensors.first() else {
        return Err(Error::runtime("stack expects a non-empty TensorList"));
    };
    let dim = wrap_dim(c.int("dim")?, first.rank() + 1)?;
    let other = tensors.iter().position(|tensor| tensor.dims != first.dims);
    if let Some(other) = other {
        return Err(Error::runtime(format!(
            "stack expects each tensor to be equal size, but got {:?} at entry 0 and {:?} at entry {other}",
            first.dims.as_slice(),
            tensors[other].dims.as_slice()
        )));
    }
    let dtype = joined_type(&tensors);
    let mut sizes = first.dims.clone();
    sizes.insert(dim, 1);
    let mut parts = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let tensor = c.b.convert(tensor, dtype)?;
        parts.push(c.b.reshape(&tensor, &sizes)?);
    }
    Ok(one(c.b.concatenate(&parts, dim)?))
}

fn flip(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dims = wrap_dims(&c.ints("dims")?, x.rank())?;
    Ok(one(c.b.reverse(&x, &dims)?))
}

/// Moves elements up by `by` places along `dim`; those pushed out come in at the other end.
fn rolled(c: &mut Ctx<'_>, x: &Value, by: i64, dim: usize) -> Result<Value> {
    let size = x.dims[dim];
    if size == 0 {
        return Ok(x.clone());
    }
    let cut = (size - by.rem_euclid(size)) % size;
    if cut == 0 {
        return Ok(x.clone());
    }
    let head = c.b.slice_dim(x, dim, 0, cut, 1)?;
    let tail = c.b.slice_dim(x, dim, cut, size, 1)?;
    Ok(c.b.concatenate(&[tail, head], dim)?)
}

fn roll(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let shifts = c.ints("shifts")?;
    let dims = c.opt_ints("dims")?.unwrap_or_default();
    if shifts.is_empty() {
        return Err(Error::runtime("`shifts` required"));
    }
    if dims.is_empty() && shifts.len() == 1 {
        let flat = c.b.reshape(&x, &[x.numel()])?;
        let flat = rolled(c, &flat, shifts[0], 0)?;
        return Ok(one(c.b.reshape(&flat, &x.dims)?));
    }
    if shifts.len() != dims.len() {
        return Err(Error::runtime(format!(
            "shifts and dimensions must align. shifts: {}, dims:{}",
            shifts.len(),
            dims.len()
        )));
    }
    let mut value = x.clone();
    for (by, dim) in shifts.iter().zip(&dims) {
        let dim = wrap_dim(*dim, x.rank())?;
        if x.rank() > 0 {
            value = rolled(c, &value, *by, dim)?;
        }
    }
    Ok(one(value))
}

fn repeat(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let repeats = c.ints("repeats")?;
    let Some(added) = repeats.len().checked_sub(x.rank()) else {
        return Err(Error::runtime(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        ));
    };
    let size = |dim: usize| dim.checked_sub(added).map_or(1, |own| x.dims[own]);
    let sizes: Dims = (0..repeats.len())
        .map(|dim| size(dim) * repeats[dim])
        .collect();
    if let Some(bad) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::runtime(format!(
            "Trying to create tensor with negative dimension {bad}: {:?}",
            sizes.as_slice()
        )));
    }
    // Each dim becomes (copies, own size); the two are one in the result.
    let mut split = Dims::new();
    let mut map = Vec::new();
    for (dim, count) in repeats.iter().enumerate() {
        split.push(*count);
        if dim >= added {
            map.push(split.len());
            split.push(size(dim));
        }
    }
    let spread = c.b.broadcast_in_dim(&x, &split, &map)?;
    Ok(one(c.b.reshape(&spread, &sizes)?))
}

/// Keeps where `column - row` compares so with the diagonal.
fn triangle(c: &mut Ctx<'_>, keep: Cmp) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let diagonal = c.opt_int("diagonal")?.unwrap_or(0);
    let Some(row_dim) = x.rank().checked_sub(2) else {
        return Err(Error::runtime(format!(
            "{}: input tensor must have at least 2 dimensions",
            c.base_name()
        )));
    };
    let plane = [x.dims[row_dim], x.dims[row_dim + 1]];
    let kept = diagonal_mask(c, &plane, diagonal, keep)?;
    let kept =
        c.b.broadcast_in_dim(&kept, &x.dims, &[row_dim, row_dim + 1])?;
    let zero = c.b.splat_like(&x, 0)?;
    Ok(one(c.b.select(&kept, &x, &zero)?))
}

/// Where `column - row` compares so with `diagonal`.
pub(super) fn diagonal_mask(
    c: &mut Ctx<'_>,
    plane: &[i64],
    diagonal: i64,
    keep: Cmp,
) -> Result<Value> {
    let row = c.b.iota(DType::I64, plane, 0)?;
    let column = c.b.iota(DType::I64, plane, 1)?;
    let diagonal = c.b.splat(DType::I64, diagonal, plane)?;
    let limit = c.b.add(&row, &diagonal)?;
    Ok(c.b.compare(keep, &column, &limit)?)
}

fn channel_shuffle(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let groups = c.int("groups")?;
    if x.rank() <= 2 {
        return Err(Error::runtime(format!(
            "channel_shuffle expects input with > 2 dims, but got input with sizes {:?}",
            x.dims.as_slice()
        )));
    }
    let channels = x.dims[1];
    if groups <= 0 {
        return Err(Error::runtime(format!(
            "Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )));
    }
    if channels % groups != 0 {
        return Err(Error::runtime(format!(
            "Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )));
    }
    let rest: i64 = x.dims[2..].iter().product();
    let split =
        c.b.reshape(&x, &[x.dims[0], groups, channels / groups, rest])?;
    let turned = c.b.transpose(&split, &[0, 2, 1, 3])?;
    Ok(one(c.b.reshape(&turned, &x.dims)?))
}

fn narrow_copy(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let (mut start, length) = (c.int("start")?, c.int("length")?);
    let size = x.dims.get(dim).copied().unwrap_or(0);
    if start < 0 {
        start += size;
    }
    if start < 0 || length < 0 || start + length > size {
        return Err(Error::runtime(format!(
            "start ({start}) + length ({length}) exceeds dimension size ({size})."
        )));
    }
    Ok(one(c.b.slice_dim(&x, dim, start, start + length, 1)?))
}
