//! Cells as C++ holds them: a handle is the very bits of an `Arc<Cell>`, so that a field with a handle can be lent as one.
#![expect(unsafe_code, reason = "reference counts kept by C++")]

use std::ffi::c_void;
use std::sync::Arc;

use tpulab_engine::Cell;

const _: () = assert!(size_of::<Arc<Cell>>() == size_of::<*mut c_void>());

pub(crate) fn into_handle(cell: Arc<Cell>) -> *mut c_void {
    // SAFETY: both have the size of a pointer, and every bit pattern of a pointer is valid.
    unsafe { std::mem::transmute::<Arc<Cell>, *mut c_void>(cell) }
}

/// # Safety
/// `handle` comes from [`into_handle`] and is given up here.
pub(crate) unsafe fn from_handle(handle: *mut c_void) -> Arc<Cell> {
    // SAFETY: the bits are those of the `Arc` that `into_handle` took.
    unsafe { std::mem::transmute::<*mut c_void, Arc<Cell>>(handle) }
}

/// # Safety
/// `*field` comes from [`into_handle`] and is not given up while the borrow lasts.
pub(crate) unsafe fn lend(field: &*mut c_void) -> &Arc<Cell> {
    // SAFETY: a place with the bits of a live `Arc<Cell>`, borrowed as long as the place.
    unsafe { &*std::ptr::from_ref(field).cast::<Arc<Cell>>() }
}
