//! The context a lowering works in: arguments by name, promotion, and what it may write.

mod ctx;
mod number;
mod operand;

pub(crate) use ctx::{Ctx, Finished, SlotType, start_on_axis};
pub(crate) use number::{Number, encode};
pub(crate) use operand::{Operand, broadcast_dims};

use tpulab_stablehlo::Value;

use crate::registry::Lowered;

/// One output.
pub(crate) fn one(value: Value) -> Lowered {
    vec![Some(value)]
}

/// Several outputs, all defined.
pub(crate) fn many(values: impl IntoIterator<Item = Value>) -> Lowered {
    values.into_iter().map(Some).collect()
}
