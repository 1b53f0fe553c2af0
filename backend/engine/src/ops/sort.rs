//! Sorting and what follows from it: the largest, the k-th, the middle, the most frequent.

use tpulab_stablehlo::{Builder, DType, Reducer, Value};

use super::argreduce::first_extreme;
use super::scan::running_with;
use super::sort_words;
use super::util::{
    at_least_1d, index_type, keep_dims, nan_mask, not_implemented, stretch, unimplemented, wrap_dim,
};
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("sort", sort).like("self");
    r.op("topk", topk);
    r.op("kthvalue", kth_value);
    r.op("median", |c| median(c, false));
    r.op("nanmedian", |c| median(c, true));
    r.op("mode", mode);
    r.direct(&[
        "sort",
        "sort.stable",
        "sort.values",
        "topk",
        "kthvalue",
        "median.dim",
        "median.out",
        "nanmedian.dim",
        "nanmedian.out",
        "mode.values",
    ]);
}

type Built<T> = tpulab_stablehlo::Result<T>;

/// Whether `l` comes before `r`: ascending with NaN last, or descending with NaN first.
pub(crate) fn before(b: &mut Builder, l: &Value, r: &Value, descending: bool) -> Built<Value> {
    let (low, high) = if descending { (r, l) } else { (l, r) };
    let less = b.lt(low, high)?;
    if !low.dtype.is_float() {
        return Ok(less);
    }
    let high_nan = b.ne(high, high)?;
    let low_number = b.eq(low, low)?;
    let nan_last = b.and(&high_nan, &low_number)?;
    b.or(&less, &nan_last)
}

/// Sorted values along `dim`, and where each came from. Equal ones keep their order.
pub(crate) fn sort_pairs(
    b: &mut Builder,
    x: &Value,
    dim: usize,
    descending: bool,
) -> Result<(Value, Value)> {
    if sort_words::fits(x.dtype, x.dims[dim]) {
        return sort_words::sort(b, x, dim, descending);
    }
    let places = b.iota(index_type(x.dims[dim]), &x.dims, dim)?;
    let operands = [x.clone(), places];
    let sorted = b.sort(&operands, dim, true, |b, pair| {
        before(b, &pair[0], &pair[1], descending)
    })?;
    let mut sorted = sorted.into_iter();
    match (sorted.next(), sorted.next()) {
        (Some(values), Some(places)) => Ok((values, places)),
        _ => Err(Error::runtime("a sort gave no result")),
    }
}

/// Sorted values alone.
pub(crate) fn sort_values(b: &mut Builder, x: &Value, dim: usize) -> Result<Value> {
    let sorted = b.sort(std::slice::from_ref(x), dim, false, |b, pair| {
        before(b, &pair[0], &pair[1], false)
    })?;
    let first = sorted.into_iter().next();
    first.ok_or_else(|| Error::runtime("a sort gave no result"))
}

/// Values and int64 places in the shape the call asked for.
fn results(c: &mut Ctx<'_>, values: &Value, places: &Value, sizes: &[i64]) -> Result<Lowered> {
    let places = c.b.convert(places, DType::I64)?;
    let values = c.b.reshape(values, sizes)?;
    let places = c.b.reshape(&places, sizes)?;
    Ok(many([values, places]))
}

/// The argument with at least one dimension, and the one to work along (the last, unless given).
fn operand(c: &mut Ctx<'_>) -> Result<(Value, Value, usize)> {
    let given = c.tensor("self")?;
    let dim = wrap_dim(c.opt_int("dim")?.unwrap_or(-1), given.rank())?;
    let x = at_least_1d(&mut c.b, &given)?;
    Ok((given, x, dim))
}

fn check_not_empty(given: &Value, name: &str, dim: usize) -> Result<()> {
    if given.numel() == 0 && given.dims[dim] == 0 {
        return Err(Error::index(format!(
            "{name}(): Expected reduction dim {dim} to have non-zero size."
        )));
    }
    Ok(())
}

fn sort(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (given, x, dim) = operand(c)?;
    if x.dtype.is_complex() {
        return Err(Error::runtime(
            "Sort does not support complex dtypes on CPU",
        ));
    }
    let descending = c.bool("descending")?;
    let (values, places) = sort_pairs(&mut c.b, &x, dim, descending)?;
    results(c, &values, &places, &given.dims)
}

