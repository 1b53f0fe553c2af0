//! Values of a module under construction.

use smallvec::SmallVec;

use crate::DType;

/// The sizes of a tensor's dimensions.
pub type Dims = SmallVec<[i64; 6]>;

/// A tensor computed by, or given to, the module under construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub(crate) id: u32,
    /// Element type.
    pub dtype: DType,
    /// Sizes of the dimensions.
    pub dims: Dims,
}

impl Value {
    /// The number that names this value in the text.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    #[must_use]
    pub fn numel(&self) -> i64 {
        self.dims.iter().product()
    }

    /// Sizes of the dimensions.
    #[must_use]
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }
}
