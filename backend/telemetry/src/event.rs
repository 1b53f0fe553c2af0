use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An op was enqueued; `subject` is its id.
    Op,
    /// A program was compiled for the op `subject`.
    Compile,
    /// Bytes crossed between host and device.
    Transfer,
}

/// One small fixed event. Names are interned: `subject` is an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub kind: EventKind,
    pub subject: u32,
    pub device: u16,
    /// Since the process began to record.
    pub start_ns: u64,
    pub duration_ns: u64,
}
