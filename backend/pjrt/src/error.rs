//! What can go wrong, typed.

use std::path::PathBuf;

/// Shorthand used throughout the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any failure of this crate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dynamic loader refused the file.
    #[error("cannot load the PJRT plugin {}: {reason}", path.display())]
    Load {
        /// The file asked for.
        path: PathBuf,
        /// The loader's own words.
        reason: String,
    },
    /// The library loaded, but it is no PJRT plugin.
    #[error("{} is not a PJRT plugin: {reason}", path.display())]
    NotAPlugin {
        /// The file asked for.
        path: PathBuf,
        /// What was missing.
        reason: &'static str,
    },
    /// The plugin speaks another major version of the API.
    #[error("{} speaks PJRT API {major}.{minor}; only major version 0 is understood", path.display())]
    ApiVersion {
        /// The file asked for.
        path: PathBuf,
        /// The plugin's major version.
        major: i32,
        /// The plugin's minor version.
        minor: i32,
    },
    /// The plugin is too old for this function, or leaves it out.
    #[error("this plugin (PJRT API {major}.{minor}) has no {name}")]
    MissingSlot {
        /// The C name of the function.
        name: &'static str,
        /// The plugin's major version.
        major: i32,
        /// The plugin's minor version.
        minor: i32,
    },
    /// The plugin reported an error.
    #[error("{call}: {code}: {message}")]
    Pjrt {
        /// The plugin's code.
        code: ErrorCode,
        /// The plugin's text.
        message: String,
        /// The C name of the function that failed.
        call: &'static str,
    },
    /// The process forked after a plugin was loaded.
    #[error(
        "PJRT cannot be used in a forked child; start the process with the 'spawn' method instead"
    )]
    Forked,
    /// A device index beyond the client's devices.
    #[error("device index {device} is out of range: the client has {count} devices")]
    Device {
        /// The index asked for.
        device: usize,
        /// How many there are.
        count: usize,
    },
    /// An option that cannot be expressed in the place it was given.
    #[error("option {name}: {reason}")]
    Option {
        /// The option's name.
        name: String,
        /// Why it was refused.
        reason: &'static str,
    },
    /// Host bytes that do not match the shape.
    #[error("shape {dims:?} of {element} takes {expected} bytes, but {given} were given")]
    HostSize {
        /// The shape.
        dims: Vec<i64>,
        /// The element type's name.
        element: &'static str,
        /// Bytes the shape takes.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// A shape with a negative size, or more bytes than the address space.
    #[error("shape {dims:?} is not a valid array shape")]
    Dims {
        /// The shape.
        dims: Vec<i64>,
    },
    /// The plugin said yes but handed back nothing.
    #[error("{call} succeeded but returned no {what}")]
    NullResult {
        /// The C name of the function.
        call: &'static str,
        /// What should have been there.
        what: &'static str,
    },
    /// A program with another number of outputs than the caller relies on.
    #[error("the program has {given} outputs, {expected} were expected")]
    Outputs {
        /// Outputs the caller relies on.
        expected: usize,
        /// Outputs the program has.
        given: usize,
    },
}

impl Error {
    /// The plugin's code, where the plugin reported the error.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Pjrt { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// The codes of `PJRT_Error_Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The operation was cancelled.
    Cancelled,
    /// Unknown, or a code newer than this build.
    Unknown,
    /// The caller gave something invalid.
    InvalidArgument,
    /// A deadline passed.
    DeadlineExceeded,
    /// Something asked for does not exist.
    NotFound,
    /// Something to be made exists already.
    AlreadyExists,
    /// Not allowed.
    PermissionDenied,
    /// Out of memory, or of another resource.
    ResourceExhausted,
    /// The state does not allow the call, such as a deleted buffer.
    FailedPrecondition,
    /// Aborted.
    Aborted,
    /// Out of range.
    OutOfRange,
    /// The plugin does not implement this.
    Unimplemented,
    /// An inner invariant of the plugin broke.
    Internal,
    /// Not available at present.
    Unavailable,
    /// Data was lost.
    DataLoss,
    /// No valid credentials.
    Unauthenticated,
}

impl ErrorCode {
    pub(crate) fn from_raw(code: i32) -> Self {
        match code {
            1 => Self::Cancelled,
            3 => Self::InvalidArgument,
            4 => Self::DeadlineExceeded,
            5 => Self::NotFound,
            6 => Self::AlreadyExists,
            7 => Self::PermissionDenied,
            8 => Self::ResourceExhausted,
            9 => Self::FailedPrecondition,
            10 => Self::Aborted,
            11 => Self::OutOfRange,
            12 => Self::Unimplemented,
            13 => Self::Internal,
            14 => Self::Unavailable,
            15 => Self::DataLoss,
            16 => Self::Unauthenticated,
            _ => Self::Unknown,
        }
    }

    /// The name as the C header spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
