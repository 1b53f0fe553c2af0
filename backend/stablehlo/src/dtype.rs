//! Element types.

use std::fmt;

/// An element type; the discriminants are torch's `ScalarType` numbers, so codes pass unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// Unsigned 8-bit integer.
    U8 = 0,
    /// Signed 8-bit integer.
    I8 = 1,
    /// Signed 16-bit integer.
    I16 = 2,
    /// Signed 32-bit integer.
    I32 = 3,
    /// Signed 64-bit integer.
    I64 = 4,
    /// IEEE half precision.
    F16 = 5,
    /// IEEE single precision.
    F32 = 6,
    /// IEEE double precision.
    F64 = 7,
    /// Complex of two `F32`.
    C64 = 9,
    /// Complex of two `F64`.
    C128 = 10,
    /// Boolean, one byte in memory, one bit in StableHLO.
    Bool = 11,
    /// The upper half of an `F32`.
    BF16 = 15,
    /// Unsigned 16-bit integer.
    U16 = 27,
    /// Unsigned 32-bit integer.
    U32 = 28,
    /// Unsigned 64-bit integer.
    U64 = 29,
}

use DType::{BF16, Bool, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

impl DType {
    /// Every element type, in the order of the codes.
    pub const ALL: [Self; 15] = [
        U8, I8, I16, I32, I64, F16, F32, F64, C64, C128, Bool, BF16, U16, U32, U64,
    ];

    /// The type with this torch `ScalarType` number, if it is one that StableHLO has.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.code() == code)
    }

    /// The torch `ScalarType` number.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Bytes per element in a buffer.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            U8 | I8 | Bool => 1,
            I16 | U16 | F16 | BF16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 | C64 => 8,
            C128 => 16,
        }
    }

    /// Real floating point.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// Complex.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self, C64 | C128)
    }

    /// An integer, signed or not; `Bool` is none.
    #[must_use]
    pub const fn is_int(self) -> bool {
        matches!(self, U8 | I8 | I16 | U16 | I32 | U32 | I64 | U64)
    }

    /// A signed integer.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64)
    }

    /// An unsigned integer.
    #[must_use]
    pub const fn is_unsigned(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }

    /// The float type of a complex type's parts; every other type is its own.
    #[must_use]
    pub const fn real(self) -> Self {
        match self {
            C64 => F32,
            C128 => F64,
            other => other,
        }
    }

    /// The smallest and the largest integer of an integer type.
    pub(crate) fn int_range(self) -> Option<(i128, i128)> {
        if !self.is_int() {
            return None;
        }
        let bits = 8 * self.size();
        Some(if self.is_signed() {
            (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
        } else {
            (0, (1_i128 << bits) - 1)
        })
    }

    /// The name in Python, `float32` for `torch.float32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            U8 => "uint8",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            F32 => "float32",
            F64 => "float64",
            C64 => "complex64",
            C128 => "complex128",
            Bool => "bool",
            BF16 => "bfloat16",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
        }
    }

    /// The name in torch's C++ messages, `Float` or `Long`.
    #[must_use]
    pub const fn torch_name(self) -> &'static str {
        match self {
            U8 => "Byte",
            I8 => "Char",
            I16 => "Short",
            I32 => "Int",
            I64 => "Long",
            F16 => "Half",
            F32 => "Float",
            F64 => "Double",
            C64 => "ComplexFloat",
            C128 => "ComplexDouble",
            Bool => "Bool",
            BF16 => "BFloat16",
            U16 => "UInt16",
            U32 => "UInt32",
            U64 => "UInt64",
        }
    }

    /// The name in MLIR text.
    #[must_use]
    pub const fn mlir(self) -> &'static str {
        match self {
            U8 => "ui8",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            F32 => "f32",
            F64 => "f64",
            C64 => "complex<f32>",
            C128 => "complex<f64>",
            Bool => "i1",
            BF16 => "bf16",
            U16 => "ui16",
            U32 => "ui32",
            U64 => "ui64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_torchs_and_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
        }
        assert_eq!(DType::from_code(8), None);
        assert_eq!((BF16.code(), U64.code()), (15, 29));
    }

    #[test]
    fn integer_ranges() {
        assert_eq!(I8.int_range(), Some((-128, 127)));
        assert_eq!(U64.int_range(), Some((0, i128::from(u64::MAX))));
        assert_eq!(Bool.int_range(), None);
    }
}
