//! Loaded executables.
#![expect(unsafe_code, reason = "calls into the plugin")]

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::buffer::{Buffer, RawBuffer};
use super::client::Client;
use super::plugin::Plugin;
use crate::error::{Error, Result};
use crate::sys::types::{
    ExecutableDestroy, ExecutableMemoryStats, ExecutableNumOutputs, ExecutableOptimizedProgram,
    ExecutableSerialize, ExecuteOptions, LoadedExecutableExecute, LoadedExecutableGetExecutable,
    Opaque, Program,
};

const EXECUTE: &str = "PJRT_LoadedExecutable_Execute";

/// A compiled and loaded program, unloaded on drop. Runs already started finish.
pub struct Executable {
    plugin: &'static Plugin,
    devices: &'static [Opaque],
    loaded: Opaque,
    /// The view of the same program that answers questions; null until the constructor has it.
    program: Opaque,
    num_outputs: usize,
}

// SAFETY: PJRT executables may be used from any thread.
unsafe impl Send for Executable {}
// SAFETY: as above; the plugin synchronises.
unsafe impl Sync for Executable {}

/// Bytes a program takes on its device, as the compiler planned them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Machine code.
    pub generated_code: u64,
    /// All arguments.
    pub argument: u64,
    /// All outputs.
    pub output: u64,
    /// Outputs that take over an argument's memory.
    pub alias: u64,
    /// Scratch.
    pub temp: u64,
    /// The most in use at one time; zero where the plugin does not know.
    pub peak: u64,
}

impl Drop for Executable {
    fn drop(&mut self) {
        let table = &self.plugin.table;
        let mut args = ExecutableDestroy::new();
        if !self.program.is_null() {
            args.executable = self.program;
            // SAFETY: this object owns the handle. A failure to free leaves nothing to do, hence `drop`.
            drop(unsafe { table.executable_destroy(&mut args) });
        }
        args.executable = self.loaded;
        // SAFETY: as above.
        drop(unsafe { table.loaded_executable_destroy(&mut args) });
    }
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executable")
            .field("num_outputs", &self.num_outputs)
            .finish_non_exhaustive()
    }
}

impl Executable {
    /// Takes over an executable that `call` returned.
    ///
    /// # Safety
    /// `loaded` is null, or a loaded executable of `client` that nobody else destroys.
    pub(super) unsafe fn own(client: Client, loaded: Opaque, call: &'static str) -> Result<Self> {
        if loaded.is_null() {
            return Err(Error::NullResult {
                call,
                what: "executable",
            });
        }
        let plugin = client.plugin();
        let devices = client.device_ptrs();
        let mut this = Self {
            plugin,
            devices,
            loaded,
            program: Opaque::default(),
            num_outputs: 0,
        };

        let mut view = LoadedExecutableGetExecutable::new();
        view.loaded = loaded;
        // SAFETY: the executable is live.
        unsafe { plugin.table.loaded_executable_get_executable(&mut view) }?;
        this.program = view.executable;
        let mut outputs = ExecutableNumOutputs::new();
        outputs.executable = this.program;
        // SAFETY: the view is live.
        unsafe { plugin.table.executable_num_outputs(&mut outputs) }?;
        this.num_outputs = outputs.num_outputs;
        Ok(this)
    }

    /// How many buffers one run appends to its outputs.
    #[inline]
    #[must_use]
    pub fn num_outputs(&self) -> usize {
        self.num_outputs
    }

    /// Starts a run on one device and appends the outputs, which may be still in the making.
    ///
    /// Arguments that the program aliases to an output are donated, and gone afterwards, but for those whose
    /// index is in `non_donatable`. On an error after the start the donated ones may be gone as well.
    /// The program must have been compiled with [`portable`](crate::CompileOptions::portable) to run on a device
    /// other than the first. The buffers behind `args` must be alive.
    ///
    /// # Errors
    /// [`Error::Device`], or what the plugin reports, such as a deleted argument.
    #[inline]
    pub fn execute(
        &self,
        device: usize,
        args: &[RawBuffer],
        non_donatable: &[i64],
        outputs: &mut SmallVec<[Buffer; 2]>,
    ) -> Result<()> {
        let mut made: SmallVec<[Opaque; 4]> =
            smallvec::smallvec![Opaque::default(); self.num_outputs];
        self.start(self.device_ptr(device)?, args, non_donatable, &mut made)?;
        outputs.reserve(made.len());
        for raw in made {
            // SAFETY: the run made this buffer for us.
            outputs.push(unsafe { Buffer::own(self.plugin, raw, EXECUTE) }?);
        }
        Ok(())
    }

