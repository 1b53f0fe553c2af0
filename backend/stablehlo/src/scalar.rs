//! Constants: conversion to an element type and their MLIR spelling.

use std::fmt;

use crate::{DType, Error, Result};

/// A constant of no particular element type yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A real number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Real and imaginary part.
    Complex(f64, f64),
}

macro_rules! from {
    ($($variant:ident: $($source:ty)+ as $target:ty;)+) => {$($(
        impl From<$source> for Scalar {
            fn from(value: $source) -> Self {
                Self::$variant(<$target>::from(value))
            }
        }
    )+)+};
}

from! {
    Int: i8 i16 i32 i64 as i64;
    UInt: u8 u16 u32 u64 as u64;
    Float: f32 f64 as f64;
    Bool: bool as bool;
}

impl From<usize> for Scalar {
    fn from(value: usize) -> Self {
        Self::UInt(value as u64)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::UInt(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Complex(re, im) => write!(f, "({re:?}, {im:?})"),
        }
    }
}

impl Scalar {
    /// The element as it stands in `dense<...>`.
    pub(crate) fn literal(self, dtype: DType) -> Result<String> {
        let unfit = Error::Scalar { value: self, dtype };
        if dtype.is_complex() {
            let (re, im) = match self {
                Self::Complex(re, im) => (Self::Float(re), Self::Float(im)),
                real => (real, Self::Float(0.0)),
            };
            let part = dtype.real();
            return Ok(format!(
                "({}, {})",
                re.float_text(part),
                im.float_text(part)
            ));
        }
        let real = match self {
            Self::Complex(re, 0.0) => Self::Float(re),
            Self::Complex(..) => return Err(unfit),
            real => real,
        };
        if dtype.is_float() {
            return Ok(real.float_text(dtype));
        }
        let Some((low, high)) = dtype.int_range() else {
            return Ok(real.truth().to_string());
        };
        match real.integer() {
            Some(value) if (low..=high).contains(&value) => Ok(value.to_string()),
            _ => Err(unfit),
        }
    }

    fn truth(self) -> bool {
        match self {
            Self::Int(value) => value != 0,
            Self::UInt(value) => value != 0,
            Self::Float(value) => value != 0.0,
            Self::Bool(value) => value,
            Self::Complex(re, im) => re != 0.0 || im != 0.0,
        }
    }

    /// The integer, a finite float being truncated.
    fn integer(self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(value.into()),
            Self::UInt(value) => Some(value.into()),
            // The cast saturates far outside of every element type's range.
            Self::Float(value) => value.is_finite().then_some(value as i128),
            Self::Bool(value) => Some(value.into()),
            Self::Complex(..) => None,
        }
    }

    fn float_text(self, dtype: DType) -> String {
        match dtype {
            DType::F64 => match self {
                Self::Int(value) => f64_text(value as f64),
                Self::UInt(value) => f64_text(value as f64),
                other => f64_text(other.wide()),
            },
            DType::F32 => match self {
                Self::Int(value) => f32_text(value as f32),
                Self::UInt(value) => f32_text(value as f32),
                other => f32_text(other.wide() as f32),
            },
            DType::F16 => narrow_text(self.wide(), &Narrow::F16),
            _ => narrow_text(self.wide(), &Narrow::BF16),
        }
    }

    /// As `f64`; an integer that does not fit is rounded to odd, so that rounding once more to
    /// a narrow type still gives the nearest number.
    fn wide(self) -> f64 {
        match self {
            Self::Int(value) => to_odd(value.into()),
            Self::UInt(value) => to_odd(value.into()),
            Self::Float(value) => value,
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Complex(re, _) => re,
        }
    }
}

fn to_odd(value: i128) -> f64 {
    let near = value as f64;
    let back = near as i128;
    if back == value {
        return near;
    }
    let bits = near.to_bits();
    let toward_zero = if back.abs() > value.abs() {
        bits - 1
    } else {
        bits
    };
    f64::from_bits(toward_zero | 1)
}

