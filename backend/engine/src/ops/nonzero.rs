//! Ops whose result is as long as a mask has true places. The count is read on the host; results are computed into
//! storages of a rounded length, so that a new count seldom needs a new program.

use smallvec::SmallVec;
use tpulab_stablehlo::{DType, Dims, GatherDims, Reducer, Value};

use super::places::{Combine, Negative, Places};
use super::scan::running_with;
use super::util::index_type;
use crate::args::ArgRef;
use crate::error::{Error, Result};
use crate::lower::{Ctx, broadcast_dims, many, one};
use crate::registry::{Lowered, Registry};
use crate::tensor::{HostCtx, Tensor};
use crate::view::{numel, row_major};

pub(crate) fn register(r: &mut Registry) {
    r.host_op("nonzero", |h| {
        let x = h.tensor("self")?;
        Ok(vec![nonzero_of(h, &x)?])
    });
    r.host_op("masked_select", masked_select);
    r.host_op("repeat_interleave", repeat_interleave);
    r.op("nonzero_static", nonzero_static);
    r.op("tpulab::mask_scan", mask_scan);
    r.op("tpulab::true_places", true_places);
    r.op("tpulab::masked_rows", masked_rows_of);
    r.op("tpulab::repeat_scan", repeat_scan);
    r.op("tpulab::repeat_places", repeat_places);
}

// ---- helpers

/// For each query \[rows, m\], how many elements of its sorted row \[rows, n\] are not greater: I32, or I64 for long rows.
pub(super) fn count_not_greater(c: &mut Ctx<'_>, sorted: &Value, queries: &Value) -> Result<Value> {
    let (rows, n) = (sorted.dims[0], sorted.dims[1]);
    let dtype = index_type(rows * n + 1);
    let flat = c.b.reshape(sorted, &[rows * n])?;
    let limit = c.b.splat(dtype, n, &queries.dims)?;
    let row = c.b.iota(dtype, &queries.dims, 0)?;
    // Place of a row's element before its first.
    let base = c.b.mul(&row, &limit)?;
    let one = c.b.splat(dtype, 1, &queries.dims)?;
    let base = c.b.sub(&base, &one)?;
    let dims = GatherDims {
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: queries.rank(),
        ..GatherDims::default()
    };
    let mut count = c.b.splat(dtype, 0, &queries.dims)?;
    let mut step = 1;
    while step * 2 <= n {
        step *= 2;
    }
    while step > 0 && n > 0 {
        let by = c.b.splat(dtype, step, &queries.dims)?;
        let next = c.b.add(&count, &by)?;
        let place = c.b.add(&base, &next)?;
        let seen = c.b.gather(&flat, &place, &dims, &[1], false)?;
        let inside = c.b.le(&next, &limit)?;
        let not_greater = c.b.le(&seen, queries)?;
        let further = c.b.and(&inside, &not_greater)?;
        count = c.b.select(&further, &next, &count)?;
        step /= 2;
    }
    Ok(count)
}

/// Whether looking each of `count` places up by bisection is less work than a pass over all `n`.
fn few(count: i64, n: i64) -> bool {
    count * i64::from(n.max(2).ilog2()) < n
}

/// For each number below `count`, how many of these rising sums \[n\] are not greater.
fn search_places(c: &mut Ctx<'_>, scan: &Value, count: i64) -> Result<Value> {
    let sorted = c.b.reshape(scan, &[1, scan.numel()])?;
    let queries = c.b.iota(scan.dtype, &[1, count], 1)?;
    let places = count_not_greater(c, &sorted, &queries)?;
    Ok(c.b.reshape(&places, &[count])?)
}

/// Places of the first `count` true elements of a mask with these inclusive counts \[n\].
fn first_places(c: &mut Ctx<'_>, scan: &Value, count: i64) -> Result<Value> {
    let n = scan.numel();
    if few(count, n) {
        return search_places(c, scan, count);
    }
    // The k-th true element is the first place whose count is k.
    let one = c.b.splat_like(scan, 1)?;
    let number = c.b.sub(scan, &one)?;
    let place = c.b.iota(scan.dtype, &[n], 0)?;
    let none = c.b.splat(scan.dtype, n, &[count])?;
    let numbers = Places::along(c, &[count], 0, &number, Negative::Invalid)?;
    numbers.scatter(c, &none, &place, Combine::Min)
}

