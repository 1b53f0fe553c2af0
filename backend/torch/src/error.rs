//! The last failure of each thread, and the one gate through which engine results leave.
#![expect(unsafe_code, reason = "exported to C++")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tpulab_engine::{Error, Kind};

use crate::abi::rc;

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Text of the last failure on this thread; valid until the next one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

pub(crate) fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.set(text);
}

/// Runs `body` for C++: its error becomes a return code, and so does a panic.
#[inline]
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => rc::OK,
        Ok(Err(error)) => {
            remember(&error.to_string());
            code(error.kind())
        }
        Err(panic) => {
            remember(&format!("internal error: {}", panic_text(panic.as_ref())));
            rc::RUNTIME_ERROR
        }
    }
}

/// Runs `body` for a function that cannot fail; after a panic the answer is `fallback`.
pub(crate) fn unfailing<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<String>() {
        Some(text) => text,
        None => panic
            .downcast_ref::<&str>()
            .copied()
            .unwrap_or("a panic without a message"),
    }
}

fn code(kind: Kind) -> c_int {
    match kind {
        Kind::Runtime => rc::RUNTIME_ERROR,
        Kind::Index => rc::INDEX_ERROR,
        Kind::Value => rc::VALUE_ERROR,
        Kind::Type => rc::TYPE_ERROR,
        Kind::OutOfMemory => rc::OUT_OF_MEMORY,
        Kind::NotImplemented => rc::NOT_IMPLEMENTED,
        Kind::NotLowered => rc::NOT_LOWERED,
    }
}
