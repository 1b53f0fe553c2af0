//! Storages, copies and memory figures.
#![expect(unsafe_code, reason = "exported to C++")]

use std::ffi::{c_int, c_void};
use std::slice;

use tpulab_engine::{CallContext, Cell, DType, Dims, Error, Result};

use crate::abi::TlTensor;
use crate::arguments::{borrow, device_tensor, dtype};
use crate::error::{guarded, unfailing};
use crate::handle;

/// A new storage. The first one starts the device; in a forked child it raises.
///
/// # Safety
/// `sizes` and `strides` have `ndim` elements; `cell` and `address` are places of the caller's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_cell_new(
    nbytes: i64,
    device: i32,
    dtype_code: i32,
    sizes: *const i64,
    strides: *const i64,
    ndim: i32,
    cell: *mut *mut c_void,
    address: *mut *mut c_void,
) -> c_int {
    guarded(|| {
        tpulab_engine::start()?;
        // SAFETY: the caller's promise.
        let (sizes, strides) = unsafe {
            (
                borrow(sizes.cast(), ndim as usize),
                borrow(strides.cast(), ndim as usize),
            )
        };
        let shape = if dtype_code < 0 {
            None
        } else {
            Some(memory_shape(nbytes, dtype(dtype_code)?, sizes, strides))
        };
        let new = Cell::reserved(device as usize, nbytes as u64, shape);
        // SAFETY: the caller's promise.
        unsafe {
            address.write(new.address() as *mut c_void);
            cell.write(handle::into_handle(new));
        }
        Ok(())
    })
}

/// The dims of a storage in memory order: those of a dense tensor, whatever its permutation, else one dimension.
fn memory_shape(nbytes: i64, dtype: DType, sizes: &[i64], strides: &[i64]) -> (DType, Dims) {
    let mut order: Dims = (0..sizes.len() as i64).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(strides[axis as usize]));
    let dims: Dims = order.iter().map(|&axis| sizes[axis as usize]).collect();
    let mut expected = 1;
    let dense = order.iter().rev().all(|&axis| {
        let (size, stride) = (sizes[axis as usize], strides[axis as usize]);
        let fits = size == 1 || stride == expected;
        expected *= size;
        fits
    });
    if dense {
        (dtype, dims)
    } else {
        (dtype, Dims::from_slice(&[nbytes / dtype.size() as i64]))
    }
}

/// # Safety
/// `cell` is a handle that the caller gives up.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_cell_free(cell: *mut c_void) {
    // SAFETY: the caller's promise.
    unfailing((), || drop(unsafe { handle::from_handle(cell) }));
}

/// # Safety
/// `cell` is a live handle; `address` is a place of the caller's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_cell_resize(
    cell: *mut c_void,
    nbytes: i64,
    address: *mut *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let cell = handle::lend(&cell);
            tpulab_engine::resize(cell, nbytes as u64)?;
            address.write(cell.address() as *mut c_void);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_address_device(address: *const c_void) -> c_int {
    unfailing(-1, || {
        tpulab_engine::device_of_address(address as u64).map_or(-1, |device| device as c_int)
    })
}

/// # Safety
/// `dst` is a device tensor, `data` as many bytes as it has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_copy_from_host(
    dst: *const TlTensor,
    data: *const c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let dst = device_tensor(&*dst)?;
            let length = byte_length(dst.sizes, dst.dtype)?;
            tpulab_engine::copy_from_host(&dst, borrow(data, length))
        }
    })
}

/// # Safety
/// `src` is a device tensor, `data` room for as many bytes as it has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_copy_to_host(
    src: *const TlTensor,
    data: *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let src = device_tensor(&*src)?;
            let length = byte_length(src.sizes, src.dtype)?;
            let bytes: &mut [u8] = if length == 0 {
                &mut []
            } else {
                slice::from_raw_parts_mut(data.cast(), length)
            };
            tpulab_engine::copy_to_host(&src, bytes)
        }
    })
}

fn byte_length(sizes: &[i64], dtype: DType) -> Result<usize> {
    sizes
        .iter()
        .try_fold(dtype.size(), |bytes, &size| {
            bytes.checked_mul(usize::try_from(size).ok()?)
        })
        .ok_or_else(|| Error::value("a tensor too large for this machine's memory"))
}

/// # Safety
/// Both are device tensors.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_copy_device(
    dst: *const TlTensor,
    src: *const TlTensor,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (dst, src) = unsafe { (device_tensor(&*dst)?, device_tensor(&*src)?) };
        tpulab_engine::copy_between(&dst, &src, &CallContext::plain(dst.cell.device()))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_synchronize(device: i32) -> c_int {
    guarded(|| tpulab_engine::synchronize(usize::try_from(device).ok()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_started() -> c_int {
    unfailing(0, || c_int::from(tpulab_engine::is_started()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_device_count() -> c_int {
    unfailing(0, || tpulab_engine::device_count() as c_int)
}

/// # Safety
/// `out` is room for eight numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_memory_stats(device: i32, out: *mut i64) {
    unfailing((), || {
        let stats = tpulab_engine::memory_stats(device as usize);
        // Nothing is cached: what is reserved is what is allocated.
        let capacity = tpulab_engine::capacity(device as usize);
        let figures = [
            stats.allocated,
            stats.peak,
            stats.allocated,
            stats.peak,
            stats.allocations,
            stats.frees,
            capacity,
            0,
        ];
        // SAFETY: the caller's promise.
        unsafe {
            out.cast::<[i64; 8]>()
                .write(figures.map(|figure| figure as i64))
        };
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_memory_reset_peak(device: i32) {
    unfailing((), || tpulab_engine::reset_peak_memory(device as usize));
}
