//! Arguments as they come from C++, turned into the engine's, still borrowed.
#![expect(unsafe_code, reason = "reads what C++ lends for the length of a call")]

use std::ffi::c_void;
use std::slice;

use smallvec::SmallVec;
use tpulab_engine::{ArgRef, DType, Error, HostTensor, Result, TensorRef};

use crate::abi::{DEVICE, TlTensor, TlValue, WRAPPED, tag};
use crate::handle;

pub(crate) type Args<'a> = SmallVec<[ArgRef<'a>; 12]>;

/// # Safety
/// The values and all they point to are valid for `'a`.
#[inline]
pub(crate) unsafe fn read<'a>(values: *const TlValue, n: u32) -> Result<Args<'a>> {
    // SAFETY: the caller's promise.
    let values: &'a [TlValue] = unsafe { borrow(values.cast(), n as usize) };
    let mut args = Args::with_capacity(values.len());
    for value in values {
        // SAFETY: as above.
        args.push(unsafe { argument(value) }?);
    }
    Ok(args)
}

/// # Safety
/// What the value points to is valid for `'a`.
#[inline]
unsafe fn argument<'a>(value: &'a TlValue) -> Result<ArgRef<'a>> {
    let n = value.n as usize;
    // SAFETY: C++ filled the payload field that belongs to the tag, with `n` elements behind a pointer.
    unsafe {
        let payload = value.payload;
        Ok(match value.tag {
            tag::NONE => ArgRef::None,
            tag::TENSOR => {
                let tensor = &*payload.p.cast::<TlTensor>();
                if tensor.flags & DEVICE != 0 {
                    ArgRef::Tensor(device_tensor(tensor)?)
                } else {
                    ArgRef::Host(host_tensor(tensor)?)
                }
            }
            tag::INT => ArgRef::Int(payload.i),
            tag::DOUBLE => ArgRef::Float(payload.d),
            tag::BOOL => ArgRef::Bool(payload.i != 0),
            tag::COMPLEX => {
                let parts = borrow::<f64>(payload.p, 2);
                ArgRef::Complex(parts[0], parts[1])
            }
            tag::STRING => {
                let bytes = borrow::<u8>(payload.p, n);
                ArgRef::Str(
                    std::str::from_utf8(bytes)
                        .map_err(|_| Error::value("a string that is not UTF-8"))?,
                )
            }
            tag::INTS => ArgRef::Ints(borrow(payload.p, n)),
            tag::DOUBLES => ArgRef::Floats(borrow(payload.p, n)),
            tag::BOOLS => ArgRef::Bools(borrow(payload.p, n)),
            tag::LIST => {
                let items = borrow::<TlValue>(payload.p, n);
                ArgRef::List(
                    items
                        .iter()
                        .map(|item| argument(item))
                        .collect::<Result<_>>()?,
                )
            }
            tag::DEVICE_INDEX => ArgRef::Device(payload.i as i32),
            tag::GENERATOR => ArgRef::Generator(payload.p as usize),
            _ => ArgRef::Other,
        })
    }
}

/// # Safety
/// A device tensor whose cell, sizes and strides are valid while it is borrowed.
#[inline]
pub(crate) unsafe fn device_tensor(tensor: &TlTensor) -> Result<TensorRef<'_>> {
    let ndim = tensor.ndim as usize;
    // SAFETY: the caller's promise.
    unsafe {
        Ok(TensorRef {
            cell: handle::lend(&tensor.cell),
            sizes: borrow(tensor.sizes.cast(), ndim),
            strides: borrow(tensor.strides.cast(), ndim),
            offset: tensor.offset,
            dtype: dtype(tensor.dtype)?,
        })
    }
}

/// # Safety
/// A contiguous CPU tensor whose sizes and data are valid while it is borrowed.
unsafe fn host_tensor(tensor: &TlTensor) -> Result<HostTensor<'_>> {
    let dtype = dtype(tensor.dtype)?;
    // SAFETY: the caller's promise; `data` already points at the first element.
    unsafe {
        let sizes: &[i64] = borrow(tensor.sizes.cast(), tensor.ndim as usize);
        let bytes = borrow(
            tensor.data,
            sizes.iter().product::<i64>() as usize * dtype.size(),
        );
        Ok(HostTensor {
            dtype,
            sizes,
            bytes: Some(bytes),
            wrapped: tensor.flags & WRAPPED != 0,
        })
    }
}

pub(crate) fn dtype(code: i32) -> Result<DType> {
    u8::try_from(code).ok().and_then(DType::from_code).ok_or_else(|| {
        Error::type_error(
            "this dtype is not one of device tpu, which has bool, the integers of 8 to 64 bits with and without sign, \
             float16, bfloat16, float32, float64, complex64 and complex128",
        )
    })
}

/// # Safety
/// `p` points to `n` values valid for `'a`; it may be null when `n` is 0.
#[inline]
pub(crate) unsafe fn borrow<'a, T>(p: *const c_void, n: usize) -> &'a [T] {
    if n == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(p.cast(), n) }
    }
}
