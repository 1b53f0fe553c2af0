//! Tensors made from numbers alone.

use tpulab_stablehlo::{Cmp, DType, Value};

use super::shape::diagonal_mask;
use super::util::unimplemented;
use crate::args::ArgRef;
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, one};
use crate::registry::{Lowered, Registry};
use crate::tensor::{HostCtx, Tensor};

pub(crate) fn register(r: &mut Registry) {
    r.host_op("arange", |h| counted(h, false));
    r.host_op("range", |h| counted(h, true));
    r.op("tpulab::steps", steps);
    r.op("linspace", linspace).casts();
    r.op("logspace", logspace).casts();
    r.op("eye", eye).casts();
    r.op("tril_indices", |c| triangle_indices(c, true)).casts();
    r.op("triu_indices", |c| triangle_indices(c, false)).casts();
    r.direct(&["arange", "arange.start", "arange.start_step"]);
}

fn number<'a>(h: &'a HostCtx<'_>, name: &str, default: i64) -> ArgRef<'a> {
    match h.arg(name) {
        Some(ArgRef::Bool(value)) => ArgRef::Int(i64::from(*value)),
        Some(given @ (ArgRef::Int(_) | ArgRef::Float(_))) => given.clone(),
        _ => ArgRef::Int(default),
    }
}

fn as_f64(number: &ArgRef<'_>) -> f64 {
    match number {
        ArgRef::Int(value) => *value as f64,
        ArgRef::Float(value) => *value,
        _ => 0.0,
    }
}

/// How many numbers there are; exact for integers.
fn count(start: &ArgRef<'_>, end: &ArgRef<'_>, step: &ArgRef<'_>, closed: bool) -> Result<i64> {
    let (first, last, by) = (as_f64(start), as_f64(end), as_f64(step));
    if by == 0.0 || by.is_nan() {
        return Err(Error::runtime("step must be nonzero"));
    }
    if !first.is_finite() || !last.is_finite() {
        return Err(Error::runtime(format!(
            "unsupported range: {first} -> {last}"
        )));
    }
    if (by > 0.0 && last < first) || (by < 0.0 && last > first) {
        return Err(Error::runtime(
            "upper bound and lower bound inconsistent with step sign",
        ));
    }
    if let (ArgRef::Int(first), ArgRef::Int(last), ArgRef::Int(by)) = (start, end, step) {
        let (span, by) = (i128::from(*last) - i128::from(*first), i128::from(*by));
        let whole = span / by;
        let more = closed || span % by != 0;
        return i64::try_from(whole + i128::from(more))
            .map_err(|_| Error::runtime(format!("invalid size, possible overflow: {span}")));
    }
    let steps = (last - first) / by;
    let count = if closed {
        steps.floor() + 1.0
    } else {
        steps.ceil()
    };
    if count > 9e15 {
        return Err(Error::runtime(format!(
            "invalid size, possible overflow: {count}"
        )));
    }
    Ok(count as i64)
}

/// `arange` and `range`: the length is found here, so that start and step may change without a new program.
fn counted(h: &mut HostCtx<'_>, closed: bool) -> Result<Vec<Tensor>> {
    let (start, end) = (number(h, "start", 0), number(h, "end", 0));
    let step = number(h, "step", 1);
    let default = DType::from_code((h.context.flags & 0xff) as u8).unwrap_or(DType::F32);
    let floats = [&start, &end, &step]
        .iter()
        .any(|number| matches!(number, ArgRef::Float(_)));
    let inferred = if floats || closed {
        default
    } else {
        DType::I64
    };
    let dtype = match (h.arg("out"), h.arg("dtype")) {
        (Some(ArgRef::Tensor(out)), _) => out.dtype,
        (_, Some(ArgRef::Int(code))) => u8::try_from(*code)
            .ok()
            .and_then(DType::from_code)
            .ok_or_else(|| Error::not_lowered(format!("dtype code {code}")))?,
        _ => inferred,
    };
    if dtype == DType::Bool {
        let kernel = if closed { "range_cpu" } else { "arange_cpu" };
        return Err(unimplemented(kernel, dtype));
    }
    let count = count(&start, &end, &step, closed)?;
    let args = [
        ("#start", start),
        ("#step", step),
        ("count", ArgRef::Int(count)),
        ("dtype", ArgRef::Int(i64::from(dtype.code()))),
    ];
    Ok(vec![h.run_one("tpulab::steps", &args)?])
}

