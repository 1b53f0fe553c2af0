//! A tensor of the engine's own, and what ops whose shapes depend on data work with.

use std::sync::Arc;

use smallvec::SmallVec;
use tpulab_stablehlo::{DType, Dims};

use crate::args::{ArgRef, CallContext, HostTensor, TensorRef};
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::execute::run_internal;
use crate::program::{OutDesc, OutKind, Outputs};
use crate::registry::{self, Op};
use crate::transfer;
use crate::view::{numel, row_major};

#[derive(Clone, Debug)]
pub struct Tensor {
    pub cell: Arc<Cell>,
    pub sizes: Dims,
    pub strides: Dims,
    /// In elements.
    pub offset: i64,
    pub dtype: DType,
}

impl Tensor {
    /// A contiguous tensor with the given row-major bytes.
    pub fn from_bytes(bytes: &[u8], dtype: DType, sizes: &[i64], device: usize) -> Result<Self> {
        let tensor = Self::empty(dtype, sizes, device);
        transfer::copy_from_host(&tensor.as_ref(), bytes)?;
        Ok(tensor)
    }

    pub fn empty(dtype: DType, sizes: &[i64], device: usize) -> Self {
        let nbytes = numel(sizes) as u64 * dtype.size() as u64;
        Self {
            cell: Cell::reserved(device, nbytes, Some((dtype, Dims::from_slice(sizes)))),
            sizes: Dims::from_slice(sizes),
            strides: row_major(sizes),
            offset: 0,
            dtype,
        }
    }

    pub fn as_ref(&self) -> TensorRef<'_> {
        TensorRef {
            cell: &self.cell,
            sizes: &self.sizes,
            strides: &self.strides,
            offset: self.offset,
            dtype: self.dtype,
        }
    }

    pub fn arg(&self) -> ArgRef<'_> {
        ArgRef::Tensor(self.as_ref())
    }

    pub fn numel(&self) -> i64 {
        numel(&self.sizes)
    }

    /// Row-major bytes; waits for the value.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.numel() as usize * self.dtype.size()];
        transfer::copy_to_host(&self.as_ref(), &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn from_outputs(outputs: &Outputs) -> Result<SmallVec<[Self; 2]>> {
        outputs
            .descs
            .iter()
            .zip(&outputs.cells)
            .map(|(desc, cell)| {
                let cell = cell
                    .clone()
                    .ok_or_else(|| Error::runtime("a new tensor was expected"))?;
                Ok(Self {
                    cell,
                    sizes: desc.sizes.clone(),
                    strides: desc.strides.clone(),
                    offset: 0,
                    dtype: desc.dtype,
                })
            })
            .collect()
    }

    pub(crate) fn of(tensor: &TensorRef<'_>) -> Self {
        Self {
            cell: tensor.cell.clone(),
            sizes: Dims::from_slice(tensor.sizes),
            strides: Dims::from_slice(tensor.strides),
            offset: tensor.offset,
            dtype: tensor.dtype,
        }
    }
}

/// The call an op works on that reads values while it runs (`nonzero`, `masked_select`).
pub(crate) struct HostCtx<'a> {
    pub op: &'static Op,
    pub args: &'a [ArgRef<'a>],
    pub context: &'a CallContext<'a>,
}

