//! An immutable device value: what a storage holds between two writes.

use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use tpulab_pjrt::{Buffer, RawBuffer};
use tpulab_stablehlo::{DType, Dims};

use crate::error::{Error, Result};
use crate::runtime;

/// Where a value's shards lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Whole, on one device.
    Device(usize),
    /// Over a mesh: device of each shard, mesh shape, and per mesh axis the sharded dimension.
    Mesh {
        devices: Vec<usize>,
        axes: Vec<i64>,
        sharded_dims: Vec<Option<usize>>,
    },
}

/// Who made a value; 0 is unknown. Interned by the recorder.
pub type OwnerId = u32;

#[derive(Debug)]
pub struct Value {
    pub dtype: DType,
    /// Logical dims, in memory order.
    pub dims: Dims,
    pub placement: Placement,
    pub owner: OwnerId,
    shards: SmallVec<[Buffer; 1]>,
    /// Nothing to wait for once dropped: a program took the memory, or made so little that it is done in microseconds.
    settled: AtomicBool,
}

impl Drop for Value {
    /// A value dropped before it is computed is still work of its device, for a synchronization to await.
    fn drop(&mut self) {
        let Placement::Device(device) = self.placement else {
            return;
        };
        if *self.settled.get_mut() || crate::forked() {
            return;
        }
        for buffer in std::mem::take(&mut self.shards) {
            if matches!(buffer.is_ready(), Ok(false)) {
                runtime::outlive(device, buffer);
            }
        }
    }
}

impl Value {
    pub fn on_device(dtype: DType, dims: Dims, device: usize, buffer: Buffer) -> Self {
        let mut shards = SmallVec::new();
        shards.push(buffer);
        Self {
            dtype,
            dims,
            placement: Placement::Device(device),
            owner: 0,
            shards,
            settled: AtomicBool::new(false),
        }
    }

    /// Tells that nobody needs to wait for this value once it is dropped.
    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    pub fn shards(&self) -> &[Buffer] {
        &self.shards
    }

    /// The only shard of a value that lies whole on one device.
    pub(crate) fn whole(&self) -> Result<&Buffer> {
        match (&self.placement, self.shards.first()) {
            (Placement::Device(_), Some(buffer)) => Ok(buffer),
            _ => Err(Error::not_lowered("an eager operation on a sharded value")),
        }
    }

    pub(crate) fn raw(&self) -> Result<RawBuffer> {
        Ok(self.whole()?.as_raw())
    }
}
