//! Constant, reflecting and replicating padding, with the gradients of the last two.

use tpulab_stablehlo::{Dims, Value};

use super::util::acc_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("constant_pad_nd", constant_pad)
        .channels_last(&["self"]);
    for name in ["reflection_pad1d", "reflection_pad2d", "reflection_pad3d"] {
        r.op(name, |c| edge_pad(c, Edge::Reflect))
            .channels_last(&["self"]);
    }
    for name in [
        "replication_pad1d",
        "replication_pad2d",
        "replication_pad3d",
    ] {
        r.op(name, |c| edge_pad(c, Edge::Replicate))
            .channels_last(&["self"]);
    }
    for name in [
        "reflection_pad1d_backward",
        "reflection_pad2d_backward",
        "reflection_pad3d_backward",
    ] {
        r.op(name, |c| edge_pad_backward(c, Edge::Reflect))
            .channels_last(&["self"]);
    }
    for name in [
        "replication_pad1d_backward",
        "replication_pad2d_backward",
        "replication_pad3d_backward",
    ] {
        r.op(name, |c| edge_pad_backward(c, Edge::Replicate))
            .channels_last(&["self"]);
    }
    r.direct(&["constant_pad_nd"]);
}

/// (low, high) per dim of a tensor of this rank, from torch's list that starts at the last dim.
fn amounts(pad: &[i64], rank: usize) -> (Vec<i64>, Vec<i64>) {
    let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
    for (back, pair) in pad.chunks(2).enumerate() {
        if let (Some(dim), [before, after]) = (rank.checked_sub(back + 1), pair) {
            low[dim] = *before;
            high[dim] = *after;
        }
    }
    (low, high)
}

fn constant_pad(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let pad = c.ints("pad")?;
    if pad.len() % 2 != 0 {
        return Err(Error::runtime(format!(
            "Length of pad must be even but instead it equals {}",
            pad.len()
        )));
    }
    if x.rank() * 2 < pad.len() {
        return Err(Error::runtime(format!(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is {} \
             while the input has {} dimensions.",
            pad.len(),
            x.rank()
        )));
    }
    let (low, high) = amounts(&pad, x.rank());
    for dim in 0..x.rank() {
        if x.dims[dim] + low[dim] + high[dim] < 0 {
            return Err(Error::runtime(format!(
                "The input size {}, plus negative padding {} and {} resulted in a negative output size, which is \
                 invalid. Check dimension {dim} of your input.",
                x.dims[dim], low[dim], high[dim]
            )));
        }
    }
    let number = c.opt_number("value")?.unwrap_or(Number::int(0));
    let value = c.number_value(&number, x.dtype)?;
    Ok(one(c.b.pad(&x, &value, &low, &high, &vec![0; x.rank()])?))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Reflect,
    Replicate,
}

impl Edge {
    /// What stands before (or after) a dim, `count` elements of it.
    fn margin(
        self,
        c: &mut Ctx<'_>,
        x: &Value,
        dim: usize,
        count: i64,
        before: bool,
    ) -> Result<Value> {
        let size = x.dims[dim];
        match self {
            Self::Reflect => {
                let (start, end) = if before {
                    (1, 1 + count)
                } else {
                    (size - 1 - count, size - 1)
                };
                let part = c.b.slice_dim(x, dim, start, end, 1)?;
                Ok(c.b.reverse(&part, &[dim])?)
            }
            Self::Replicate => {
                let at = if before { 0 } else { size - 1 };
                let part = c.b.slice_dim(x, dim, at, at + 1, 1)?;
                let mut sizes = x.dims.clone();
                sizes[dim] = count;
                let all: Vec<usize> = (0..x.rank()).collect();
                Ok(c.b.broadcast_in_dim(&part, &sizes, &all)?)
            }
        }
    }

    /// The gradient of a margin, at the places it was taken from: the size of the dim.
    fn margin_back(
        self,
        c: &mut Ctx<'_>,
        margin: &Value,
        dim: usize,
        size: i64,
        before: bool,
    ) -> Result<Value> {
        let count = margin.dims[dim];
        let (part, start) = match self {
            Self::Reflect => {
                let start = if before { 1 } else { size - 1 - count };
                (c.b.reverse(margin, &[dim])?, start)
            }
            Self::Replicate => {
                let sum =
                    c.b.reduce_with(tpulab_stablehlo::Reducer::Sum, margin, &[dim])?;
                let mut sizes = margin.dims.clone();
                sizes[dim] = 1;
                (
                    c.b.reshape(&sum, &sizes)?,
                    if before { 0 } else { size - 1 },
                )
            }
        };
        along_dim(c, &part, dim, start, size - start - part.dims[dim])
    }
}

