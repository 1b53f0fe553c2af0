//! What makes two calls the same program: op, flags, dtypes, shapes, view descriptors, alias pattern, static
//! arguments. Numbers and view offsets stand beside the key, so that they may become run-time values.

use std::sync::Arc;

use smallvec::SmallVec;
use tpulab_stablehlo::DType;

use crate::args::{ArgRef, HostTensor, TensorRef};
use crate::cell::{Cell, Snapshot};
use crate::error::{Error, Result};
use crate::registry::Op;
use crate::view::is_contiguous;

pub(crate) type Key = SmallVec<[u64; 40]>;
/// Bits of every number of a call, in the order of the arguments.
pub(crate) type Numbers = SmallVec<[u64; 8]>;

/// A distinct storage among the arguments.
#[derive(Debug)]
pub(crate) struct SlotRef<'a> {
    pub cell: &'a Arc<Cell>,
    pub snapshot: Snapshot,
}

/// One call, taken apart.
pub(crate) struct Analysis<'a> {
    pub key: Key,
    pub numbers: Numbers,
    pub slots: SmallVec<[SlotRef<'a>; 4]>,
    pub generator: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberKind {
    Int,
    Float,
    Bool,
}

const NONE: u64 = 0;
const TENSOR: u64 = 1;
const HOST: u64 = 2;
const NUMBER_INT: u64 = 3;
const NUMBER_FLOAT: u64 = 4;
const INT: u64 = 5;
const FLOAT: u64 = 6;
const BOOL: u64 = 7;
const STR: u64 = 8;
const INTS: u64 = 9;
const FLOATS: u64 = 10;
const BOOLS: u64 = 11;
const LIST: u64 = 12;
const OTHER: u64 = 13;
const COMPLEX: u64 = 14;

impl<'a> Analysis<'a> {
    #[inline]
    pub(crate) fn new(op: &Op, args: &'a [ArgRef<'a>], flags: u32) -> Result<Self> {
        let mut call = Self {
            key: Key::new(),
            numbers: Numbers::new(),
            slots: SmallVec::new(),
            generator: None,
        };
        call.key.push(u64::from(op.id.0) << 32 | u64::from(flags));
        for (index, arg) in args.iter().enumerate() {
            call.push(arg, op.is_number(index))?;
        }
        Ok(call)
    }

    #[inline]
    fn push(&mut self, arg: &'a ArgRef<'a>, number: bool) -> Result<()> {
        match arg {
            ArgRef::None => self.key.push(NONE),
            ArgRef::Tensor(tensor) => self.push_tensor(tensor)?,
            ArgRef::Host(host) => self.push_host(host)?,
            ArgRef::Int(value) if number => {
                self.key.push(NUMBER_INT);
                self.numbers.push(*value as u64);
            }
            ArgRef::Float(value) if number => {
                self.key.push(NUMBER_FLOAT);
                self.numbers.push(value.to_bits());
            }
            ArgRef::Int(value) => self.key.extend([INT, *value as u64]),
            ArgRef::Float(value) => self.key.extend([FLOAT, value.to_bits()]),
            ArgRef::Bool(value) => self.key.push(BOOL | u64::from(*value) << 8),
            ArgRef::Complex(re, im) => self.key.extend([COMPLEX, re.to_bits(), im.to_bits()]),
            ArgRef::Str(text) => {
                self.key.push(STR | (text.len() as u64) << 8);
                for chunk in text.as_bytes().chunks(8) {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    self.key.push(u64::from_le_bytes(word));
                }
            }
            ArgRef::Ints(values) => {
                self.key.push(INTS | (values.len() as u64) << 8);
                self.key.extend(values.iter().map(|&v| v as u64));
            }
            ArgRef::Floats(values) => {
                self.key.push(FLOATS | (values.len() as u64) << 8);
                self.key.extend(values.iter().map(|v| v.to_bits()));
            }
            ArgRef::Bools(values) => {
                self.key.push(BOOLS | (values.len() as u64) << 8);
                self.key.extend(values.iter().map(|&v| u64::from(v)));
            }
            ArgRef::List(items) => {
                self.key.push(LIST | (items.len() as u64) << 8);
                for item in items {
                    self.push(item, number)?;
                }
            }
            ArgRef::Generator(handle) => {
                self.generator = Some(*handle);
                self.key.push(NONE);
            }
            // Where the op runs is not part of what it is.
            ArgRef::Device(_) => self.key.push(NONE),
            ArgRef::Other => self.key.push(OTHER),
        }
        Ok(())
    }

    #[inline]
    fn push_tensor(&mut self, tensor: &'a TensorRef<'a>) -> Result<()> {
        let known = self
            .slots
            .iter()
            .position(|slot| Arc::ptr_eq(slot.cell, tensor.cell));
        let index = match known {
            Some(index) => index,
            None => {
                let snapshot = tensor.cell.snapshot()?;
                let snapshot = retyped(tensor, snapshot)?;
                self.slots.push(SlotRef {
                    cell: tensor.cell,
                    snapshot,
                });
                self.slots.len() - 1
            }
        };
        let snapshot = &self.slots[index].snapshot;
        let base = snapshot.dims();
        let identity = is_identity(tensor, snapshot);
        self.key.push(
            TENSOR
                | u64::from(identity) << 4
                | u64::from(known.is_none()) << 5
                | u64::from(tensor.dtype.code()) << 8
                | u64::from(snapshot.dtype.code()) << 16
                | (tensor.sizes.len() as u64) << 24
                | (base.len() as u64) << 32
                | (index as u64) << 40,
        );
        if known.is_none() {
            self.key.extend(base.iter().map(|&d| d as u64));
        }
        if !identity {
            self.key
                .extend(tensor.sizes.iter().chain(tensor.strides).map(|&d| d as u64));
            self.numbers.push(tensor.offset as u64);
        }
        Ok(())
    }

    fn push_host(&mut self, host: &HostTensor<'_>) -> Result<()> {
        let (_, bits) = host_number(host)?;
        self.key
            .push(HOST | u64::from(host.dtype.code()) << 8 | u64::from(host.wrapped) << 16);
        self.numbers.push(bits);
        Ok(())
    }
}

