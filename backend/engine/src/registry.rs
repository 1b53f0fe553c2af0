//! Ops: their schemas as the caller registers them, and the lowering each base name has.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use parking_lot::Mutex;
use tpulab_stablehlo::Value;

use crate::args::ArgRef;
use crate::error::{Error, Result};
use crate::lower::Ctx;
use crate::tensor::HostCtx;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub u32);

#[derive(Clone, Debug, Default)]
pub struct ArgSchema {
    pub name: String,
    /// The op writes into this tensor (or these tensors).
    pub written: bool,
    /// A number that may differ from call to call: a Scalar, or a float.
    pub number: bool,
    /// A keyword-only `out=` tensor.
    pub out: bool,
}

#[derive(Clone, Debug)]
pub struct ReturnSchema {
    /// The argument this return is.
    pub alias: Option<usize>,
    pub list: bool,
}

#[derive(Clone, Debug)]
pub struct Schema {
    /// Without the namespace `aten::`; others keep theirs.
    pub name: String,
    pub overload: String,
    pub args: Vec<ArgSchema>,
    pub returns: Vec<ReturnSchema>,
}

#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    pub id: OpId,
    pub lowered: bool,
    pub reads_precision: bool,
}

/// One value per output; `None` is an undefined tensor.
pub(crate) type Lowered = Vec<Option<Value>>;
pub(crate) type LowerFn = fn(&mut Ctx<'_>) -> Result<Lowered>;
/// Ops whose result shape depends on data: they run programs and read counts.
pub(crate) type HostFn = fn(&mut HostCtx<'_>) -> Result<Vec<crate::Tensor>>;
pub(crate) type HostWhen = fn(&[ArgRef<'_>]) -> bool;

#[derive(Clone, Copy)]
pub(crate) enum Lowering {
    Program(LowerFn),
    Host(HostFn),
}

/// Strides of new outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    #[default]
    Contiguous,
    /// As torch's TensorIterator orders them after the operands.
    Pointwise,
    /// The dense strides of this argument, as `empty_like` keeps them.
    Like(&'static str),
    /// Of each output of a list, those of the same element of this argument.
    LikeEach(&'static str),
    /// channels_last if one of these arguments is, else contiguous.
    ChannelsLast(&'static [&'static str]),
}

#[derive(Clone)]
pub(crate) struct OpDef {
    pub lowering: Lowering,
    pub layout: Layout,
    /// Draws from a generator.
    pub random: bool,
    pub reads_precision: bool,
    /// In-place forms may cast to self's dtype whatever the promotion says.
    pub casts: bool,
    /// CPU tensors among the arguments are uploaded (indices).
    pub uploads: bool,
    /// Numbers are parameters of the first program already: they often change, and programs are dear.
    pub changing: bool,
    /// Calls that need values on the host though the op's others are programs (indexing by a mask).
    pub host_when: Option<(HostWhen, HostFn)>,
}

impl OpDef {
    pub(crate) fn pointwise(&mut self) -> &mut Self {
        self.layout = Layout::Pointwise;
        self
    }
    pub(crate) fn like(&mut self, arg: &'static str) -> &mut Self {
        self.layout = Layout::Like(arg);
        self
    }
    pub(crate) fn like_each(&mut self, arg: &'static str) -> &mut Self {
        self.layout = Layout::LikeEach(arg);
        self
    }
    pub(crate) fn channels_last(&mut self, args: &'static [&'static str]) -> &mut Self {
        self.layout = Layout::ChannelsLast(args);
        self
    }
    pub(crate) fn random(&mut self) -> &mut Self {
        self.random = true;
        self
    }
    pub(crate) fn reads_precision(&mut self) -> &mut Self {
        self.reads_precision = true;
        self
    }
    pub(crate) fn casts(&mut self) -> &mut Self {
        self.casts = true;
        self
    }
    pub(crate) fn changing(&mut self) -> &mut Self {
        self.changing = true;
        self
    }
    pub(crate) fn uploads(&mut self) -> &mut Self {
        self.uploads = true;
        self
    }
    pub(crate) fn host_when(&mut self, when: HostWhen, run: HostFn) -> &mut Self {
        self.host_when = Some((when, run));
        self
    }
    /// What reads values on the host for this call, if anything does.
    #[inline]
    pub(crate) fn host(&self, args: &[ArgRef<'_>]) -> Option<HostFn> {
        match (self.lowering, self.host_when) {
            (Lowering::Host(run), _) => Some(run),
            (_, Some((when, run))) if when(args) => Some(run),
            _ => None,
        }
    }
}

#[derive(Default)]
pub(crate) struct Registry {
    defs: HashMap<&'static str, OpDef>,
    direct: Vec<&'static str>,
}

impl Registry {
    /// Lowers every overload of base name `name`: functional, in-place (`name_`) and `out=`.
    pub(crate) fn op(&mut self, name: &'static str, lower: LowerFn) -> &mut OpDef {
        self.def(name, Lowering::Program(lower))
    }

    pub(crate) fn host_op(&mut self, name: &'static str, run: HostFn) -> &mut OpDef {
        self.def(name, Lowering::Host(run))
    }

    fn def(&mut self, name: &'static str, lowering: Lowering) -> &mut OpDef {
        let def = OpDef {
            lowering,
            layout: Layout::Contiguous,
            random: false,
            reads_precision: false,
            casts: false,
            uploads: false,
            changing: false,
            host_when: None,
        };
        self.defs.insert(name, def);
        self.defs.entry(name).or_insert_with(|| unreachable!())
    }

    /// Forms ("add.Tensor") to take over from torch's composite kernels.
    pub(crate) fn direct(&mut self, names: &[&'static str]) {
        self.direct.extend_from_slice(names);
    }

    /// The lowering of base name `name`.
    pub(crate) fn lowering(&self, name: &str) -> Option<LowerFn> {
        match self.defs.get(name)?.lowering {
            Lowering::Program(lower) => Some(lower),
            Lowering::Host(_) => None,
        }
    }

    fn find(&self, name: &str) -> Option<OpDef> {
        if let Some(def) = self.defs.get(name) {
            return Some(def.clone());
        }
        // `add_` is `add` written into self; dunder names are names of their own.
        let base = name.strip_suffix('_').filter(|_| !name.ends_with("__"))?;
        self.defs.get(base).cloned()
    }
}

pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::default();
    crate::ops::register(&mut registry);
    registry
});

/// A registered op.
pub(crate) struct Op {
    pub id: OpId,
    pub schema: Schema,
    pub def: Option<OpDef>,
    numbers: u64,
    all_numbers: Vec<bool>,
}

impl Op {
    #[inline]
    pub(crate) fn is_number(&self, arg: usize) -> bool {
        if arg < 64 {
            self.numbers >> arg & 1 == 1
        } else {
            self.all_numbers.get(arg).copied().unwrap_or(false)
        }
    }

    pub(crate) fn arg(&self, name: &str) -> Option<usize> {
        self.schema.args.iter().position(|arg| arg.name == name)
    }

    pub(crate) fn label(&self) -> String {
        if self.schema.overload.is_empty() {
            self.schema.name.clone()
        } else {
            format!("{}.{}", self.schema.name, self.schema.overload)
        }
    }
}

const MAX_OPS: usize = 16 * 1024;
/// Read without a lock on every call; filled under `BY_LABEL`'s.
static TABLE: [OnceLock<&'static Op>; MAX_OPS] = [const { OnceLock::new() }; MAX_OPS];
static BY_LABEL: LazyLock<Mutex<HashMap<(String, String), &'static Op>>> =
    LazyLock::new(Mutex::default);

/// Registers a schema once; later calls with the same name return the same id. Ops live as long as the process.
pub fn register_op(schema: Schema) -> Result<OpInfo> {
    Ok(info(register(schema)?))
}

fn register(schema: Schema) -> Result<&'static Op> {
    let mut known = BY_LABEL.lock();
    let label = (schema.name.clone(), schema.overload.clone());
    if let Some(op) = known.get(&label) {
        return Ok(op);
    }
    let id = known.len();
    let full = || Error::runtime(format!("more than {MAX_OPS} operators are registered"));
    let slot = TABLE.get(id).ok_or_else(full)?;
    let all_numbers: Vec<bool> = schema.args.iter().map(|arg| arg.number).collect();
    let numbers = all_numbers
        .iter()
        .take(64)
        .enumerate()
        .fold(0, |bits, (i, &n)| bits | u64::from(n) << i);
    let def = REGISTRY.find(&schema.name);
    let op: &'static Op = Box::leak(Box::new(Op {
        id: OpId(id as u32),
        schema,
        def,
        numbers,
        all_numbers,
    }));
    known.insert(label, op);
    Ok(slot.get_or_init(|| op))
}