/// For each place of the repeated sequence, which element it repeats, from the inclusive sums of the repeats.
fn repeated_places(c: &mut Ctx<'_>, scan: &Value, count: i64) -> Result<Value> {
    if few(count, scan.numel()) {
        return search_places(c, scan, count);
    }
    let dtype = index_type(scan.numel());
    let none = c.b.splat(dtype, 0, &[count])?;
    let ones = c.b.splat(dtype, 1, &scan.dims)?;
    let ends = Places::along(c, &[count], 0, scan, Negative::Invalid)?;
    let ended = ends.scatter(c, &none, &ones, Combine::Add)?;
    running_with(&mut c.b, Reducer::Sum, &ended, 0)
}

/// Inclusive counts of true elements, flat.
fn scan_mask(c: &mut Ctx<'_>, mask: &Value) -> Result<Value> {
    let n = mask.numel();
    let flat = c.b.reshape(mask, &[1, n])?;
    let flat = c.b.convert(&flat, DType::Bool)?;
    let ones = c.b.convert(&flat, index_type(n))?;
    let sums = running_with(&mut c.b, Reducer::Sum, &ones, 1)?;
    Ok(c.b.reshape(&sums, &[n])?)
}

fn last_of(c: &mut Ctx<'_>, x: &Value) -> Result<Value> {
    let n = x.numel();
    let last = c.b.slice_dim(x, 0, n - 1, n, 1)?;
    let last = c.b.convert(&last, DType::I64)?;
    Ok(c.b.reshape(&last, &[])?)
}

/// Coordinates of flat places in row-major `sizes`: \[rank, places\].
fn coordinates(c: &mut Ctx<'_>, places: &Value, sizes: &[i64]) -> Result<Value> {
    let n = places.numel();
    let strides = row_major(sizes);
    let mut rows = Vec::with_capacity(sizes.len());
    for (size, stride) in sizes.iter().zip(&strides) {
        let by = c.b.splat_like(places, (*stride).max(1))?;
        let span = c.b.splat_like(places, (*size).max(1))?;
        let row = c.b.div(places, &by)?;
        let row = c.b.rem(&row, &span)?;
        let row = c.b.convert(&row, DType::I64)?;
        rows.push(c.b.reshape(&row, &[1, n])?);
    }
    Ok(c.b.concatenate(&rows, 0)?)
}

// ---- programs

/// (inclusive counts of a mask broadcast to `sizes`, their last)
fn mask_scan(c: &mut Ctx<'_>) -> Result<Lowered> {
    let mask = c.tensor("self")?;
    let sizes = c.ints("sizes")?;
    let mask = c.b.broadcast_to(&mask, &sizes)?;
    let scan = scan_mask(c, &mask)?;
    let count = last_of(c, &scan)?;
    Ok(many([scan, count]))
}

fn true_places(c: &mut Ctx<'_>) -> Result<Lowered> {
    let scan = c.tensor("scan")?;
    let count = c.int("count")?;
    let sizes = c.ints("sizes")?;
    let places = first_places(c, &scan, count)?;
    Ok(one(coordinates(c, &places, &sizes)?))
}

fn masked_rows_of(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let scan = c.tensor("scan")?;
    let sizes = c.ints("sizes")?;
    let count = c.int("count")?;
    let masked = c.int("masked")? as usize;
    let places = first_places(c, &scan, count)?;
    let x = c.b.broadcast_to(&x, &sizes)?;
    let mut flat = vec![numel(&sizes[..masked])];
    flat.extend_from_slice(&sizes[masked..]);
    let x = c.b.reshape(&x, &flat)?;
    let rows = Places::along(c, &flat, 0, &places, Negative::Invalid)?;
    Ok(one(rows.gather(c, &x)?))
}

