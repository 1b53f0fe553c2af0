//! Bytes between host and device, and between devices. Host copies are copies: nothing is ever aliased.

use std::sync::Arc;

use tpulab_stablehlo::{DType, Dims};

use crate::args::{ArgRef, CallContext, TensorRef};
use crate::cell::{Cell, Slot, Snapshot};
use crate::error::{Error, Result};
use crate::execute::run_internal;
use crate::key::is_identity;
use crate::registry;
use crate::runtime::{self, Runtime};
use crate::tensor::{Tensor, copy, upload};
use crate::value::Value;
use crate::view::{is_contiguous, numel, row_major};

/// Writes row-major `bytes` of `dst`'s sizes and dtype into it.
pub fn copy_from_host(dst: &TensorRef<'_>, bytes: &[u8]) -> Result<()> {
    let runtime = runtime::get()?;
    check_length(dst, bytes.len())?;
    if bytes.is_empty() {
        return Ok(());
    }
    let device = dst.cell.device();
    let snapshot = dst.cell.snapshot_for_overwrite();
    let base = snapshot.dims();
    let same_size = numel(base) as usize * snapshot.dtype.size() == bytes.len();
    if dst.offset == 0 && same_size && is_contiguous(dst.sizes, dst.strides) {
        // The whole storage: its value takes the dtype and dims written last.
        let keep = dst.dtype == snapshot.dtype;
        let dims = if keep {
            base.clone()
        } else {
            Dims::from_slice(dst.sizes)
        };
        let buffer = runtime.upload(bytes, dst.dtype, &dims, device)?;
        dst.cell
            .set(Arc::new(Value::on_device(dst.dtype, dims, device, buffer)));
        return Ok(());
    }
    let dims = Dims::from_slice(dst.sizes);
    let buffer = runtime.upload(bytes, dst.dtype, &dims, device)?;
    let value = Arc::new(Value::on_device(dst.dtype, dims.clone(), device, buffer));
    let source = Tensor {
        cell: Cell::ready(device, bytes.len() as u64, value),
        strides: row_major(&dims),
        sizes: dims,
        offset: 0,
        dtype: dst.dtype,
    };
    copy(dst, &source, &CallContext::plain(device))
}

/// Reads `src` as row-major bytes; waits until it is computed.
pub fn copy_to_host(src: &TensorRef<'_>, bytes: &mut [u8]) -> Result<()> {
    let runtime = runtime::get()?;
    check_length(src, bytes.len())?;
    if bytes.is_empty() {
        return Ok(());
    }
    let snapshot = src.cell.snapshot()?;
    if let Some(value) = &snapshot.value
        && is_contiguous(src.sizes, src.strides)
    {
        // A contiguous run of the storage's bytes needs no program, whatever the dtypes.
        let total = numel(&value.dims) as usize * value.dtype.size();
        let start = src.offset as usize * src.dtype.size();
        if start == 0 && total == bytes.len() {
            return Ok(value.whole()?.copy_to_host(bytes)?);
        }
        if src.dtype != value.dtype && start + bytes.len() <= total {
            let mut all = vec![0; total];
            value.whole()?.copy_to_host(&mut all)?;
            bytes.copy_from_slice(&all[start..start + bytes.len()]);
            return Ok(());
        }
    }
    if snapshot.value.is_none() {
        let zeros = zeros(runtime, src.cell.device(), snapshot.dtype, snapshot.dims())?;
        src.cell.set(zeros);
        return copy_to_host(src, bytes);
    }
    let dense = contiguous(src)?;
    let value = dense
        .cell
        .snapshot()?
        .value
        .ok_or_else(|| Error::runtime("a copy without a value"))?;
    Ok(value.whole()?.copy_to_host(bytes)?)
}

/// `dst.copy_(src)` for any two devices; the dtype is converted on the source's device.
pub fn copy_between(
    dst: &TensorRef<'_>,
    src: &TensorRef<'_>,
    context: &CallContext<'_>,
) -> Result<()> {
    let runtime = runtime::get()?;
    let (to, from) = (dst.cell.device(), src.cell.device());
    if to == from {
        let op = registry::copy_op()?;
        let args = [
            ArgRef::Tensor(*dst),
            ArgRef::Tensor(*src),
            ArgRef::Bool(false),
        ];
        return crate::execute::run(op, &args, context).map(|_| ());
    }
    let converted = if src.dtype == dst.dtype {
        contiguous(src)?
    } else {
        cast(src, dst.dtype)?
    };
    if converted.numel() == 0 {
        return Ok(());
    }
    let snapshot = converted.cell.snapshot()?;
    let value = match snapshot.value {
        Some(value) => value,
        None => zeros(runtime, from, snapshot.dtype, &snapshot.dims().clone())?,
    };
    let buffer = value.whole()?.copy_to_device(&runtime.client, to)?;
    let moved = Arc::new(Value::on_device(
        value.dtype,
        value.dims.clone(),
        to,
        buffer,
    ));
    let source = Tensor {
        cell: Cell::ready(to, converted.cell.nbytes(), moved),
        ..converted
    };
    copy(dst, &source, context)
}

