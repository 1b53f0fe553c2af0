//! Ops: their registration and their calls.
#![expect(unsafe_code, reason = "exported to C++")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::LazyLock;

use tpulab_engine::{ArgSchema, CallContext, Draw, OpId, ReturnSchema, Schema};

use crate::abi::{
    OP_MATMUL_PRECISION, OP_NATIVE, TlArgSchema, TlCall, TlOpInfo, TlResult, TlReturnSchema, arg,
    tpulab_generator_next,
};
use crate::arguments::{self, borrow};
use crate::error::{guarded, unfailing};
use crate::outputs;

/// An id no op has: calling it says so.
const NO_OP: u32 = u32::MAX;

/// # Safety
/// The strings and arrays are valid for the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_op_register(
    name: *const c_char,
    overload: *const c_char,
    args: *const TlArgSchema,
    n_args: u32,
    returns: *const TlReturnSchema,
    n_returns: u32,
) -> TlOpInfo {
    let mut info = TlOpInfo {
        id: NO_OP,
        flags: 0,
    };
    // A failure leaves the id of no op, whose call raises.
    guarded(|| {
        // SAFETY: the caller's promise.
        let schema = unsafe {
            Schema {
                name: text(name),
                overload: text(overload),
                args: borrow(args.cast(), n_args as usize)
                    .iter()
                    .map(|arg: &TlArgSchema| arg_schema(arg))
                    .collect(),
                returns: borrow(returns.cast(), n_returns as usize)
                    .iter()
                    .map(return_schema)
                    .collect(),
            }
        };
        let known = tpulab_engine::register_op(schema)?;
        info.id = known.id.0;
        info.flags = if known.lowered { OP_NATIVE } else { 0 };
        info.flags |= if known.reads_precision {
            OP_MATMUL_PRECISION
        } else {
            0
        };
        Ok(())
    });
    info
}

/// # Safety
/// `name` is a C string.
unsafe fn arg_schema(schema: &TlArgSchema) -> ArgSchema {
    ArgSchema {
        // SAFETY: the caller's promise.
        name: unsafe { text(schema.name) },
        written: schema.flags & arg::WRITTEN != 0,
        number: schema.flags & arg::NUMBER != 0,
        out: schema.flags & arg::OUT != 0,
    }
}

fn return_schema(schema: &TlReturnSchema) -> ReturnSchema {
    ReturnSchema {
        alias: usize::try_from(schema.alias).ok(),
        list: schema.is_list != 0,
    }
}

/// # Safety
/// `p` is a C string.
unsafe fn text(p: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
}

/// # Safety
/// The call and all it points to are valid until it returns; the outputs are C++'s to own.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_call(call: *const TlCall, result: *mut TlResult) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (call, args) = unsafe {
            let call = &*call;
            (call, arguments::read(call.args, call.n)?)
        };
        let context = context(call.flags, call.device);
        let outputs = tpulab_engine::call(OpId(call.op), &args, &context)?;
        // SAFETY: `result` is a place of the caller's.
        unsafe { result.write(outputs::hand_over(outputs)) };
        Ok(())
    })
}

pub(crate) fn context(flags: u32, device: i32) -> CallContext<'static> {
    CallContext {
        flags,
        device: usize::try_from(device).unwrap_or(0),
        draw: &draw,
    }
}

fn draw(generator: Option<usize>, device: usize) -> Draw {
    let mut draw = Draw { seed: 0, offset: 0 };
    let generator = generator.map_or(std::ptr::null_mut(), |handle| handle as *mut c_void);
    // SAFETY: a generator among the arguments lives as long as the call; the C++ side locks it.
    unsafe { tpulab_generator_next(generator, device as c_int, &mut draw.seed, &mut draw.offset) };
    draw
}

/// # Safety
/// `n` is a place of the caller's. The names live as long as the process.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpulab_direct_ops(n: *mut u32) -> *const *const c_char {
    struct Names {
        pointers: Vec<*const c_char>,
        _owned: Vec<CString>,
    }
    // SAFETY: the pointers lead into `_owned`, which never changes.
    unsafe impl Send for Names {}
    // SAFETY: as above.
    unsafe impl Sync for Names {}
    static NAMES: LazyLock<Names> = LazyLock::new(|| {
        let owned: Vec<_> = tpulab_engine::direct_ops()
            .iter()
            .filter_map(|name| CString::new(*name).ok())
            .collect();
        Names {
            pointers: owned.iter().map(|name| name.as_ptr()).collect(),
            _owned: owned,
        }
    });
    unfailing(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        unsafe { n.write(NAMES.pointers.len() as u32) };
        NAMES.pointers.as_ptr()
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_fallback_used(op: u32) {
    unfailing((), || tpulab_engine::count_fallback(OpId(op)));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpulab_fallback_enabled() -> c_int {
    unfailing(0, || c_int::from(tpulab_engine::fallback_enabled()))
}