/// start + i·step: integers in int64, floats in float64, rounded once.
fn steps(c: &mut Ctx<'_>) -> Result<Lowered> {
    let count = c.int("count")?;
    let dtype = c.opt_dtype("dtype")?.unwrap_or(DType::I64);
    let wide = if dtype.is_float() {
        DType::F64
    } else {
        DType::I64
    };
    let (start, step) = (c.number("start")?, c.number("step")?);
    let start = c.number_value(&start, wide)?;
    let step = c.number_value(&step, wide)?;
    let place = c.b.iota(wide, &[count], 0)?;
    let start = c.b.broadcast_to(&start, &[count])?;
    let step = c.b.broadcast_to(&step, &[count])?;
    let way = c.b.mul(&place, &step)?;
    let values = c.b.add(&start, &way)?;
    Ok(one(c.b.convert(&values, dtype)?))
}

fn out_type(c: &Ctx<'_>) -> Result<DType> {
    match c.type_of("out") {
        Some((dtype, _)) => Ok(dtype),
        None => Ok(c.opt_dtype("dtype")?.unwrap_or(c.default_dtype())),
    }
}

/// start and end, of the dtype they are computed in.
fn ends(c: &mut Ctx<'_>, dtype: DType) -> Result<(Value, Value)> {
    let steps = c.int("steps")?;
    if steps < 0 {
        return Err(Error::runtime("number of steps must be non-negative"));
    }
    let mut ends = [None, None];
    for (end, name) in ends.iter_mut().zip(["start", "end"]) {
        let operand = c.operand(name)?;
        if !operand.dims().is_empty() {
            return Err(Error::runtime(
                "linspace only supports 0-dimensional start and end tensors",
            ));
        }
        let value = c.value(&operand, dtype)?;
        *end = Some(c.b.broadcast_to(&value, &[steps])?);
    }
    match ends {
        [Some(start), Some(end)] => Ok((start, end)),
        _ => Err(Error::runtime("two ends were expected")),
    }
}

/// Evenly spaced floats; each half counts from its own end, as torch does.
fn spaced(c: &mut Ctx<'_>, dtype: DType) -> Result<Value> {
    let (start, end) = ends(c, dtype)?;
    let steps = start.numel();
    if steps <= 1 {
        return Ok(start);
    }
    let gaps = c.b.splat_like(&start, (steps - 1) as f64)?;
    let span = c.b.sub(&end, &start)?;
    let step = c.b.div(&span, &gaps)?;
    let place = c.b.iota(dtype, &[steps], 0)?;
    let way = c.b.mul(&step, &place)?;
    let rising = c.b.add(&start, &way)?;
    let left = c.b.sub(&gaps, &place)?;
    let way = c.b.mul(&step, &left)?;
    let falling = c.b.sub(&end, &way)?;
    let number = c.b.iota(DType::I64, &[steps], 0)?;
    let half = c.b.splat(DType::I64, steps / 2, &[steps])?;
    let first = c.b.lt(&number, &half)?;
    Ok(c.b.select(&first, &rising, &falling)?)
}

