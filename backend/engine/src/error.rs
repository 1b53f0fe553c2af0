//! The one error type of the engine. Texts follow PyTorch's own wording where a user may know it.

use std::sync::Arc;

/// Which exception the caller should raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Runtime,
    Index,
    Value,
    Type,
    OutOfMemory,
    NotImplemented,
    /// The op has no lowering: the caller may fall back to the CPU if the user asked for that.
    NotLowered,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("{text}")]
    Message { kind: Kind, text: String },
    #[error("lowering failed: {0}")]
    Build(Arc<tpulab_stablehlo::Error>),
    #[error("{0}")]
    Pjrt(Arc<tpulab_pjrt::Error>),
    #[error("this tensor's value was lost when an earlier operation failed: {0}")]
    Poisoned(Arc<Error>),
    #[error("this tensor's storage is gone: {reason}. Make the tensor again")]
    Dead { reason: &'static str },
    #[error(
        "device tpu cannot be used in a forked child process: the parent had already started it. \
         Use multiprocessing's start method \"spawn\", or touch the device in the child only"
    )]
    Forked,
    #[error("{what} is not lowered for device tpu")]
    NotLowered { what: String },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Message { kind, .. } => *kind,
            Self::NotLowered { .. } => Kind::NotLowered,
            Self::Poisoned(cause) => match cause.kind() {
                Kind::NotLowered => Kind::Runtime,
                kind => kind,
            },
            Self::Build(_) | Self::Pjrt(_) | Self::Dead { .. } | Self::Forked => Kind::Runtime,
        }
    }

    pub fn runtime(text: impl Into<String>) -> Self {
        Self::Message {
            kind: Kind::Runtime,
            text: text.into(),
        }
    }
    pub fn index(text: impl Into<String>) -> Self {
        Self::Message {
            kind: Kind::Index,
            text: text.into(),
        }
    }
    pub fn value(text: impl Into<String>) -> Self {
        Self::Message {
            kind: Kind::Value,
            text: text.into(),
        }
    }
    pub fn type_error(text: impl Into<String>) -> Self {
        Self::Message {
            kind: Kind::Type,
            text: text.into(),
        }
    }
    /// The op is known, this combination of dtypes or options is not lowered.
    pub fn not_lowered(what: impl Into<String>) -> Self {
        Self::NotLowered { what: what.into() }
    }
}

impl From<tpulab_stablehlo::Error> for Error {
    fn from(error: tpulab_stablehlo::Error) -> Self {
        Self::Build(Arc::new(error))
    }
}

impl From<tpulab_pjrt::Error> for Error {
    fn from(error: tpulab_pjrt::Error) -> Self {
        match error {
            tpulab_pjrt::Error::Forked => Self::Forked,
            error => Self::Pjrt(Arc::new(error)),
        }
    }
}
