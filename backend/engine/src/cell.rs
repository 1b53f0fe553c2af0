//! A storage is a cell: the place where a value stands, shared by all views of it.

use std::sync::Arc;

use parking_lot::Mutex;
use tpulab_stablehlo::{DType, Dims};

use crate::address;
use crate::error::{Error, Result};
use crate::runtime;
use crate::stats;
use crate::value::Value;

/// What a cell holds. Only this module and the executor match on it.
#[derive(Debug)]
pub enum Slot {
    /// Memory taken, never written: dtype and dims it will have.
    Reserved {
        dtype: DType,
        dims: Dims,
    },
    Ready(Arc<Value>),
    /// The result of a recorded op that has not run yet.
    Pending(u32),
    /// Every read raises this error again.
    Poisoned(Arc<Error>),
    /// After a reset.
    Dead(&'static str),
}

#[derive(Debug)]
pub struct Cell {
    slot: Mutex<Slot>,
    device: usize,
    epoch: usize,
    range: Mutex<Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    address: u64,
    nbytes: u64,
}

/// What a program needs to know of a cell to read or write it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub dtype: DType,
    pub value: Option<Arc<Value>>,
    reserved: Dims,
}

impl Snapshot {
    pub(crate) fn dims(&self) -> &Dims {
        self.value
            .as_ref()
            .map_or(&self.reserved, |value| &value.dims)
    }
}

impl Cell {
    /// A cell of `nbytes` that nothing was written to. Without a dtype it is bytes until first use tells more.
    pub fn reserved(device: usize, nbytes: u64, shape: Option<(DType, Dims)>) -> Arc<Self> {
        let (dtype, dims) =
            shape.unwrap_or_else(|| (DType::U8, Dims::from_slice(&[nbytes as i64])));
        Self::new(device, nbytes, Slot::Reserved { dtype, dims })
    }

    pub fn ready(device: usize, nbytes: u64, value: Arc<Value>) -> Arc<Self> {
        Self::new(device, nbytes, Slot::Ready(value))
    }

    fn new(device: usize, nbytes: u64, slot: Slot) -> Arc<Self> {
        stats::allocated(device, nbytes);
        let address = address::reserve(device, nbytes);
        Arc::new(Self {
            slot: Mutex::new(slot),
            device,
            epoch: runtime::epoch(),
            range: Mutex::new(Range { address, nbytes }),
        })
    }

    pub fn device(&self) -> usize {
        self.device
    }

    pub fn address(&self) -> u64 {
        self.range.lock().address
    }

    pub fn nbytes(&self) -> u64 {
        self.range.lock().nbytes
    }

    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, Slot> {
        self.slot.lock()
    }

    #[inline]
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        if self.epoch != runtime::epoch() {
            return Err(Error::Dead {
                reason: "the device was reset",
            });
        }
        match &*self.slot.lock() {
            Slot::Ready(value) => Ok(Snapshot {
                dtype: value.dtype,
                value: Some(value.clone()),
                reserved: Dims::new(),
            }),
            Slot::Reserved { dtype, dims } => Ok(Snapshot {
                dtype: *dtype,
                value: None,
                reserved: dims.clone(),
            }),
            Slot::Pending(_) => Err(Error::runtime("this tensor waits for a recorded program")),
            Slot::Poisoned(error) => Err(Error::Poisoned(error.clone())),
            Slot::Dead(reason) => Err(Error::Dead { reason }),
        }
    }

    /// As [`Cell::snapshot`], for who will replace the whole value: what is lost counts as never written.
    pub(crate) fn snapshot_for_overwrite(&self) -> Snapshot {
        self.snapshot().unwrap_or_else(|_| Snapshot {
            dtype: DType::U8,
            value: None,
            reserved: Dims::from_slice(&[self.nbytes() as i64]),
        })
    }

    pub(crate) fn set(&self, value: Arc<Value>) {
        *self.slot.lock() = Slot::Ready(value);
    }

    /// Changes the size (`Storage.resize_`): a new range, contents to be copied by the caller.
    pub(crate) fn replace_range(&self, nbytes: u64, slot: Slot) {
        let mut current = self.slot.lock();
        let mut range = self.range.lock();
        stats::freed(self.device, range.nbytes);
        address::release(self.device, range.address, range.nbytes);
        stats::allocated(self.device, nbytes);
        *range = Range {
            address: address::reserve(self.device, nbytes),
            nbytes,
        };
        *current = slot;
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let range = *self.range.get_mut();
        stats::freed(self.device, range.nbytes);
        address::release(self.device, range.address, range.nbytes);
    }
}