#[inline]
pub(crate) fn is_identity(tensor: &TensorRef<'_>, snapshot: &Snapshot) -> bool {
    tensor.offset == 0
        && tensor.dtype == snapshot.dtype
        && tensor.sizes == snapshot.dims().as_slice()
        && is_contiguous(tensor.sizes, tensor.strides)
}

/// A storage made as raw bytes takes the dtype of the first view that shows all of it, once and for good:
/// otherwise every later program would carry the cast.
fn retyped(tensor: &TensorRef<'_>, snapshot: Snapshot) -> Result<Snapshot> {
    let bytes = snapshot.dtype == DType::U8 && snapshot.dims().len() == 1;
    if !bytes || tensor.dtype == DType::U8 || tensor.dtype == DType::Bool {
        return Ok(snapshot);
    }
    let size = tensor.dtype.size() as i64;
    let elements: i64 = tensor.sizes.iter().product();
    let whole = tensor.offset == 0
        && elements * size == snapshot.dims()[0]
        && is_contiguous(tensor.sizes, tensor.strides);
    if !whole || elements == 0 {
        return Ok(snapshot);
    }
    crate::transfer::retype(tensor.cell, snapshot, tensor.dtype, tensor.sizes)
}

/// The number in a CPU tensor without dimensions.
pub(crate) fn host_number(host: &HostTensor<'_>) -> Result<(NumberKind, u64)> {
    if !host.sizes.is_empty() {
        return Err(Error::runtime(format!(
            "Expected all tensors to be on the same device, but found a tensor of shape {:?} on cpu beside one on \
             tpu; move it with .to(\"tpu\")",
            host.sizes
        )));
    }
    let bytes = host
        .bytes
        .ok_or_else(|| Error::runtime("a CPU scalar without memory"))?;
    let short = || {
        Error::runtime(format!(
            "a {} scalar of {} bytes",
            host.dtype.name(),
            bytes.len()
        ))
    };
    macro_rules! read {
        ($t:ty) => {
            <$t>::from_le_bytes(
                bytes
                    .get(..size_of::<$t>())
                    .and_then(|b| b.try_into().ok())
                    .ok_or_else(short)?,
            )
        };
    }
    let int = |value: i64| (NumberKind::Int, value as u64);
    let float = |value: f64| (NumberKind::Float, value.to_bits());
    Ok(match host.dtype {
        DType::U8 => int(i64::from(read!(u8))),
        DType::I8 => int(i64::from(read!(i8))),
        DType::U16 => int(i64::from(read!(u16))),
        DType::I16 => int(i64::from(read!(i16))),
        DType::U32 => int(i64::from(read!(u32))),
        DType::I32 => int(i64::from(read!(i32))),
        DType::I64 | DType::U64 => int(read!(i64)),
        DType::F16 => float(half::f16::from_bits(read!(u16)).to_f64()),
        DType::BF16 => float(half::bf16::from_bits(read!(u16)).to_f64()),
        DType::F32 => float(f64::from(read!(f32))),
        DType::F64 => float(read!(f64)),
        DType::Bool => (NumberKind::Bool, u64::from(read!(u8) != 0)),
        DType::C64 | DType::C128 => {
            return Err(Error::not_lowered("a complex CPU scalar as an operand"));
        }
    })
}
