//! Checks that several operations share.

use std::fmt;

use crate::{DType, Dims, Error, Result, Value};

/// A set of kinds of element types: what an operation is defined for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// Booleans.
    pub const BOOL: Self = Self(1);
    /// Signed integers.
    pub const SIGNED: Self = Self(2);
    /// Unsigned integers.
    pub const UNSIGNED: Self = Self(4);
    /// Real floats.
    pub const FLOAT: Self = Self(8);
    /// Complex numbers.
    pub const COMPLEX: Self = Self(16);
    /// All integers.
    pub const INT: Self = Self::SIGNED.or(Self::UNSIGNED);
    /// Integers and real floats.
    pub const REAL: Self = Self::INT.or(Self::FLOAT);
    /// Everything but booleans.
    pub const NUMBER: Self = Self::REAL.or(Self::COMPLEX);
    /// Real floats and complex numbers.
    pub const INEXACT: Self = Self::FLOAT.or(Self::COMPLEX);
    /// Booleans and integers.
    pub const BITS: Self = Self::BOOL.or(Self::INT);
    /// What has an order.
    pub const ORDERED: Self = Self::BOOL.or(Self::REAL);
    /// Every element type.
    pub const ANY: Self = Self::BOOL.or(Self::NUMBER);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::BOOL, "bool"),
        (Self::SIGNED, "signed integer"),
        (Self::UNSIGNED, "unsigned integer"),
        (Self::FLOAT, "float"),
        (Self::COMPLEX, "complex"),
    ];

    /// The union.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the type is of one of these kinds.
    #[must_use]
    pub const fn contains(self, dtype: DType) -> bool {
        let kind = if dtype.is_float() {
            Self::FLOAT
        } else if dtype.is_complex() {
            Self::COMPLEX
        } else if dtype.is_signed() {
            Self::SIGNED
        } else if dtype.is_unsigned() {
            Self::UNSIGNED
        } else {
            Self::BOOL
        };
        self.0 & kind.0 != 0
    }

    /// Refuses a type that is of none of these kinds.
    pub(crate) fn check(self, op: &'static str, found: DType) -> Result<()> {
        if self.contains(found) {
            Ok(())
        } else {
            Err(Error::DType {
                op,
                found,
                expected: self,
            })
        }
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Self::NAMES
            .iter()
            .filter(|(kind, _)| self.0 & kind.0 != 0)
            .map(|(_, name)| *name)
            .collect();
        f.write_str(&names.join(" or "))
    }
}

pub(crate) fn same_dtype(op: &'static str, lhs: DType, rhs: DType) -> Result<()> {
    if lhs == rhs {
        Ok(())
    } else {
        Err(Error::DTypeMismatch { op, lhs, rhs })
    }
}

pub(crate) fn same_dims(op: &'static str, lhs: &[i64], rhs: &[i64]) -> Result<()> {
    if lhs == rhs {
        Ok(())
    } else {
        Err(Error::ShapeMismatch {
            op,
            lhs: lhs.into(),
            rhs: rhs.into(),
        })
    }
}

pub(crate) fn same_type(op: &'static str, lhs: &Value, rhs: &Value) -> Result<()> {
    same_dtype(op, lhs.dtype, rhs.dtype)?;
    same_dims(op, &lhs.dims, &rhs.dims)
}

/// A 0-d operand.
pub(crate) fn scalar(op: &'static str, what: &'static str, value: &Value) -> Result<()> {
    rank(op, what, value.rank(), 0)
}

pub(crate) fn rank(
    op: &'static str,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<()> {
    if found == expected {
        Ok(())
    } else {
        Err(Error::Rank {
            op,
            what,
            found,
            expected,
        })
    }
}

pub(crate) fn count(
    op: &'static str,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<()> {
    if found == expected {
        Ok(())
    } else {
        Err(Error::Count {
            op,
            what,
            found,
            expected,
        })
    }
}

pub(crate) fn dim(op: &'static str, dim: usize, rank: usize) -> Result<()> {
    if dim < rank {
        Ok(())
    } else {
        Err(Error::Dim { op, dim, rank })
    }
}

/// Dimension numbers in range and without repetition.
pub(crate) fn dims_of(op: &'static str, dims: &[usize], rank: usize) -> Result<()> {
    for (index, &number) in dims.iter().enumerate() {
        dim(op, number, rank)?;
        if dims[..index].contains(&number) {
            return Err(Error::Repeated { op, dim: number });
        }
    }
    Ok(())
}

/// Like [`dims_of`], and ascending, as gather and scatter want it.
pub(crate) fn ascending(op: &'static str, dims: &[usize], rank: usize) -> Result<()> {
    dims_of(op, dims, rank)?;
    if dims.is_sorted() {
        Ok(())
    } else {
        Err(Error::Attribute {
            op,
            detail: format!("dimensions {dims:?} are not ascending"),
        })
    }
}

/// Sizes of a shape that exists: none negative, and a number of elements that can be counted.
pub(crate) fn valid_dims(op: &'static str, dims: &[i64]) -> Result<()> {
    let wrong = |detail: &str| Error::Shape {
        op,
        dims: dims.into(),
        detail: detail.to_owned(),
    };
    if dims.iter().any(|size| *size < 0) {
        return Err(wrong("negative size"));
    }
    let counted = dims
        .iter()
        .filter(|size| **size > 0)
        .try_fold(1_i64, |n, size| n.checked_mul(*size));
    if counted.is_none() {
        return Err(wrong("too many elements"));
    }
    Ok(())
}

/// The sizes of the dimensions that are not in `removed`.
pub(crate) fn remaining(dims: &[i64], removed: &[usize]) -> Dims {
    dims.iter()
        .enumerate()
        .filter(|(index, _)| !removed.contains(index))
        .map(|(_, size)| *size)
        .collect()
}
