//! What can be wrong with a program under construction.

use crate::{DType, Kinds, Scalar};

/// The result of a builder method.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was refused; the facts are in the fields.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation is not defined for this element type.
    #[error("{op}: element type {found} is not supported, expected {expected}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The operand's element type.
        found: DType,
        /// What the operation takes.
        expected: Kinds,
    },
    /// Two element types that must agree do not.
    #[error("{op}: element types differ: {lhs} and {rhs}")]
    DTypeMismatch {
        /// The operation.
        op: &'static str,
        /// One element type.
        lhs: DType,
        /// The other.
        rhs: DType,
    },
    /// Two shapes that must agree do not.
    #[error("{op}: shapes differ: {lhs:?} and {rhs:?}")]
    ShapeMismatch {
        /// The operation.
        op: &'static str,
        /// One shape.
        lhs: Box<[i64]>,
        /// The other.
        rhs: Box<[i64]>,
    },
    /// A shape does not fit the operation.
    #[error("{op}: shape {dims:?}: {detail}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The shape in question.
        dims: Box<[i64]>,
        /// What is wrong with it.
        detail: String,
    },
    /// An operand has the wrong number of dimensions.
    #[error("{op}: {what} has {found} dimensions, expected {expected}")]
    Rank {
        /// The operation.
        op: &'static str,
        /// Which operand.
        what: &'static str,
        /// The number it has.
        found: usize,
        /// The number it must have.
        expected: usize,
    },
    /// A dimension number is too large.
    #[error("{op}: dimension {dim} is out of range for {rank} dimensions")]
    Dim {
        /// The operation.
        op: &'static str,
        /// The dimension number.
        dim: usize,
        /// The number of dimensions there are.
        rank: usize,
    },
    /// A dimension number stands twice in a list.
    #[error("{op}: dimension {dim} is given more than once")]
    Repeated {
        /// The operation.
        op: &'static str,
        /// The dimension number.
        dim: usize,
    },
    /// A list has the wrong length.
    #[error("{op}: {found} {what}, expected {expected}")]
    Count {
        /// The operation.
        op: &'static str,
        /// What is counted.
        what: &'static str,
        /// The number given.
        found: usize,
        /// The number that fits.
        expected: usize,
    },
    /// A parameter of the operation has a value that makes no sense.
    #[error("{op}: {detail}")]
    Attribute {
        /// The operation.
        op: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// A value is used where it cannot be seen: outside the region that computes it, or inside
    /// the body of a reduction, which sees its own arguments only.
    #[error("{op}: value %{id} is not visible here")]
    Scope {
        /// The operation.
        op: &'static str,
        /// The value's number.
        id: u32,
    },
    /// A constant does not fit its element type.
    #[error("constant {value} cannot be represented as {dtype}")]
    Scalar {
        /// The constant.
        value: Scalar,
        /// The element type asked for.
        dtype: DType,
    },
}
