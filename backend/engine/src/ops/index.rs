//! Reading and writing by index tensors: `x[i, j]`, `x[i, j] = v`.

use tpulab_stablehlo::{Cmp, DType, Dims, Value};

use super::places::{Combine, Negative, Places};
use crate::args::ArgRef;
use crate::error::{Error, Result};
use crate::lower::{Ctx, broadcast_dims, one};
use crate::registry::{Lowered, Registry};
use crate::tensor::{HostCtx, Tensor, upload};

pub(crate) fn register(r: &mut Registry) {
    r.op("index", index)
        .uploads()
        .host_when(has_mask, index_by_mask);
    for name in ["index_put", "_index_put_impl"] {
        r.op(name, index_put)
            .like("self")
            .uploads()
            .host_when(needs_places, put_by_mask);
    }
    r.direct(&["index.Tensor", "index_put", "index_put_"]);
}

// ---- programs

fn index(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let indices = c.opt_tensors("indices")?;
    match places(c, &x.dims, indices)? {
        Some(places) => Ok(one(places.gather(c, &x)?)),
        None => Ok(one(x)),
    }
}

fn index_put(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let values = c.tensor("values")?;
    if values.dtype != x.dtype {
        return Err(Error::runtime(format!(
            "Index put requires the source and destination dtypes match, got {} for the destination and {} for \
             the source.",
            x.dtype.torch_name(),
            values.dtype.torch_name()
        )));
    }
    let accumulate = c.bool("accumulate")?;
    let indices = c.opt_tensors("indices")?;
    let mask = indices.iter().enumerate().find_map(|(dim, index)| {
        index
            .as_ref()
            .filter(|i| is_mask(i.dtype))
            .map(|i| (dim, i))
    });
    if let Some((dim, mask)) = mask {
        return put_where(c, &x, dim, mask, &values, accumulate);
    }
    let combine = if accumulate {
        Combine::Add
    } else {
        Combine::Replace
    };
    let Some(places) = places(c, &x.dims, indices)? else {
        let values = c.b.broadcast_to(&values, &x.dims)?;
        return Ok(one(combine.apply(&mut c.b, &x, &values)?));
    };
    let sizes = places.result_dims(&x.dims);
    let fits = broadcast_dims(&[&values.dims, &sizes]).is_ok_and(|dims| dims == sizes);
    if !fits {
        return Err(Error::runtime(format!(
            "shape mismatch: value tensor of shape {:?} cannot be broadcast to indexing result of shape {:?}",
            values.dims.as_slice(),
            sizes.as_slice()
        )));
    }
    let values = c.b.broadcast_to(&values, &sizes)?;
    Ok(one(places.scatter(c, &x, &values, combine)?))
}

/// `x[mask] = v` where `v` does not differ from one chosen place to the next: a choice, without looking at the
/// mask on the host.
fn put_where(
    c: &mut Ctx<'_>,
    x: &Value,
    dim: usize,
    mask: &Value,
    values: &Value,
    accumulate: bool,
) -> Result<Lowered> {
    check_mask(&x.dims, dim, &mask.dims)?;
    let mask = c.b.convert(mask, DType::Bool)?;
    let map: Vec<usize> = (dim..dim + mask.rank()).collect();
    let mask = c.b.broadcast_in_dim(&mask, &x.dims, &map)?;
    let spread = spread_dims(&values.dims, &x.dims, dim, map.len())
        .ok_or_else(|| Error::runtime("a value for each chosen place needs the places"))?;
    let values = c.b.reshape(values, &spread)?;
    let values = c.b.broadcast_to(&values, &x.dims)?;
    if !accumulate {
        return Ok(one(c.b.select(&mask, &values, x)?));
    }
    let sum = Combine::Add.apply(&mut c.b, x, &values)?;
    Ok(one(c.b.select(&mask, &sum, x)?))
}

