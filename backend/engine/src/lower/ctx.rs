//! What a lowering sees of a call, and what it leaves behind.

use std::collections::{BTreeSet, HashMap};

use smallvec::SmallVec;
use tpulab_stablehlo::{Builder, DType, Dims, Precision, Value};

use super::Number;
use crate::args::ArgRef;
use crate::error::{Error, Result};
use crate::key::{NumberKind, host_number};
use crate::program::ParamSpec;
use crate::registry::Op;
use crate::view::{Plan, Road, Start, View, is_contiguous, numel, unravel};

/// dtype and dims of a storage's value.
#[derive(Clone, Debug)]
pub(crate) struct SlotType {
    pub dtype: DType,
    pub dims: Dims,
}

/// A tensor argument: which storage, and the view of it.
#[derive(Clone, Debug)]
pub(crate) struct TensorInfo {
    pub slot: usize,
    pub view: View,
    pub offset: i64,
    /// Place of the offset among the numbers; `None` for a view that is the whole storage.
    offset_index: Option<usize>,
}

#[derive(Clone, Debug)]
enum Info {
    Tensor(TensorInfo),
    Number(Number),
    List(Vec<Info>),
    Other,
}

/// (argument, element of a list argument)
pub(crate) type Place = (usize, Option<usize>);

pub(crate) struct Ctx<'a> {
    pub b: Builder,
    pub op: &'static Op,
    args: &'a [ArgRef<'a>],
    infos: Vec<Info>,
    slots: Vec<SlotType>,
    /// Parameter of a storage, made on first read; after writes, the new value.
    current: Vec<Option<Value>>,
    read: Vec<Option<Value>>,
    memo: HashMap<Place, Value>,
    flags: u32,
    runtime: bool,
    forced_static: BTreeSet<usize>,
    params: Vec<ParamSpec>,
    number_params: HashMap<(usize, DType), Value>,
    guards: Vec<(usize, Plan)>,
    writes: Vec<(Place, Value)>,
    /// Inside [`Ctx::each`]: the element that list arguments stand for.
    item: Option<usize>,
    /// Inside [`Ctx::each`]: (name a lowering reads, name it has here).
    aliases: &'static [(&'static str, &'static str)],
}

/// What is left of a context once its op is lowered.
pub(crate) struct Finished {
    pub b: Builder,
    pub params: Vec<ParamSpec>,
    pub forced_static: BTreeSet<usize>,
    pub guards: Vec<(usize, Plan)>,
    /// Per storage: read as a parameter, and its new value if written.
    pub written: Vec<(usize, Value)>,
    pub slots: Vec<SlotType>,
}

impl<'a> Ctx<'a> {
    /// `runtime`: numbers become parameters unless the lowering needs them while it builds.
    pub(crate) fn new(
        op: &'static Op,
        args: &'a [ArgRef<'a>],
        slots: Vec<SlotType>,
        slot_of: impl Fn(&crate::TensorRef<'_>) -> usize,
        flags: u32,
        runtime: bool,
    ) -> Result<Self> {
        let mut next_number = 0;
        let infos = args
            .iter()
            .enumerate()
            .map(|(index, arg)| {
                describe(arg, op.is_number(index), &slots, &slot_of, &mut next_number)
            })
            .collect::<Result<Vec<_>>>()?;
        let count = slots.len();
        Ok(Self {
            b: Builder::new(),
            op,
            args,
            infos,
            slots,
            current: vec![None; count],
            read: vec![None; count],
            memo: HashMap::new(),
            flags,
            runtime,
            forced_static: BTreeSet::new(),
            params: Vec::new(),
            number_params: HashMap::new(),
            guards: Vec::new(),
            writes: Vec::new(),
            item: None,
            aliases: &[],
        })
    }

    /// Lowers an op on lists element by element: inside, a list argument reads as its element `item`, and a name
    /// that this op lacks as the first of its aliases that it has.
    pub(crate) fn each<T>(
        &mut self,
        item: usize,
        aliases: &'static [(&'static str, &'static str)],
        lower: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        (self.item, self.aliases) = (Some(item), aliases);
        let lowered = lower(self);
        (self.item, self.aliases) = (None, &[]);
        lowered
    }

