//! Sums, means and maxima of looked-up rows, bag by bag, and their gradients.

use tpulab_stablehlo::{Cmp, DType, Value};

use super::embedding::check_indices;
use super::nonzero::count_not_greater;
use super::places::{Combine, Negative, Places};
use super::util::acc_type;
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    for name in ["_embedding_bag", "_embedding_bag_forward_only"] {
        r.op(name, forward).uploads();
    }
    for name in ["_embedding_bag_backward", "_embedding_bag_dense_backward"] {
        r.op(name, backward).uploads();
    }
    r.op(
        "_embedding_bag_per_sample_weights_backward",
        weights_backward,
    )
    .uploads();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sum,
    Mean,
    Max,
}

fn mode(c: &Ctx<'_>) -> Result<Mode> {
    match c.opt_int("mode")?.unwrap_or(0) {
        0 => Ok(Mode::Sum),
        1 => Ok(Mode::Mean),
        2 => Ok(Mode::Max),
        other => Err(Error::not_lowered(format!("embedding_bag of mode {other}"))),
    }
}

/// Rows addressed by a vector of indices.
fn rows(c: &mut Ctx<'_>, sizes: &[i64], index: &Value) -> Result<Places> {
    Places::along(c, sizes, 0, index, Negative::Invalid)
}

/// Which indices count: those that are not the padding row.
fn counted(c: &mut Ctx<'_>, indices: &Value) -> Result<Value> {
    let padding = c.opt_int("padding_idx")?.unwrap_or(-1);
    let padding = c.b.splat_like(indices, padding)?;
    Ok(c.b.ne(indices, &padding)?)
}

/// Zero in the rows that do not count.
fn only_counted(c: &mut Ctx<'_>, values: &Value, counts: &Value) -> Result<Value> {
    let counts = c.b.broadcast_in_dim(counts, &values.dims, &[0])?;
    let zero = c.b.splat_like(values, 0)?;
    Ok(c.b.select(&counts, values, &zero)?)
}

/// The bag of each index: how many offsets are not beyond it, less one.
fn bags_of(c: &mut Ctx<'_>, offsets: &Value, count: i64) -> Result<Value> {
    let bags = offsets.numel();
    let sorted = c.b.reshape(offsets, &[1, bags])?;
    let place = c.b.iota(offsets.dtype, &[1, count], 1)?;
    let begun = count_not_greater(c, &sorted, &place)?;
    let begun = c.b.convert(&begun, offsets.dtype)?;
    let one = c.b.splat_like(&begun, 1)?;
    let bag = c.b.sub(&begun, &one)?;
    Ok(c.b.reshape(&bag, &[count])?)
}

