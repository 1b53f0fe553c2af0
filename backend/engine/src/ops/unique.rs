//! Distinct elements and rows, and counts of numbers: results whose size depends on the data.
//!
//! One program brings equal elements together and numbers the runs, the number of runs is read, and a second program
//! takes one element of each run.

use tpulab_stablehlo::{DType, GatherDims, Reducer, ScatterDims, Value};

use super::histogram::count_bins;
use super::scan::running_with;
use super::search::insertion_places;
use super::sort::{before, run_starts, sort_pairs};
use super::util::{index_type, unimplemented, wrap_dim};
use crate::args::ArgRef;
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};
use crate::tensor::{HostCtx, Tensor};

pub(crate) fn register(r: &mut Registry) {
    r.host_op("_unique", |c| {
        let inverse = c.bool("return_inverse");
        let mut found = unique(c, None, false, inverse, false)?;
        found.truncate(2);
        Ok(found)
    });
    r.host_op("_unique2", |c| {
        let (inverse, counts) = (c.bool("return_inverse"), c.bool("return_counts"));
        unique(c, None, false, inverse, counts)
    });
    r.host_op("unique_consecutive", |c| {
        let (inverse, counts) = (c.bool("return_inverse"), c.bool("return_counts"));
        let dim = c.int("dim");
        unique(c, dim, true, inverse, counts)
    });
    r.host_op("unique_dim", |c| unique(c, c.int("dim"), false, true, true));
    r.host_op("unique_dim_consecutive", |c| {
        unique(c, c.int("dim"), true, true, true)
    });
    r.host_op("bincount", bincount);
    r.op("tpulab::unique_runs", unique_runs);
    r.op("tpulab::unique_take", unique_take);
    r.op("tpulab::bincount_range", bincount_range);
    r.op("tpulab::bincount", bincount_counts);
}

/// (distinct elements, for each element the number of its like, and how many there are of each)
fn unique(
    c: &HostCtx<'_>,
    dim: Option<i64>,
    consecutive: bool,
    inverse: bool,
    counts: bool,
) -> Result<Vec<Tensor>> {
    let x = c.tensor("self")?;
    let device = c.context.device;
    let none = || Tensor::empty(DType::I64, &[0], device);
    let dim = match dim {
        Some(dim) => Some(wrap_dim(dim, x.sizes.len())?),
        None => None,
    };
    if x.numel() == 0 {
        let others_empty = |dim: usize| {
            let others = x.sizes.iter().enumerate();
            others
                .filter(|&(other, _)| other != dim)
                .any(|(_, &n)| n == 0)
        };
        if dim.is_some_and(others_empty) && dim.is_none_or(|dim| x.sizes[dim] != 0) {
            return Err(Error::runtime(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied",
            ));
        }
        let sizes: Vec<i64> = match dim {
            Some(_) => x.sizes.to_vec(),
            None => vec![0],
        };
        let inverse = match dim {
            None if inverse => Tensor::empty(DType::I64, &x.sizes, device),
            _ => none(),
        };
        return Ok(vec![
            Tensor::empty(x.dtype, &sizes, device),
            inverse,
            none(),
        ]);
    }
    let dim_arg = dim.map_or(ArgRef::None, |dim| ArgRef::Int(dim as i64));
    let runs = c.run(
        "tpulab::unique_runs",
        &[
            ("self", x.arg()),
            ("dim", dim_arg),
            ("consecutive", ArgRef::Bool(consecutive)),
        ],
        4,
    )?;
    let [rows, places, ranks, count] = runs.as_slice() else {
        return Err(Error::runtime("unique_runs gave other results"));
    };
    let count = c.read_i64(count)?.first().copied().unwrap_or(0);
    let inverse_sizes: Vec<i64> = match dim {
        Some(dim) => vec![x.sizes[dim]],
        None => x.sizes.to_vec(),
    };
    let taken = c.run(
        "tpulab::unique_take",
        &[
            ("rows", rows.arg()),
            ("places", places.arg()),
            ("ranks", ranks.arg()),
            ("count", ArgRef::Int(count)),
            ("sizes", ArgRef::Ints(&inverse_sizes)),
        ],
        3,
    )?;
    let mut taken = taken.into_iter();
    match (taken.next(), taken.next(), taken.next()) {
        (Some(values), Some(numbers), Some(sizes)) => Ok(vec![
            moved_back(values, dim.unwrap_or(0)),
            if inverse { numbers } else { none() },
            if counts { sizes } else { none() },
        ]),
        _ => Err(Error::runtime("unique_take gave other results")),
    }
}