    // ---- flags of the call

    pub(crate) fn default_dtype(&self) -> DType {
        DType::from_code((self.flags & 0xff) as u8).unwrap_or(DType::F32)
    }

    /// `torch.get_float32_matmul_precision()`: Highest, High or Default ("medium").
    pub(crate) fn precision(&self) -> Precision {
        match self.flags >> 8 & 3 {
            0 => Precision::Highest,
            1 => Precision::High,
            _ => Precision::Default,
        }
    }

    // ---- arguments by name. A name the overload lacks reads as absent.

    fn index(&self, name: &str) -> Option<usize> {
        self.op.arg(name).or_else(|| {
            let known = self.aliases.iter().filter(|(alias, _)| *alias == name);
            known.into_iter().find_map(|(_, here)| self.op.arg(here))
        })
    }

    fn place(&self, name: &str) -> Option<Place> {
        let index = self.index(name)?;
        let list = matches!(self.infos.get(index), Some(Info::List(_)));
        Some((index, self.item.filter(|_| list)))
    }

    fn info(&self, place: Place) -> Option<&Info> {
        match (self.infos.get(place.0)?, place.1) {
            (Info::List(items), Some(item)) => items.get(item),
            (info, _) => Some(info),
        }
    }

    fn arg(&self, name: &str) -> Option<&'a ArgRef<'a>> {
        let place = self.place(name)?;
        match (self.args.get(place.0)?, place.1) {
            (ArgRef::List(items), Some(item)) => items.get(item),
            (arg, _) => Some(arg),
        }
    }

    /// Number of elements of a list argument.
    pub(crate) fn len(&self, name: &str) -> Option<usize> {
        match self.infos.get(self.index(name)?)? {
            Info::List(items) => Some(items.len()),
            _ => None,
        }
    }

    fn missing(&self, name: &str, what: &str) -> Error {
        Error::runtime(format!("argument '{name}' must be {what}"))
    }

    /// Present and not None.
    pub(crate) fn has(&self, name: &str) -> bool {
        !matches!(self.arg(name), None | Some(ArgRef::None))
    }

    pub(crate) fn overload(&self) -> &str {
        &self.op.schema.overload
    }

    /// The op's base name, without the in-place underscore.
    pub(crate) fn base_name(&self) -> &str {
        let name = self.op.schema.name.as_str();
        if name.ends_with("__") {
            name
        } else {
            name.strip_suffix('_').unwrap_or(name)
        }
    }

    pub(crate) fn int(&self, name: &str) -> Result<i64> {
        self.opt_int(name)?
            .ok_or_else(|| self.missing(name, "an int"))
    }

    pub(crate) fn opt_int(&self, name: &str) -> Result<Option<i64>> {
        match self.arg(name) {
            None | Some(ArgRef::None) => Ok(None),
            Some(ArgRef::Int(value)) => Ok(Some(*value)),
            Some(ArgRef::Bool(value)) => Ok(Some(i64::from(*value))),
            // An optional SymInt list of one, as a plain int.
            Some(ArgRef::Ints([value])) => Ok(Some(*value)),
            Some(_) => Err(self.missing(name, "an int")),
        }
    }

