//! Whole lists of tensors at once.

use crate::registry::Registry;

pub(crate) fn register(_r: &mut Registry) {}