fn info(op: &Op) -> OpInfo {
    OpInfo {
        id: op.id,
        lowered: op.def.is_some(),
        reads_precision: op.def.as_ref().is_some_and(|def| def.reads_precision),
    }
}

#[inline]
pub(crate) fn op(id: OpId) -> Option<&'static Op> {
    TABLE
        .get(id.0 as usize)
        .and_then(|slot| slot.get().copied())
}

/// Forms the torch bridge registers by name.
pub fn direct_ops() -> &'static [&'static str] {
    &REGISTRY.direct
}

/// Base names with a lowering, sorted.
pub(crate) fn lowered_names() -> Vec<&'static str> {
    let mut names: Vec<_> = REGISTRY.defs.keys().copied().collect();
    names.sort_unstable();
    names
}

/// An op that only the engine calls, registered on first use. An argument `#name` is a number that may change.
pub(crate) fn internal(name: &'static str, args: &[&str], returns: usize) -> Result<&'static Op> {
    register(Schema {
        name: name.to_owned(),
        overload: "internal".to_owned(),
        args: args
            .iter()
            .map(|name| ArgSchema {
                name: name.trim_start_matches('#').to_owned(),
                number: name.starts_with('#'),
                ..ArgSchema::default()
            })
            .collect(),
        returns: (0..returns)
            .map(|_| ReturnSchema {
                alias: None,
                list: false,
            })
            .collect(),
    })
}

/// `copy_(self, src, non_blocking)`, for the engine's own copies.
pub(crate) fn copy_op() -> Result<&'static Op> {
    static OP: OnceLock<&'static Op> = OnceLock::new();
    if let Some(op) = OP.get() {
        return Ok(op);
    }
    let arg = |name: &str, written| ArgSchema {
        name: name.to_owned(),
        written,
        ..ArgSchema::default()
    };
    let op = register(Schema {
        name: "copy_".to_owned(),
        overload: String::new(),
        args: vec![
            arg("self", true),
            arg("src", false),
            arg("non_blocking", false),
        ],
        returns: vec![ReturnSchema {
            alias: Some(0),
            list: false,
        }],
    })?;
    Ok(OP.get_or_init(|| op))
}