fn forward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let weight = c.tensor("weight")?;
    let indices = c.tensor("indices")?;
    let mut offsets = c.tensor("offsets")?;
    check_indices(&indices, 1, "indices", "embedding_bag")?;
    check_indices(&offsets, 1, "offsets", "embedding_bag")?;
    if weight.rank() != 2 || indices.rank() != 1 || offsets.rank() != 1 {
        return Err(Error::runtime(
            "embedding_bag expects a 2-D weight, 1-D indices and 1-D offsets",
        ));
    }
    if c.bool("include_last_offset")? {
        let bags = offsets.numel() - 1;
        if bags < 0 {
            return Err(Error::runtime(
                "include_last_offset: number of offset should be at least 1",
            ));
        }
        offsets = c.b.slice_dim(&offsets, 0, 0, bags, 1)?;
    }
    let mode = mode(c)?;
    let (count, bags, width) = (indices.numel(), offsets.numel(), weight.dims[1]);
    let size = [bags, width];
    if count == 0 || bags == 0 || width == 0 {
        let output = c.b.splat(weight.dtype, 0, &size)?;
        let bag = c.b.splat(offsets.dtype, 0, &[count])?;
        let sizes = c.b.splat(offsets.dtype, 0, &[bags])?;
        let most: &[i64] = if mode == Mode::Max { &size } else { &[bags] };
        let chosen = c.b.splat(offsets.dtype, 0, most)?;
        return Ok(many([output, bag, sizes, chosen]));
    }
    let dtype = acc_type(weight.dtype);
    let bag = bags_of(c, &offsets, count)?;
    let counts = counted(c, &indices)?;
    let slots = rows(c, &[bags], &bag)?;
    let none = c.b.splat(offsets.dtype, 0, &[bags])?;
    let ones = c.b.convert(&counts, offsets.dtype)?;
    let sizes = slots.scatter(c, &none, &ones, Combine::Add)?;
    let looked = rows(c, &weight.dims, &indices)?;
    let looked = looked.gather(c, &weight)?;
    let mut looked = c.b.convert(&looked, dtype)?;
    if let Some(own) = c.opt_tensor("per_sample_weights")? {
        let own = c.b.convert(&own, dtype)?;
        let own = c.b.broadcast_in_dim(&own, &looked.dims, &[0])?;
        looked = c.b.mul(&looked, &own)?;
    }
    let into = rows(c, &size, &bag)?;
    if mode == Mode::Max {
        return largest(c, &weight, &indices, &bag, &into, &looked, &counts, &sizes);
    }
    let looked = only_counted(c, &looked, &counts)?;
    let zeros = c.b.splat(dtype, 0, &size)?;
    let mut output = into.scatter(c, &zeros, &looked, Combine::Add)?;
    if mode == Mode::Mean {
        let by = at_least_one(c, &sizes, dtype)?;
        let by = c.b.broadcast_in_dim(&by, &size, &[0])?;
        output = c.b.div(&output, &by)?;
    }
    let output = c.b.convert(&output, weight.dtype)?;
    Ok(many([output, bag, sizes.clone(), sizes]))
}

fn at_least_one(c: &mut Ctx<'_>, sizes: &Value, dtype: DType) -> Result<Value> {
    let one = c.b.splat_like(sizes, 1)?;
    let least = c.b.max(sizes, &one)?;
    Ok(c.b.convert(&least, dtype)?)
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of one step of `forward`"
)]
fn largest(
    c: &mut Ctx<'_>,
    weight: &Value,
    indices: &Value,
    bag: &Value,
    into: &Places,
    looked: &Value,
    counts: &Value,
    sizes: &Value,
) -> Result<Lowered> {
    let (count, bags, width) = (looked.dims[0], sizes.numel(), looked.dims[1]);
    let size = [bags, width];
    let low = c.b.min_value(looked.dtype)?;
    let low_rows = c.b.broadcast_to(&low, &looked.dims)?;
    let taking = c.b.broadcast_in_dim(counts, &looked.dims, &[0])?;
    let looked = c.b.select(&taking, looked, &low_rows)?;
    let start = c.b.broadcast_to(&low, &size)?;
    let best = into.scatter(c, &start, &looked, Combine::Max)?;
    // The first index of the bag that reaches the maximum.
    let own = into.gather(c, &best)?;
    let reaches = c.b.compare(Cmp::Eq, &own, &looked)?;
    let reaches = c.b.and(&reaches, &taking)?;
    let place = c.b.iota(DType::I32, &looked.dims, 0)?;
    let beyond = c.b.splat(DType::I32, count - 1, &looked.dims)?;
    let place = c.b.select(&reaches, &place, &beyond)?;
    let start = c.b.splat(DType::I32, count - 1, &size)?;
    let first = into.scatter(c, &start, &place, Combine::Min)?;
    let chosen = rows(c, &[count], &first)?.gather(c, indices)?;
    let zero = c.b.splat_like(sizes, 0)?;
    let filled = c.b.compare(Cmp::Gt, sizes, &zero)?;
    let output = only_counted(c, &best, &filled)?;
    let output = c.b.convert(&output, weight.dtype)?;
    let none = c.b.splat_like(&chosen, -1)?;
    let filled = c.b.broadcast_in_dim(&filled, &size, &[0])?;
    let chosen = c.b.select(&filled, &chosen, &none)?;
    Ok(many([output, bag.clone(), sizes.clone(), chosen]))
}

