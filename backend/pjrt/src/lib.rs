//! The PJRT C API, made safe: plugins, clients, devices, buffers, executables.
//!
//! Load a plugin once with [`Plugin::load`], open a [`Client`] on it, compile StableHLO text with
//! [`Client::compile`], move bytes with [`Client::buffer_from_host`] and [`Buffer::copy_to_host`].
//!
//! Every failure is an [`Error`] with its facts in fields; the plugin's own errors keep their code and text.
//! A process that forked after loading a plugin gets [`Error::Forked`] from every call, because the
//! plugin's threads did not survive the fork; drops in such a child do nothing.
//!
//! `unsafe` lives in two places: `sys` (the C layouts and the function table) and `ffi` (the owning types).

mod element;
mod error;
mod ffi;
mod options;
mod sys;

pub use element::ElementType;
pub use error::{Error, ErrorCode, Result};
pub use ffi::buffer::{Buffer, RawBuffer};
pub use ffi::client::{Client, DeviceInfo};
pub use ffi::executable::{Executable, MemoryStats};
pub use ffi::fork::forked;
pub use ffi::plugin::Plugin;
pub use options::{CompileOptions, OptionValue};
