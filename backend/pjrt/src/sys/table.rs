//! The plugin's function table, read once and called through typed methods.
#![expect(unsafe_code, reason = "calls into the plugin")]

use std::ffi::c_void;
use std::ptr::NonNull;

use super::types::*;
use crate::error::{Error, ErrorCode, Result};
use crate::ffi::fork::forked;

/// The head of `PJRT_Api`; the function pointers follow it.
#[repr(C)]
pub(crate) struct Head {
    struct_size: usize,
    extension: Opaque,
    version_size: usize,
    version_extension: Opaque,
    major: i32,
    minor: i32,
}

type Call<A> = unsafe extern "C" fn(*mut A) -> Opaque;
type Notice<A> = unsafe extern "C" fn(*mut A);

/// One line a function: its place in the table, our name, the header's name, its arguments.
macro_rules! slots {
    ($($index:literal $name:ident $c_name:literal $args:ident;)*) => {
        /// The functions this crate calls. All but the three on errors may be absent.
        pub(crate) struct Table {
            version: (i32, i32),
            error_destroy: Notice<ErrorDestroy>,
            error_message: Notice<ErrorMessage>,
            error_get_code: Call<ErrorGetCode>,
            $($name: Option<Call<$args>>,)*
        }

        impl Table {
            /// Copies the functions out of the plugin's `PJRT_Api`; `None` where it is no such thing.
            ///
            /// # Safety
            /// `head` is what a plugin's `GetPjrtApi` returned.
            pub(crate) unsafe fn read(head: NonNull<Head>) -> Option<Self> {
                // SAFETY: a `PJRT_Api` starts with these fields in every version.
                let Head { struct_size, major, minor, .. } = unsafe { head.read() };
                let count = struct_size.checked_sub(size_of::<Head>())? / size_of::<usize>();
                let first = head.as_ptr().cast::<u8>().wrapping_add(size_of::<Head>()).cast::<*const c_void>();
                let slot = |index: usize| -> Option<NonNull<c_void>> {
                    if index >= count {
                        return None;
                    }
                    // SAFETY: `index` lies within the `struct_size` bytes that the plugin vouches for.
                    NonNull::new(unsafe { first.add(index).read() }.cast_mut())
                };
                Some(Self {
                    version: (major, minor),
                    // SAFETY: slot 0 is `PJRT_Error_Destroy` in every version of major 0.
                    error_destroy: unsafe { std::mem::transmute::<NonNull<c_void>, Notice<ErrorDestroy>>(slot(0)?) },
                    // SAFETY: slot 1 is `PJRT_Error_Message`.
                    error_message: unsafe { std::mem::transmute::<NonNull<c_void>, Notice<ErrorMessage>>(slot(1)?) },
                    // SAFETY: slot 2 is `PJRT_Error_GetCode`.
                    error_get_code: unsafe { std::mem::transmute::<NonNull<c_void>, Call<ErrorGetCode>>(slot(2)?) },
                    $(
                        // SAFETY: the slots keep their place within a major version, and the signature is the header's.
                        $name: slot($index).map(|f| unsafe { std::mem::transmute::<NonNull<c_void>, Call<$args>>(f) }),
                    )*
                })
            }

            $(
                #[doc = concat!("Calls `", $c_name, "`.")]
                ///
                /// # Safety
                /// The pointers in `args` are what the header asks for, and live.
                #[inline]
                pub(crate) unsafe fn $name(&self, args: &mut $args) -> Result<()> {
                    if forked() {
                        return Err(Error::Forked);
                    }
                    let Some(function) = self.$name else {
                        return Err(self.missing($c_name));
                    };
                    // SAFETY: by this function's contract.
                    match NonNull::new(unsafe { function(args) }) {
                        None => Ok(()),
                        Some(error) => Err(self.take_error(error, $c_name)),
                    }
                }
            )*
        }
    };
}

