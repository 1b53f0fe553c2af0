//! Greatest and least values, without their places.

use tpulab_stablehlo::{Reducer, Value};

use super::util::{keep_dims, reduced_dims};
use crate::error::{Error, Result};
use crate::lower::{Ctx, many, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("amax", |c| extreme(c, Reducer::Max));
    r.op("amin", |c| extreme(c, Reducer::Min));
    r.op("aminmax", aminmax);
    r.op("_aminmax", aminmax);
    r.direct(&[
        "amax",
        "amin",
        "aminmax",
        "_aminmax.out",
        "_aminmax.dim_out",
    ]);
}

/// The reduction without its dims; an empty one has no value.
pub(crate) fn reduce_extreme(
    c: &mut Ctx<'_>,
    x: &Value,
    op: Reducer,
    dims: &[usize],
) -> Result<Value> {
    Ok(c.b.reduce_with(op, x, dims)?)
}

/// torch's complaint about an empty reduction.
pub(crate) fn check_not_empty(c: &Ctx<'_>, x: &Value, dims: &[usize], whole: bool) -> Result<()> {
    if x.numel() != 0 {
        return Ok(());
    }
    let name = c.base_name();
    if whole {
        return Err(Error::runtime(format!(
            "{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim \
             with the 'dim' argument."
        )));
    }
    match dims.iter().find(|&&dim| x.dims[dim] == 0) {
        Some(dim) => Err(Error::index(format!(
            "{name}(): Expected reduction dim {dim} to have non-zero size."
        ))),
        None => Ok(()),
    }
}

fn extreme(c: &mut Ctx<'_>, op: Reducer) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let whole = c.opt_ints("dim")?.is_none_or(|dims| dims.is_empty());
    let dims = reduced_dims(c, x.rank())?;
    check_not_empty(c, &x, &dims, whole)?;
    let keepdim = c.bool("keepdim")?;
    let reduced = reduce_extreme(c, &x, op, &dims)?;
    Ok(one(keep_dims(&mut c.b, &reduced, &x.dims, &dims, keepdim)?))
}

fn aminmax(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dims = reduced_dims(c, x.rank())?;
    if x.numel() == 0 {
        if !c.has("dim") {
            return Err(Error::runtime(
                "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.",
            ));
        }
        if let Some(dim) = dims.iter().find(|&&dim| x.dims[dim] == 0) {
            return Err(Error::index(format!(
                "aminmax: Expected reduction dim {dim} to have non-zero size."
            )));
        }
    }
    let keepdim = c.bool("keepdim")?;
    let mut results = Vec::with_capacity(2);
    for op in [Reducer::Min, Reducer::Max] {
        let reduced = reduce_extreme(c, &x, op, &dims)?;
        results.push(keep_dims(&mut c.b, &reduced, &x.dims, &dims, keepdim)?);
    }
    Ok(many(results))
}
