//! Reading and writing by index tensors.

use crate::registry::Registry;

pub(crate) fn register(_r: &mut Registry) {}