fn backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad = c.tensor("grad")?;
    if c.bool("sparse")? {
        return Err(Error::not_lowered("a sparse gradient of embedding_bag"));
    }
    let indices = c.tensor("indices")?;
    let mode = mode(c)?;
    let (count, width) = (indices.numel(), grad.dims[1]);
    let size = [c.int("num_weights")?, width];
    let dtype = acc_type(grad.dtype);
    let zeros = c.b.splat(dtype, 0, &size)?;
    if count == 0 || grad.numel() == 0 {
        return Ok(one(c.b.convert(&zeros, grad.dtype)?));
    }
    let wide = c.b.convert(&grad, dtype)?;
    if mode == Mode::Max {
        let chosen = c.tensor("maximum_indices")?;
        let flat = c.b.reshape(&chosen, &[chosen.numel()])?;
        let column = c.b.iota(flat.dtype, &chosen.dims, 1)?;
        let column = c.b.reshape(&column, &[chosen.numel()])?;
        let batch = flat.dims.clone();
        let given = vec![(0, flat), (1, column)];
        let places = Places::new(c, &size, given, &batch, 0, Negative::Invalid)?;
        let updates = c.b.reshape(&wide, &batch)?;
        let summed = places.scatter(c, &zeros, &updates, Combine::Add)?;
        return Ok(one(c.b.convert(&summed, grad.dtype)?));
    }
    let bag = bag_argument(c, count)?;
    let counts = counted(c, &indices)?;
    let mut updates = rows(c, &grad.dims, &bag)?.gather(c, &wide)?;
    if let Some(own) = c.opt_tensor("per_sample_weights")? {
        let own = c.b.convert(&own, dtype)?;
        let own = c.b.broadcast_in_dim(&own, &updates.dims, &[0])?;
        updates = c.b.mul(&updates, &own)?;
    }
    if mode == Mode::Mean {
        let sizes = c.tensor("bag_size")?;
        let by = at_least_one(c, &sizes, dtype)?;
        let by = rows(c, &by.dims.clone(), &bag)?.gather(c, &by)?;
        let by = c.b.broadcast_in_dim(&by, &updates.dims, &[0])?;
        updates = c.b.div(&updates, &by)?;
    }
    if c.bool("scale_grad_by_freq")? {
        let slots = rows(c, &size[..1], &indices)?;
        let none = c.b.splat(dtype, 0, &size[..1])?;
        let ones = c.b.splat(dtype, 1, &[count])?;
        let frequency = slots.scatter(c, &none, &ones, Combine::Add)?;
        let frequency = slots.gather(c, &frequency)?;
        let frequency = c.b.broadcast_in_dim(&frequency, &updates.dims, &[0])?;
        updates = c.b.div(&updates, &frequency)?;
    }
    let updates = only_counted(c, &updates, &counts)?;
    let summed = rows(c, &size, &indices)?.scatter(c, &zeros, &updates, Combine::Add)?;
    Ok(one(c.b.convert(&summed, grad.dtype)?))
}

/// `offset2bag`, or what it would be, if the forward pass left it out.
fn bag_argument(c: &mut Ctx<'_>, count: i64) -> Result<Value> {
    let bag = c.tensor("offset2bag")?;
    if bag.numel() == count {
        return Ok(bag);
    }
    let offsets = c.tensor("offsets")?;
    bags_of(c, &offsets, count)
}

fn weights_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let grad = c.tensor("grad")?;
    let weight = c.tensor("weight")?;
    let indices = c.tensor("indices")?;
    let count = indices.numel();
    if count == 0 {
        return Ok(one(c.b.splat(grad.dtype, 0, &[0])?));
    }
    let dtype = acc_type(grad.dtype);
    let bag = bag_argument(c, count)?;
    let wide = c.b.convert(&grad, dtype)?;
    let wide = rows(c, &grad.dims, &bag)?.gather(c, &wide)?;
    let looked = rows(c, &weight.dims, &indices)?.gather(c, &weight)?;
    let looked = c.b.convert(&looked, dtype)?;
    let products = c.b.mul(&wide, &looked)?;
    let dots =
        c.b.reduce_with(tpulab_stablehlo::Reducer::Sum, &products, &[1])?;
    let counts = counted(c, &indices)?;
    let zero = c.b.splat_like(&dots, 0)?;
    let dots = c.b.select(&counts, &dots, &zero)?;
    Ok(one(c.b.convert(&dots, grad.dtype)?))
}