/// The tensor itself if it is its whole storage in row-major order, else a dense copy.
fn contiguous(src: &TensorRef<'_>) -> Result<Tensor> {
    let snapshot = src.cell.snapshot()?;
    if is_identity(src, &snapshot) {
        return Ok(Tensor {
            cell: src.cell.clone(),
            sizes: Dims::from_slice(src.sizes),
            strides: row_major(src.sizes),
            offset: 0,
            dtype: src.dtype,
        });
    }
    internal(
        "tpulab::contiguous",
        &[("self", ArgRef::Tensor(*src))],
        src.cell.device(),
    )
}

fn cast(src: &TensorRef<'_>, dtype: DType) -> Result<Tensor> {
    let code = ArgRef::Int(i64::from(dtype.code()));
    internal(
        "tpulab::cast",
        &[("self", ArgRef::Tensor(*src)), ("dtype", code)],
        src.cell.device(),
    )
}

fn internal(name: &'static str, args: &[(&str, ArgRef<'_>)], device: usize) -> Result<Tensor> {
    let mut outputs = run_internal(name, args, 1, &CallContext::plain(device))?;
    outputs
        .pop()
        .ok_or_else(|| Error::runtime(format!("{name} gave no output")))
}

/// Memory never written reads as zeros.
pub(crate) fn zeros(
    runtime: &Runtime,
    device: usize,
    dtype: DType,
    dims: &[i64],
) -> Result<Arc<Value>> {
    let bytes = vec![0; numel(dims) as usize * dtype.size()];
    let buffer = runtime.upload(&bytes, dtype, dims, device)?;
    Ok(Arc::new(Value::on_device(
        dtype,
        Dims::from_slice(dims),
        device,
        buffer,
    )))
}

/// Gives a storage of raw bytes the dtype and dims of a view that shows all of it.
pub(crate) fn retype(
    cell: &Arc<Cell>,
    snapshot: Snapshot,
    dtype: DType,
    sizes: &[i64],
) -> Result<Snapshot> {
    let dims = Dims::from_slice(sizes);
    if snapshot.value.is_none() {
        *cell.lock() = Slot::Reserved { dtype, dims };
        return cell.snapshot();
    }
    let bytes = Tensor {
        cell: cell.clone(),
        sizes: snapshot.dims().clone(),
        strides: row_major(snapshot.dims()),
        offset: 0,
        dtype: DType::U8,
    };
    let code = ArgRef::Int(i64::from(dtype.code()));
    let typed = internal(
        "tpulab::bitcast",
        &[
            ("self", bytes.arg()),
            ("dtype", code),
            ("sizes", ArgRef::Ints(sizes)),
        ],
        cell.device(),
    )?;
    let value = typed
        .cell
        .snapshot()?
        .value
        .ok_or_else(|| Error::runtime("a cast without a value"))?;
    cell.set(value);
    cell.snapshot()
}

/// `Storage.resize_`: the first bytes are kept.
pub fn resize(cell: &Arc<Cell>, nbytes: u64) -> Result<()> {
    let old = cell.snapshot_for_overwrite();
    let kept = numel(old.dims()) as u64 * old.dtype.size() as u64;
    let reserved = Slot::Reserved {
        dtype: DType::U8,
        dims: Dims::from_slice(&[nbytes as i64]),
    };
    let Some(value) = old.value.filter(|_| kept > 0 && nbytes > 0) else {
        cell.replace_range(nbytes, reserved);
        return Ok(());
    };
    let device = cell.device();
    let mut bytes = vec![0; kept as usize];
    value.whole()?.copy_to_host(&mut bytes)?;
    bytes.resize(nbytes as usize, 0);
    let item = value.dtype.size() as u64;
    let (dtype, dims) = if nbytes.is_multiple_of(item) {
        (value.dtype, Dims::from_slice(&[(nbytes / item) as i64]))
    } else {
        (DType::U8, Dims::from_slice(&[nbytes as i64]))
    };
    let buffer = runtime::get()?.upload(&bytes, dtype, &dims, device)?;
    cell.replace_range(
        nbytes,
        Slot::Ready(Arc::new(Value::on_device(dtype, dims, device, buffer))),
    );
    Ok(())
}

fn check_length(tensor: &TensorRef<'_>, length: usize) -> Result<()> {
    let expected = numel(tensor.sizes) as usize * tensor.dtype.size();
    if expected == length {
        return Ok(());
    }
    Err(Error::runtime(format!(
        "a host copy of {length} bytes for a tensor of {expected} bytes"
    )))
}

/// The CPU tensors with dimensions among the arguments, on the device, in order.
pub(crate) fn upload_args(args: &[ArgRef<'_>], device: usize) -> Result<Vec<Tensor>> {
    let mut uploaded = Vec::new();
    for arg in args {
        match arg {
            ArgRef::Host(host) if !host.sizes.is_empty() => uploaded.push(upload(host, device)?),
            ArgRef::List(items) => uploaded.extend(upload_args(items, device)?),
            _ => {}
        }
    }
    Ok(uploaded)
}

/// The arguments with those tensors in place.
pub(crate) fn with_uploaded<'a>(
    args: &'a [ArgRef<'a>],
    uploaded: &mut std::slice::Iter<'a, Tensor>,
) -> Vec<ArgRef<'a>> {
    args.iter()
        .map(|arg| match arg {
            ArgRef::Host(host) if !host.sizes.is_empty() => {
                uploaded.next().map_or(ArgRef::None, Tensor::arg)
            }
            ArgRef::List(items) => ArgRef::List(with_uploaded(items, uploaded)),
            other => other.clone(),
        })
        .collect()
}
