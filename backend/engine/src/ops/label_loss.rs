//! The margin loss of rows with several labels each, and its gradient.

use tpulab_stablehlo::{DType, Reducer, Value};

use super::loss::Reduction;
use super::util::{acc_type, like};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("multilabel_margin_loss_forward", forward);
    r.op("multilabel_margin_loss_backward", backward);
}

/// Everything about labels i and classes j of rows n.
struct Labels {
    input: Value,
    /// \[n, j\]
    x: Value,
    /// \[n, i, j\]: label i of the row is class j, and stands before the first −1.
    hot: Value,
    /// \[n, j\]: some label is class j.
    is_target: Value,
    /// \[n, i, j\]: 1 − x\[label i\] + x\[j\].
    margins: Value,
    /// \[n, i, j\]: the margin is positive, i a label, j none.
    counted: Value,
}

fn labels(c: &mut Ctx<'_>) -> Result<Labels> {
    let input = c.tensor("self")?;
    let target = c.tensor("target")?;
    if input.rank() > 2 || target.dims != input.dims {
        return Err(Error::runtime(format!(
            "inconsistent target size: {:?} for input of size: {:?}",
            target.dims.as_slice(),
            input.dims.as_slice()
        )));
    }
    let classes = input.dims.last().copied().unwrap_or(1);
    let rows = if input.rank() == 2 { input.dims[0] } else { 1 };
    let x = c.b.convert(&input, acc_type(input.dtype))?;
    let x = c.b.reshape(&x, &[rows, classes])?;
    let target = c.b.convert(&target, DType::I32)?;
    let target = c.b.reshape(&target, &[rows, classes])?;

    let places = c.b.iota(DType::I32, &[rows, classes], 1)?;
    let end = c.b.splat_like(&places, classes)?;
    let zero = c.b.splat_like(&places, 0)?;
    let closed = c.b.lt(&target, &zero)?;
    let ends = c.b.select(&closed, &places, &end)?;
    let end = c.b.reduce_with(Reducer::Min, &ends, &[1])?;
    let end = c.b.broadcast_in_dim(&end, &[rows, classes], &[0])?;
    let is_label = c.b.lt(&places, &end)?;

    let cube = [rows, classes, classes];
    let numbers = c.b.iota(DType::I32, &cube, 2)?;
    let label = c.b.broadcast_in_dim(&target, &cube, &[0, 1])?;
    let same = c.b.eq(&numbers, &label)?;
    let is_label = c.b.broadcast_in_dim(&is_label, &cube, &[0, 1])?;
    let hot = c.b.and(&same, &is_label)?;
    let is_target = c.b.reduce_with(Reducer::Or, &hot, &[1])?;

    let scores = c.b.broadcast_in_dim(&x, &cube, &[0, 2])?;
    let zero = like(&mut c.b, &scores, 0.0)?;
    let alone = c.b.select(&hot, &scores, &zero)?;
    let own = c.b.reduce_with(Reducer::Sum, &alone, &[2])?;
    let own = c.b.broadcast_in_dim(&own, &cube, &[0, 1])?;
    let unit = like(&mut c.b, &scores, 1.0)?;
    let margins = c.b.sub(&unit, &own)?;
    let margins = c.b.add(&margins, &scores)?;
    let positive = c.b.gt(&margins, &zero)?;
    let others = c.b.not(&is_target)?;
    let others = c.b.broadcast_in_dim(&others, &cube, &[0, 2])?;
    let counted = c.b.and(&positive, &others)?;
    let counted = c.b.and(&counted, &is_label)?;
    Ok(Labels {
        input,
        x,
        hot,
        is_target,
        margins,
        counted,
    })
}

/// (loss, which classes are labels)
fn forward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let found = labels(c)?;
    let dtype = found.input.dtype;
    let zero = like(&mut c.b, &found.margins, 0.0)?;
    let each = c.b.select(&found.counted, &found.margins, &zero)?;
    let losses = c.b.reduce_with(Reducer::Sum, &each, &[1, 2])?;
    let count = like(&mut c.b, &losses, found.x.dims[1] as f64)?;
    let mut losses = c.b.div(&losses, &count)?;
    if found.input.rank() < 2 {
        losses = c.b.reshape(&losses, &[])?;
    }
    let loss = Reduction::of(c)?.apply(c, &losses)?;
    let loss = c.b.convert(&loss, dtype)?;
    let is_target = c.b.convert(&found.is_target, dtype)?;
    let is_target = c.b.reshape(&is_target, &found.input.dims)?;
    Ok(vec![Some(loss), Some(is_target)])
}

fn backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let found = labels(c)?;
    let (rows, classes) = (found.x.dims[0], found.x.dims[1]);
    let counts = c.b.convert(&found.counted, found.x.dtype)?;
    let up = c.b.reduce_with(Reducer::Sum, &counts, &[1])?;
    let of_label = c.b.reduce_with(Reducer::Sum, &counts, &[2])?;
    let of_label =
        c.b.broadcast_in_dim(&of_label, &[rows, classes, classes], &[0, 1])?;
    let zero = like(&mut c.b, &of_label, 0.0)?;
    let down = c.b.select(&found.hot, &of_label, &zero)?;
    let down = c.b.reduce_with(Reducer::Sum, &down, &[1])?;
    let slope = c.b.sub(&up, &down)?;
    let factor = Reduction::of(c)?.weight(rows) / classes as f64;
    let factor = like(&mut c.b, &slope, factor)?;
    let slope = c.b.mul(&slope, &factor)?;
    let grad = c.tensor("grad_output")?;
    let grad = c.b.convert(&grad, slope.dtype)?;
    let grad = if grad.numel() == 1 {
        let grad = c.b.reshape(&grad, &[])?;
        c.b.broadcast_to(&grad, &slope.dims)?
    } else {
        c.b.broadcast_in_dim(&grad, &slope.dims, &[0])?
    };
    let value = c.b.mul(&slope, &grad)?;
    let value = c.b.reshape(&value, &found.input.dims)?;
    Ok(one(c.b.convert(&value, found.input.dtype)?))
}