/// Sizes of `values`, which are aligned with the result of indexing by a mask of rank `masked` at `dim`, aligned
/// with the indexed tensor instead; `None` if they differ along the chosen places.
fn spread_dims(values: &[i64], x: &[i64], dim: usize, masked: usize) -> Option<Dims> {
    let after = x.len().checked_sub(dim + masked)?;
    let (head, tail) = values.split_at(values.len().saturating_sub(after));
    let (head, places) = match head.split_last() {
        Some((1, head)) => (head, 1),
        None => (head, 0),
        Some(_) => return None,
    };
    let broadcasts = |values: &[i64], sizes: &[i64]| {
        let extra = sizes.len() as i64 - values.len() as i64;
        extra >= 0
            && values
                .iter()
                .zip(&sizes[extra as usize..])
                .all(|(v, s)| *v == 1 || v == s)
    };
    if !broadcasts(head, &x[..dim]) || !broadcasts(tail, &x[dim + masked..]) {
        return None;
    }
    let mut dims = Dims::from_slice(head);
    if places == 1 {
        dims.extend(std::iter::repeat_n(1, masked));
    }
    dims.extend_from_slice(tail);
    Some(dims)
}

pub(super) fn is_mask(dtype: DType) -> bool {
    matches!(dtype, DType::Bool | DType::U8)
}

fn check_mask(x: &[i64], at: usize, mask: &[i64]) -> Result<()> {
    if at + mask.len() > x.len() {
        return Err(too_many(x.len()));
    }
    for (dim, size) in mask.iter().enumerate() {
        if x[at + dim] != *size {
            return Err(Error::index(format!(
                "The shape of the mask {mask:?} at index {dim} does not match the shape of the indexed tensor {x:?} \
                 at index {}",
                at + dim
            )));
        }
    }
    Ok(())
}

fn too_many(rank: usize) -> Error {
    Error::index(format!("too many indices for tensor of dimension {rank}"))
}

/// The places that index tensors without masks name; `None` if there is none.
fn places(c: &mut Ctx<'_>, x: &[i64], indices: Vec<Option<Value>>) -> Result<Option<Places>> {
    if indices.len() > x.len() {
        return Err(too_many(x.len()));
    }
    let given: Vec<(usize, Value)> = indices
        .into_iter()
        .enumerate()
        .filter_map(|(dim, index)| Some((dim, index?)))
        .collect();
    let (Some(first), Some(last)) = (given.first(), given.last()) else {
        return Ok(None);
    };
    // Indexed dims side by side keep their position; otherwise they come first.
    let at = if last.0 - first.0 + 1 == given.len() {
        first.0
    } else {
        0
    };
    for (_, index) in &given {
        if !matches!(index.dtype, DType::I64 | DType::I32) {
            return Err(Error::index(
                "tensors used as indices must be long, int, byte or bool tensors",
            ));
        }
    }
    let shapes: Vec<&[i64]> = given.iter().map(|(_, index)| index.dims()).collect();
    let batch = broadcast_dims(&shapes).map_err(|_| {
        let shapes: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
        Error::index(format!(
            "shape mismatch: indexing tensors could not be broadcast together with shapes {}",
            shapes.join(", ")
        ))
    })?;
    Places::new(c, x, given, &batch, at, Negative::Wraps).map(Some)
}

// ---- masks: their true places are found first

fn dtype_and_sizes<'a>(arg: &'a ArgRef<'_>) -> Option<(DType, &'a [i64])> {
    match arg {
        ArgRef::Tensor(tensor) => Some((tensor.dtype, tensor.sizes)),
        ArgRef::Host(host) => Some((host.dtype, host.sizes)),
        _ => None,
    }
}

fn masks<'a>(args: &'a [ArgRef<'_>]) -> impl Iterator<Item = (usize, &'a [i64])> {
    let items: &[ArgRef<'_>] = match args.get(1) {
        Some(ArgRef::List(items)) => items,
        _ => &[],
    };
    items.iter().enumerate().filter_map(|(dim, item)| {
        dtype_and_sizes(item)
            .filter(|(dtype, _)| is_mask(*dtype))
            .map(|(_, sizes)| (dim, sizes))
    })
}

