//! Compile options and their encoding as `CompileOptionsProto`.

mod proto;

use crate::error::{Error, Result};
use proto::{Field, Message};

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

/// Whose options are written: plugins differ in what they know and in what `fast` can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// XLA's CPU compiler.
    Cpu {
        /// Its default `DebugOptions` with the switch to the old emitters, where they are wanted and known.
        ///
        /// The switch is an entry of a map, which no override can express, so it travels in a whole `DebugOptions`.
        /// XLA takes that message for complete: a field left out is zero, not its default, and zero changes buffer
        /// assignment, threads in matmul, and rounding. Hence it starts from the plugin's own defaults.
        old_emitters: Option<Vec<u8>>,
    },
    /// Any other compiler.
    Other,
}

impl Target {
    /// The CPU target with the old emitters, from any optimised program (a `HloModuleProtoWithConfig`) that was
    /// compiled with default options.
    pub(crate) fn with_old_emitters(hlo: &[u8]) -> Self {
        const CONFIG: u32 = 2;
        const DEBUG_OPTIONS: u32 = 14;
        const BACKEND_OPTIMIZATION_LEVEL: u32 = 31;
        let defaults = proto::find(hlo, CONFIG)
            .and_then(Field::bytes)
            .and_then(|config| proto::find(config, DEBUG_OPTIONS))
            .and_then(Field::bytes)
            // A field that every XLA sets, as a sign that these are the options and all of them.
            .filter(|debug| proto::find(debug, BACKEND_OPTIMIZATION_LEVEL).is_some());
        Self::Cpu {
            old_emitters: defaults.map(without_new_emitters),
        }
    }

    /// Overrides by flag name.
    fn overrides(&self, fast: bool) -> Vec<(&'static str, OptionValue)> {
        let Self::Cpu { old_emitters } = self else {
            return Vec::new();
        };
        // By default XLA's CPU minimum and maximum swallow NaN, against StableHLO and torch.
        let mut overrides = vec![("xla_cpu_enable_fast_min_max", OptionValue::Bool(false))];
        if fast {
            overrides.push(("xla_backend_optimization_level", OptionValue::Int(0)));
        }
        if fast && old_emitters.is_some() {
            overrides.push(("xla_cpu_parallel_codegen_split_count", OptionValue::Int(1)));
        }
        overrides
    }
}

/// `DebugOptions` with one more entry in `xla_backend_extra_options`. Concatenation merges protobuf messages.
fn without_new_emitters(defaults: &[u8]) -> Vec<u8> {
    let mut extra = Message::default();
    extra.bytes(1, b"xla_cpu_disable_new_fusion_emitters");
    extra.bytes(2, b"");
    let mut debug = Message::default();
    debug.message(500, &extra);
    [defaults, &debug.into_bytes()].concat()
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
        Self {
            partitions: 1,
            portable: true,
            fast: false,
            overrides: Vec::new(),
            debug_options: None,
        }
    }
}

