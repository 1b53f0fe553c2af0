//! The running device: plugin, client, cache. Started by the first tensor, never torn down.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tpulab_pjrt::{Buffer, Client, CompileOptions, ElementType, Executable, OptionValue, Plugin};
use tpulab_stablehlo::DType;

use crate::address::MAX_DEVICES;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::key::NumberKind;
use crate::lower::encode;
use crate::settings::{self, Mode};
use crate::stats;
use crate::value::Value;

/// XLA:CPU's effort by the size of a program's largest value. Small programs are all overhead, so they are compiled
/// quickly rather than well; the optimization level matters from a few thousand elements on.
const LEVEL_0_BELOW: i64 = 2 * 1024;
const LEVEL_1_BELOW: i64 = 64 * 1024;
const NUMBERS_KEPT: usize = 4096;
const IN_FLIGHT: usize = 256;

type InFlight = Mutex<VecDeque<Weak<Value>>>;
type NumberCache = Mutex<FxHashMap<(u64, DType), Arc<Buffer>>>;

pub(crate) struct Runtime {
    pub client: Client,
    pub plugin: &'static Plugin,
    pub cache: Cache,
    mode: AtomicU8,
    /// Small constants already on the device, a map a device.
    numbers: [NumberCache; MAX_DEVICES],
    in_flight: [InFlight; MAX_DEVICES],
    /// Results that were dropped before they were computed.
    outliving: [Mutex<VecDeque<Buffer>>; MAX_DEVICES],
}

/// A reset moves on to the next place; what ran before stays loaded, for its buffers to be freed by.
const MAX_STARTS: usize = 64;
static RUNTIMES: [OnceLock<Runtime>; MAX_STARTS] = [const { OnceLock::new() }; MAX_STARTS];
static CURRENT: AtomicUsize = AtomicUsize::new(0);
static STARTING: Mutex<()> = Mutex::new(());

/// Counts resets: a storage of another epoch is dead.
#[inline]
pub(crate) fn epoch() -> usize {
    CURRENT.load(Ordering::Relaxed)
}

#[inline]
fn place() -> &'static OnceLock<Runtime> {
    &RUNTIMES[epoch()]
}

/// Starts the device if it is not running.
pub fn start() -> Result<()> {
    get().map(|_| ())
}

/// True once the plugin is loaded.
pub fn is_started() -> bool {
    place().get().is_some()
}

/// Bytes of HBM that a device has.
pub fn capacity(_device: usize) -> u64 {
    settings::current().hbm
}

pub(crate) fn started() -> Option<&'static Runtime> {
    place().get()
}

#[inline]
pub(crate) fn get() -> Result<&'static Runtime> {
    if crate::forked() {
        return Err(Error::Forked);
    }
    match place().get() {
        Some(runtime) => Ok(runtime),
        None => open(),
    }
}

#[cold]
fn open() -> Result<&'static Runtime> {
    let _one_at_a_time = STARTING.lock();
    if let Some(runtime) = place().get() {
        return Ok(runtime);
    }
    let settings = settings::current();
    let path: PathBuf = settings.plugin.ok_or_else(|| {
        Error::runtime(
            "no PJRT plugin was found: install the package fastatomstruct-xla-cpu (XLA's CPU plugin), or name a \
             plugin's file in TPULAB_PLUGIN",
        )
    })?;
    let plugin = Plugin::load(&path)?;
    let count = OptionValue::Int(settings.devices as i64);
    let client = Client::create(plugin, &[("cpu_device_count", count)])?;
    let runtime = Runtime {
        client,
        plugin,
        cache: Cache::new(),
        mode: AtomicU8::new(settings.mode as u8),
        numbers: [const { Mutex::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher)) };
            MAX_DEVICES],
        in_flight: [const { Mutex::new(VecDeque::new()) }; MAX_DEVICES],
        outliving: [const { Mutex::new(VecDeque::new()) }; MAX_DEVICES],
    };
    Ok(place().get_or_init(|| runtime))
}

