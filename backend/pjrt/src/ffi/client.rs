//! Clients: devices, compilation, uploads.
#![expect(unsafe_code, reason = "calls into the plugin")]

use std::ffi::c_char;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::buffer::Buffer;
use super::event::Event;
use super::executable::Executable;
use super::plugin::Plugin;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::options::{CompileOptions, OptionValue, Target};
use crate::sys::types::{
    BufferFromHost, ClientAddressableDevices, ClientCompile, ClientCreate, DeviceDescriptionId,
    DeviceGetDescription, ExecutableDeserialize, GetString, IMMUTABLE_ONLY_DURING_CALL,
    NamedPayload, NamedValue, Opaque, Program,
};

/// The least program, compiled to see a plugin's default options.
const IDENTITY: &str = r#""builtin.module"() ({
  "func.func"() <{function_type = (tensor<f32>) -> tensor<f32>, sym_name = "main"}> ({
  ^bb0(%0: tensor<f32>):
    "func.return"(%0) : (tensor<f32>) -> ()
  }) : () -> ()
}) : () -> ()"#;

/// An open client. A handle: copies stand for the same client, which is never closed, because buffers,
/// executables and the plugin's threads may outlive any owner we could name.
#[derive(Clone, Copy)]
pub struct Client {
    inner: &'static Inner,
}

struct Inner {
    plugin: &'static Plugin,
    raw: Opaque,
    device_ptrs: Vec<Opaque>,
    devices: Vec<DeviceInfo>,
    platform_name: String,
    platform_version: String,
    /// What `fast` compiles for, learned at the first compile that asks for it.
    fast_target: OnceLock<Target>,
}