/// Evenly spaced values between integers, exactly: a whole part, and so many parts of the number of gaps.
fn spaced_whole(c: &mut Ctx<'_>, dtype: DType) -> Result<(Value, Value, Value)> {
    let (start, end) = ends(c, dtype)?;
    let start = c.b.convert(&start, DType::I64)?;
    let end = c.b.convert(&end, DType::I64)?;
    let gaps = c.b.splat_like(&start, (start.numel() - 1).max(1))?;
    let span = c.b.sub(&end, &start)?;
    let place = c.b.iota(DType::I64, &start.dims, 0)?;
    let step = c.b.div(&span, &gaps)?;
    let rest = c.b.rem(&span, &gaps)?;
    let whole = c.b.mul(&step, &place)?;
    let whole = c.b.add(&start, &whole)?;
    let parts = c.b.mul(&rest, &place)?;
    let more = c.b.div(&parts, &gaps)?;
    let whole = c.b.add(&whole, &more)?;
    let parts = c.b.rem(&parts, &gaps)?;
    Ok((whole, parts, gaps))
}

/// Rounds such a value towards zero.
fn truncated(c: &mut Ctx<'_>, whole: &Value, parts: &Value) -> Result<Value> {
    let zero = c.b.splat_like(whole, 0)?;
    let one = c.b.splat_like(whole, 1)?;
    let mut value = whole.clone();
    for (side, far, back) in [(Cmp::Gt, Cmp::Lt, true), (Cmp::Lt, Cmp::Gt, false)] {
        let beyond = c.b.compare(side, whole, &zero)?;
        let against = c.b.compare(far, parts, &zero)?;
        let crosses = c.b.and(&beyond, &against)?;
        let nearer = if back {
            c.b.sub(whole, &one)?
        } else {
            c.b.add(whole, &one)?
        };
        value = c.b.select(&crosses, &nearer, &value)?;
    }
    Ok(value)
}

fn computed_type(dtype: DType) -> DType {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => DType::F32,
        _ => DType::F64,
    }
}

fn linspace(c: &mut Ctx<'_>) -> Result<Lowered> {
    let dtype = out_type(c)?;
    if dtype == DType::Bool {
        return Err(unimplemented("linspace_cpu", dtype));
    }
    let values = if dtype.is_int() {
        let (whole, parts, _) = spaced_whole(c, dtype)?;
        truncated(c, &whole, &parts)?
    } else {
        spaced(c, computed_type(dtype))?
    };
    Ok(one(c.b.convert(&values, dtype)?))
}

fn logspace(c: &mut Ctx<'_>) -> Result<Lowered> {
    let dtype = out_type(c)?;
    if dtype == DType::Bool {
        return Err(unimplemented("logspace_cpu", dtype));
    }
    let wide = computed_type(dtype);
    let exponents = if dtype.is_int() {
        let (whole, parts, gaps) = spaced_whole(c, dtype)?;
        let parts = c.b.convert(&parts, wide)?;
        let gaps = c.b.convert(&gaps, wide)?;
        let part = c.b.div(&parts, &gaps)?;
        let whole = c.b.convert(&whole, wide)?;
        c.b.add(&whole, &part)?
    } else {
        spaced(c, wide)?
    };
    let base = c.opt_number("base")?.unwrap_or(Number::float(10.0));
    let base = c.number_value(&base, wide)?;
    let base = c.b.broadcast_to(&base, &exponents.dims)?;
    let mut values = c.b.pow(&base, &exponents)?;
    if dtype.is_int() {
        // What a narrow integer cannot hold wraps.
        values = c.b.convert(&values, DType::I64)?;
    }
    Ok(one(c.b.convert(&values, dtype)?))
}

fn eye(c: &mut Ctx<'_>) -> Result<Lowered> {
    let n = c.int("n")?;
    let m = c.opt_int("m")?.unwrap_or(n);
    for (name, size) in [("n", n), ("m", m)] {
        if size < 0 {
            return Err(Error::runtime(format!(
                "{name} must be greater or equal to 0, got {size}"
            )));
        }
    }
    let dtype = out_type(c)?;
    let diagonal = diagonal_mask(c, &[n, m], 0, Cmp::Eq)?;
    Ok(one(c.b.convert(&diagonal, dtype)?))
}

