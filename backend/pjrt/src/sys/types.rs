//! The argument structs of `pjrt_c_api.h` that this crate uses, laid out as the header does.
//!
//! Every struct starts with its own size, by which the plugin knows which fields its caller knows.
//! A plugin accepts sizes from other minor versions, so one layout serves old and new plugins.

use std::ffi::{c_char, c_void};

/// A pointer to one of the plugin's opaque objects.
pub(crate) type Opaque = *mut c_void;

/// Declares an argument struct whose `new` fills in the size up to its last field.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* ; $last:ident: $last_ty:ty }) => {
        $(#[$doc])*
        #[repr(C)]
        pub(crate) struct $name {
            pub(crate) struct_size: usize,
            pub(crate) extension: Opaque,
            $(pub(crate) $field: $ty,)*
            pub(crate) $last: $last_ty,
        }

        impl $name {
            /// All zero, but for the size: the header counts to the end of the last field, without tail padding.
            pub(crate) fn new() -> Self {
                Self {
                    struct_size: std::mem::offset_of!(Self, $last) + size_of::<$last_ty>(),
                    extension: Opaque::default(),
                    $($field: <$ty>::default(),)*
                    $last: <$last_ty>::default(),
                }
            }
        }
    };
}

layout!(ErrorDestroy { ; error: Opaque });
layout!(ErrorMessage { error: Opaque, message: *const c_char, ; message_size: usize });
layout!(ErrorGetCode { error: Opaque, ; code: i32 });

layout!(PluginInitialize { ; unused: [u8; 0] });

layout!(EventDestroy { ; event: Opaque });
layout!(EventIsReady { event: Opaque, ; is_ready: bool });
layout!(EventAwait { ; event: Opaque });

/// The value of a [`NamedValue`]; which member counts is said by its `kind`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union NamedPayload {
    pub(crate) string: *const c_char,
    pub(crate) int: i64,
    pub(crate) ints: *const i64,
    pub(crate) float: f32,
    pub(crate) boolean: bool,
}

impl Default for NamedPayload {
    fn default() -> Self {
        Self { int: 0 }
    }
}

layout!(NamedValue {
    name: *const c_char,
    name_size: usize,
    kind: i32,
    value: NamedPayload,
    ; value_size: usize
});

layout!(ClientCreate {
    create_options: *const NamedValue,
    num_options: usize,
    kv_get_callback: Opaque,
    kv_get_user_arg: Opaque,
    kv_put_callback: Opaque,
    kv_put_user_arg: Opaque,
    client: Opaque,
    kv_try_get_callback: Opaque,
    ; kv_try_get_user_arg: Opaque
});
layout!(
    /// `PJRT_Client_PlatformName_Args`, `PJRT_Client_PlatformVersion_Args`, `PJRT_DeviceDescription_Kind_Args`
    /// and `PJRT_DeviceDescription_DebugString_Args` all have this one shape: an object in, a string out.
    GetString { object: Opaque, text: *const c_char, ; text_size: usize }
);
layout!(ClientAddressableDevices { client: Opaque, devices: *const Opaque, ; num_devices: usize });
layout!(DeviceGetDescription { device: Opaque, ; description: Opaque });
layout!(DeviceDescriptionId { description: Opaque, ; id: i32 });

layout!(Program {
    code: *mut c_char,
    code_size: usize,
    format: *const c_char,
    ; format_size: usize
});
layout!(ClientCompile {
    client: Opaque,
    program: *const Program,
    compile_options: *const c_char,
    compile_options_size: usize,
    ; executable: Opaque
});

layout!(BufferFromHost {
    client: Opaque,
    data: *const c_void,
    element_type: i32,
    dims: *const i64,
    num_dims: usize,
    byte_strides: *const i64,
    num_byte_strides: usize,
    host_buffer_semantics: i32,
    device: Opaque,
    memory: Opaque,
    device_layout: Opaque,
    done_with_host_buffer: Opaque,
    ; buffer: Opaque
});

/// `PJRT_HostBufferSemantics_kImmutableOnlyDuringCall`: the plugin copies before it returns.
pub(crate) const IMMUTABLE_ONLY_DURING_CALL: i32 = 0;

