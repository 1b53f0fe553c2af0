//! A compiled program: how its parameters are found in a call, and where its results go.

use std::sync::Arc;

use smallvec::SmallVec;
use tpulab_pjrt::Executable;
use tpulab_stablehlo::{DType, Dims, Value};

use crate::args::{ArgRef, TensorRef};
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::key::{Analysis, NumberKind};
use crate::layout;
use crate::lower::{Ctx, Finished, SlotType};
use crate::promote::can_cast;
use crate::registry::{Layout, LowerFn, Lowered, Op, OpDef};
use crate::runtime::Runtime;
use crate::view::{Plan, numel, row_major};

/// Elements of the largest value of a program that counts as quick.
const QUICK_BELOW: i64 = 2 * 1024;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ParamSpec {
    /// The value of a storage.
    Slot(usize),
    /// A number of the call as a 0-d value.
    Number {
        index: usize,
        kind: NumberKind,
        dtype: DType,
    },
    /// Start of a view on one axis of its frame, from its offset.
    Start {
        index: usize,
        frame: Dims,
        axis: usize,
    },
    /// State of the random stream.
    Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutKind {
    /// A new tensor on a new cell.
    New,
    /// Argument `arg` (element `item` of a list) itself.
    Arg,
    Undefined,
    /// The `out=` argument `arg`, of another size, takes this new storage.
    Take,
}

/// One output of a call.
#[derive(Clone, Debug)]
pub struct OutDesc {
    pub kind: OutKind,
    /// Index of the return it belongs to; outputs of one list return share it.
    pub ret: usize,
    pub arg: Option<usize>,
    pub item: Option<usize>,
    pub dtype: DType,
    pub sizes: Dims,
    pub strides: Dims,
    pub nbytes: u64,
}

/// What a call gave back: descriptions, and the cell of each new one.
#[derive(Debug)]
pub struct Outputs {
    pub descs: Arc<[OutDesc]>,
    pub cells: SmallVec<[Option<Arc<Cell>>; 2]>,
}

/// A result that becomes a new storage; they stand in the order of the `New` and `Take` outputs.
#[derive(Clone, Debug)]
pub(crate) struct NewValue {
    pub dtype: DType,
    /// In memory order.
    pub dims: Dims,
    pub nbytes: u64,
}

pub(crate) struct Program {
    pub executable: Executable,
    pub params: Vec<ParamSpec>,
    pub descs: Arc<[OutDesc]>,
    pub new: Vec<NewValue>,
    /// Storages whose value is replaced, in result order after `new`; and the parameter donated to each.
    pub written: Vec<(usize, Option<usize>)>,
    pub guards: Vec<(usize, Plan)>,
    /// All its values are so small that it is done microseconds after what it waits for: nobody awaits it for itself.
    pub quick: bool,
}

/// A program and the numbers it was built for.
pub(crate) struct Built {
    pub program: Program,
    pub forced_static: Vec<usize>,
}

pub(crate) fn build(
    runtime: &Runtime,
    op: &'static Op,
    args: &[ArgRef<'_>],
    call: &Analysis<'_>,
    flags: u32,
    changing_numbers: bool,
) -> Result<Built> {
    let def = op
        .def
        .as_ref()
        .ok_or_else(|| Error::not_lowered(op.label()))?;
    let crate::registry::Lowering::Program(lower) = def.lowering else {
        return Err(Error::runtime("a host op has no program of its own"));
    };
    let slots = call
        .slots
        .iter()
        .map(|slot| SlotType {
            dtype: slot.snapshot.dtype,
            dims: slot.snapshot.dims().clone(),
        })
        .collect();
    let slot_of = |tensor: &TensorRef<'_>| {
        call.slots
            .iter()
            .position(|slot| Arc::ptr_eq(slot.cell, tensor.cell))
            .unwrap_or(usize::MAX)
    };
    let mut ctx = Ctx::new(op, args, slots, slot_of, flags, changing_numbers)?;
    let placed = lower_and_place(&mut ctx, op, def, lower)?;
    let finished = ctx.finish();
    compile(runtime, finished, placed)
}

#[derive(Default)]
struct Placed {
    descs: Vec<OutDesc>,
    new: Vec<(NewValue, Value)>,
}

fn lower_and_place(ctx: &mut Ctx<'_>, op: &Op, def: &OpDef, lower: LowerFn) -> Result<Placed> {
    let values = lower(ctx)?;
    for (place, value) in ctx.take_writes() {
        let value = fitted(ctx, place, &value, true)?;
        ctx.store(place, &value)?;
    }
    let mut written = ctx.written_places();
    // With `out=` tensors, what else is written (running statistics) is no result.
    let is_out =
        |place: &(usize, Option<usize>)| op.schema.args.get(place.0).is_some_and(|arg| arg.out);
    if written.iter().any(is_out) {
        written.retain(is_out);
    }
    let into_args = !written.is_empty()
        && !values.is_empty()
        && op
            .schema
            .returns
            .iter()
            .all(|ret| ret.alias.is_some() || ret.list && written.len() == values.len());
    let mut placed = Placed::default();
    if into_args {
        write_results(ctx, def, &written, &values, &mut placed)?;
        for (ret, schema) in op.schema.returns.iter().enumerate() {
            let arg = schema
                .alias
                .or_else(|| written.first().map(|place| place.0));
            if placed
                .descs
                .iter()
                .any(|desc| desc.kind == OutKind::Take && desc.arg == arg)
            {
                continue;
            }
            placed.descs.push(OutDesc {
                arg,
                ..plain(OutKind::Arg, ret)
            });
        }
        placed.descs.sort_by_key(|desc| desc.ret);
    } else {
        new_results(ctx, op, def, &values, &mut placed)?;
    }
    Ok(placed)
}

fn plain(kind: OutKind, ret: usize) -> OutDesc {
    OutDesc {
        kind,
        ret,
        arg: None,
        item: None,
        dtype: DType::U8,
        sizes: Dims::new(),
        strides: Dims::new(),
        nbytes: 0,
    }
}

fn write_results(
    ctx: &mut Ctx<'_>,
    def: &OpDef,
    written: &[(usize, Option<usize>)],
    values: &Lowered,
    placed: &mut Placed,
) -> Result<()> {
    if written.len() != values.len() {
        return Err(Error::runtime(format!(
            "{} results for {} tensors to write to",
            values.len(),
            written.len()
        )));
    }
    for (index, (&place, value)) in written.iter().zip(values).enumerate() {
        let Some(value) = value else { continue };
        let schema = ctx.op.schema.args.get(place.0);
        let is_out = schema.is_some_and(|arg| arg.out);
        let sizes = ctx
            .tensor_info(place)
            .map(|info| info.view.sizes.clone())
            .unwrap_or_default();
        let dtype = ctx
            .tensor_info(place)
            .map_or(value.dtype, |info| info.view.dtype);
        if is_out && sizes != value.dims {
            let value = cast_result(ctx, value, dtype, def.casts)?;
            let strides = row_major(&value.dims);
            let desc = OutDesc {
                arg: Some(place.0),
                item: place.1,
                ..described(OutKind::Take, index, &value, strides)
            };
            push_new(ctx, value, desc, placed)?;
            continue;
        }
        let value = fitted(ctx, place, value, def.casts)?;
        ctx.store(place, &value)?;
    }
    Ok(())
}

/// The value with the argument's dtype, its sizes checked.
fn fitted(
    ctx: &mut Ctx<'_>,
    place: (usize, Option<usize>),
    value: &Value,
    casts: bool,
) -> Result<Value> {
    let info = ctx
        .tensor_info(place)
        .ok_or_else(|| Error::runtime("no tensor to write to"))?;
    let (dtype, sizes) = (info.view.dtype, info.view.sizes.clone());
    if sizes != value.dims {
        return Err(Error::runtime(format!(
            "output with shape {:?} doesn't match the broadcast shape {:?}",
            sizes.as_slice(),
            value.dims.as_slice()
        )));
    }
    cast_result(ctx, value, dtype, casts)
}

fn cast_result(ctx: &mut Ctx<'_>, value: &Value, dtype: DType, casts: bool) -> Result<Value> {
    if !casts && !can_cast(value.dtype, dtype) {
        return Err(Error::runtime(format!(
            "result type {} can't be cast to the desired output type {}",
            value.dtype.torch_name(),
            dtype.torch_name()
        )));
    }
    Ok(ctx.b.convert(value, dtype)?)
}

fn new_results(
    ctx: &mut Ctx<'_>,
    op: &Op,
    def: &OpDef,
    values: &Lowered,
    placed: &mut Placed,
) -> Result<()> {
    let one_list = op.schema.returns.len() == 1 && op.schema.returns[0].list;
    for (index, value) in values.iter().enumerate() {
        let ret = if one_list { 0 } else { index };
        let Some(value) = value else {
            placed.descs.push(plain(OutKind::Undefined, ret));
            continue;
        };
        let strides = new_strides(ctx, def.layout, index, &value.dims);
        let desc = described(OutKind::New, ret, value, strides);
        push_new(ctx, value.clone(), desc, placed)?;
    }
    Ok(())
}

fn described(kind: OutKind, ret: usize, value: &Value, strides: Dims) -> OutDesc {
    let nbytes = numel(&value.dims) as u64 * value.dtype.size() as u64;
    OutDesc {
        kind,
        ret,
        arg: None,
        item: None,
        dtype: value.dtype,
        sizes: value.dims.clone(),
        strides,
        nbytes,
    }
}

/// A new storage holds its value in memory order, so that a permuted result costs its program nothing later.
fn push_new(ctx: &mut Ctx<'_>, value: Value, desc: OutDesc, placed: &mut Placed) -> Result<()> {
    let order = layout::memory_order(&desc.sizes, &desc.strides);
    let stored = ctx.b.transpose(&value, &order)?;
    let new = NewValue {
        dtype: stored.dtype,
        dims: stored.dims.clone(),
        nbytes: desc.nbytes,
    };
    placed.descs.push(desc);
    placed.new.push((new, stored));
    Ok(())
}

fn like(operand: Option<(Dims, Dims)>, sizes: &[i64]) -> Dims {
    match operand {
        Some((own, strides)) if own.as_slice() == sizes => layout::like(sizes, &strides),
        _ => row_major(sizes),
    }
}

fn new_strides(ctx: &Ctx<'_>, layout: Layout, index: usize, sizes: &[i64]) -> Dims {
    match layout {
        Layout::Contiguous => row_major(sizes),
        Layout::Pointwise => {
            let operands = ctx.operand_layouts();
            let views: Vec<(&[i64], &[i64])> = operands
                .iter()
                .map(|(sizes, strides)| (sizes.as_slice(), strides.as_slice()))
                .collect();
            layout::pointwise(sizes, &views)
        }
        Layout::Like(name) => like(ctx.layout_of(name), sizes),
        Layout::LikeEach(name) => like(ctx.layout_of_item(name, index), sizes),
        Layout::ChannelsLast(names) => {
            let last = names.iter().filter_map(|name| ctx.layout_of(name));
            let suggested = last
                .into_iter()
                .any(|(own, strides)| layout::suggests_channels_last(&own, &strides));
            layout::channels_last(sizes)
                .filter(|_| suggested)
                .unwrap_or_else(|| row_major(sizes))
        }
    }
}

fn compile(runtime: &Runtime, finished: Finished, placed: Placed) -> Result<Built> {
    let Finished {
        b,
        params,
        forced_static,
        guards,
        written,
        slots,
    } = finished;
    let mut results: Vec<Value> = placed.new.iter().map(|(_, value)| value.clone()).collect();
    let mut donations = Vec::new();
    let mut targets = Vec::new();
    for (slot, value) in &written {
        let param = params
            .iter()
            .position(|spec| *spec == ParamSpec::Slot(*slot));
        if let Some(param) = param {
            donations.push((param, results.len()));
        }
        targets.push((*slot, param));
        results.push(value.clone());
    }
    let elements = |dims: &Dims| numel(dims);
    let largest = slots
        .iter()
        .map(|slot| elements(&slot.dims))
        .chain(results.iter().map(|value| elements(&value.dims)))
        .max()
        .unwrap_or(0);
    let text = b.finish(&results, |param| {
        let (_, result) = donations.iter().find(|(donated, _)| *donated == param)?;
        Some(format!("tf.aliasing_output = {result} : i32"))
    });
    let executable = runtime.compile(&text, largest)?;
    let program = Program {
        executable,
        params,
        descs: placed.descs.into(),
        new: placed.new.into_iter().map(|(new, _)| new).collect(),
        written: targets,
        guards,
        quick: largest < QUICK_BELOW,
    };
    Ok(Built {
        program,
        forced_static: forced_static.into_iter().collect(),
    })
}