impl HostCtx<'_> {
    pub(crate) fn arg(&self, name: &str) -> Option<&ArgRef<'_>> {
        self.op.arg(name).and_then(|index| self.args.get(index))
    }

    /// A tensor argument; a CPU tensor is uploaded.
    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor> {
        self.opt_tensor(name)?
            .ok_or_else(|| Error::runtime(format!("argument '{name}' must be a tensor")))
    }

    pub(crate) fn opt_tensor(&self, name: &str) -> Result<Option<Tensor>> {
        match self.arg(name) {
            Some(ArgRef::Tensor(tensor)) => Ok(Some(Tensor::of(tensor))),
            Some(ArgRef::Host(host)) => Ok(Some(upload(host, self.context.device)?)),
            _ => Ok(None),
        }
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        match self.arg(name) {
            Some(ArgRef::Int(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn bool(&self, name: &str) -> bool {
        matches!(self.arg(name), Some(ArgRef::Bool(true)))
    }

    /// Runs a lowering registered as `name` on the given arguments, named in order.
    pub(crate) fn run(
        &self,
        name: &'static str,
        args: &[(&str, ArgRef<'_>)],
        returns: usize,
    ) -> Result<SmallVec<[Tensor; 2]>> {
        run_internal(name, args, returns, self.context)
    }

    /// The same op on other arguments, which need nothing on the host any more.
    pub(crate) fn again(&self, args: &[ArgRef<'_>]) -> Result<Vec<Tensor>> {
        let outputs = crate::execute::run(self.op, args, self.context)?;
        let lost = || Error::runtime(format!("{} gave no tensor", self.op.label()));
        outputs
            .descs
            .iter()
            .enumerate()
            .map(|(index, desc)| {
                if let Some(cell) = outputs.cells.get(index).cloned().flatten() {
                    return Ok(Tensor {
                        cell,
                        sizes: desc.sizes.clone(),
                        strides: desc.strides.clone(),
                        offset: 0,
                        dtype: desc.dtype,
                    });
                }
                match desc.arg.and_then(|arg| args.get(arg)) {
                    Some(ArgRef::Tensor(tensor)) => Ok(Tensor::of(tensor)),
                    _ => Err(lost()),
                }
            })
            .collect()
    }

    /// The only output of [`HostCtx::run`].
    pub(crate) fn run_one(
        &self,
        name: &'static str,
        args: &[(&str, ArgRef<'_>)],
    ) -> Result<Tensor> {
        let mut outputs = self.run(name, args, 1)?;
        outputs
            .pop()
            .ok_or_else(|| Error::runtime(format!("{name} gave no output")))
    }

    /// An i64 tensor read on the host.
    pub(crate) fn read_i64(&self, tensor: &Tensor) -> Result<Vec<i64>> {
        let bytes = tensor.to_bytes()?;
        Ok(bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|chunk| i64::from_le_bytes(*chunk))
            .collect())
    }
}

pub(crate) fn upload(host: &HostTensor<'_>, device: usize) -> Result<Tensor> {
    let bytes = host.bytes.ok_or_else(|| {
        Error::runtime("a CPU tensor among the arguments must be contiguous; call .contiguous()")
    })?;
    Tensor::from_bytes(bytes, host.dtype, host.sizes, device)
}

/// Gives a host op's tensors back: as new tensors, or into the `out=` arguments.
pub(crate) fn returned(
    op: &'static Op,
    args: &[ArgRef<'_>],
    tensors: Vec<Tensor>,
    context: &CallContext<'_>,
) -> Result<Outputs> {
    let mut descs = Vec::new();
    let mut cells = SmallVec::new();
    let targets: Vec<usize> = op
        .schema
        .args
        .iter()
        .enumerate()
        .filter(|(_, arg)| arg.written)
        .map(|(i, _)| i)
        .collect();
    for (index, tensor) in tensors.into_iter().enumerate() {
        let target = targets.get(index).and_then(|&arg| match &args[arg] {
            ArgRef::Tensor(out) => Some((arg, out)),
            _ => None,
        });
        let ret = if op.schema.returns.len() == 1 {
            0
        } else {
            index
        };
        let mut desc = OutDesc {
            kind: OutKind::New,
            ret,
            arg: None,
            item: None,
            dtype: tensor.dtype,
            sizes: tensor.sizes.clone(),
            strides: tensor.strides.clone(),
            nbytes: tensor.cell.nbytes(),
        };
        if let Some((arg, out)) = target {
            desc.arg = Some(arg);
            if out.sizes == tensor.sizes.as_slice() && out.dtype == tensor.dtype {
                copy(out, &tensor, context)?;
                desc.kind = OutKind::Arg;
            } else {
                desc.kind = OutKind::Take;
            }
        }
        cells.push((desc.kind != OutKind::Arg).then_some(tensor.cell));
        descs.push(desc);
    }
    Ok(Outputs {
        descs: descs.into(),
        cells,
    })
}

/// `dst.copy_(src)` on one device.
pub(crate) fn copy(dst: &TensorRef<'_>, src: &Tensor, context: &CallContext<'_>) -> Result<()> {
    let op = registry::copy_op()?;
    crate::execute::run(
        op,
        &[ArgRef::Tensor(*dst), src.arg(), ArgRef::Bool(false)],
        context,
    )
    .map(|_| ())
}