/// Zeros around (negative: elements cut off) along one dim.
fn along_dim(c: &mut Ctx<'_>, x: &Value, dim: usize, low: i64, high: i64) -> Result<Value> {
    let zero = c.b.scalar(x.dtype, 0)?;
    let mut before = vec![0; x.rank()];
    let mut after = before.clone();
    before[dim] = low;
    after[dim] = high;
    Ok(c.b.pad(x, &zero, &before, &after, &vec![0; x.rank()])?)
}

fn checked_amounts(sizes: &Dims, padding: &[i64], edge: Edge) -> Result<(Vec<i64>, Vec<i64>)> {
    let rank = sizes.len();
    let padded = padding.len() / 2;
    let fits = (rank == padded + 1 || rank == padded + 2)
        && sizes[rank - padded - 1..].iter().all(|size| *size > 0);
    if !fits {
        return Err(Error::runtime(format!(
            "Expected {}D or {}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for \
             input, but got: {:?}",
            padded + 1,
            padded + 2,
            sizes.as_slice()
        )));
    }
    let (low, high) = amounts(padding, rank);
    for dim in rank - padded..rank {
        let size = sizes[dim];
        if edge == Edge::Reflect && (low[dim] >= size || high[dim] >= size) {
            return Err(Error::runtime(format!(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding \
                 ({}, {}) at dimension {dim} of input {:?}",
                low[dim],
                high[dim],
                sizes.as_slice()
            )));
        }
        if size + low[dim] + high[dim] < 1 {
            return Err(Error::runtime(format!(
                "input (size {size}) is too small. Calculated output size: {}",
                size + low[dim] + high[dim]
            )));
        }
    }
    Ok((low, high))
}

fn edge_pad(c: &mut Ctx<'_>, edge: Edge) -> Result<Lowered> {
    let mut x = c.tensor("self")?;
    let (low, high) = checked_amounts(&x.dims, &c.ints("padding")?, edge)?;
    for dim in 0..x.rank() {
        let mut parts = vec![x.clone()];
        if low[dim] > 0 {
            let margin = edge.margin(c, &x, dim, low[dim], true)?;
            parts.insert(0, margin);
        }
        if high[dim] > 0 {
            parts.push(edge.margin(c, &x, dim, high[dim], false)?);
        }
        if parts.len() > 1 {
            x = c.b.concatenate(&parts, dim)?;
        }
        if low[dim] < 0 || high[dim] < 0 {
            x = along_dim(c, &x, dim, low[dim].min(0), high[dim].min(0))?;
        }
    }
    Ok(one(x))
}

fn edge_pad_backward(c: &mut Ctx<'_>, edge: Edge) -> Result<Lowered> {
    let grad = c.tensor("grad_output")?;
    let (_, sizes) = c
        .type_of("self")
        .ok_or_else(|| Error::runtime("argument 'self' must be a tensor"))?;
    let (low, high) = checked_amounts(&sizes, &c.ints("padding")?, edge)?;
    let mut value = c.b.convert(&grad, acc_type(grad.dtype))?;
    for dim in 0..sizes.len() {
        let size = sizes[dim];
        if low[dim] < 0 || high[dim] < 0 {
            value = along_dim(c, &value, dim, -low[dim].min(0), -high[dim].min(0))?;
        }
        let (before, after) = (low[dim].max(0), high[dim].max(0));
        if before == 0 && after == 0 {
            continue;
        }
        let mut sum = c.b.slice_dim(&value, dim, before, before + size, 1)?;
        if before > 0 {
            let margin = c.b.slice_dim(&value, dim, 0, before, 1)?;
            let back = edge.margin_back(c, &margin, dim, size, true)?;
            sum = c.b.add(&sum, &back)?;
        }
        if after > 0 {
            let margin =
                c.b.slice_dim(&value, dim, before + size, before + size + after, 1)?;
            let back = edge.margin_back(c, &margin, dim, size, false)?;
            sum = c.b.add(&sum, &back)?;
        }
        value = sum;
    }
    Ok(one(c.b.convert(&value, grad.dtype)?))
}