slots! {
    3 plugin_initialize "PJRT_Plugin_Initialize" PluginInitialize;
    5 event_destroy "PJRT_Event_Destroy" EventDestroy;
    6 event_is_ready "PJRT_Event_IsReady" EventIsReady;
    8 event_await "PJRT_Event_Await" EventAwait;
    10 client_create "PJRT_Client_Create" ClientCreate;
    12 client_platform_name "PJRT_Client_PlatformName" GetString;
    14 client_platform_version "PJRT_Client_PlatformVersion" GetString;
    16 client_addressable_devices "PJRT_Client_AddressableDevices" ClientAddressableDevices;
    20 client_compile "PJRT_Client_Compile" ClientCompile;
    22 buffer_from_host "PJRT_Client_BufferFromHostBuffer" BufferFromHost;
    23 device_description_id "PJRT_DeviceDescription_Id" DeviceDescriptionId;
    26 device_description_kind "PJRT_DeviceDescription_Kind" GetString;
    27 device_description_debug_string "PJRT_DeviceDescription_DebugString" GetString;
    29 device_get_description "PJRT_Device_GetDescription" DeviceGetDescription;
    40 executable_destroy "PJRT_Executable_Destroy" ExecutableDestroy;
    44 executable_num_outputs "PJRT_Executable_NumOutputs" ExecutableNumOutputs;
    48 executable_optimized_program "PJRT_Executable_OptimizedProgram" ExecutableOptimizedProgram;
    49 executable_serialize "PJRT_Executable_Serialize" ExecutableSerialize;
    50 loaded_executable_destroy "PJRT_LoadedExecutable_Destroy" ExecutableDestroy;
    51 loaded_executable_get_executable "PJRT_LoadedExecutable_GetExecutable" LoadedExecutableGetExecutable;
    55 loaded_executable_execute "PJRT_LoadedExecutable_Execute" LoadedExecutableExecute;
    56 executable_deserialize "PJRT_Executable_DeserializeAndLoad" ExecutableDeserialize;
    58 buffer_destroy "PJRT_Buffer_Destroy" BufferDestroy;
    60 buffer_dimensions "PJRT_Buffer_Dimensions" BufferDimensions;
    64 buffer_size "PJRT_Buffer_OnDeviceSizeInBytes" BufferSize;
    68 buffer_is_deleted "PJRT_Buffer_IsDeleted" BufferIsDeleted;
    69 buffer_copy_to_device "PJRT_Buffer_CopyToDevice" BufferCopyToDevice;
    70 buffer_to_host "PJRT_Buffer_ToHostBuffer" BufferToHost;
    72 buffer_ready_event "PJRT_Buffer_ReadyEvent" BufferReadyEvent;
    74 buffer_add_reference "PJRT_Buffer_IncreaseExternalReferenceCount" BufferReference;
    75 buffer_drop_reference "PJRT_Buffer_DecreaseExternalReferenceCount" BufferReference;
    76 buffer_data_pointer "PJRT_Buffer_OpaqueDeviceMemoryDataPointer" BufferDataPointer;
    96 executable_memory_stats "PJRT_Executable_GetCompiledMemoryStats" ExecutableMemoryStats;
}

impl Table {
    pub(crate) fn version(&self) -> (i32, i32) {
        self.version
    }

    #[cold]
    fn missing(&self, name: &'static str) -> Error {
        let (major, minor) = self.version;
        Error::MissingSlot { name, major, minor }
    }

    /// Turns the plugin's error into ours and frees it.
    #[cold]
    fn take_error(&self, error: NonNull<c_void>, call: &'static str) -> Error {
        let error = error.as_ptr();
        let mut text = ErrorMessage::new();
        text.error = error;
        // SAFETY: `error` is live until it is destroyed below.
        unsafe { (self.error_message)(&mut text) };
        let message = if text.message.is_null() {
            String::new()
        } else {
            // SAFETY: the plugin wrote a pointer and a length that live as long as `error`.
            let bytes =
                unsafe { std::slice::from_raw_parts(text.message.cast::<u8>(), text.message_size) };
            String::from_utf8_lossy(bytes).into_owned()
        };

        let mut code = ErrorGetCode::new();
        code.error = error;
        // SAFETY: `error` is live.
        let second = unsafe { (self.error_get_code)(&mut code) };
        self.destroy_error(second);
        self.destroy_error(error);
        Error::Pjrt {
            code: ErrorCode::from_raw(code.code),
            message,
            call,
        }
    }

    fn destroy_error(&self, error: Opaque) {
        if !error.is_null() {
            let mut args = ErrorDestroy::new();
            args.error = error;
            // SAFETY: the caller owns `error` and uses it no more.
            unsafe { (self.error_destroy)(&mut args) };
        }
    }
}
