//! Indexing along one dimension, or through the flattened tensor.

use tpulab_stablehlo::{DType, Dims, Value};

use super::places::{Combine, Negative, Places, normalize_index};
use super::scatter::{Reduction, reduce_into};
use super::util::{at_least_1d, wrap_dim};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("index_select", index_select).uploads();
    r.op("index_add", index_add).uploads();
    r.op("index_copy", |c| index_write(c, Combine::Replace))
        .uploads();
    r.op("index_fill", index_fill)
        .like("self")
        .casts()
        .uploads();
    r.op("index_reduce", index_reduce).uploads();
    r.op("take", take).uploads();
    r.op("put", put).like("self").uploads();
    r.direct(&["index_fill.int_Scalar", "index_fill.int_Tensor", "put"]);
}

/// self as at least a vector, `dim`, and the index as a vector.
fn parts(c: &mut Ctx<'_>) -> Result<(Value, usize, Value)> {
    let x = c.tensor("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let x = at_least_1d(&mut c.b, &x)?;
    let index = c.tensor("index")?;
    if index.rank() > 1 {
        return Err(Error::index("Index is supposed to be a vector"));
    }
    let index = at_least_1d(&mut c.b, &index)?;
    Ok((x, dim, index))
}

/// Back to the sizes of self, which may have no dims.
fn shaped_as_self(c: &mut Ctx<'_>, value: &Value) -> Result<Value> {
    let (_, sizes) = c
        .type_of("self")
        .ok_or_else(|| Error::runtime("argument 'self' must be a tensor"))?;
    Ok(c.b.reshape(value, &sizes)?)
}

fn index_select(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let index = c.tensor("index")?;
    if index.rank() > 1 {
        return Err(Error::index(
            "index_select(): Index is supposed to be a vector",
        ));
    }
    if !matches!(index.dtype, DType::I32 | DType::I64) {
        return Err(Error::runtime(
            "index_select(): Expected dtype int32 or int64 for index",
        ));
    }
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    if x.rank() == 0 {
        if index.numel() != 1 {
            return Err(Error::runtime(format!(
                "index_select(): Index to scalar can have only 1 value, got {} value(s)",
                index.numel()
            )));
        }
        return Ok(one(x));
    }
    let index = at_least_1d(&mut c.b, &index)?;
    let places = Places::along(c, &x.dims, dim, &index, Negative::Invalid)?;
    Ok(one(places.gather(c, &x)?))
}

fn index_add(c: &mut Ctx<'_>) -> Result<Lowered> {
    index_write(c, Combine::Add)
}

fn index_write(c: &mut Ctx<'_>, combine: Combine) -> Result<Lowered> {
    let (x, dim, index) = parts(c)?;
    let mut source = source_rows(c, &x, dim, &index)?;
    if let Some(alpha) = c.opt_number("alpha")? {
        let alpha = c.number_value(&alpha, x.dtype)?;
        let alpha = c.b.broadcast_to(&alpha, &source.dims)?;
        source = Combine::Mul.apply(&mut c.b, &source, &alpha)?;
    }
    let places = Places::along(c, &x.dims, dim, &index, Negative::Invalid)?;
    let written = places.scatter(c, &x, &source, combine)?;
    Ok(one(shaped_as_self(c, &written)?))
}

fn source_rows(c: &mut Ctx<'_>, x: &Value, dim: usize, index: &Value) -> Result<Value> {
    let source = c.tensor("source")?;
    if source.dtype != x.dtype {
        return Err(Error::runtime(format!(
            "{}(): self and source expected to have the same dtype, but got (self) {} and (source) {}",
            c.base_name(),
            x.dtype.torch_name(),
            source.dtype.torch_name()
        )));
    }
    let mut sizes = x.dims.clone();
    sizes[dim] = index.numel();
    if source.rank() <= 1 {
        // A source without dims fills a slice of one element.
        return Ok(if source.numel() == sizes.iter().product::<i64>() {
            c.b.reshape(&source, &sizes)?
        } else {
            c.b.broadcast_to(&source, &sizes)?
        });
    }
    if source.dims != sizes {
        return Err(Error::runtime(format!(
            "{}: source of shape {:?} does not fit {} indices into dimension {dim} of a tensor of shape {:?}",
            c.base_name(),
            source.dims.as_slice(),
            index.numel(),
            x.dims.as_slice()
        )));
    }
    Ok(source)
}

fn index_fill(c: &mut Ctx<'_>) -> Result<Lowered> {
    let operand = c.operand("value")?;
    if !operand.dims().is_empty() {
        return Err(Error::runtime(format!(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
            operand.dims().len()
        )));
    }
    let (x, dim, index) = parts(c).map_err(|error| match error {
        Error::Message { text, .. } if text == "Index is supposed to be a vector" => {
            Error::runtime("Index has to be a vector/scalar")
        }
        other => other,
    })?;
    if index.dtype != DType::I64 && index.dtype != DType::I32 {
        return Err(Error::index(
            "index_fill_(): Expected dtype int64 for index.",
        ));
    }
    let value = c.value(&operand, x.dtype)?;
    let size = x.dims[dim];
    if x.numel() == 0 || index.numel() == 0 {
        return Ok(one(shaped_as_self(c, &x)?));
    }
    let filled = if index.numel() * size <= 1 << 22 {
        let index = normalize_index(c, &index, size, Negative::Wraps)?;
        let named = super::index::named_places(c, &index, size)?;
        let named = c.b.broadcast_in_dim(&named, &x.dims, &[dim])?;
        let value = c.b.broadcast_to(&value, &x.dims)?;
        c.b.select(&named, &value, &x)?
    } else {
        let mut sizes = x.dims.clone();
        sizes[dim] = index.numel();
        let value = c.b.broadcast_to(&value, &sizes)?;
        let places = Places::along(c, &x.dims, dim, &index, Negative::Wraps)?;
        places.scatter(c, &x, &value, Combine::Replace)?
    };
    Ok(one(shaped_as_self(c, &filled)?))
}

fn index_reduce(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (x, dim, index) = parts(c)?;
    let source = source_rows(c, &x, dim, &index)?;
    let name = c.opt_str("reduce").unwrap_or_default();
    let reduction = match name {
        "prod" | "mean" | "amax" | "amin" => Reduction::parse(name)?,
        _ => {
            return Err(Error::runtime(format!(
                "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {name}."
            )));
        }
    };
    let include = c.bool("include_self")?;
    let places = Places::along(c, &x.dims, dim, &index, Negative::Invalid)?;
    let reduced = reduce_into(c, &x, &source, reduction, include, |c, x, src, combine| {
        places.scatter(c, x, src, combine)
    })?;
    Ok(one(shaped_as_self(c, &reduced)?))
}

/// Places in the flattened tensor.
fn flat_places(c: &mut Ctx<'_>, x: &Value, index: &Value) -> Result<(Value, Places)> {
    if index.dtype != DType::I64 {
        return Err(Error::runtime(format!(
            "{}(): Expected a long tensor for index, but got {}",
            c.op.schema.name,
            index.dtype.torch_name()
        )));
    }
    let flat = c.b.reshape(x, &[x.numel()])?;
    let index = c.b.reshape(index, &[index.numel()])?;
    if x.numel() == 0 && index.numel() != 0 {
        return Err(Error::index(format!(
            "{}(): tried to {} an empty tensor",
            c.op.schema.name,
            if c.base_name() == "take" {
                "take from"
            } else {
                "put elements into"
            }
        )));
    }
    let places = Places::along(c, &flat.dims, 0, &index, Negative::Wraps)?;
    Ok((flat, places))
}

fn take(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let index = c.tensor("index")?;
    let (flat, places) = flat_places(c, &x, &index)?;
    let taken = places.gather(c, &flat)?;
    Ok(one(c.b.reshape(&taken, &index.dims)?))
}

fn put(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let index = c.tensor("index")?;
    let source = c.tensor("source")?;
    if source.dtype != x.dtype {
        return Err(Error::runtime(format!(
            "put_(): self and source expected to have the same dtype, but got self.dtype = {} and source.dtype = {}",
            x.dtype.torch_name(),
            source.dtype.torch_name()
        )));
    }
    if source.numel() != index.numel() {
        return Err(Error::index(format!(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = {}, \
             index.numel() = {}",
            source.numel(),
            index.numel()
        )));
    }
    let (flat, places) = flat_places(c, &x, &index)?;
    let source = c.b.reshape(&source, &[source.numel()])?;
    let combine = if c.bool("accumulate")? {
        Combine::Add
    } else {
        Combine::Replace
    };
    let written = places.scatter(c, &flat, &source, combine)?;
    let sizes: Dims = x.dims.clone();
    Ok(one(c.b.reshape(&written, &sizes)?))
}
