//! Softmax and its kin, forward and backward.

use crate::registry::Registry;

pub(crate) fn register(_r: &mut Registry) {}
