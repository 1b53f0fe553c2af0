//! The bridge library: loaded once, never unloaded, called through three C functions.
#![expect(
    unsafe_code,
    reason = "a library found at run time is reached through C functions"
)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use crate::error::Error;

type Register = unsafe extern "C" fn() -> c_int;
type LastError = unsafe extern "C" fn() -> *const c_char;
type Control = unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int;
type ControlFree = unsafe extern "C" fn(*mut c_char);

/// The functions of the loaded bridge library. The library stays mapped for the life of the process, because torch keeps
/// pointers into it.
pub(crate) struct Bridge {
    path: PathBuf,
    control: Control,
    free: ControlFree,
    last_error: LastError,
}

static BRIDGE: OnceLock<Bridge> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// The bridge library of this process, once there is one.
pub(crate) fn loaded() -> Option<&'static Bridge> {
    BRIDGE.get()
}

/// Loads the library and registers the device in torch; see [`crate::_native`].
pub(crate) fn load(path: &Path) -> Result<(), Error> {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bridge) = BRIDGE.get() {
        if bridge.path == path {
            return Ok(());
        }
        return Err(Error::OtherLoaded {
            loaded: bridge.path.clone(),
            wanted: path.to_owned(),
        });
    }
    // SAFETY: the library's static initialisers are torch's registration macros and Rust's; they ask for nothing but that
    // torch's libraries are loaded, which dlopen checks (RTLD_NOW resolves every symbol or fails).
    let library =
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| Error::Load {
            path: path.to_owned(),
            reason: e.to_string(),
        })?;
    let control: Symbol<Control> = symbol(&library, path, "tpulab_control")?;
    let free: Symbol<ControlFree> = symbol(&library, path, "tpulab_control_free")?;
    let register: Symbol<Register> = symbol(&library, path, "tpulab_register_torch")?;
    let last_error: Symbol<LastError> = symbol(&library, path, "tpulab_error")?;
    let bridge = Bridge {
        path: path.to_owned(),
        control: *control,
        free: *free,
        last_error: *last_error,
    };
    // SAFETY: the C signature is int(void); the lock above keeps it to one call at a time.
    if unsafe { register() } != 0 {
        // SAFETY: tpulab_error returns null or a string that lives until this thread's next call.
        let reason = unsafe { text(last_error()) }.unwrap_or_else(|| "no reason given".to_owned());
        // What torch was told before the failure may point into the library, so it stays.
        std::mem::forget(library);
        return Err(Error::Register { reason });
    }
    std::mem::forget(library);
    BRIDGE.get_or_init(|| bridge);
    Ok(())
}

/// Sends a request and returns the JSON text of its value.
pub(crate) fn control(request: &str) -> Result<String, Error> {
    let bridge = BRIDGE.get().ok_or(Error::NotLoaded)?;
    let text_in = CString::new(request).map_err(|e| Error::ZeroByte {
        position: e.nul_position(),
    })?;
    let mut answer: *mut c_char = std::ptr::null_mut();
    // SAFETY: the request is a C string that outlives the call; `answer` receives null or a string that is ours to free.
    let code = unsafe { (bridge.control)(text_in.as_ptr(), &mut answer) };
    // SAFETY: see above.
    let text_out = unsafe { text(answer) };
    if !answer.is_null() {
        // SAFETY: the string came from tpulab_control and is freed once.
        unsafe { (bridge.free)(answer) };
    }
    if code != 0 {
        // SAFETY: tpulab_error returns null or a string that lives until this thread's next call.
        let reason = unsafe { text((bridge.last_error)()) };
        return Err(Error::Raised {
            kind: "RuntimeError".to_owned(),
            message: reason.unwrap_or_else(|| format!("the bridge failed with code {code}")),
        });
    }
    read(request, text_out.as_deref().unwrap_or(""))
}

/// Takes the value, or the error, out of the bridge's answer.
fn read(request: &str, answer: &str) -> Result<String, Error> {
    let odd = || Error::Answer {
        call: request.chars().take(120).collect(),
        answer: answer.chars().take(200).collect(),
    };
    let mut value: serde_json::Value = serde_json::from_str(answer).map_err(|_| odd())?;
    if let Some(error) = value.get("error") {
        let field = |name| {
            error
                .get(name)
                .and_then(serde_json::Value::as_str)
                .map(str::to_owned)
        };
        return Err(Error::Raised {
            kind: field("kind").unwrap_or_else(|| "RuntimeError".to_owned()),
            message: field("message").unwrap_or_else(|| error.to_string()),
        });
    }
    value
        .get_mut("ok")
        .map(|ok| ok.take().to_string())
        .ok_or_else(odd)
}

fn symbol<T>(library: &Library, path: &Path, name: &'static str) -> Result<Symbol<T>, Error> {
    // SAFETY: the names and signatures are those of the bridge's header; a library without one of them is refused.
    unsafe { library.get(name) }.map_err(|_| Error::MissingSymbol {
        path: path.to_owned(),
        symbol: name,
    })
}

/// A copy of a C string, none for null.
///
/// # Safety
/// `pointer` is null or points to a string that ends in a zero byte.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    Some(
        unsafe { CStr::from_ptr(pointer) }
            .to_string_lossy()
            .into_owned(),
    )
}
