//! The engine: storages, views, op lowerings, the executor and its compile cache.
//!
//! `call` is the one road of an op: key → program from the cache, or lower and compile → execute → cells.
//! Failures are [`Error`] values whose [`Kind`] names the exception a user sees; nothing here panics on bad input.

mod address;
mod args;
mod cache;
mod cell;
mod chip;
mod control;
mod error;
mod execute;
mod key;
mod layout;
mod lower;
mod ops;
mod program;
mod promote;
mod registry;
mod runtime;
mod settings;
mod stats;
mod tensor;
mod transfer;
mod value;
mod view;

pub use address::device_of_address;
pub use args::{ArgRef, CallContext, Draw, HostTensor, TensorRef};
pub use cell::{Cell, Slot};
pub use control::control;
pub use error::{Error, Kind, Result};
pub use execute::call;
pub use program::{OutDesc, OutKind, Outputs};
pub use registry::{ArgSchema, OpId, OpInfo, ReturnSchema, Schema, direct_ops, register_op};
pub use runtime::{capacity, device_count, is_started, start, synchronize};
pub use settings::{Mode, Settings};
pub use stats::{count_fallback, fallback_enabled, memory_stats, reset_peak_memory};
pub use tensor::Tensor;
pub use tpulab_stablehlo::{DType, Dims};
pub use transfer::{copy_between, copy_from_host, copy_to_host, resize};
pub use value::{OwnerId, Placement, Value};

/// True in a process forked after the plugin was loaded: every device call there raises.
pub fn forked() -> bool {
    tpulab_pjrt::forked()
}
