//! An immutable device value: what a storage holds between two writes.

use smallvec::SmallVec;
use tpulab_pjrt::{Buffer, RawBuffer};
use tpulab_stablehlo::{DType, Dims};

use crate::error::{Error, Result};

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
        }
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