fn has_mask(args: &[ArgRef<'_>]) -> bool {
    masks(args).next().is_some()
}

fn given(args: &[ArgRef<'_>]) -> usize {
    match args.get(1) {
        Some(ArgRef::List(items)) => items
            .iter()
            .filter(|item| !matches!(item, ArgRef::None))
            .count(),
        _ => 0,
    }
}

/// Whether [`put_where`] will not do.
fn needs_places(args: &[ArgRef<'_>]) -> bool {
    let mut found = masks(args);
    let Some((dim, mask)) = found.next() else {
        return false;
    };
    let (Some((_, x)), Some((_, values))) = (
        args.first().and_then(dtype_and_sizes),
        args.get(2).and_then(dtype_and_sizes),
    ) else {
        return true;
    };
    given(args) > 1 || spread_dims(values, x, dim, mask.len()).is_none()
}

/// The indices with each mask replaced by the places where it holds, one vector for each of its dims.
fn expand_masks(h: &HostCtx<'_>) -> Result<Vec<Option<Tensor>>> {
    let x = h.tensor("self")?;
    let Some(ArgRef::List(items)) = h.arg("indices") else {
        return Err(Error::runtime("argument 'indices' must be a list"));
    };
    let mut expanded: Vec<Option<Tensor>> = Vec::new();
    for item in items {
        let index = match item {
            ArgRef::Tensor(tensor) => Tensor::of(tensor),
            ArgRef::Host(host) => upload(host, x.cell.device())?,
            _ => {
                expanded.push(None);
                continue;
            }
        };
        if !is_mask(index.dtype) {
            expanded.push(Some(index));
            continue;
        }
        check_mask(&x.sizes, expanded.len(), &index.sizes)?;
        let places = super::nonzero::nonzero_of(h, &index)?;
        for dim in 0..index.sizes.len() {
            let mut column = places.clone();
            column.offset += places.strides[1] * dim as i64;
            column.sizes = Dims::from_slice(&places.sizes[..1]);
            column.strides = Dims::from_slice(&places.strides[..1]);
            expanded.push(Some(column));
        }
    }
    Ok(expanded)
}

fn index_args(indices: &[Option<Tensor>]) -> ArgRef<'_> {
    ArgRef::List(
        indices
            .iter()
            .map(|index| index.as_ref().map_or(ArgRef::None, Tensor::arg))
            .collect(),
    )
}

fn index_by_mask(h: &mut HostCtx<'_>) -> Result<Vec<Tensor>> {
    let x = h.tensor("self")?;
    if let (1, Some((0, sizes)), Some(ArgRef::List(items))) =
        (given(h.args), masks(h.args).next(), h.arg("indices"))
    {
        check_mask(&x.sizes, 0, sizes)?;
        let mask = match &items[0] {
            ArgRef::Host(host) => upload(host, x.cell.device())?,
            ArgRef::Tensor(tensor) => Tensor::of(tensor),
            _ => return Err(Error::runtime("an index must be a tensor")),
        };
        return Ok(vec![super::nonzero::masked_rows(h, &x, &mask)?]);
    }
    let indices = expand_masks(h)?;
    let mut args = h.args.to_vec();
    args[1] = index_args(&indices);
    h.again(&args)
}

fn put_by_mask(h: &mut HostCtx<'_>) -> Result<Vec<Tensor>> {
    let indices = expand_masks(h)?;
    let mut args = h.args.to_vec();
    args[1] = index_args(&indices);
    h.again(&args)
}

/// Where `index`, an integer vector, names places along a dimension of `size`: `size` booleans.
pub(super) fn named_places(c: &mut Ctx<'_>, index: &Value, size: i64) -> Result<Value> {
    let count = index.numel();
    let grid = [count, size];
    let places = c.b.iota(index.dtype, &grid, 1)?;
    let wanted = c.b.broadcast_in_dim(index, &grid, &[0])?;
    let hit = c.b.compare(Cmp::Eq, &wanted, &places)?;
    Ok(c.b.reduce_with(tpulab_stablehlo::Reducer::Or, &hit, &[0])?)
}