fn f64_text(value: f64) -> String {
    if value.is_finite() {
        pointed(format!("{value:?}"))
    } else if value.is_nan() {
        "0x7FF8000000000000".to_owned()
    } else {
        format!("0x{:016X}", value.to_bits())
    }
}

fn f32_text(value: f32) -> String {
    if value.is_nan() {
        return "0x7FC00000".to_owned();
    }
    if value.is_infinite() {
        return format!("0x{:08X}", value.to_bits());
    }
    let short = pointed(format!("{value:?}"));
    // Readers may parse to f64 and round again; the short spelling must survive that.
    match short.parse::<f64>() {
        Ok(wide) if (wide as f32).to_bits() == value.to_bits() => short,
        _ => f64_text(value.into()),
    }
}

/// MLIR wants a decimal point also before an exponent.
fn pointed(text: String) -> String {
    match text.split_once('e') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => {
            format!("{mantissa}.0e{exponent}")
        }
        _ => text,
    }
}

/// A 16-bit float format.
struct Narrow {
    mantissa_bits: i32,
    min_exponent: i32,
    infinity: u16,
    nan: u16,
}

impl Narrow {
    const F16: Self = Self {
        mantissa_bits: 10,
        min_exponent: -14,
        infinity: 0x7C00,
        nan: 0x7E00,
    };
    const BF16: Self = Self {
        mantissa_bits: 7,
        min_exponent: -126,
        infinity: 0x7F80,
        nan: 0x7FC0,
    };
}

