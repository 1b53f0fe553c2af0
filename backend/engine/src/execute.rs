//! The one road of an op: key, program, execute, cells.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tpulab_pjrt::{Buffer, RawBuffer};
use tpulab_stablehlo::Dims;

use crate::args::{ArgRef, CallContext, Draw};
use crate::cell::{Cell, Slot};
use crate::error::{Error, Result};
use crate::key::{Analysis, SlotRef, is_identity};
use crate::lower::start_on_axis;
use crate::program::{OutKind, Outputs, ParamSpec, Program};
use crate::registry::{self, Op, OpId};
use crate::runtime::{self, Runtime};
use crate::settings::Mode;
use crate::stats;
use crate::tensor::{HostCtx, Tensor};
use crate::transfer;
use crate::value::Value;

/// Runs an op on device tensors. Returns as soon as it is enqueued, unless the mode is blocking.
pub fn call(op: OpId, args: &[ArgRef<'_>], context: &CallContext<'_>) -> Result<Outputs> {
    let op = registry::op(op).ok_or_else(|| Error::runtime("an op that was never registered"))?;
    run(op, args, context)
}

pub(crate) fn run(
    op: &'static Op,
    args: &[ArgRef<'_>],
    context: &CallContext<'_>,
) -> Result<Outputs> {
    let Some(def) = &op.def else {
        return Err(Error::not_lowered(op.label()));
    };
    let runtime = runtime::get()?;
    if let Some(host) = def.host(args) {
        let mut ctx = HostCtx { op, args, context };
        let tensors = host(&mut ctx)?;
        return crate::tensor::returned(op, args, tensors, context);
    }
    if def.uploads {
        let device = first_device(args).unwrap_or(context.device);
        let uploaded = transfer::upload_args(args, device)?;
        if !uploaded.is_empty() {
            return run(
                op,
                &transfer::with_uploaded(args, &mut uploaded.iter()),
                context,
            );
        }
    }
    let call = Analysis::new(op, args, context.flags)?;
    let device = device_of(op, &call.slots, context.device)?;
    if op.schema.name == "copy_"
        && let Some(outputs) = copy_without_program(args, &call)?
    {
        return Ok(outputs);
    }
    let program = runtime
        .cache
        .get(runtime, op, args, &call, context.flags, device)?;
    let draw = if def.random {
        Some((context.draw)(call.generator, device))
    } else {
        None
    };
    execute(runtime, op, &program, &call, device, draw)
}

fn first_device(args: &[ArgRef<'_>]) -> Option<usize> {
    args.iter().find_map(|arg| match arg {
        ArgRef::Tensor(tensor) => Some(tensor.cell.device()),
        ArgRef::List(items) => first_device(items),
        _ => None,
    })
}

fn device_of(op: &Op, slots: &[SlotRef<'_>], current: usize) -> Result<usize> {
    let Some(first) = slots.first() else {
        return Ok(current);
    };
    let device = first.cell.device();
    match slots
        .iter()
        .map(|slot| slot.cell.device())
        .find(|&other| other != device)
    {
        None => Ok(device),
        Some(other) => Err(Error::runtime(format!(
            "Expected all tensors to be on the same device, but {} found at least two devices, tpu:{device} and \
             tpu:{other}; move one of them with .to(\"tpu:{device}\")",
            op.schema.name
        ))),
    }
}

/// Whole-storage copies share the immutable value; a view copied onto itself is no work at all.
fn copy_without_program(args: &[ArgRef<'_>], call: &Analysis<'_>) -> Result<Option<Outputs>> {
    let [ArgRef::Tensor(dst), ArgRef::Tensor(src), ..] = args else {
        return Ok(None);
    };
    let done = || {
        Ok(Some(Outputs {
            descs: argument_zero(),
            cells: SmallVec::new(),
        }))
    };
    if Arc::ptr_eq(dst.cell, src.cell) {
        let same = dst.offset == src.offset && dst.dtype == src.dtype && dst.sizes == src.sizes;
        if same && dst.strides == src.strides {
            return done();
        }
        return Ok(None);
    }
    let (Some(to), Some(from)) = (call.slots.first(), call.slots.get(1)) else {
        return Ok(None);
    };
    let whole = is_identity(dst, &to.snapshot) && is_identity(src, &from.snapshot);
    let (Some(value), true) = (&from.snapshot.value, whole) else {
        return Ok(None);
    };
    if to.cell.device() != from.cell.device() || dst.sizes != src.sizes || dst.dtype != src.dtype {
        return Ok(None);
    }
    to.cell.set(value.clone());
    done()
}

fn argument_zero() -> Arc<[crate::OutDesc]> {
    use std::sync::LazyLock;
    static DESC: LazyLock<Arc<[crate::OutDesc]>> = LazyLock::new(|| {
        Arc::new([crate::OutDesc {
            kind: OutKind::Arg,
            ret: 0,
            arg: Some(0),
            item: None,
            dtype: crate::DType::U8,
            sizes: Dims::new(),
            strides: Dims::new(),
            nbytes: 0,
        }])
    });
    DESC.clone()
}

fn execute(
    runtime: &Runtime,
    op: &'static Op,
    program: &Program,
    call: &Analysis<'_>,
    device: usize,
    draw: Option<Draw>,
) -> Result<Outputs> {
    // Small buffers made for this call live until it is enqueued.
    let mut owned: SmallVec<[Arc<Buffer>; 4]> = SmallVec::new();
    let mut held: SmallVec<[Arc<Value>; 4]> = SmallVec::new();
    let mut raw: SmallVec<[RawBuffer; 8]> = SmallVec::new();
    let mut locks = lock_written(program, call);
    let mut pinned: SmallVec<[i64; 4]> = SmallVec::new();
    for (index, param) in program.params.iter().enumerate() {
        match param {
            ParamSpec::Slot(slot) => {
                let guard = locks
                    .iter_mut()
                    .find(|(locked, _)| locked == slot)
                    .map(|(_, guard)| guard);
                let slot = &call.slots[*slot];
                match (&slot.snapshot.value, guard) {
                    // What is only read lives in its snapshot for the length of the call.
                    (Some(value), None) => raw.push(value.raw()?),
                    (_, guard) => {
                        let value = slot_value(runtime, slot, guard)?;
                        raw.push(value.raw()?);
                        held.push(value);
                    }
                }
            }
            ParamSpec::Number { index, kind, dtype } => {
                let buffer = runtime.number(device, *kind, call.numbers[*index], *dtype)?;
                raw.push(buffer.as_raw());
                owned.push(buffer);
            }
            ParamSpec::Start { index, frame, axis } => {
                let start = start_on_axis(call.numbers[*index] as i64, frame, *axis);
                let buffer = runtime.number(
                    device,
                    crate::key::NumberKind::Int,
                    start as u64,
                    crate::DType::I64,
                )?;
                raw.push(buffer.as_raw());
                owned.push(buffer);
            }
            ParamSpec::Rng => {
                let Draw { seed, offset } = draw.unwrap_or(Draw { seed: 0, offset: 0 });
                let mut bytes = [0; 24];
                bytes[..8].copy_from_slice(&seed.to_le_bytes());
                bytes[16..].copy_from_slice(&offset.to_le_bytes());
                let buffer = Arc::new(runtime.upload(&bytes, crate::DType::U64, &[3], device)?);
                raw.push(buffer.as_raw());
                owned.push(buffer);
            }
        }
        // A value that somebody else holds must outlive the program: it is not donated.
        if let Some((slot, _)) = program
            .written
            .iter()
            .find(|(_, donated)| *donated == Some(index))
            && shared(call, *slot, &locks)
        {
            pinned.push(index as i64);
        }
    }
    let mut results: SmallVec<[Buffer; 2]> = SmallVec::new();
    let started = stats::op_begin();
    if let Err(error) = program
        .executable
        .execute(device, &raw, &pinned, &mut results)
    {
        let error = Error::from(error);
        poison_donated(program, &mut locks, &pinned, &error);
        return Err(error);
    }
    stats::op_end(op.id, device, started);
    if runtime.mode() == Mode::Blocking {
        for buffer in &results {
            buffer.wait()?;
        }
    }
    let mut results = results.into_iter();
    let mut take = || {
        results
            .next()
            .ok_or_else(|| Error::runtime("the program gave too few results"))
    };
    let mut cells = SmallVec::new();
    let mut new = program.new.iter();
    let mut last: Option<Arc<Value>> = None;
    for desc in program.descs.iter() {
        match desc.kind {
            OutKind::New | OutKind::Take => {
                let spec = new
                    .next()
                    .ok_or_else(|| Error::runtime("an output without a result"))?;
                let value = Arc::new(Value::on_device(
                    spec.dtype,
                    spec.dims.clone(),
                    device,
                    take()?,
                ));
                if program.quick {
                    value.settle();
                }
                last = Some(value.clone());
                cells.push(Some(Cell::ready(device, spec.nbytes, value)));
            }
            OutKind::Arg | OutKind::Undefined => cells.push(None),
        }
    }
    for (slot, donated) in &program.written {
        let snapshot = &call.slots[*slot].snapshot;
        let value = Arc::new(Value::on_device(
            snapshot.dtype,
            snapshot.dims().clone(),
            device,
            take()?,
        ));
        last = Some(value.clone());
        if let Some((_, guard)) = locks.iter_mut().find(|(locked, _)| locked == slot) {
            if donated.is_some_and(|param| !pinned.contains(&(param as i64)))
                && let Slot::Ready(old) = &**guard
            {
                old.settle();
            }
            **guard = Slot::Ready(value);
        }
    }
    drop(locks);
    if let Some(value) = last.filter(|_| !program.quick) {
        runtime.enqueued(device, &value)?;
    }
    Ok(Outputs {
        descs: program.descs.clone(),
        cells,
    })
}

type Locks<'a> = SmallVec<[(usize, MutexGuard<'a, Slot>); 2]>;

/// Cells that the program writes stay locked until it is enqueued, taken in one order by everybody.
fn lock_written<'a>(program: &Program, call: &Analysis<'a>) -> Locks<'a> {
    let mut order: SmallVec<[usize; 2]> = program.written.iter().map(|(slot, _)| *slot).collect();
    if order.len() > 1 {
        order.sort_by_key(|slot| Arc::as_ptr(call.slots[*slot].cell));
    }
    order
        .into_iter()
        .map(|slot| (slot, call.slots[slot].cell.lock()))
        .collect()
}

/// The value to read: the snapshot, or what another thread wrote into a cell since, or zeros for memory never written.
fn slot_value(
    runtime: &Runtime,
    slot: &SlotRef<'_>,
    guard: Option<&mut MutexGuard<'_, Slot>>,
) -> Result<Arc<Value>> {
    let snapshot = &slot.snapshot;
    if let Some(guard) = &guard
        && let Slot::Ready(now) = &***guard
        && now.dtype == snapshot.dtype
        && now.dims == *snapshot.dims()
    {
        return Ok(now.clone());
    }
    if let Some(value) = &snapshot.value {
        return Ok(value.clone());
    }
    let zeros = transfer::zeros(runtime, slot.cell.device(), snapshot.dtype, snapshot.dims())?;
    match guard {
        Some(guard) => **guard = Slot::Ready(zeros.clone()),
        None => slot.cell.set(zeros.clone()),
    }
    Ok(zeros)
}

/// References to a written cell's value that this call itself holds: cell, snapshot, `held`.
fn shared(call: &Analysis<'_>, slot: usize, locks: &Locks<'_>) -> bool {
    let Some((_, guard)) = locks.iter().find(|(locked, _)| *locked == slot) else {
        return true;
    };
    let Slot::Ready(value) = &**guard else {
        return false;
    };
    let snapshot = call.slots[slot].snapshot.value.as_ref();
    let own = 2 + usize::from(snapshot.is_some_and(|held| Arc::ptr_eq(held, value)));
    Arc::strong_count(value) > own
}

/// A failed program may have consumed what was donated to it.
fn poison_donated(program: &Program, locks: &mut Locks<'_>, pinned: &[i64], error: &Error) {
    for (slot, donated) in &program.written {
        let lost = donated.is_some_and(|param| !pinned.contains(&(param as i64)));
        if lost && let Some((_, guard)) = locks.iter_mut().find(|(locked, _)| locked == slot) {
            **guard = Slot::Poisoned(Arc::new(error.clone()));
        }
    }
}

/// Runs the lowering registered as `name` on named arguments and returns its outputs as tensors.
pub(crate) fn run_internal(
    name: &'static str,
    args: &[(&str, ArgRef<'_>)],
    returns: usize,
    context: &CallContext<'_>,
) -> Result<SmallVec<[Tensor; 2]>> {
    let names: Vec<&str> = args.iter().map(|(name, _)| *name).collect();
    let op = registry::internal(name, &names, returns)?;
    let values: Vec<ArgRef<'_>> = args.iter().map(|(_, value)| value.clone()).collect();
    let outputs = run(op, &values, context)?;
    stats::COUNTERS.internal.fetch_add(1, Ordering::Relaxed);
    Tensor::from_outputs(&outputs)
}