fn nonzero_static(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let size = c.int("size")?;
    let fill = c.opt_int("fill_value")?.unwrap_or(-1);
    if size < 0 {
        return Err(Error::runtime(
            "nonzero_static: 'size' must be an non-negative integer",
        ));
    }
    let result = [size, x.rank() as i64];
    if x.numel() == 0 || size == 0 || x.rank() == 0 {
        return Ok(one(c.b.splat(DType::I64, fill, &result)?));
    }
    let scan = scan_mask(c, &x)?;
    let places = first_places(c, &scan, size)?;
    let found = coordinates(c, &places, &x.dims)?;
    let found = c.b.transpose(&found, &[1, 0])?;
    let count = last_of(c, &scan)?;
    let count = c.b.broadcast_to(&count, &result)?;
    let row = c.b.iota(DType::I64, &result, 0)?;
    let there = c.b.lt(&row, &count)?;
    let fill = c.b.splat(DType::I64, fill, &result)?;
    Ok(one(c.b.select(&there, &found, &fill)?))
}

/// (inclusive sums of the repeats, their last, the least repeat)
fn repeat_scan(c: &mut Ctx<'_>) -> Result<Lowered> {
    let repeats = c.tensor("repeats")?;
    let n = repeats.numel();
    let wide = c.b.convert(&repeats, DType::I64)?;
    let wide = c.b.reshape(&wide, &[1, n])?;
    let scan = running_with(&mut c.b, Reducer::Sum, &wide, 1)?;
    let scan = c.b.reshape(&scan, &[n])?;
    let total = last_of(c, &scan)?;
    let least = c.b.reduce_with(Reducer::Min, &wide, &[0, 1])?;
    let total = c.b.reshape(&total, &[1])?;
    let least = c.b.reshape(&least, &[1])?;
    let both = c.b.concatenate(&[total, least], 0)?;
    Ok(many([scan, both]))
}

fn repeat_places(c: &mut Ctx<'_>) -> Result<Lowered> {
    let scan = c.tensor("scan")?;
    let count = c.int("count")?;
    let dtype = c.opt_dtype("dtype")?.unwrap_or(DType::I64);
    let places = repeated_places(c, &scan, count)?;
    Ok(one(c.b.convert(&places, dtype)?))
}

// ---- the host's part

/// A length that few different counts share.
fn rounded(count: i64) -> i64 {
    (count.max(16) as u64).next_power_of_two() as i64
}

/// (counts, number of true elements) of a mask broadcast to `sizes`.
fn scan_of(h: &HostCtx<'_>, mask: &Tensor, sizes: &[i64]) -> Result<(Tensor, i64)> {
    let args = [("self", mask.arg()), ("sizes", ArgRef::Ints(sizes))];
    let mut outputs = h.run("tpulab::mask_scan", &args, 2)?.into_iter();
    let (Some(scan), Some(count)) = (outputs.next(), outputs.next()) else {
        return Err(Error::runtime("a scan without a count"));
    };
    let count = h.read_i64(&count)?.first().copied().unwrap_or(0);
    Ok((scan, count))
}

/// `nonzero`: \[count, rank\], the places of each dim side by side.
pub(super) fn nonzero_of(h: &HostCtx<'_>, x: &Tensor) -> Result<Tensor> {
    let device = x.cell.device();
    let rank = x.sizes.len() as i64;
    if x.numel() == 0 {
        return Ok(Tensor::empty(DType::I64, &[0, rank], device));
    }
    let (scan, count) = scan_of(h, x, &x.sizes)?;
    if count == 0 || rank == 0 {
        return Ok(Tensor::empty(DType::I64, &[count, rank], device));
    }
    let length = rounded(count).min(x.numel());
    let args = [
        ("scan", scan.arg()),
        ("count", ArgRef::Int(length)),
        ("sizes", ArgRef::Ints(&x.sizes)),
    ];
    let mut places = h.run_one("tpulab::true_places", &args)?;
    places.sizes = SmallVec::from_slice(&[count, rank]);
    places.strides = SmallVec::from_slice(&[1, length]);
    Ok(places)
}