// SAFETY: a PJRT client may be used from any thread; the rest is immutable.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// What a client says about one of its devices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The runtime's id, unique among all processes.
    pub id: i32,
    /// The vendor's name of the kind.
    pub kind: String,
    /// A description for people.
    pub description: String,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("platform", &self.inner.platform_name)
            .field("devices", &self.inner.devices.len())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a client with the plugin's own options, such as `cpu_device_count`.
    ///
    /// Mind their types: XLA's CPU plugins ignore an option they do not know, but end the process over one
    /// whose value is of another kind than they expect.
    ///
    /// # Errors
    /// What the plugin reports: an unknown option, or no such hardware.
    pub fn create(plugin: &'static Plugin, options: &[(&str, OptionValue)]) -> Result<Self> {
        let named: Vec<NamedValue> = options
            .iter()
            .map(|(name, value)| named_value(name, value))
            .collect();
        let mut args = ClientCreate::new();
        args.create_options = named.as_ptr();
        args.num_options = named.len();
        // SAFETY: the options live through the call; no callbacks are given.
        unsafe { plugin.table.client_create(&mut args) }?;
        let raw = args.client;
        if raw.is_null() {
            return Err(Error::NullResult {
                call: "PJRT_Client_Create",
                what: "client",
            });
        }

        let device_ptrs = addressable_devices(plugin, raw)?;
        let devices = device_ptrs
            .iter()
            .map(|&device| device_info(plugin, device))
            .collect::<Result<_>>()?;
        // SAFETY: the client is live and these functions take it.
        let platform_name = unsafe { string(raw, |args| plugin.table.client_platform_name(args)) }?;
        // SAFETY: as above.
        let platform_version =
            unsafe { string(raw, |args| plugin.table.client_platform_version(args)) }?;
        plugin
            .host_memory
            .store(platform_name == "cpu", Ordering::Relaxed);
        let inner = Inner {
            plugin,
            raw,
            device_ptrs,
            devices,
            platform_name,
            platform_version,
            fast_target: OnceLock::new(),
        };
        Ok(Self {
            inner: Box::leak(Box::new(inner)),
        })
    }

    /// The plugin this client runs on.
    #[must_use]
    pub fn plugin(&self) -> &'static Plugin {
        self.inner.plugin
    }

    /// "cpu", "tpu", and so on.
    #[must_use]
    pub fn platform_name(&self) -> &'static str {
        &self.inner.platform_name
    }

    /// The runtime's version, in its own words.
    #[must_use]
    pub fn platform_version(&self) -> &'static str {
        &self.inner.platform_version
    }

    /// How many devices this process can use.
    #[must_use]
    pub fn device_count(&self) -> usize {
        self.inner.devices.len()
    }

    /// What is known about the devices, in index order.
    #[must_use]
    pub fn devices(&self) -> &'static [DeviceInfo] {
        &self.inner.devices
    }

    /// The kind of device `device`; empty beyond the last one.
    #[must_use]
    pub fn device_kind(&self, device: usize) -> &'static str {
        self.inner.devices.get(device).map_or("", |info| &info.kind)
    }

    /// The description of device `device`; empty beyond the last one.
    #[must_use]
    pub fn device_description(&self, device: usize) -> &'static str {
        self.inner
            .devices
            .get(device)
            .map_or("", |info| &info.description)
    }

    pub(super) fn device_ptr(&self, device: usize) -> Result<Opaque> {
        let count = self.inner.device_ptrs.len();
        self.inner
            .device_ptrs
            .get(device)
            .copied()
            .ok_or(Error::Device { device, count })
    }

    pub(super) fn device_ptrs(&self) -> &'static [Opaque] {
        &self.inner.device_ptrs
    }

    /// Compiles a StableHLO module, given as text.
    ///
    /// # Errors
    /// [`Error::Option`] for overrides that cannot be expressed, or what the compiler reports.
    pub fn compile(&self, mlir: &str, options: &CompileOptions) -> Result<Executable> {
        const CPU: &Target = &Target::Cpu { old_emitters: None };
        let target = match self.platform_name() {
            "cpu" if options.fast => self.fast_target(CPU)?,
            "cpu" => CPU,
            _ => &Target::Other,
        };
        self.compile_encoded(mlir, &options.encode(target)?)
    }

    fn fast_target(&self, plain: &Target) -> Result<&'static Target> {
        let known = &self.inner.fast_target;
        if let Some(target) = known.get() {
            return Ok(target);
        }
        let options = CompileOptions::default().encode(plain)?;
        let hlo = self.compile_encoded(IDENTITY, &options)?.optimized_hlo();
        Ok(known.get_or_init(|| Target::with_old_emitters(&hlo.unwrap_or_default())))
    }

    fn compile_encoded(&self, mlir: &str, options: &[u8]) -> Result<Executable> {
        const FORMAT: &str = "mlir";
        let mut program = Program::new();
        program.code = mlir.as_ptr().cast_mut().cast::<c_char>();
        program.code_size = mlir.len();
        program.format = FORMAT.as_ptr().cast();
        program.format_size = FORMAT.len();
        let mut args = ClientCompile::new();
        args.client = self.inner.raw;
        args.program = &raw const program;
        args.compile_options = options.as_ptr().cast();
        args.compile_options_size = options.len();
        // SAFETY: program and options live through the call, and the plugin only reads the code.
        unsafe { self.inner.plugin.table.client_compile(&mut args) }?;
        // SAFETY: the executable belongs to the caller.
        unsafe { Executable::own(*self, args.executable, "PJRT_Client_Compile") }
    }

    /// Loads what [`Executable::serialize`] gave, on the same platform and plugin version.
    ///
    /// # Errors
    /// What the plugin reports about foreign or damaged bytes.
    pub fn deserialize(&self, bytes: &[u8]) -> Result<Executable> {
        let mut args = ExecutableDeserialize::new();
        args.client = self.inner.raw;
        args.bytes = bytes.as_ptr().cast();
        args.bytes_size = bytes.len();
        // SAFETY: the bytes live through the call.
        unsafe { self.inner.plugin.table.executable_deserialize(&mut args) }?;
        // SAFETY: the executable belongs to the caller.
        unsafe { Executable::own(*self, args.executable, "PJRT_Executable_DeserializeAndLoad") }
    }

    /// Copies a dense row-major array to a device. `bytes` may change as soon as this returns.
    ///
    /// # Errors
    /// [`Error::HostSize`] where bytes and shape do not match, [`Error::Device`], or what the plugin reports.
    pub fn buffer_from_host(
        &self,
        bytes: &[u8],
        element: ElementType,
        dims: &[i64],
        device: usize,
    ) -> Result<Buffer> {
        let expected = element.bytes_of(dims)?;
        if expected != bytes.len() {
            let (element, given) = (element.name(), bytes.len());
            return Err(Error::HostSize {
                dims: dims.to_vec(),
                element,
                expected,
                given,
            });
        }
        let plugin = self.inner.plugin;
        let mut args = BufferFromHost::new();
        args.client = self.inner.raw;
        args.data = bytes.as_ptr().cast();
        args.element_type = element as i32;
        args.dims = dims.as_ptr();
        args.num_dims = dims.len();
        args.host_buffer_semantics = IMMUTABLE_ONLY_DURING_CALL;
        args.device = self.device_ptr(device)?;
        // SAFETY: `bytes` has the size that type and dims ask for and lives through the call.
        unsafe { plugin.table.buffer_from_host(&mut args) }?;
        // SAFETY: the event belongs to this call.
        let done = unsafe { Event::own(&plugin.table, args.done_with_host_buffer) };
        // SAFETY: the buffer belongs to the caller.
        let buffer =
            unsafe { Buffer::own(plugin, args.buffer, "PJRT_Client_BufferFromHostBuffer") }?;
        done.wait()?;
        Ok(buffer)
    }
}