/// Rows [n, ...] with equal ones together, the place each came from, the number of its run, and how many runs there
/// are. Without a dim, each element is a row.
fn unique_runs(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let rows = match c.opt_int("dim")? {
        Some(dim) => {
            let perm = to_front(x.rank(), dim as usize);
            c.b.transpose(&x, &perm)?
        }
        None => c.b.reshape(&x, &[x.numel()])?,
    };
    let n = rows.dims[0];
    let (rows, places) = if c.bool("consecutive")? {
        let places = c.b.iota(index_type(n), &[n], 0)?;
        (rows, places)
    } else if rows.rank() == 1 {
        sort_pairs(&mut c.b, &rows, 0, false)?
    } else {
        sort_rows(c, &rows)?
    };
    let mut starts = run_starts(&mut c.b, &rows, 0)?;
    if rows.rank() > 1 {
        let others: Vec<usize> = (1..rows.rank()).collect();
        starts = c.b.reduce_with(Reducer::Or, &starts, &others)?;
    }
    let starts = c.b.convert(&starts, index_type(n))?;
    let numbers = running_with(&mut c.b, Reducer::Sum, &starts, 0)?;
    let count = c.b.slice_dim(&numbers, 0, n - 1, n, 1)?;
    let count = c.b.convert(&count, DType::I64)?;
    let unit = c.b.splat_like(&numbers, 1)?;
    let ranks = c.b.sub(&numbers, &unit)?;
    Ok(many([rows, places, ranks, count]))
}

/// The permutation that moves a dimension to the front.
fn to_front(rank: usize, dim: usize) -> Vec<usize> {
    std::iter::once(dim)
        .chain((0..rank).filter(|&other| other != dim))
        .collect()
}

/// A view of the tensor with its first dimension moved to `dim`.
fn moved_back(mut tensor: Tensor, dim: usize) -> Tensor {
    tensor.sizes[..=dim].rotate_left(1);
    tensor.strides[..=dim].rotate_left(1);
    tensor
}

/// Rows in lexicographic order: stable sorts by each column, the first column last.
fn sort_rows(c: &mut Ctx<'_>, rows: &Value) -> Result<(Value, Value)> {
    let n = rows.dims[0];
    let width = rows.numel() / n;
    let flat = c.b.reshape(rows, &[n, width])?;
    let columns = c.b.transpose(&flat, &[1, 0])?;
    let dtype = index_type(n);
    let places = c.b.iota(dtype, &[n], 0)?;
    let last = c.b.scalar(DType::I32, width - 1)?;
    let pick = GatherDims {
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: 1,
        ..GatherDims::default()
    };
    let sorted = c.b.while_loop(
        &[last, places],
        |b, state| {
            let zero = b.scalar(DType::I32, 0)?;
            b.ge(&state[0], &zero)
        },
        |b, state| {
            let zero = b.scalar(DType::I32, 0)?;
            let column = b.dynamic_slice(&columns, &[state[0].clone(), zero], &[1, n])?;
            let column = b.reshape(&column, &[n])?;
            let keys = b.gather(&column, &state[1], &pick, &[1], false)?;
            let pairs = b.sort(&[keys, state[1].clone()], 0, true, |b, pair| {
                before(b, &pair[0], &pair[1], false)
            })?;
            let unit = b.scalar(DType::I32, 1)?;
            let next = b.sub(&state[0], &unit)?;
            Ok(vec![next, pairs[1].clone()])
        },
    )?;
    let places = sorted
        .into_iter()
        .nth(1)
        .ok_or_else(|| Error::runtime("a sort gave no result"))?;
    let rows = take_rows(c, rows, &places, false)?;
    Ok((rows, places))
}

/// The rows at `places`.
fn take_rows(c: &mut Ctx<'_>, rows: &Value, places: &Value, sorted: bool) -> Result<Value> {
    let dims = GatherDims {
        offset_dims: (1..rows.rank()).collect(),
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: 1,
        ..GatherDims::default()
    };
    let mut slices = rows.dims.to_vec();
    slices[0] = 1;
    Ok(c.b.gather(rows, places, &dims, &slices, sorted)?)
}

