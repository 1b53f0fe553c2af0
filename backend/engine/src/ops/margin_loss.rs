//! The margin loss of class scores against one class number a row, and its gradient.

use tpulab_stablehlo::{Reducer, Value};

use super::class_loss::Classes;
use super::loss::Reduction;
use super::util::{like, stretch};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("multi_margin_loss", multi_margin);
    r.op("multi_margin_loss_backward", multi_margin_backward);
}

/// The margins max(0, margin − x\[y\] + x\[j\]) that count, over the dims of the scores; where they count; the weight of
/// each place; and the exponent.
struct Margins {
    margins: Value,
    counted: Value,
    weights: Option<Value>,
    square: bool,
}

fn margins(c: &mut Ctx<'_>, classes: &Classes) -> Result<Margins> {
    let square = match c.static_number("p")?.unwrap_or(1.0) {
        1.0 => false,
        2.0 => true,
        _ => return Err(Error::runtime("only p == 1 and p == 2 supported")),
    };
    let margin = c.scalar_or("margin", 1.0, classes.x.dtype)?;
    let margin = c.b.broadcast_to(&margin, &classes.x.dims)?;
    let scores = classes.scores(c)?;
    let scores = stretch(&mut c.b, &scores, &classes.x.dims, &[1])?;
    let margins = c.b.sub(&margin, &scores)?;
    let margins = c.b.add(&margins, &classes.x)?;
    let zero = like(&mut c.b, &margins, 0.0)?;
    let positive = c.b.gt(&margins, &zero)?;
    let hot = classes.one_hot(c)?;
    let others = c.b.not(&hot)?;
    let counted = c.b.and(&positive, &others)?;
    let margins = c.b.select(&counted, &margins, &zero)?;
    let weights = classes.weights(c)?;
    Ok(Margins {
        margins,
        counted,
        weights,
        square,
    })
}

fn multi_margin(c: &mut Ctx<'_>) -> Result<Lowered> {
    let classes = Classes::of(c)?;
    let found = margins(c, &classes)?;
    let mut each = found.margins.clone();
    if found.square {
        each = c.b.mul(&each, &each)?;
    }
    let mut losses = c.b.reduce_with(Reducer::Sum, &each, &[1])?;
    if let Some(weights) = &found.weights {
        losses = c.b.mul(&losses, weights)?;
    }
    let count = like(&mut c.b, &losses, classes.count() as f64)?;
    let losses = c.b.div(&losses, &count)?;
    let losses = c.b.reshape(&losses, &classes.sizes)?;
    let loss = Reduction::of(c)?.apply(c, &losses)?;
    Ok(one(c.b.convert(&loss, classes.input.dtype)?))
}

fn multi_margin_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let classes = Classes::of(c)?;
    let found = margins(c, &classes)?;
    let reduction = Reduction::of(c)?;
    let factor = reduction.weight(classes.target.numel()) / classes.count() as f64;
    let mut slope = if found.square {
        let two = like(&mut c.b, &found.margins, 2.0)?;
        c.b.mul(&found.margins, &two)?
    } else {
        c.b.convert(&found.counted, classes.x.dtype)?
    };
    if let Some(weights) = &found.weights {
        let weights = stretch(&mut c.b, weights, &classes.x.dims, &[1])?;
        slope = c.b.mul(&slope, &weights)?;
    }
    let factor = like(&mut c.b, &slope, factor)?;
    let slope = c.b.mul(&slope, &factor)?;
    let total = c.b.reduce_with(Reducer::Sum, &slope, &[1])?;
    let total = c.b.neg(&total)?;
    let total = stretch(&mut c.b, &total, &classes.x.dims, &[1])?;
    let hot = classes.one_hot(c)?;
    let value = c.b.select(&hot, &total, &slope)?;
    let grad = c.tensor("grad_output")?;
    let grad = c.b.convert(&grad, value.dtype)?;
    let grad = if grad.numel() == 1 {
        let grad = c.b.reshape(&grad, &[])?;
        c.b.broadcast_to(&grad, &value.dims)?
    } else {
        stretch(&mut c.b, &grad, &value.dims, &[1])?
    };
    let value = c.b.mul(&value, &grad)?;
    let value = c.b.reshape(&value, &classes.input.dims)?;
    Ok(one(c.b.convert(&value, classes.input.dtype)?))
}