/// Sum of `clamp(t, 0, most)` for t up to `m`, elementwise.
fn clamped_sum(c: &mut Ctx<'_>, m: &Value, most: i64) -> Result<Value> {
    let zero = c.b.splat_like(m, 0)?;
    let most = c.b.splat_like(m, most)?;
    let m = c.b.max(m, &zero)?;
    let rising = c.b.min(&m, &most)?;
    let one = c.b.splat_like(&m, 1)?;
    let next = c.b.add(&rising, &one)?;
    let product = c.b.mul(&rising, &next)?;
    let two = c.b.splat_like(&m, 2)?;
    let triangle = c.b.div(&product, &two)?;
    let rest = c.b.sub(&m, &rising)?;
    let rest = c.b.mul(&rest, &most)?;
    Ok(c.b.add(&triangle, &rest)?)
}

/// Places of a triangle, row by row. The row of a place is found by bisection over how many lie in the rows before.
fn triangle_indices(c: &mut Ctx<'_>, lower: bool) -> Result<Lowered> {
    let (rows, columns, offset) = (c.int("row")?, c.int("col")?, c.int("offset")?);
    for (name, size) in [("row", rows), ("col", columns)] {
        if size < 0 {
            return Err(Error::runtime(format!(
                "{name} must be non-negative, got{size}"
            )));
        }
    }
    let dtype = match c.type_of("out") {
        Some((dtype, _)) => dtype,
        None => c.opt_dtype("dtype")?.unwrap_or(DType::I64),
    };
    if !dtype.is_int() {
        let kernel = if lower {
            "tril_indices"
        } else {
            "triu_indices"
        };
        return Err(unimplemented(kernel, dtype));
    }
    let in_row = |row: i64| {
        let below = if lower {
            row + 1 + offset
        } else {
            row + offset
        };
        let below = below.clamp(0, columns);
        if lower { below } else { columns - below }
    };
    let total: i64 = (0..rows).map(in_row).sum();
    let place = c.b.iota(DType::I64, &[total], 0)?;
    let mut row = c.b.splat(DType::I64, 0, &[total])?;
    let mut step = (rows.max(1) as u64).next_power_of_two() as i64;
    while step > 0 {
        let by = c.b.splat_like(&row, step)?;
        let next = c.b.add(&row, &by)?;
        let before = before_row(c, &next, columns, offset, lower)?;
        let limit = c.b.splat_like(&row, rows)?;
        let inside = c.b.lt(&next, &limit)?;
        let reached = c.b.le(&before, &place)?;
        let further = c.b.and(&inside, &reached)?;
        row = c.b.select(&further, &next, &row)?;
        step /= 2;
    }
    let before = before_row(c, &row, columns, offset, lower)?;
    let mut column = c.b.sub(&place, &before)?;
    if !lower {
        let shift = c.b.splat_like(&row, offset)?;
        let first = c.b.add(&row, &shift)?;
        let zero = c.b.splat_like(&row, 0)?;
        let first = c.b.max(&first, &zero)?;
        column = c.b.add(&column, &first)?;
    }
    let row = c.b.reshape(&row, &[1, total])?;
    let column = c.b.reshape(&column, &[1, total])?;
    let both = c.b.concatenate(&[row, column], 0)?;
    Ok(one(c.b.convert(&both, dtype)?))
}

/// How many places of the triangle lie in the rows before `row`.
fn before_row(
    c: &mut Ctx<'_>,
    row: &Value,
    columns: i64,
    offset: i64,
    lower: bool,
) -> Result<Value> {
    let shift = if lower { offset } else { offset - 1 };
    let by = c.b.splat_like(row, shift)?;
    let last = c.b.add(row, &by)?;
    let through = clamped_sum(c, &last, columns)?;
    let skipped = clamped_sum(c, &by, columns)?;
    let below = c.b.sub(&through, &skipped)?;
    if lower {
        return Ok(below);
    }
    let width = c.b.splat_like(row, columns)?;
    let all = c.b.mul(row, &width)?;
    Ok(c.b.sub(&all, &below)?)
}