/// One row of each run, the number of the run each row of the operand is in, and the lengths of the runs.
fn unique_take(c: &mut Ctx<'_>) -> Result<Lowered> {
    let rows = c.tensor("rows")?;
    let places = c.tensor("places")?;
    let ranks = c.tensor("ranks")?;
    let count = c.int("count")?;
    let n = rows.dims[0];
    let numbers = c.b.iota(ranks.dtype, &[count], 0)?;
    let starts = insertion_places(c, &ranks, &numbers, false)?;
    let taken = take_rows(c, &rows, &starts, true)?;
    let end = c.b.splat(starts.dtype, n, &[1])?;
    let later = c.b.slice_dim(&starts, 0, 1, count, 1)?;
    let ends = c.b.concatenate(&[later, end], 0)?;
    let lengths = c.b.sub(&ends, &starts)?;
    let lengths = c.b.convert(&lengths, DType::I64)?;
    let zeros = c.b.splat(ranks.dtype, 0, &[n])?;
    let scatter = ScatterDims {
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..ScatterDims::default()
    };
    let inverse = c.b.scatter(
        &zeros,
        &places,
        &ranks,
        &scatter,
        false,
        true,
        |_, _, new| Ok(new.clone()),
    )?;
    let inverse = c.b.convert(&inverse, DType::I64)?;
    let inverse = c.b.reshape(&inverse, &c.ints("sizes")?)?;
    Ok(many([taken, inverse, lengths]))
}

fn bincount(c: &mut HostCtx<'_>) -> Result<Vec<Tensor>> {
    let x = c.tensor("self")?;
    let weights = c.opt_tensor("weights")?;
    let least = c.int("minlength").unwrap_or(0);
    if least < 0 {
        return Err(Error::runtime("minlength should be >= 0"));
    }
    let wrong = || Error::runtime("bincount only supports 1-d non-negative integral inputs.");
    if x.numel() == 0 && x.sizes.len() == 1 {
        let zeros = c.run_one(
            "tpulab::bincount",
            &[
                ("self", x.arg()),
                ("weights", ArgRef::None),
                ("bins", ArgRef::Int(least)),
            ],
        )?;
        return Ok(vec![zeros]);
    }
    if x.sizes.len() != 1 {
        return Err(wrong());
    }
    if !x.dtype.is_int() {
        return Err(unimplemented("bincount_cpu", x.dtype));
    }
    if weights.as_ref().is_some_and(|w| w.sizes != x.sizes) {
        return Err(Error::runtime(
            "weights should be 1-d and have the same length as input",
        ));
    }
    let range = c.run_one("tpulab::bincount_range", &[("self", x.arg())])?;
    let (low, high) = match c.read_i64(&range)?.as_slice() {
        &[low, high] => (low, high),
        _ => return Err(wrong()),
    };
    if low < 0 {
        return Err(wrong());
    }
    let counts = c.run_one(
        "tpulab::bincount",
        &[
            ("self", x.arg()),
            (
                "weights",
                weights.as_ref().map_or(ArgRef::None, Tensor::arg),
            ),
            ("bins", ArgRef::Int(least.max(high + 1))),
        ],
    )?;
    Ok(vec![counts])
}

/// Least and greatest element.
fn bincount_range(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let x = c.b.convert(&x, DType::I64)?;
    let mut ends = Vec::with_capacity(2);
    for op in [Reducer::Min, Reducer::Max] {
        let end = c.b.reduce_with(op, &x, &[0])?;
        ends.push(c.b.reshape(&end, &[1])?);
    }
    Ok(one(c.b.concatenate(&ends, 0)?))
}

/// How often each number stands in `self`, or the sum of its weights.
fn bincount_counts(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let bins = c.int("bins")?;
    let (weights, dtype) = match c.opt_tensor("weights")? {
        Some(weights) if weights.dtype == DType::F32 => (weights, DType::F32),
        Some(weights) => (c.b.convert(&weights, DType::F64)?, DType::F64),
        None => {
            let narrow = index_type(x.numel());
            (c.b.splat(narrow, 1, &x.dims)?, DType::I64)
        }
    };
    let x = c.b.convert(&x, DType::I64)?;
    let counts = count_bins(c, &x, &weights, bins)?;
    Ok(one(c.b.convert(&counts, dtype)?))
}