/// Rounds to nearest even and spells the result.
fn narrow_text(value: f64, format: &Narrow) -> String {
    if value.is_nan() {
        return format!("0x{:04X}", format.nan);
    }
    let magnitude = value.abs();
    let sign_bit = if value.is_sign_negative() { 0x8000 } else { 0 };
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(format.min_exponent);
    let overflow =
        exponent - format.min_exponent + 1 >= i32::from(format.infinity >> format.mantissa_bits);
    let quantum = 2_f64.powi(exponent - format.mantissa_bits);
    let steps = (magnitude / quantum).round_ties_even();
    let top = 2_f64.powi(format.mantissa_bits + 1);
    let last = i32::from(format.infinity >> format.mantissa_bits) - 1;
    let carried = exponent - format.min_exponent + 1 == last && steps >= top;
    if overflow || carried {
        return format!("0x{:04X}", sign_bit | format.infinity);
    }
    f32_text((steps * quantum).copysign(value) as f32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use DType::{BF16, Bool, C64, F16, F32, F64, I8, I64, U8, U64};

    fn spelled(value: impl Into<Scalar>, dtype: DType) -> String {
        value.into().literal(dtype).unwrap()
    }

    #[test]
    fn spelling() {
        assert_eq!(spelled(1, F32), "1.0");
        assert_eq!(spelled(0.1_f32, F32), "0.1");
        assert_eq!(spelled(1e-7, F64), "1.0e-7");
        assert_eq!(spelled(-0.0, BF16), "-0.0");
        assert_eq!(spelled(f64::INFINITY, F64), "0x7FF0000000000000");
        assert_eq!(spelled(f64::NEG_INFINITY, F16), "0xFC00");
        assert_eq!(spelled(-f64::NAN, BF16), "0x7FC0");
        assert_eq!(spelled(2, C64), "(2.0, 0.0)");
        assert_eq!(
            spelled(Scalar::Complex(0.5, f64::INFINITY), C64),
            "(0.5, 0x7F800000)"
        );
        assert_eq!(spelled(f64::NAN, Bool), "true");
        assert_eq!(spelled(-128.9, I8), "-128");
        assert_eq!(spelled(u64::MAX, U64), "18446744073709551615");
    }

    #[test]
    fn what_does_not_fit() {
        let refused = |value: Scalar, dtype| value.literal(dtype).is_err();
        assert!(refused(Scalar::Int(128), I8));
        assert!(refused(Scalar::Int(-1), U8));
        assert!(refused(Scalar::UInt(1 << 63), I64));
        assert!(refused(Scalar::Float(9.3e18), I64));
        assert!(refused(Scalar::Float(f64::INFINITY), I64));
        assert!(refused(Scalar::Complex(1.0, 1.0), F32));
        assert!(!refused(Scalar::Complex(1.0, 0.0), I8));
    }

    #[test]
    fn rounding_at_the_edges_of_half_precision() {
        assert_eq!(spelled(65504, F16), "65504.0");
        assert_eq!(spelled(65519.9, F16), "65504.0");
        assert_eq!(spelled(65520, F16), "0x7C00");
        assert_eq!(spelled(1e300, F16), "0x7C00");
        assert_eq!(spelled(2049, F16), "2048.0");
        assert_eq!(spelled(2_f64.powi(-25), F16), "0.0");
        assert_eq!(spelled(2_f64.powi(-25) * 1.001, F16), "5.9604645e-8");
        assert_eq!(spelled(1e-310, BF16), "0.0");
        assert_eq!(spelled(f64::MIN_POSITIVE / 2.0, F16), "0.0");
    }

    /// The finite numbers of a 16-bit format, zero and up.
    fn numbers(dtype: DType) -> Vec<f64> {
        let (mantissa_bits, min_exponent, infinity) = if dtype == F16 {
            (10, -14, 0x7C00)
        } else {
            (7, -126, 0x7F80)
        };
        (0..infinity)
            .map(|bits: i32| {
                let (exponent, mantissa) =
                    (bits >> mantissa_bits, bits & ((1 << mantissa_bits) - 1));
                let hidden = if exponent > 0 { 1 << mantissa_bits } else { 0 };
                f64::from(hidden + mantissa)
                    * 2_f64.powi(exponent.max(1) - 1 + min_exponent - mantissa_bits)
            })
            .collect()
    }

    proptest! {
        /// No number of the format is nearer, and of two equally near ones it is the even one.
        #[test]
        fn rounds_to_nearest(value in prop_oneof![
            -66000.0..66000.0_f64, -1e-4..1e-4_f64, -4e-8..4e-8_f64, -1e38..1e38_f64,
        ], narrow in prop_oneof![Just(F16), Just(BF16)]) {
            let table = numbers(narrow);
            let text = spelled(value, narrow);
            let top = table[table.len() - 1];
            let quantum = top - table[table.len() - 2];
            if value.abs() >= top + quantum / 2.0 {
                prop_assert!(text.starts_with("0x"));
            } else {
                let found: f64 = text.parse::<f32>().unwrap().into();
                let place = table.iter().position(|number| *number == found.abs());
                prop_assert!(place.is_some(), "{} is no {}", found, narrow);
                let place = place.unwrap();
                let distance = (value.abs() - found.abs()).abs();
                for (other, number) in table.iter().enumerate() {
                    let away = (value.abs() - number).abs();
                    prop_assert!(distance < away || (distance == away && place % 2 == 0) || other == place);
                }
            }
        }

        #[test]
        fn single_precision_survives_parsing_by_way_of_double(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let parsed = spelled(value, F32).parse::<f64>().unwrap();
            prop_assert_eq!((parsed as f32).to_bits(), bits);
        }

        #[test]
        fn large_integers_round_once(value in any::<i64>()) {
            let expected = value as f32;
            prop_assert_eq!(spelled(value, F32).parse::<f32>().unwrap(), expected);
            // Halfway between two bf16 numbers, one unit up or down decides.
            let half = (1_i64 << 60) + (1 << 52);
            let up: f32 = spelled(half + 1, BF16).parse().unwrap();
            let down: f32 = spelled(half - 1, BF16).parse().unwrap();
            prop_assert_eq!(up, ((1_i64 << 60) + (1 << 53)) as f32);
            prop_assert_eq!(down, (1_i64 << 60) as f32);
        }
    }
}