/// Ends the running device once its work is done: every tensor on it is dead, and settings may change again.
pub(crate) fn reset() -> Result<()> {
    synchronize(None)?;
    let _nobody_starts = STARTING.lock();
    let Some(runtime) = place().get() else {
        return Ok(());
    };
    if epoch() + 1 == MAX_STARTS {
        return Err(Error::runtime(format!(
            "the device was reset {} times: restart the process",
            MAX_STARTS - 1
        )));
    }
    runtime.cache.clear();
    CURRENT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Devices this process has or will have; starts nothing.
pub fn device_count() -> usize {
    place().get().map_or_else(
        || settings::current().devices,
        |runtime| runtime.client.device_count(),
    )
}

/// Keeps the result of a running program that nobody holds any more, until it is computed.
pub(crate) fn outlive(device: usize, buffer: Buffer) {
    let Some(runtime) = started() else { return };
    let mut done = Vec::new();
    let mut outliving = runtime.outliving[device].lock();
    while outliving
        .front()
        .is_some_and(|oldest| !matches!(oldest.is_ready(), Ok(false)))
    {
        done.extend(outliving.pop_front());
    }
    outliving.push_back(buffer);
}

/// Waits until all work enqueued on the device (or on all) is done.
pub fn synchronize(device: Option<usize>) -> Result<()> {
    let Some(runtime) = place().get() else {
        return Ok(());
    };
    if crate::forked() {
        return Err(Error::Forked);
    }
    let count = device_count();
    if let Some(device) = device.filter(|&device| device >= count) {
        return Err(Error::runtime(format!(
            "tpu:{device} is not there: this process has {count} devices"
        )));
    }
    let devices = device.map_or(0..count, |one| one..one + 1);
    for device in devices {
        runtime.drain(device)?;
    }
    Ok(())
}

impl Runtime {
    pub(crate) fn mode(&self) -> Mode {
        if self.mode.load(Ordering::Relaxed) == Mode::Blocking as u8 {
            Mode::Blocking
        } else {
            Mode::Strict
        }
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    pub(crate) fn compile(&self, text: &str, largest: i64) -> Result<Executable> {
        let started = Instant::now();
        // The quick emitters lose the in-place dynamic_update_slice, and their loops over memory that is both read
        // and written are slow.
        let in_place = text.contains("tf.aliasing_output") && largest >= LEVEL_1_BELOW;
        let fast = !text.contains("dynamic_update_slice") && !in_place;
        let level = if largest < LEVEL_0_BELOW {
            0
        } else if largest < LEVEL_1_BELOW {
            1
        } else {
            3
        };
        let overrides = vec![(
            "xla_backend_optimization_level".to_owned(),
            OptionValue::Int(level),
        )];
        let on_cpu = self.client.platform_name() == "cpu";
        let options = CompileOptions {
            portable: true,
            fast: fast && on_cpu,
            overrides: if on_cpu { overrides } else { Vec::new() },
            ..CompileOptions::default()
        };
        let executable = self.client.compile(text, &options)?;
        stats::compile_time(started.elapsed());
        Ok(executable)
    }

    pub(crate) fn upload(
        &self,
        bytes: &[u8],
        dtype: DType,
        dims: &[i64],
        device: usize,
    ) -> Result<Buffer> {
        Ok(self
            .client
            .buffer_from_host(bytes, element(dtype), dims, device)?)
    }

    /// A 0-d value on the device, from the cache if it was needed before.
    pub(crate) fn number(
        &self,
        device: usize,
        kind: NumberKind,
        bits: u64,
        dtype: DType,
    ) -> Result<Arc<Buffer>> {
        let (bytes, size) = encode(kind, bits, dtype)?;
        let key = (u64::from_le_bytes(bytes), dtype);
        let mut known = self.numbers[device].lock();
        if let Some(buffer) = known.get(&key) {
            return Ok(buffer.clone());
        }
        let buffer = Arc::new(self.upload(&bytes[..size], dtype, &[], device)?);
        if known.len() >= NUMBERS_KEPT {
            known.clear();
        }
        known.insert(key, buffer.clone());
        Ok(buffer)
    }

    /// Notes a program's result, so that [`synchronize`] can await it. A device never runs more than
    /// [`IN_FLIGHT`] programs ahead: the oldest is awaited first.
    #[inline]
    pub(crate) fn enqueued(&self, device: usize, value: &Arc<Value>) -> Result<()> {
        let oldest = {
            let mut queue = self.in_flight[device].lock();
            queue.push_back(Arc::downgrade(value));
            if queue.len() > IN_FLIGHT {
                queue.pop_front()
            } else {
                None
            }
        };
        match oldest.and_then(|weak| weak.upgrade()) {
            Some(value) => Ok(value.whole()?.wait()?),
            None => Ok(()),
        }
    }

    /// Programs are ordered by their dependences only, so the result of each is awaited.
    fn drain(&self, device: usize) -> Result<()> {
        let waiting = std::mem::take(&mut *self.in_flight[device].lock());
        for value in waiting.iter().filter_map(Weak::upgrade) {
            value.whole()?.wait()?;
        }
        let outliving = std::mem::take(&mut *self.outliving[device].lock());
        for buffer in outliving {
            buffer.wait()?;
        }
        Ok(())
    }
}

pub(crate) fn element(dtype: DType) -> ElementType {
    match dtype {
        DType::U8 => ElementType::U8,
        DType::I8 => ElementType::S8,
        DType::I16 => ElementType::S16,
        DType::I32 => ElementType::S32,
        DType::I64 => ElementType::S64,
        DType::F16 => ElementType::F16,
        DType::F32 => ElementType::F32,
        DType::F64 => ElementType::F64,
        DType::C64 => ElementType::C64,
        DType::C128 => ElementType::C128,
        DType::Bool => ElementType::Pred,
        DType::BF16 => ElementType::BF16,
        DType::U16 => ElementType::U16,
        DType::U32 => ElementType::U32,
        DType::U64 => ElementType::U64,
    }
}
