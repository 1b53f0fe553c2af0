//! Arguments of a call, borrowed from the caller for its length.

use std::sync::Arc;

use tpulab_stablehlo::DType;

use crate::cell::Cell;

/// A device tensor: a view (sizes, strides, offset in elements) of a cell.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    pub cell: &'a Arc<Cell>,
    pub sizes: &'a [i64],
    pub strides: &'a [i64],
    pub offset: i64,
    pub dtype: DType,
}

/// A CPU tensor among the arguments. Those without dimensions act as numbers.
#[derive(Clone, Copy, Debug)]
pub struct HostTensor<'a> {
    pub dtype: DType,
    pub sizes: &'a [i64],
    /// Its elements in row-major order; absent if it is not contiguous.
    pub bytes: Option<&'a [u8]>,
    /// A Python number that torch wrapped: it does not take part in promotion with its own dtype.
    pub wrapped: bool,
}

#[derive(Clone, Debug)]
pub enum ArgRef<'a> {
    None,
    Tensor(TensorRef<'a>),
    Host(HostTensor<'a>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Complex(f64, f64),
    Str(&'a str),
    Ints(&'a [i64]),
    Floats(&'a [f64]),
    Bools(&'a [u8]),
    List(Vec<ArgRef<'a>>),
    Device(i32),
    /// The caller's handle of a generator.
    Generator(usize),
    Other,
}

/// One draw of a random generator: its seed, and the number of draws before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    pub seed: u64,
    pub offset: u64,
}

/// What holds for a call beside its arguments.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// Bits 0–7 default dtype, 8–9 float32 matmul precision, 10 deterministic. Part of the key.
    pub flags: u32,
    /// Device of ops without a device tensor.
    pub device: usize,
    /// Advances a generator (`None`: the device's default).
    pub draw: &'a dyn Fn(Option<usize>, usize) -> Draw,
}

impl CallContext<'_> {
    /// torch's defaults (float32, highest precision), for calls that torch did not make.
    pub fn plain(device: usize) -> Self {
        CallContext {
            flags: DType::F32.code() as u32,
            device,
            draw: &|_, _| Draw { seed: 0, offset: 0 },
        }
    }
}
