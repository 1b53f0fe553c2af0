//! Comparisons.

use tpulab_stablehlo::Cmp;

use crate::error::Result;
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("eq", |c| compare(c, Cmp::Eq)).pointwise();
    r.op("ne", |c| compare(c, Cmp::Ne)).pointwise();
    r.op("lt", |c| compare(c, Cmp::Lt)).pointwise();
    r.op("le", |c| compare(c, Cmp::Le)).pointwise();
    r.op("gt", |c| compare(c, Cmp::Gt)).pointwise();
    r.op("ge", |c| compare(c, Cmp::Ge)).pointwise();
    r.direct(&[
        "eq.Tensor",
        "eq.Scalar",
        "ne.Tensor",
        "ne.Scalar",
        "lt.Tensor",
        "lt.Scalar",
        "le.Tensor",
        "le.Scalar",
        "gt.Tensor",
        "gt.Scalar",
        "ge.Tensor",
        "ge.Scalar",
    ]);
}

fn compare(c: &mut Ctx<'_>, direction: Cmp) -> Result<Lowered> {
    let (a, b, _) = c.binary("self", "other")?;
    Ok(one(c.b.compare(direction, &a, &b)?))
}
