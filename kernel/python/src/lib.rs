//! `tpulab._native`: the door from Python to the bridge library.
//!
//! The module is abi3 and knows nothing of torch, so one file serves every Python and every torch. It loads the bridge
//! library that the Python side chose for the torch in this process, and carries control calls, JSON in and JSON out.
//! A failed call raises the exception that the bridge named; [`error`] is the one place where names become exceptions.

mod bridge;
mod error;
mod gate;

use pyo3::prelude::*;

/// The compiled part of the package `tpulab`.
#[pymodule]
mod _native {
    use std::path::PathBuf;

    use pyo3::prelude::*;

    use crate::{bridge, error, gate};

    /// Loads the bridge library at `path` and registers device "tpu" in the torch of this process.
    ///
    /// torch must be imported before: the library finds torch's own libraries among those already loaded.
    /// Loading the same path again does nothing. Raises ImportError when the library does not load or lacks a function.
    #[pyfunction]
    fn load_bridge(py: Python<'_>, path: PathBuf) -> PyResult<()> {
        // The GIL is kept: this runs inside `import torch`, and static initialisers of a second thread's import must wait.
        bridge::load(&path).map_err(|e| error::to_python(py, e))
    }

    /// True once `load_bridge` has succeeded.
    #[pyfunction]
    fn is_loaded() -> bool {
        bridge::loaded().is_some()
    }

    /// Sends one control request, `{"call": name, ...}`, and returns the JSON of its value.
    ///
    /// The GIL is released while the bridge works. Raises the exception that the bridge names, KeyboardInterrupt when
    /// Ctrl-C came meanwhile.
    #[pyfunction]
    fn control(py: Python<'_>, request: &str) -> PyResult<String> {
        gate::enter(py, || bridge::control(request))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