fn topk(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (given, x, dim) = operand(c)?;
    let k = c.int("k")?;
    if k < 0 || k > x.dims[dim] {
        return Err(Error::runtime("selected index k out of range"));
    }
    if x.dtype == DType::Bool || x.dtype.is_complex() {
        let what = if x.dtype == DType::Bool {
            "bool"
        } else {
            "complex"
        };
        return Err(not_implemented(format!(
            "topk does not support {what} dtypes on CPU"
        )));
    }
    let largest = !matches!(c.opt_int("largest")?, Some(0));
    let mut sizes = given.dims.clone();
    if !sizes.is_empty() {
        sizes[dim] = k;
    }
    if k == 1 && x.dims[dim] > 0 && largest {
        let (value, place) = first_extreme(c, &x, Reducer::Max, dim)?;
        return results(c, &value, &place, &sizes);
    }
    if narrow_float(x.dtype) && 2 * k <= x.dims[dim] {
        let (values, places) = first_k(&mut c.b, &x, dim, k, largest)?;
        return results(c, &values, &places, &sizes);
    }
    let (values, places) = sort_pairs(&mut c.b, &x, dim, largest)?;
    let values = c.b.slice_dim(&values, dim, 0, k, 1)?;
    let places = c.b.slice_dim(&places, dim, 0, k, 1)?;
    results(c, &values, &places, &sizes)
}

/// Types whose values float32 holds exactly.
fn narrow_float(dtype: DType) -> bool {
    use DType::{BF16, F16, F32, I8, I16, U8};
    matches!(dtype, F32 | F16 | BF16 | I8 | U8 | I16)
}

/// The `k` greatest or least along `dim`, by an operation of its own, which takes float32 in the last dimension and
/// puts NaN last or, if it has a sign, first.
fn first_k(
    b: &mut Builder,
    x: &Value,
    dim: usize,
    k: i64,
    largest: bool,
) -> Result<(Value, Value)> {
    let mut order: Vec<usize> = (0..x.rank()).filter(|&other| other != dim).collect();
    order.push(dim);
    let mut back: Vec<usize> = (0..x.rank() - 1).collect();
    back.insert(dim, x.rank() - 1);
    let wide = b.convert(x, DType::F32)?;
    let mut rows = b.transpose(&wide, &order)?;
    let number = b.eq(&rows, &rows)?;
    if !largest {
        rows = b.neg(&rows)?;
    }
    let nan = if largest {
        0x7fc0_0000_u32
    } else {
        0xffc0_0000
    };
    let nan = b.scalar(DType::U32, nan)?;
    let nan = b.bitcast(&nan, DType::F32)?;
    let nan = b.broadcast_to(&nan, &rows.dims)?;
    let rows = b.select(&number, &rows, &nan)?;
    let (mut values, places) = b.top_k(&rows, k)?;
    if !largest {
        values = b.neg(&values)?;
    }
    let values = b.transpose(&values, &back)?;
    let places = b.transpose(&places, &back)?;
    Ok((b.convert(&values, x.dtype)?, places))
}

/// The sizes of a result that holds one element along `dim`.
fn one_along(c: &Ctx<'_>, given: &Value, dim: usize) -> Result<Vec<i64>> {
    let mut sizes = given.dims.to_vec();
    if !sizes.is_empty() {
        if c.bool("keepdim")? {
            sizes[dim] = 1;
        } else {
            sizes.remove(dim);
        }
    }
    Ok(sizes)
}

fn kth_value(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (given, x, dim) = operand(c)?;
    check_not_empty(&given, "kthvalue", dim)?;
    let k = c.int("k")?;
    if k < 1 || k > x.dims[dim] {
        return Err(Error::runtime(format!(
            "kthvalue(): selected number k out of range for dimension {dim}"
        )));
    }
    if x.dtype == DType::Bool && given.rank() > 0 {
        return Err(unimplemented("kthvalue_cpu", x.dtype));
    }
    let sizes = one_along(c, &given, dim)?;
    let (values, places) = sort_pairs(&mut c.b, &x, dim, false)?;
    let value = c.b.slice_dim(&values, dim, k - 1, k, 1)?;
    let place = c.b.slice_dim(&places, dim, k - 1, k, 1)?;
    results(c, &value, &place, &sizes)
}

/// The element of each row at a computed place, without the dimension.
fn element(c: &mut Ctx<'_>, x: &Value, place: &Value, dim: usize) -> Result<Value> {
    let places = c.b.iota(place.dtype, &x.dims, dim)?;
    let place = stretch(&mut c.b, place, &x.dims, &[dim])?;
    let here = c.b.eq(&places, &place)?;
    let nothing = c.b.min_value(x.dtype)?;
    let nothing = c.b.broadcast_to(&nothing, &x.dims)?;
    // A NaN passes through the maximum; the other places hold the least value.
    let alone = c.b.select(&here, x, &nothing)?;
    Ok(c.b.reduce_with(Reducer::Max, &alone, &[dim])?)
}

