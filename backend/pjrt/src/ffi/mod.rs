//! The owning types over the plugin's objects.

pub(crate) mod buffer;
pub(crate) mod client;
mod event;
pub(crate) mod executable;
pub(crate) mod fork;
pub(crate) mod plugin;
mod reaper;
