//! Compile options and their encoding as `CompileOptionsProto`.

mod proto;

use crate::error::{Error, Result};
use proto::Message;

/// A value for a client option or a compile override.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A whole number.
    Int(i64),
    /// A text.
    Str(String),
    /// A flag.
    Bool(bool),
    /// A number.
    Float(f32),
    /// A list of whole numbers; client options only.
    Ints(Vec<i64>),
}

/// What [`CompileOptions::fast`] means to a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastPath {
    /// CPU: the emitters before MLIR, and LLVM without optimisation. Four times quicker to compile.
    OldEmitters,
    /// CPU, where the plugin refuses the above: LLVM without optimisation.
    Overrides,
    /// Other platforms: the compiler's lowest effort.
    Effort,
}

/// How to compile a program.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// Partitions of an SPMD program; 1 for a program on one device.
    pub partitions: usize,
    /// One executable that runs on any device, chosen at each run. For programs with one partition.
    pub portable: bool,
    /// Compile quickly at the price of slower code.
    pub fast: bool,
    /// Overrides by flag name; these win over what `fast` sets.
    pub overrides: Vec<(String, OptionValue)>,
    /// A serialised `DebugOptions`, in which every field left out is zero rather than its default.
    pub debug_options: Option<Vec<u8>>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self { partitions: 1, portable: true, fast: false, overrides: Vec::new(), debug_options: None }
    }
}

impl CompileOptions {
    /// The bytes of the `CompileOptionsProto` for a plugin where `fast` stands for `path`.
    ///
    /// # Errors
    /// [`Error::Option`] for an override that is a list.
    pub fn encode(&self, path: FastPath) -> Result<Vec<u8>> {
        let fast = self.fast.then_some(path);

        let mut build = Message::default();
        match (&self.debug_options, fast) {
            (Some(raw), _) => build.bytes(3, raw),
            (None, Some(FastPath::OldEmitters)) => build.message(3, &old_emitters()),
            (None, _) => {}
        }
        // Left at zero, these two make the plugin abort.
        build.int(4, 1);
        build.int(5, i64::try_from(self.partitions.max(1)).unwrap_or(i64::MAX));
        if self.partitions > 1 {
            build.bool(6, true); // use_spmd_partitioning
            build.bytes(12, &[1]); // allow_spmd_sharding_propagation_to_output
            build.bool(19, true); // use_shardy_partitioner
        }
        if fast == Some(FastPath::Effort) {
            build.int(24, 9); // optimization_level: O0
        }

        let mut options = Message::default();
        options.message(3, &build);
        if self.portable && self.partitions <= 1 {
            options.bool(4, true); // compile_portable_executable
        }
        let built_in: &[(&str, i64)] = match fast {
            Some(FastPath::OldEmitters) => {
                &[("xla_cpu_parallel_codegen_split_count", 1), ("xla_backend_optimization_level", 0)]
            }
            Some(FastPath::Overrides) => &[("xla_backend_optimization_level", 0)],
            Some(FastPath::Effort) | None => &[],
        };
        for (name, value) in built_in {
            if !self.overrides.iter().any(|(own, _)| own == name) {
                options.message(7, &override_entry(name, &OptionValue::Int(*value))?);
            }
        }
        for (name, value) in &self.overrides {
            options.message(7, &override_entry(name, value)?);
        }
        Ok(options.into_bytes())
    }
}

/// A map entry of `env_option_overrides`: name and `OptionOverrideProto`.
fn override_entry(name: &str, value: &OptionValue) -> Result<Message> {
    let mut proto = Message::default();
    match value {
        OptionValue::Str(text) => proto.bytes(1, text.as_bytes()),
        OptionValue::Bool(boolean) => proto.bool(2, *boolean),
        OptionValue::Int(int) => proto.int(3, *int),
        OptionValue::Float(float) => proto.double(4, f64::from(*float)),
        OptionValue::Ints(_) => {
            return Err(Error::Option { name: name.to_owned(), reason: "a compile override cannot be a list" });
        }
    }
    let mut entry = Message::default();
    entry.bytes(1, name.as_bytes());
    entry.message(2, &proto);
    Ok(entry)
}

/// `DebugOptions` that switch the new fusion emitters off.
fn old_emitters() -> Message {
    let mut extra = Message::default();
    extra.bytes(1, b"xla_cpu_disable_new_fusion_emitters");
    extra.bytes(2, b"");
    let mut debug = Message::default();
    debug.message(500, &extra);
    debug
}
