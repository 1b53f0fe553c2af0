//! Mirror of `cpp/abi.h`, which says what each field means.
#![expect(unsafe_code, reason = "declares what C++ provides")]

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(crate) struct TlTensor {
    pub cell: *mut c_void,
    pub data: *const c_void,
    pub sizes: *const i64,
    pub strides: *const i64,
    pub offset: i64,
    pub dtype: i32,
    pub ndim: i16,
    pub flags: u16,
}

pub(crate) const DEVICE: u16 = 1;
pub(crate) const WRAPPED: u16 = 2;

#[repr(C)]
pub(crate) struct TlValue {
    pub tag: u32,
    pub n: u32,
    pub payload: Payload,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Payload {
    pub i: i64,
    pub d: f64,
    pub p: *const c_void,
}

pub(crate) mod tag {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const TENSOR: u32 = 1;
    pub(crate) const INT: u32 = 2;
    pub(crate) const DOUBLE: u32 = 3;
    pub(crate) const BOOL: u32 = 4;
    pub(crate) const STRING: u32 = 5;
    pub(crate) const INTS: u32 = 6;
    pub(crate) const DOUBLES: u32 = 7;
    pub(crate) const BOOLS: u32 = 8;
    pub(crate) const LIST: u32 = 9;
    pub(crate) const DEVICE_INDEX: u32 = 10;
    pub(crate) const GENERATOR: u32 = 11;
    pub(crate) const COMPLEX: u32 = 13;
}

pub(crate) mod out_kind {
    pub(crate) const NEW: u32 = 0;
    pub(crate) const ARG: u32 = 1;
    pub(crate) const UNDEFINED: u32 = 2;
    pub(crate) const TAKE: u32 = 3;
}

#[repr(C)]
pub(crate) struct TlOut {
    pub kind: u32,
    pub arg: i32,
    pub item: i32,
    pub ret: i32,
    pub cell: *mut c_void,
    pub address: *mut c_void,
    pub nbytes: i64,
    pub dtype: i32,
    pub ndim: i32,
    pub device: i32,
    pub reserved: i32,
    pub sizes: *const i64,
    pub strides: *const i64,
}

#[repr(C)]
pub(crate) struct TlResult {
    pub outs: *const TlOut,
    pub n: u32,
    pub reserved: u32,
}

pub(crate) mod arg {
    pub(crate) const WRITTEN: u32 = 1;
    pub(crate) const NUMBER: u32 = 8;
    pub(crate) const OUT: u32 = 32;
}

#[repr(C)]
pub(crate) struct TlArgSchema {
    pub name: *const c_char,
    pub flags: u32,
}

#[repr(C)]
pub(crate) struct TlReturnSchema {
    pub alias: i32,
    pub is_list: u32,
}

pub(crate) const OP_NATIVE: u32 = 1;
pub(crate) const OP_MATMUL_PRECISION: u32 = 2;

#[repr(C)]
pub(crate) struct TlOpInfo {
    pub id: u32,
    pub flags: u32,
}

#[repr(C)]
pub(crate) struct TlCall {
    pub op: u32,
    pub flags: u32,
    pub args: *const TlValue,
    pub n: u32,
    pub device: i32,
}

pub(crate) mod rc {
    use std::ffi::c_int;

    pub(crate) const OK: c_int = 0;
    pub(crate) const RUNTIME_ERROR: c_int = 1;
    pub(crate) const NOT_LOWERED: c_int = 2;
    pub(crate) const INDEX_ERROR: c_int = 3;
    pub(crate) const VALUE_ERROR: c_int = 4;
    pub(crate) const TYPE_ERROR: c_int = 5;
    pub(crate) const OUT_OF_MEMORY: c_int = 6;
    pub(crate) const NOT_IMPLEMENTED: c_int = 7;
}

unsafe extern "C" {
    pub(crate) fn tpulab_generator_next(
        generator: *mut c_void,
        device: c_int,
        seed: *mut u64,
        offset: *mut u64,
    );
    pub(crate) fn tpulab_bridge_register() -> *const c_char;
    pub(crate) fn tpulab_bridge_torch_version() -> *const c_char;
}

// C++ on 64-bit Linux lays these out the same way; a change on one side only must not compile.
const _: () = {
    assert!(size_of::<TlTensor>() == 48);
    assert!(size_of::<TlValue>() == 16);
    assert!(size_of::<TlOut>() == 72);
    assert!(size_of::<TlResult>() == 16);
    assert!(size_of::<TlCall>() == 24);
};