layout!(BufferDestroy { ; buffer: Opaque });
layout!(BufferDimensions { buffer: Opaque, dims: *const i64, ; num_dims: usize });
layout!(BufferSize { buffer: Opaque, ; bytes: usize });
layout!(BufferIsDeleted { buffer: Opaque, ; is_deleted: bool });
layout!(BufferCopyToDevice { buffer: Opaque, device: Opaque, ; copy: Opaque });
layout!(
    /// `PJRT_Buffer_IncreaseExternalReferenceCount_Args` and its opposite.
    BufferReference { ; buffer: Opaque }
);
layout!(BufferDataPointer { buffer: Opaque, ; data: Opaque });
layout!(BufferReadyEvent { buffer: Opaque, ; event: Opaque });
layout!(BufferToHost {
    buffer: Opaque,
    host_layout: *mut MemoryLayout,
    dst: *mut c_void,
    dst_size: usize,
    ; event: Opaque
});

layout!(TiledLayout {
    minor_to_major: *const i64,
    minor_to_major_size: usize,
    tile_dims: *const i64,
    tile_dim_sizes: *const usize,
    ; num_tiles: usize
});

/// `PJRT_Buffer_MemoryLayout`, whose union this crate only ever uses as the tiled (and larger) member.
#[repr(C)]
pub(crate) struct MemoryLayout {
    pub(crate) struct_size: usize,
    pub(crate) extension: Opaque,
    pub(crate) tiled: TiledLayout,
    pub(crate) kind: i32,
}

impl MemoryLayout {
    /// A dense layout in the order given; `minor_to_major` must outlive the call it is used in.
    pub(crate) fn dense(minor_to_major: &[i64]) -> Self {
        let mut tiled = TiledLayout::new();
        tiled.minor_to_major = minor_to_major.as_ptr();
        tiled.minor_to_major_size = minor_to_major.len();
        Self {
            struct_size: std::mem::offset_of!(Self, kind) + size_of::<i32>(),
            extension: Opaque::default(),
            tiled,
            kind: 0,
        }
    }
}

layout!(ExecutableDestroy { ; executable: Opaque });
layout!(LoadedExecutableGetExecutable { loaded: Opaque, ; executable: Opaque });
layout!(ExecutableNumOutputs { executable: Opaque, ; num_outputs: usize });
layout!(ExecutableOptimizedProgram { executable: Opaque, ; program: *mut Program });
layout!(ExecutableSerialize {
    executable: Opaque,
    bytes: *const c_char,
    bytes_size: usize,
    backing: Opaque,
    ; deleter: Option<unsafe extern "C" fn(Opaque)>
});
layout!(ExecutableDeserialize {
    client: Opaque,
    bytes: *const c_char,
    bytes_size: usize,
    executable: Opaque,
    compile_options: *const c_char,
    ; compile_options_size: usize
});
layout!(ExecutableMemoryStats {
    executable: Opaque,
    generated_code: i64,
    argument: i64,
    output: i64,
    alias: i64,
    temp: i64,
    host_generated_code: i64,
    host_argument: i64,
    host_output: i64,
    host_alias: i64,
    host_temp: i64,
    peak: i64,
    ; total: i64
});

layout!(ExecuteOptions {
    send_callbacks: Opaque,
    recv_callbacks: Opaque,
    num_send_ops: usize,
    num_recv_ops: usize,
    launch_id: i32,
    non_donatable: *const i64,
    num_non_donatable: usize,
    context: Opaque,
    call_location: *const c_char,
    num_tasks: usize,
    task_ids: *mut i32,
    ; incarnation_ids: *mut i64
});
layout!(LoadedExecutableExecute {
    executable: Opaque,
    options: *mut ExecuteOptions,
    argument_lists: *const *const Opaque,
    num_devices: usize,
    num_args: usize,
    output_lists: *const *mut Opaque,
    device_complete_events: *mut Opaque,
    ; execute_device: Opaque
});

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The header's `_STRUCT_SIZE` constants on a 64-bit machine.
    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(ErrorGetCode::new().struct_size, 28);
        assert_eq!(PluginInitialize::new().struct_size, 16);
        assert_eq!(EventIsReady::new().struct_size, 25);
        assert_eq!(NamedValue::new().struct_size, 56);
        assert_eq!(ClientCreate::new().struct_size, 88);
        assert_eq!(Program::new().struct_size, 48);
        assert_eq!(ClientCompile::new().struct_size, 56);
        assert_eq!(BufferFromHost::new().struct_size, 120);
        assert_eq!(BufferToHost::new().struct_size, 56);
        assert_eq!(TiledLayout::new().struct_size, 56);
        assert_eq!(MemoryLayout::dense(&[]).struct_size, 76);
        assert_eq!(ExecuteOptions::new().struct_size, 112);
        assert_eq!(LoadedExecutableExecute::new().struct_size, 80);
        assert_eq!(ExecutableMemoryStats::new().struct_size, 120);
        assert_eq!(offset_of!(ExecuteOptions, non_donatable), 56);
        assert_eq!(offset_of!(BufferFromHost, device), 80);
    }
}
