//! Embedding lookups and their gradients.

use tpulab_stablehlo::{Cmp, DType, Reducer, Unary, Value};

use super::places::{Combine, Negative, Places};
use super::util::acc_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("embedding", embedding).uploads();
    r.op("embedding_dense_backward", dense_backward).uploads();
    r.op("embedding_renorm", renorm).uploads();
    r.direct(&["embedding"]);
}

/// torch's check of an index argument.
pub(super) fn check_indices(index: &Value, position: usize, name: &str, op: &str) -> Result<()> {
    if matches!(index.dtype, DType::I64 | DType::I32) {
        return Ok(());
    }
    Err(Error::runtime(format!(
        "Expected tensor for argument #{position} '{name}' to have one of the following scalar types: Long, Int; but \
         got torch.{}Tensor instead (while checking arguments for {op})",
        index.dtype.torch_name()
    )))
}

fn embedding(c: &mut Ctx<'_>) -> Result<Lowered> {
    let weight = c.tensor("weight")?;
    let indices = c.tensor("indices")?;
    if weight.rank() != 2 {
        return Err(Error::runtime("'weight' must be 2-D"));
    }
    check_indices(&indices, 1, "indices", "embedding")?;
    if weight.dims[0] == 0 && indices.numel() > 0 {
        return Err(Error::index("index out of range in self"));
    }
    let places = Places::along(c, &weight.dims, 0, &indices, Negative::Invalid)?;
    Ok(one(places.gather(c, &weight)?))
}

fn dense_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad = c.tensor("grad_output")?;
    let indices = c.tensor("indices")?;
    check_indices(&indices, 2, "indices", "embedding_backward")?;
    let rows = c.int("num_weights")?;
    let padding = c.int("padding_idx")?;
    let count = indices.numel();
    let width = grad.dims.last().copied().unwrap_or(1);
    let dtype = acc_type(grad.dtype);
    let zeros = c.b.splat(dtype, 0, &[rows, width])?;
    if count == 0 || grad.numel() == 0 {
        return Ok(one(c.b.convert(&zeros, grad.dtype)?));
    }
    let mut updates = c.b.convert(&grad, dtype)?;
    updates = c.b.reshape(&updates, &[count, width])?;
    let index = c.b.reshape(&indices, &[count])?;
    let places = Places::along(c, &zeros.dims, 0, &index, Negative::Invalid)?;
    if c.bool("scale_grad_by_freq")? {
        let per_row = vec![rows];
        let slots = Places::along(c, &per_row, 0, &index, Negative::Invalid)?;
        let none = c.b.splat(dtype, 0, &per_row)?;
        let ones = c.b.splat(dtype, 1, &[count])?;
        let frequency = slots.scatter(c, &none, &ones, Combine::Add)?;
        let frequency = slots.gather(c, &frequency)?;
        let frequency = c.b.broadcast_in_dim(&frequency, &updates.dims, &[0])?;
        updates = c.b.div(&updates, &frequency)?;
    }
    if padding >= 0 {
        let padding = c.b.splat_like(&index, padding)?;
        let counts = c.b.compare(Cmp::Ne, &index, &padding)?;
        let counts = c.b.broadcast_in_dim(&counts, &updates.dims, &[0])?;
        let nothing = c.b.splat_like(&updates, 0)?;
        updates = c.b.select(&counts, &updates, &nothing)?;
    }
    let summed = places.scatter(c, &zeros, &updates, Combine::Add)?;
    Ok(one(c.b.convert(&summed, grad.dtype)?))
}

/// Rows that are looked up are scaled down to `max_norm`.
fn renorm(c: &mut Ctx<'_>) -> Result<Lowered> {
    let weight = c.tensor("self")?;
    let indices = c.tensor("indices")?;
    check_indices(&indices, 2, "indices", "embedding_renorm_")?;
    if weight.rank() != 2 {
        return Err(Error::runtime("'self' must be 2-D"));
    }
    let count = indices.numel();
    if count == 0 {
        return Ok(one(weight));
    }
    let index = c.b.reshape(&indices, &[count])?;
    let places = Places::along(c, &weight.dims, 0, &index, Negative::Invalid)?;
    let rows = places.gather(c, &weight)?;
    let dtype = acc_type(weight.dtype);
    let wide = c.b.convert(&rows, dtype)?;
    let kind = c.static_number("norm_type")?.unwrap_or(2.0);
    let norm = row_norms(c, &wide, kind)?;
    let limit = c.scalar_or("max_norm", 1.0, dtype)?;
    let limit = c.b.broadcast_to(&limit, &norm.dims)?;
    let guard = c.b.splat_like(&norm, 1e-7)?;
    let guarded = c.b.add(&norm, &guard)?;
    let scale = c.b.div(&limit, &guarded)?;
    let one_ = c.b.splat_like(&norm, 1.0)?;
    let above = c.b.compare(Cmp::Gt, &norm, &limit)?;
    let scale = c.b.select(&above, &scale, &one_)?;
    let scale = c.b.broadcast_in_dim(&scale, &wide.dims, &[0])?;
    let scaled = c.b.mul(&wide, &scale)?;
    let scaled = c.b.convert(&scaled, weight.dtype)?;
    Ok(one(places.scatter(
        c,
        &weight,
        &scaled,
        Combine::Replace,
    )?))
}

fn row_norms(c: &mut Ctx<'_>, rows: &Value, kind: f64) -> Result<Value> {
    let size = c.b.abs(rows)?;
    if kind == f64::INFINITY {
        return Ok(c.b.reduce_with(Reducer::Max, &size, &[1])?);
    }
    if kind == 1.0 {
        return Ok(c.b.reduce_with(Reducer::Sum, &size, &[1])?);
    }
    if kind == 2.0 {
        let squares = c.b.mul(rows, rows)?;
        let sum = c.b.reduce_with(Reducer::Sum, &squares, &[1])?;
        return Ok(c.b.unary(Unary::Sqrt, &sum)?);
    }
    let power = c.b.splat_like(&size, kind)?;
    let powers = c.b.pow(&size, &power)?;
    let sum = c.b.reduce_with(Reducer::Sum, &powers, &[1])?;
    let root = c.b.splat_like(&sum, 1.0 / kind)?;
    Ok(c.b.pow(&sum, &root)?)
}
