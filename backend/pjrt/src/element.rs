//! Element types as PJRT numbers them.

use crate::error::{Error, Result};

/// `PJRT_Buffer_Type`. Not the numbers of HLO's `PrimitiveType`, nor torch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ElementType {
    Pred = 1,
    S8 = 2,
    S16 = 3,
    S32 = 4,
    S64 = 5,
    U8 = 6,
    U16 = 7,
    U32 = 8,
    U64 = 9,
    F16 = 10,
    F32 = 11,
    F64 = 12,
    BF16 = 13,
    C64 = 14,
    C128 = 15,
}

impl ElementType {
    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Pred | Self::S8 | Self::U8 => 1,
            Self::S16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::S32 | Self::U32 | Self::F32 => 4,
            Self::S64 | Self::U64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// The name as HLO text spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pred => "pred",
            Self::S8 => "s8",
            Self::S16 => "s16",
            Self::S32 => "s32",
            Self::S64 => "s64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::BF16 => "bf16",
            Self::C64 => "c64",
            Self::C128 => "c128",
        }
    }

    /// Bytes of a dense array, or the error that says why there is no such array.
    pub(crate) fn bytes_of(self, dims: &[i64]) -> Result<usize> {
        dims.iter()
            .try_fold(self.size(), |bytes, &dim| {
                bytes.checked_mul(usize::try_from(dim).ok()?)
            })
            .ok_or_else(|| Error::Dims {
                dims: dims.to_vec(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_counts_elements_and_refuses_nonsense() {
        assert_eq!(ElementType::F32.bytes_of(&[2, 3]).unwrap(), 24);
        assert_eq!(ElementType::C128.bytes_of(&[]).unwrap(), 16);
        assert_eq!(ElementType::Pred.bytes_of(&[0, 7]).unwrap(), 0);
        assert!(matches!(
            ElementType::F32.bytes_of(&[-1]),
            Err(Error::Dims { .. })
        ));
        assert!(matches!(
            ElementType::F32.bytes_of(&[i64::MAX, 8]),
            Err(Error::Dims { .. })
        ));
    }
}