fn named_value(name: &str, value: &OptionValue) -> NamedValue {
    let (kind, payload, size) = match value {
        OptionValue::Str(text) => (
            0,
            NamedPayload {
                string: text.as_ptr().cast(),
            },
            text.len(),
        ),
        OptionValue::Int(int) => (1, NamedPayload { int: *int }, 1),
        OptionValue::Ints(ints) => (
            2,
            NamedPayload {
                ints: ints.as_ptr(),
            },
            ints.len(),
        ),
        OptionValue::Float(float) => (3, NamedPayload { float: *float }, 1),
        OptionValue::Bool(boolean) => (4, NamedPayload { boolean: *boolean }, 1),
    };
    let mut named = NamedValue::new();
    named.name = name.as_ptr().cast();
    named.name_size = name.len();
    named.kind = kind;
    named.value = payload;
    named.value_size = size;
    named
}

fn addressable_devices(plugin: &'static Plugin, client: Opaque) -> Result<Vec<Opaque>> {
    let mut args = ClientAddressableDevices::new();
    args.client = client;
    // SAFETY: the client is live.
    unsafe { plugin.table.client_addressable_devices(&mut args) }?;
    if args.devices.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the plugin wrote an array of this length, which lives as long as the client.
    Ok(unsafe { std::slice::from_raw_parts(args.devices, args.num_devices) }.to_vec())
}

fn device_info(plugin: &'static Plugin, device: Opaque) -> Result<DeviceInfo> {
    let table = &plugin.table;
    let mut args = DeviceGetDescription::new();
    args.device = device;
    // SAFETY: the device lives as long as its client.
    unsafe { table.device_get_description(&mut args) }?;
    let mut id = DeviceDescriptionId::new();
    id.description = args.description;
    // SAFETY: the description lives as long as the device.
    unsafe { table.device_description_id(&mut id) }?;
    // SAFETY: as above.
    let kind = unsafe { string(args.description, |get| table.device_description_kind(get)) }?;
    // SAFETY: as above.
    let description = unsafe {
        string(args.description, |get| {
            table.device_description_debug_string(get)
        })
    }?;
    Ok(DeviceInfo {
        id: id.id,
        kind,
        description,
    })
}

/// Asks `object` for a string and copies it.
///
/// # Safety
/// `object` is live and what `get` takes.
unsafe fn string(object: Opaque, get: impl FnOnce(&mut GetString) -> Result<()>) -> Result<String> {
    let mut args = GetString::new();
    args.object = object;
    get(&mut args)?;
    if args.text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the plugin wrote a pointer and a length that live as long as the object.
    let bytes = unsafe { std::slice::from_raw_parts(args.text.cast::<u8>(), args.text_size) };
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
