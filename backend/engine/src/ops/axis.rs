//! Work along one axis with places known while the program is built: picking, repeating, windows.
//!
//! Slices, broadcasts and selects throughout, which compilers turn into straight loops; gather only for
//! places in no regular order.

use tpulab_stablehlo::{DType, GatherDims, Value};

use crate::error::Result;
use crate::lower::Ctx;

/// `x` padded along `axis` with a 0-d value; negative amounts crop.
pub(crate) fn pad_axis(
    c: &mut Ctx<'_>,
    x: &Value,
    axis: usize,
    fill: &Value,
    (low, high): (i64, i64),
) -> Result<Value> {
    if (low, high) == (0, 0) {
        return Ok(x.clone());
    }
    let zeros = vec![0; x.rank()];
    let (mut before, mut after) = (zeros.clone(), zeros.clone());
    before[axis] = low;
    after[axis] = high;
    Ok(c.b.pad(x, fill, &before, &after, &zeros)?)
}

/// The step of places that are evenly spaced upwards.
fn even_step(places: &[i64]) -> Option<i64> {
    let step = match places {
        [first, second, ..] => second - first,
        _ => 1,
    };
    let even = step > 0 && places.windows(2).all(|pair| pair[1] - pair[0] == step);
    even.then_some(step)
}

/// Elements of `x` at these places of `axis`.
pub(crate) fn pick(c: &mut Ctx<'_>, x: &Value, axis: usize, places: &[i64]) -> Result<Value> {
    if let (Some(step), Some(&first)) = (even_step(places), places.first()) {
        let limit = first + (places.len() as i64 - 1) * step + 1;
        return Ok(c.b.slice_dim(x, axis, first, limit, step)?);
    }
    let times = places.iter().take_while(|&&place| place == 0).count() as i64;
    let repeats = |(i, &place): (usize, &i64)| place == i as i64 / times;
    if times > 1
        && x.dims[axis] * times == places.len() as i64
        && places.iter().enumerate().all(repeats)
    {
        return repeat(c, x, axis, times);
    }
    let indices = c.b.dense_ints(DType::I32, places, &[places.len() as i64])?;
    let mut sizes = x.dims.to_vec();
    sizes[axis] = 1;
    let dims = GatherDims {
        offset_dims: (0..x.rank()).filter(|&dim| dim != axis).collect(),
        collapsed_slice_dims: vec![axis],
        start_index_map: vec![axis],
        index_vector_dim: 1,
        ..GatherDims::default()
    };
    let sorted = places.is_sorted();
    Ok(c.b.gather(x, &indices, &dims, &sizes, sorted)?)
}

/// For each place `y` of the `size` many that start at `shift`: element `y / times - back` of `axis`, or `fill`
/// where that is none. With windows of stride `times`, the window that starts `back` windows before.
pub(crate) struct Spread {
    pub times: i64,
    pub shift: i64,
    pub size: i64,
    pub back: i64,
}

pub(crate) fn spread(
    c: &mut Ctx<'_>,
    x: &Value,
    axis: usize,
    fill: &Value,
    at: &Spread,
) -> Result<Value> {
    let count = (at.shift + at.size + at.times - 1) / at.times;
    let moved = pad_axis(c, x, axis, fill, (at.back, count - x.dims[axis] - at.back))?;
    let long = repeat(c, &moved, axis, at.times)?;
    Ok(c.b.slice_dim(&long, axis, at.shift, at.shift + at.size, 1)?)
}

/// Each element along `axis` so many times in a row.
pub(crate) fn repeat(c: &mut Ctx<'_>, x: &Value, axis: usize, times: i64) -> Result<Value> {
    if times == 1 {
        return Ok(x.clone());
    }
    let mut dims = x.dims.to_vec();
    dims.insert(axis + 1, times);
    let map: Vec<usize> = (0..x.rank())
        .map(|dim| dim + usize::from(dim > axis))
        .collect();
    let wide = c.b.broadcast_in_dim(x, &dims, &map)?;
    let mut flat = x.dims.to_vec();
    flat[axis] *= times;
    Ok(c.b.reshape(&wide, &flat)?)
}

/// Numbers along `axis`, the same everywhere else, in the shape `dims`.
pub(crate) fn along(
    c: &mut Ctx<'_>,
    dtype: DType,
    numbers: &[i64],
    dims: &[i64],
    axis: usize,
) -> Result<Value> {
    if let Some(&first) = numbers.first()
        && numbers.iter().all(|&number| number == first)
    {
        return Ok(c.b.splat(dtype, first, dims)?);
    }
    let line = c.b.dense_ints(dtype, numbers, &[numbers.len() as i64])?;
    Ok(c.b.broadcast_in_dim(&line, dims, &[axis])?)
}

/// The elements of `x` where `flags` hold along `axis`, zero elsewhere.
pub(crate) fn keep_along(c: &mut Ctx<'_>, x: &Value, axis: usize, flags: &[bool]) -> Result<Value> {
    if flags.iter().all(|&flag| flag) {
        return Ok(x.clone());
    }
    let numbers: Vec<i64> = flags.iter().map(|&flag| i64::from(flag)).collect();
    let mask = along(c, DType::Bool, &numbers, &x.dims, axis)?;
    let zero = c.b.splat_like(x, 0i64)?;
    Ok(c.b.select(&mask, x, &zero)?)
}