/// Rows of `x` where a mask over its first dims holds.
pub(super) fn masked_rows(h: &HostCtx<'_>, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let masked = mask.sizes.len();
    rows_of(h, x, mask, &x.sizes, masked)
}

fn rows_of(
    h: &HostCtx<'_>,
    x: &Tensor,
    mask: &Tensor,
    sizes: &[i64],
    masked: usize,
) -> Result<Tensor> {
    let device = x.cell.device();
    let shape = |count: i64| {
        let mut shape = Dims::from_slice(&[count]);
        shape.extend_from_slice(&sizes[masked..]);
        shape
    };
    if numel(&sizes[..masked]) == 0 {
        return Ok(Tensor::empty(x.dtype, &shape(0), device));
    }
    let (scan, count) = scan_of(h, mask, &sizes[..masked])?;
    let result = shape(count);
    if numel(&result) == 0 {
        return Ok(Tensor::empty(x.dtype, &result, device));
    }
    let args = [
        ("self", x.arg()),
        ("scan", scan.arg()),
        ("sizes", ArgRef::Ints(sizes)),
        (
            "count",
            ArgRef::Int(rounded(count).min(numel(&sizes[..masked]))),
        ),
        ("masked", ArgRef::Int(masked as i64)),
    ];
    let mut rows = h.run_one("tpulab::masked_rows", &args)?;
    rows.strides = row_major(&result);
    rows.sizes = result;
    Ok(rows)
}

fn masked_select(h: &mut HostCtx<'_>) -> Result<Vec<Tensor>> {
    let (x, mask) = (h.tensor("self")?, h.tensor("mask")?);
    if mask.dtype != DType::Bool {
        return Err(Error::runtime(
            "masked_select: expected BoolTensor for mask",
        ));
    }
    let sizes = broadcast_dims(&[&x.sizes, &mask.sizes])?;
    Ok(vec![rows_of(h, &x, &mask, &sizes, sizes.len())?])
}

/// For each place, itself as often as `repeats` says.
fn repeat_interleave(h: &mut HostCtx<'_>) -> Result<Vec<Tensor>> {
    let repeats = h.tensor("repeats")?;
    if repeats.sizes.len() != 1 {
        return Err(Error::runtime(
            "repeat_interleave only accept 1D vector as repeat",
        ));
    }
    if !matches!(repeats.dtype, DType::I64 | DType::I32) {
        return Err(super::util::unimplemented(
            "repeat_interleave_cpu",
            repeats.dtype,
        ));
    }
    let device = repeats.cell.device();
    if repeats.sizes[0] == 0 {
        return Ok(vec![Tensor::empty(repeats.dtype, &[0], device)]);
    }
    let args = [("repeats", repeats.arg())];
    let mut outputs = h.run("tpulab::repeat_scan", &args, 2)?.into_iter();
    let (Some(scan), Some(facts)) = (outputs.next(), outputs.next()) else {
        return Err(Error::runtime("a scan without a count"));
    };
    let facts = h.read_i64(&facts)?;
    let (count, least) = (
        facts.first().copied().unwrap_or(0),
        facts.get(1).copied().unwrap_or(0),
    );
    if least < 0 {
        return Err(Error::runtime("repeats can not be negative"));
    }
    if h.int("output_size").is_some_and(|size| size != count) {
        return Err(Error::runtime(
            "allocated size does not match required size",
        ));
    }
    if count == 0 {
        return Ok(vec![Tensor::empty(repeats.dtype, &[0], device)]);
    }
    let args = [
        ("scan", scan.arg()),
        ("count", ArgRef::Int(rounded(count))),
        ("dtype", ArgRef::Int(i64::from(repeats.dtype.code()))),
    ];
    let mut places = h.run_one("tpulab::repeat_places", &args)?;
    places.sizes = SmallVec::from_slice(&[count]);
    Ok(vec![places])
}
