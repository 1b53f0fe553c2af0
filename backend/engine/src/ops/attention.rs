//! What attention needs beyond products: a softmax whose fully masked rows are zero rather than NaN.

use tpulab_stablehlo::Reducer;

use super::softmax::rows;
use super::util::{acc_type, reduce_stretched, unimplemented, wrap_dim};
use crate::error::Result;
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("_safe_softmax", safe_softmax);
    r.direct(&["_safe_softmax"]);
}

fn safe_softmax(c: &mut Ctx<'_>) -> Result<Lowered> {
    let x = c.tensor("self")?;
    let dtype = c.opt_dtype("dtype")?.unwrap_or(x.dtype);
    if !dtype.is_float() {
        return Err(unimplemented("softmax_lastdim_kernel_impl", dtype));
    }
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let dims = if x.rank() == 0 { Vec::new() } else { vec![dim] };
    let wide = c.b.convert(&x, acc_type(dtype))?;
    let soft = rows(c, &wide, &dims, false)?;
    let most = reduce_stretched(&mut c.b, Reducer::Max, &wide, &dims)?;
    let lowest = c.b.min_value(wide.dtype)?;
    let lowest = c.b.broadcast_to(&lowest, &wide.dims)?;
    let masked = c.b.eq(&most, &lowest)?;
    let zero = c.b.splat_like(&wide, 0i64)?;
    let soft = c.b.select(&masked, &zero, &soft)?;
    Ok(one(c.b.convert(&soft, dtype)?))
}
