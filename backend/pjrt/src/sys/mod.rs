//! The C side: argument layouts and the function table, and nothing else.

pub(crate) mod table;
pub(crate) mod types;
