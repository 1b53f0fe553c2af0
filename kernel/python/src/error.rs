//! What can go wrong on the way to the bridge, and which Python exception says so.

use std::path::PathBuf;

use pyo3::exceptions::{
    PyFileNotFoundError, PyImportError, PyIndexError, PyKeyError, PyMemoryError,
    PyNotImplementedError, PyOSError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyType;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot load {}: {reason}", path.display())]
    Load { path: PathBuf, reason: String },
    #[error("{} has no function {symbol}: it is not tpulab's bridge library, or one of another version", path.display())]
    MissingSymbol { path: PathBuf, symbol: &'static str },
    #[error("{} is loaded already; one process has one bridge library, so {} was not loaded", loaded.display(), wanted.display())]
    OtherLoaded { loaded: PathBuf, wanted: PathBuf },
    #[error("device \"tpu\" could not be registered in torch: {reason}")]
    Register { reason: String },
    #[error(
        "tpulab's bridge library is not loaded; `import torch` loads it, `python -m tpulab doctor` says what keeps it from doing so"
    )]
    NotLoaded,
    #[error("the request has a zero byte at {position}")]
    ZeroByte { position: usize },
    #[error("the bridge answered {call} with something that is no answer: {answer}")]
    Answer { call: String, answer: String },
    /// An error of the bridge itself, under the name of the Python exception it wants.
    #[error("{message}")]
    Raised { kind: String, message: String },
}

/// The Python exception for `error`.
pub(crate) fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Load { .. }
        | Error::MissingSymbol { .. }
        | Error::OtherLoaded { .. }
        | Error::Register { .. } => PyImportError::new_err(message),
        Error::ZeroByte { .. } => PyValueError::new_err(message),
        Error::NotLoaded | Error::Answer { .. } => PyRuntimeError::new_err(message),
        Error::Raised { kind, .. } => by_name(py, &kind, message),
    }
}

fn by_name(py: Python<'_>, kind: &str, message: String) -> PyErr {
    match kind {
        "ValueError" => PyValueError::new_err(message),
        "TypeError" => PyTypeError::new_err(message),
        "IndexError" => PyIndexError::new_err(message),
        "KeyError" => PyKeyError::new_err(message),
        "NotImplementedError" => PyNotImplementedError::new_err(message),
        "FileNotFoundError" => PyFileNotFoundError::new_err(message),
        "OSError" => PyOSError::new_err(message),
        "ImportError" => PyImportError::new_err(message),
        "OutOfMemoryError" => match torch_out_of_memory(py) {
            Ok(class) => PyErr::from_type(class, message),
            // Without torch there is no such class; Python's own says the same.
            Err(_) => PyMemoryError::new_err(message),
        },
        _ => PyRuntimeError::new_err(message),
    }
}

fn torch_out_of_memory(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    Ok(py
        .import("torch")?
        .getattr("OutOfMemoryError")?
        .cast_into::<PyType>()?)
}
