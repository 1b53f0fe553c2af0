//! The events the engine writes, and the bounded ring that keeps the latest of them.
//!
//! Writing never waits: when the ring is full the oldest event is dropped and counted.

mod event;
mod ring;

pub use event::{Event, EventKind};
pub use ring::Ring;