    /// An int list; a single int counts as a list of one.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.opt_ints(name)?
            .ok_or_else(|| self.missing(name, "a list of ints"))
    }

    pub(crate) fn opt_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.arg(name) {
            None | Some(ArgRef::None) => Ok(None),
            Some(ArgRef::Ints(values)) => Ok(Some(values.to_vec())),
            Some(ArgRef::Int(value)) => Ok(Some(vec![*value])),
            Some(ArgRef::List(items)) if items.is_empty() => Ok(Some(Vec::new())),
            Some(_) => Err(self.missing(name, "a list of ints")),
        }
    }

    pub(crate) fn bools(&self, name: &str) -> Result<Vec<bool>> {
        match self.arg(name) {
            Some(ArgRef::Bools(values)) => Ok(values.iter().map(|&v| v != 0).collect()),
            _ => Err(self.missing(name, "a list of bools")),
        }
    }

    /// False when absent.
    pub(crate) fn bool(&self, name: &str) -> Result<bool> {
        match self.arg(name) {
            None | Some(ArgRef::None) => Ok(false),
            Some(ArgRef::Bool(value)) => Ok(*value),
            Some(ArgRef::Int(value)) => Ok(*value != 0),
            Some(_) => Err(self.missing(name, "a bool")),
        }
    }

    pub(crate) fn opt_str(&self, name: &str) -> Option<&'a str> {
        match self.arg(name) {
            Some(ArgRef::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// A dtype argument.
    pub(crate) fn opt_dtype(&self, name: &str) -> Result<Option<DType>> {
        let Some(code) = self.opt_int(name)? else {
            return Ok(None);
        };
        let known = u8::try_from(code).ok().and_then(DType::from_code);
        known
            .map(Some)
            .ok_or_else(|| Error::not_lowered(format!("dtype code {code}")))
    }

    // ---- numbers

    pub(crate) fn number(&self, name: &str) -> Result<Number> {
        self.opt_number(name)?
            .ok_or_else(|| self.missing(name, "a number"))
    }

    /// A Python number, or a CPU tensor without dims, given for this argument.
    pub(crate) fn opt_number(&self, name: &str) -> Result<Option<Number>> {
        let info = self.place(name).and_then(|place| self.info(place));
        Ok(match info {
            Some(Info::Number(number)) => Some(*number),
            _ => None,
        })
    }

    /// The number as a 0-d value: a constant, or a parameter once it is known to change.
    pub(crate) fn number_value(&mut self, number: &Number, dtype: DType) -> Result<Value> {
        let Some(index) = number
            .index
            .filter(|index| self.runtime && !self.forced_static.contains(index))
        else {
            return self.constant(number, dtype);
        };
        if dtype.is_complex() {
            self.forced_static.insert(index);
            return self.constant(number, dtype);
        }
        if let Some(value) = self.number_params.get(&(index, dtype)) {
            return Ok(value.clone());
        }
        self.params.push(ParamSpec::Number {
            index,
            kind: number.kind,
            dtype,
        });
        let value = self.b.param(dtype, &[]);
        self.number_params.insert((index, dtype), value.clone());
        Ok(value)
    }

    fn constant(&mut self, number: &Number, dtype: DType) -> Result<Value> {
        if number.kind == NumberKind::Float && !dtype.is_float() && !dtype.is_complex() {
            let float = number.as_f64();
            let scalar = if dtype == DType::Bool {
                i64::from(float != 0.0)
            } else {
                float as i64
            };
            return Ok(self.b.scalar(dtype, scalar)?);
        }
        if number.kind == NumberKind::Int && dtype == DType::Bool {
            return Ok(self.b.scalar(dtype, number.bits != 0)?);
        }
        if number.kind == NumberKind::Int && dtype.is_int() {
            // Out of range wraps, as a C cast does.
            let (bytes, size) = super::encode(number.kind, number.bits, dtype)?;
            let mut wide = [if dtype.is_signed() && bytes[size - 1] & 0x80 != 0 {
                0xff
            } else {
                0
            }; 8];
            wide[..size].copy_from_slice(&bytes[..size]);
            if dtype == DType::U64 {
                return Ok(self.b.scalar(dtype, u64::from_le_bytes(wide))?);
            }
            return Ok(self.b.scalar(dtype, i64::from_le_bytes(wide))?);
        }
        Ok(self.b.scalar(dtype, number.scalar())?)
    }

    /// The number's value while building: it becomes part of the key for good.
    pub(crate) fn pin(&mut self, number: &Number) -> f64 {
        self.forced_static.extend(number.index);
        number.as_f64()
    }

    /// [`Ctx::pin`] by name; `None` if absent.
    pub(crate) fn static_number(&mut self, name: &str) -> Result<Option<f64>> {
        Ok(self.opt_number(name)?.map(|number| self.pin(&number)))
    }

    /// The number given for `name` as a 0-d value, or `default`.
    pub(crate) fn scalar_or(&mut self, name: &str, default: f64, dtype: DType) -> Result<Value> {
        let number = self.opt_number(name)?.unwrap_or(Number::float(default));
        self.number_value(&number, dtype)
    }

    // ---- tensors

    /// Info of a tensor argument, without reading it.
    pub(crate) fn tensor_info(&self, place: Place) -> Option<&TensorInfo> {
        match self.info(place)? {
            Info::Tensor(info) => Some(info),
            _ => None,
        }
    }

    /// (dtype, sizes) of a tensor argument, without reading it.
    pub(crate) fn type_of(&self, name: &str) -> Option<(DType, Dims)> {
        let info = self.tensor_info(self.place(name)?)?;
        Some((info.view.dtype, info.view.sizes.clone()))
    }

    /// (sizes, strides) of all operands that are not `out=`, for the layout of new outputs. As in torch, a number
    /// beside tensors is an operand without dims.
    pub(crate) fn operand_layouts(&self) -> Vec<(Dims, Dims)> {
        let mut layouts = Vec::new();
        for (index, info) in self.infos.iter().enumerate() {
            let Some(schema) = self.op.schema.args.get(index).filter(|arg| !arg.out) else {
                continue;
            };
            let from_host = matches!(self.args.get(index), Some(ArgRef::Host(_)));
            match info {
                Info::Tensor(info) => {
                    layouts.push((info.view.sizes.clone(), info.view.strides.clone()))
                }
                Info::Number(_) if from_host || schema.name == "other" => {
                    layouts.push((Dims::new(), Dims::new()));
                }
                _ => {}
            }
        }
        layouts
    }

    pub(crate) fn layout_of(&self, name: &str) -> Option<(Dims, Dims)> {
        let info = self.tensor_info(self.place(name)?)?;
        Some((info.view.sizes.clone(), info.view.strides.clone()))
    }

    /// The same of an element of a list argument.
    pub(crate) fn layout_of_item(&self, name: &str, item: usize) -> Option<(Dims, Dims)> {
        let info = self.tensor_info((self.index(name)?, Some(item)))?;
        Some((info.view.sizes.clone(), info.view.strides.clone()))
    }

    /// A tensor argument as the op sees it: its own sizes and dtype. A CPU scalar counts as a 0-d tensor.
    pub(crate) fn tensor(&mut self, name: &str) -> Result<Value> {
        self.opt_tensor(name)?
            .ok_or_else(|| self.missing(name, "a tensor"))
    }

    pub(crate) fn opt_tensor(&mut self, name: &str) -> Result<Option<Value>> {
        let Some(place) = self.place(name) else {
            return Ok(None);
        };
        match self.info(place) {
            Some(Info::Tensor(_)) => self.read(place).map(Some),
            Some(Info::Number(number)) => {
                let number = *number;
                let dtype = number.dtype(self.default_dtype());
                self.number_value(&number, dtype).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A tensor list; undefined elements are None.
    pub(crate) fn opt_tensors(&mut self, name: &str) -> Result<Vec<Option<Value>>> {
        let Some(index) = self.index(name) else {
            return Ok(Vec::new());
        };
        let count = match self.infos.get(index) {
            Some(Info::List(items)) => items.len(),
            Some(Info::Tensor(_)) => return Ok(vec![Some(self.read((index, None))?)]),
            _ => 0,
        };
        (0..count)
            .map(|item| {
                if self.tensor_info((index, Some(item))).is_some() {
                    return self.read((index, Some(item))).map(Some);
                }
                // A CPU tensor without dims.
                let number = match self.infos.get(index) {
                    Some(Info::List(items)) => match items.get(item) {
                        Some(Info::Number(number)) => *number,
                        _ => return Ok(None),
                    },
                    _ => return Ok(None),
                };
                let dtype = number.dtype(self.default_dtype());
                self.number_value(&number, dtype).map(Some)
            })
            .collect()
    }

    pub(crate) fn tensors(&mut self, name: &str) -> Result<Vec<Value>> {
        let listed = self.opt_tensors(name)?;
        listed
            .into_iter()
            .map(|t| t.ok_or_else(|| self.missing(name, "a list of tensors")))
            .collect()
    }

    fn read(&mut self, place: Place) -> Result<Value> {
        if let Some(value) = self.memo.get(&place) {
            return Ok(value.clone());
        }
        let info = self
            .tensor_info(place)
            .cloned()
            .ok_or_else(|| Error::runtime("no tensor at this argument"))?;
        let slot = self.slots[info.slot].clone();
        let plan = plan(&slot, &info)?;
        let value = if plan.road == Road::Empty {
            self.b.splat(info.view.dtype, 0i64, &info.view.sizes)?
        } else {
            let base = self.base(info.slot);
            let start = self.start(&info, &plan)?;
            plan.read(&mut self.b, &base, &info.view, &start)?
        };
        self.memo.insert(place, value.clone());
        Ok(value)
    }

    /// The storage's value on entry, as a parameter.
    fn base(&mut self, slot: usize) -> Value {
        if let Some(value) = &self.read[slot] {
            return value.clone();
        }
        let SlotType { dtype, dims } = self.slots[slot].clone();
        self.params.push(ParamSpec::Slot(slot));
        let value = self.b.param(dtype, &dims);
        self.read[slot] = Some(value.clone());
        value
    }

    fn start(&mut self, info: &TensorInfo, plan: &Plan) -> Result<Start> {
        let changing = info
            .offset_index
            .filter(|index| self.runtime && !self.forced_static.contains(index));
        let Some(index) = changing.filter(|_| matches!(plan.road, Road::Box | Road::Gather)) else {
            return Ok(Start::Static(info.offset));
        };
        let number = Number {
            index: Some(index),
            kind: NumberKind::Int,
            bits: info.offset as u64,
            host: None,
        };
        let offset = match plan.road {
            Road::Gather => self.number_value(&number, DType::I64)?,
            _ => self.b.scalar(DType::I64, 0i64)?,
        };
        let mut starts = Vec::new();
        if plan.road == Road::Box {
            for axis in 0..plan.frame.len() {
                let whole = plan.count[axis] == plan.frame[axis] && plan.step[axis] == 1;
                if whole {
                    starts.push(self.b.scalar(DType::I64, 0i64)?);
                } else {
                    self.params.push(ParamSpec::Start {
                        index,
                        frame: plan.frame.clone(),
                        axis,
                    });
                    starts.push(self.b.param(DType::I64, &[]));
                }
            }
        }
        self.guards.push((index, plan.clone()));
        Ok(Start::Runtime { offset, starts })
    }

    /// State of the op's random stream, u64\[3\]: distinct for every draw of the generator.
    pub(crate) fn rng_state(&mut self) -> Value {
        self.params.push(ParamSpec::Rng);
        self.b.param(DType::U64, &[3])
    }

    // ---- writes

    /// Writes into an argument beside the op's results (running statistics, optimizer state).
    pub(crate) fn write(&mut self, name: &str, item: Option<usize>, value: Value) -> Result<()> {
        let index = self
            .index(name)
            .ok_or_else(|| self.missing(name, "a tensor"))?;
        self.writes.push(((index, item), value));
        Ok(())
    }

    /// Tensor arguments the schema marks as written, in order.
    pub(crate) fn written_places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (index, arg) in self.op.schema.args.iter().enumerate() {
            if !arg.written {
                continue;
            }
            match self.infos.get(index) {
                Some(Info::Tensor(_)) => places.push((index, None)),
                Some(Info::List(items)) => {
                    places.extend((0..items.len()).map(|item| (index, Some(item))));
                }
                _ => {}
            }
        }
        places
    }

    pub(crate) fn take_writes(&mut self) -> Vec<(Place, Value)> {
        std::mem::take(&mut self.writes)
    }

    /// Puts `value`, of the argument's sizes and dtype, into its storage.
    pub(crate) fn store(&mut self, place: Place, value: &Value) -> Result<()> {
        let info = self
            .tensor_info(place)
            .cloned()
            .ok_or_else(|| Error::runtime("no tensor to write to"))?;
        if overlaps(&info.view) {
            return Err(Error::runtime(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                 location. Please clone() the tensor before performing the operation.",
            ));
        }
        let slot = self.slots[info.slot].clone();
        let plan = plan(&slot, &info)?;
        if plan.road == Road::Empty {
            return Ok(());
        }
        let start = self.start(&info, &plan)?;
        let old = match &self.current[info.slot] {
            Some(value) => Some(value.clone()),
            None if plan.covers(&start) => None,
            None => Some(self.base(info.slot)),
        };
        let new = plan.write(
            &mut self.b,
            old.as_ref(),
            (slot.dtype, &slot.dims),
            value,
            &info.view,
            &start,
        )?;
        self.current[info.slot] = Some(new);
        Ok(())
    }

    pub(crate) fn finish(self) -> Finished {
        let written = self
            .current
            .into_iter()
            .enumerate()
            .filter_map(|(slot, v)| Some((slot, v?)))
            .collect();
        Finished {
            b: self.b,
            params: self.params,
            forced_static: self.forced_static,
            guards: self.guards,
            written,
            slots: self.slots,
        }
    }
}

fn plan(slot: &SlotType, info: &TensorInfo) -> Result<Plan> {
    let total = numel(&slot.dims) * slot.dtype.size() as i64 / info.view.dtype.size() as i64;
    if numel(&info.view.sizes) > 0 {
        let last: i64 = info
            .view
            .sizes
            .iter()
            .zip(&info.view.strides)
            .map(|(n, s)| (n - 1) * s)
            .sum();
        if info.offset + last >= total {
            return Err(Error::runtime(format!(
                "a view of sizes {:?}, strides {:?} and offset {} reaches beyond its storage of {total} elements",
                info.view.sizes.as_slice(),
                info.view.strides.as_slice(),
                info.offset
            )));
        }
    }
    let flat = [total];
    let base: &[i64] = if slot.dtype == info.view.dtype {
        &slot.dims
    } else {
        &flat
    };
    Ok(Plan::new(base, &info.view, info.offset))
}

/// Whether two elements of the view surely share memory (a broadcast dim), which a write cannot serve.
fn overlaps(view: &View) -> bool {
    view.sizes
        .iter()
        .zip(&view.strides)
        .any(|(&size, &stride)| size > 1 && stride == 0)
}

fn describe<'a>(
    arg: &ArgRef<'a>,
    number: bool,
    slots: &[SlotType],
    slot_of: &impl Fn(&crate::TensorRef<'_>) -> usize,
    next_number: &mut usize,
) -> Result<Info> {
    let mut take = || {
        *next_number += 1;
        Some(*next_number - 1)
    };
    Ok(match arg {
        ArgRef::Tensor(tensor) => {
            let slot = slot_of(tensor);
            let identity = tensor.offset == 0
                && tensor.dtype == slots[slot].dtype
                && tensor.sizes == slots[slot].dims.as_slice()
                && is_contiguous(tensor.sizes, tensor.strides);
            let view = View {
                sizes: SmallVec::from_slice(tensor.sizes),
                strides: SmallVec::from_slice(tensor.strides),
                dtype: tensor.dtype,
            };
            let offset_index = if identity { None } else { take() };
            Info::Tensor(TensorInfo {
                slot,
                view,
                offset: tensor.offset,
                offset_index,
            })
        }
        ArgRef::Host(host) => {
            let (kind, bits) = host_number(host)?;
            Info::Number(Number {
                index: take(),
                kind,
                bits,
                host: (!host.wrapped).then_some(host.dtype),
            })
        }
        ArgRef::Int(value) if number => Info::Number(Number {
            index: take(),
            ..Number::int(*value)
        }),
        ArgRef::Float(value) if number => Info::Number(Number {
            index: take(),
            ..Number::float(*value)
        }),
        ArgRef::Bool(value) if number => Info::Number(Number::boolean(*value)),
        ArgRef::Float(value) => Info::Number(Number::float(*value)),
        ArgRef::List(items) => Info::List(
            items
                .iter()
                .map(|item| describe(item, number, slots, slot_of, next_number))
                .collect::<Result<_>>()?,
        ),
        _ => Info::Other,
    })
}

/// Start of a view on one axis of its frame.
pub(crate) fn start_on_axis(offset: i64, frame: &[i64], axis: usize) -> i64 {
    unravel(offset, frame)[axis]
}
