//! The one place where the GIL is let go.

use pyo3::prelude::*;

use crate::error::{self, Error};

/// Runs `work` without the GIL, then looks for Ctrl-C.
///
/// Everything that may wait for a device goes through here: a thread that holds the GIL while it waits would stop the
/// threads that autograd, a DataLoader or a notebook's control channel need, and with them, perhaps, the thing it waits for.
/// A pending Ctrl-C wins over the result of a call that succeeded, not over an error.
pub(crate) fn enter<T: Send>(
    py: Python<'_>,
    work: impl Send + FnOnce() -> Result<T, Error>,
) -> PyResult<T> {
    let done = py.detach(work).map_err(|e| error::to_python(py, e))?;
    py.check_signals()?;
    Ok(done)
}