impl CompileOptions {
    /// The bytes of the `CompileOptionsProto`; an override that is a list is an error.
    pub(crate) fn encode(&self, target: &Target) -> Result<Vec<u8>> {
        let mut build = Message::default();
        match (&self.debug_options, target) {
            (Some(own), _) => build.bytes(3, own),
            (
                None,
                Target::Cpu {
                    old_emitters: Some(debug_options),
                },
            ) if self.fast => build.bytes(3, debug_options),
            _ => {}
        }
        // Left at zero, these two make the plugin abort.
        build.int(4, 1);
        build.int(5, i64::try_from(self.partitions.max(1)).unwrap_or(i64::MAX));
        if self.partitions > 1 {
            build.bool(6, true); // use_spmd_partitioning
            build.bytes(12, &[1]); // allow_spmd_sharding_propagation_to_output
            build.bool(19, true); // use_shardy_partitioner
        }
        if self.fast && *target == Target::Other {
            build.int(24, 9); // optimization_level: O0
        }

        let mut options = Message::default();
        options.message(3, &build);
        if self.portable && self.partitions <= 1 {
            options.bool(4, true); // compile_portable_executable
        }
        for (name, value) in target.overrides(self.fast) {
            if !self.overrides.iter().any(|(own, _)| own == name) {
                options.message(7, &override_entry(name, &value)?);
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
            return Err(Error::Option {
                name: name.to_owned(),
                reason: "a compile override cannot be a list",
            });
        }
    }
    let mut entry = Message::default();
    entry.bytes(1, name.as_bytes());
    entry.message(2, &proto);
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Target = Target::Cpu { old_emitters: None };

    fn encode(options: &CompileOptions, target: &Target) -> Vec<u8> {
        options.encode(target).unwrap()
    }

    fn count(bytes: &[u8], name: &str) -> usize {
        bytes
            .windows(name.len())
            .filter(|window| *window == name.as_bytes())
            .count()
    }

    #[test]
    fn the_default_is_one_portable_partition() {
        let bytes = encode(&CompileOptions::default(), &Target::Other);
        assert_eq!(bytes, [0x1a, 4, 0x20, 1, 0x28, 1, 0x20, 1]);
    }

    #[test]
    fn partitions_use_shardy_and_are_not_portable() {
        let options = CompileOptions {
            partitions: 8,
            ..CompileOptions::default()
        };
        let expected = [0x1a, 12, 0x20, 1, 0x28, 8, 0x30, 1, 0x62, 1, 1, 0x98, 1, 1];
        assert_eq!(encode(&options, &Target::Other), expected);
    }

    #[test]
    fn fast_means_what_the_target_can() {
        let fast = CompileOptions {
            fast: true,
            ..CompileOptions::default()
        };
        assert_eq!(
            encode(&fast, &Target::Other),
            [0x1a, 7, 0x20, 1, 0x28, 1, 0xc0, 1, 9, 0x20, 1]
        );

        let plain = encode(&fast, &CPU);
        assert_eq!(count(&plain, "xla_backend_optimization_level"), 1);
        assert_eq!(count(&plain, "xla_cpu_parallel_codegen_split_count"), 0);

        let hlo = [0x12, 5, 0x72, 3, 0xf8, 1, 3]; // config { debug_options { backend_optimization_level: 3 } }
        let old = Target::with_old_emitters(&hlo);
        let bytes = encode(&fast, &old);
        assert_eq!(count(&bytes, "xla_cpu_disable_new_fusion_emitters"), 1);
        assert_eq!(count(&bytes, "xla_cpu_parallel_codegen_split_count"), 1);
        assert_eq!(
            encode(&CompileOptions::default(), &old),
            encode(&CompileOptions::default(), &CPU)
        );
    }

    #[test]
    fn own_overrides_win_over_built_in_ones() {
        let name = "xla_backend_optimization_level";
        let overrides = vec![(name.to_owned(), OptionValue::Int(2))];
        let bytes = encode(
            &CompileOptions {
                fast: true,
                overrides,
                ..CompileOptions::default()
            },
            &CPU,
        );
        assert_eq!(count(&bytes, name), 1);
    }

    #[test]
    fn a_list_is_no_override() {
        let overrides = vec![("x".into(), OptionValue::Ints(vec![1]))];
        let options = CompileOptions {
            overrides,
            ..CompileOptions::default()
        };
        assert!(matches!(options.encode(&CPU), Err(Error::Option { name, .. }) if name == "x"));
    }

    #[test]
    fn unreadable_defaults_leave_the_overrides() {
        assert_eq!(Target::with_old_emitters(b""), CPU);
        assert_eq!(Target::with_old_emitters(b"\x12\xff"), CPU);
        assert_eq!(Target::with_old_emitters(&[0x12, 2, 0x72, 0]), CPU);
    }
}