/// The lower median along a dimension. With a NaN in the row it is that; `nanmedian` takes no notice of them.
fn median(c: &mut Ctx<'_>, ignore_nan: bool) -> Result<Lowered> {
    let given = c.tensor("self")?;
    let along = c.opt_int("dim")?;
    let known = given.dtype != DType::Bool && !given.dtype.is_complex();
    let (x, dim) = match along {
        Some(dim) => {
            let dim = wrap_dim(dim, given.rank())?;
            check_not_empty(&given, "median", dim)?;
            if !known {
                return Err(unimplemented("median_out", given.dtype));
            }
            (at_least_1d(&mut c.b, &given)?, dim)
        }
        None if given.numel() == 0 => {
            // What NaN becomes in the dtype.
            let nan = match given.dtype {
                DType::Bool => c.b.scalar(DType::Bool, true)?,
                dtype if dtype.is_float() => c.b.scalar(dtype, f64::NAN)?,
                dtype if dtype.is_signed() => c.b.min_value(dtype)?,
                dtype => c.b.scalar(dtype, 0)?,
            };
            return Ok(one(nan));
        }
        None if !known => return Err(unimplemented("median_cpu", given.dtype)),
        None => (c.b.reshape(&given, &[given.numel()])?, 0),
    };
    let size = x.dims[dim];
    let (values, places) = sort_pairs(&mut c.b, &x, dim, false)?;
    let (value, place) = if let Some(nan) = nan_mask(&mut c.b, &values)? {
        let target = median_place(c, &nan, dim, size, ignore_nan)?;
        let value = element(c, &values, &target, dim)?;
        let place = element(c, &places, &target, dim)?;
        (value, place)
    } else {
        let middle = (size - 1) / 2;
        let value = c.b.slice_dim(&values, dim, middle, middle + 1, 1)?;
        let place = c.b.slice_dim(&places, dim, middle, middle + 1, 1)?;
        (value, place)
    };
    if along.is_none() {
        return Ok(one(c.b.reshape(&value, &[])?));
    }
    let sizes = one_along(c, &given, dim)?;
    results(c, &value, &place, &sizes)
}

/// Where in the sorted row the median stands: the middle of the numbers, or the first NaN.
fn median_place(
    c: &mut Ctx<'_>,
    nan: &Value,
    dim: usize,
    size: i64,
    ignore_nan: bool,
) -> Result<Value> {
    let dtype = index_type(size);
    let numbers = c.b.not(nan)?;
    let numbers = c.b.convert(&numbers, dtype)?;
    let count = c.b.reduce_with(Reducer::Sum, &numbers, &[dim])?;
    if ignore_nan {
        let unit = c.b.splat_like(&count, 1)?;
        let two = c.b.splat_like(&count, 2)?;
        let zero = c.b.splat_like(&count, 0)?;
        let last = c.b.sub(&count, &unit)?;
        let last = c.b.max(&last, &zero)?;
        return Ok(c.b.div(&last, &two)?);
    }
    let all = c.b.splat_like(&count, size)?;
    let middle = c.b.splat_like(&count, (size - 1) / 2)?;
    let clean = c.b.eq(&count, &all)?;
    Ok(c.b.select(&clean, &middle, &count)?)
}

/// The most frequent value, the least of several, and the last place it stands at.
fn mode(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (given, x, dim) = operand(c)?;
    check_not_empty(&given, "mode", dim)?;
    let sizes = one_along(c, &given, dim)?;
    if x.numel() == 0 {
        let values = c.b.splat(x.dtype, 0, &sizes)?;
        let places = c.b.splat(DType::I64, 0, &sizes)?;
        return results(c, &values, &places, &sizes);
    }
    let size = x.dims[dim];
    let (values, places) = sort_pairs(&mut c.b, &x, dim, false)?;
    let positions = c.b.iota(index_type(size), &x.dims, dim)?;
    let fresh = run_starts(&mut c.b, &values, dim)?;
    let zero = c.b.splat_like(&positions, 0)?;
    let starts = c.b.select(&fresh, &positions, &zero)?;
    let starts = running_with(&mut c.b, Reducer::Max, &starts, dim)?;
    // The longest run is the first whose position within itself gets so far, and there it ends.
    let depth = c.b.sub(&positions, &starts)?;
    let (_, end) = first_extreme(c, &depth, Reducer::Max, dim)?;
    let value = element(c, &values, &end, dim)?;
    let place = element(c, &places, &end, dim)?;
    let value = keep_dims(&mut c.b, &value, &x.dims, &[dim], true)?;
    let place = keep_dims(&mut c.b, &place, &x.dims, &[dim], true)?;
    results(c, &value, &place, &sizes)
}

/// Where a sorted row differs from the element before; true at the start.
pub(crate) fn run_starts(b: &mut Builder, sorted: &Value, dim: usize) -> Result<Value> {
    let size = sorted.dims[dim];
    let mut dims = sorted.dims.clone();
    dims[dim] = size.min(1);
    let first = b.splat(DType::Bool, true, &dims)?;
    if size <= 1 {
        return Ok(first);
    }
    let left = b.slice_dim(sorted, dim, 0, size - 1, 1)?;
    let right = b.slice_dim(sorted, dim, 1, size, 1)?;
    let differs = b.ne(&left, &right)?;
    Ok(b.concatenate(&[first, differs], dim)?)
}