    fn device_ptr(&self, device: usize) -> Result<Opaque> {
        let count = self.devices.len();
        self.devices
            .get(device)
            .copied()
            .ok_or(Error::Device { device, count })
    }

    /// One run. `outputs` has one place for each output.
    #[inline]
    fn start(
        &self,
        device: Opaque,
        args: &[RawBuffer],
        non_donatable: &[i64],
        outputs: &mut [Opaque],
    ) -> Result<()> {
        let mut options = ExecuteOptions::new();
        options.non_donatable = non_donatable.as_ptr();
        options.num_non_donatable = non_donatable.len();
        let argument_list = args.as_ptr().cast::<Opaque>();
        let output_list = outputs.as_mut_ptr();
        let mut call = LoadedExecutableExecute::new();
        call.executable = self.loaded;
        call.options = &raw mut options;
        call.argument_lists = &raw const argument_list;
        call.num_devices = 1;
        call.num_args = args.len();
        call.output_lists = &raw const output_list;
        call.execute_device = device;
        // SAFETY: `RawBuffer` is a transparent pointer, so the slice is the list of buffers the header asks for;
        // the lists have the lengths given and live through the call.
        unsafe { self.plugin.table.loaded_executable_execute(&mut call) }
    }

    /// The time of `iterations` runs `c = program(a, c)`, begun with `c = a`, through prepared arguments and with
    /// nothing between the runs: the floor that any dispatcher stands on.
    ///
    /// # Errors
    /// [`Error::Outputs`] where the program has not one output, or the first error of a run.
    pub fn raw_chain(&self, device: usize, a: &Buffer, iterations: usize) -> Result<Duration> {
        if self.num_outputs != 1 {
            return Err(Error::Outputs {
                expected: 1,
                given: self.num_outputs,
            });
        }
        let device = self.device_ptr(device)?;
        let mut args = [a.as_raw(), a.as_raw()];
        let mut last: Option<Buffer> = None;
        let start = Instant::now();
        for _ in 0..iterations {
            let mut made = [Opaque::default()];
            self.start(device, &args, &[], &mut made)?;
            // SAFETY: the run made this buffer for us.
            let next = unsafe { Buffer::own(self.plugin, made[0], EXECUTE) }?;
            args[1] = next.as_raw();
            last = Some(next);
        }
        if let Some(last) = &last {
            last.wait()?;
        }
        Ok(start.elapsed())
    }

    /// The program as bytes that [`Client::deserialize`] takes, far quicker than a compile.
    ///
    /// # Errors
    /// What the plugin reports.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args = ExecutableSerialize::new();
        args.executable = self.program;
        // SAFETY: the view is live.
        unsafe { self.plugin.table.executable_serialize(&mut args) }?;
        let bytes = if args.bytes.is_null() {
            Vec::new()
        } else {
            // SAFETY: the plugin wrote a pointer and a length that live until the deleter runs.
            unsafe { std::slice::from_raw_parts(args.bytes.cast::<u8>(), args.bytes_size) }.to_vec()
        };
        if let Some(deleter) = args.deleter {
            // SAFETY: the plugin asks for exactly one call with its own pointer.
            unsafe { deleter(args.backing) };
        }
        Ok(bytes)
    }

    /// What the compiler planned to use.
    ///
    /// # Errors
    /// What the plugin reports.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let mut args = ExecutableMemoryStats::new();
        args.executable = self.program;
        // SAFETY: the view is live.
        unsafe { self.plugin.table.executable_memory_stats(&mut args) }?;
        let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
        Ok(MemoryStats {
            generated_code: bytes(args.generated_code),
            argument: bytes(args.argument),
            output: bytes(args.output),
            alias: bytes(args.alias),
            temp: bytes(args.temp),
            peak: bytes(args.peak),
        })
    }

    /// The optimised program as a serialised `HloModuleProtoWithConfig`.
    ///
    /// # Errors
    /// What the plugin reports.
    pub fn optimized_hlo(&self) -> Result<Vec<u8>> {
        let mut program = Program::new();
        let mut args = ExecutableOptimizedProgram::new();
        args.executable = self.program;
        // A raw pointer throughout, because the plugin reads and writes the program behind it in both calls.
        let shared = &raw mut program;
        args.program = shared;
        // SAFETY: the view is live; without `code` the call only reports the size.
        unsafe { self.plugin.table.executable_optimized_program(&mut args) }?;
        // SAFETY: `shared` points to `program`, which is live.
        let mut bytes = vec![0u8; unsafe { (*shared).code_size }];
        // SAFETY: as above.
        unsafe { (*shared).code = bytes.as_mut_ptr().cast() };
        // SAFETY: `code` now has the room the first call asked for.
        unsafe { self.plugin.table.executable_optimized_program(&mut args) }?;
        Ok(bytes)
    }
}
