//! What the Python package finds in this library by name: registration with torch, and the control road.
#![expect(unsafe_code, reason = "exported to the loader")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::catch_unwind;

use crate::abi::{rc, tpulab_bridge_register, tpulab_bridge_torch_version};
use crate::error::{panic_text, remember, unfailing};

/// Registers device "tpu" with the torch of this process. 0, or the reason stands in `tpulab_error`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_register_torch() -> c_int {
    unfailing(rc::RUNTIME_ERROR, || {
        // SAFETY: it may be called at any time, from any thread, any number of times.
        let reason = unsafe { tpulab_bridge_register() };
        if reason.is_null() {
            return rc::OK;
        }
        // SAFETY: a C string that lives until the next registration.
        remember(&unsafe { CStr::from_ptr(reason) }.to_string_lossy());
        rc::RUNTIME_ERROR
    })
}

/// The torch this library was compiled for, as "2.15".
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_torch_version() -> *const c_char {
    // SAFETY: it returns a constant.
    unsafe { tpulab_bridge_torch_version() }
}

/// Answers a JSON request of the engine's control interface. The answer is freed by [`tpulab_control_free`].
///
/// # Safety
/// `request` is a C string, `response` a place of the caller's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_control(
    request: *const c_char,
    response: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let request = unsafe { CStr::from_ptr(request) }.to_string_lossy();
    let (code, answer) = match catch_unwind(|| tpulab_engine::control(&request)) {
        Ok(answer) => (rc::OK, answer),
        Err(panic) => {
            remember(&format!("internal error: {}", panic_text(panic.as_ref())));
            (rc::RUNTIME_ERROR, String::new())
        }
    };
    // JSON text has no NUL byte: control characters are escaped in it.
    let answer = CString::new(answer).unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe { response.write(answer.into_raw()) };
    code
}

/// # Safety
/// `response` comes from [`tpulab_control`] and is given up here.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_control_free(response: *mut c_char) {
    if !response.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { CString::from_raw(response) });
    }
}
