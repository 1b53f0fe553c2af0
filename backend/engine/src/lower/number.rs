//! Numbers of a call: constants of the program at first, run-time values once they keep changing.

use tpulab_stablehlo::{DType, Scalar};

use crate::error::{Error, Result};
use crate::key::NumberKind;

/// A Python number, or a CPU tensor without dimensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    /// Place among the call's numbers; `None` for one that is always part of the key.
    pub index: Option<usize>,
    pub kind: NumberKind,
    pub bits: u64,
    /// Dtype of the CPU tensor it came from, unless torch wrapped it.
    pub host: Option<DType>,
}

impl Number {
    pub(crate) fn int(value: i64) -> Self {
        Self {
            index: None,
            kind: NumberKind::Int,
            bits: value as u64,
            host: None,
        }
    }

    pub(crate) fn float(value: f64) -> Self {
        Self {
            index: None,
            kind: NumberKind::Float,
            bits: value.to_bits(),
            host: None,
        }
    }

    pub(crate) fn boolean(value: bool) -> Self {
        Self {
            index: None,
            kind: NumberKind::Bool,
            bits: u64::from(value),
            host: None,
        }
    }

    /// dtype it takes part in promotion with.
    pub(crate) fn dtype(&self, default_float: DType) -> DType {
        self.host.unwrap_or(match self.kind {
            NumberKind::Int => DType::I64,
            NumberKind::Float => default_float,
            NumberKind::Bool => DType::Bool,
        })
    }

    pub(crate) fn as_f64(&self) -> f64 {
        match self.kind {
            NumberKind::Float => f64::from_bits(self.bits),
            NumberKind::Int => self.bits as i64 as f64,
            NumberKind::Bool => self.bits as f64,
        }
    }

    pub(crate) fn scalar(&self) -> Scalar {
        match self.kind {
            NumberKind::Float => Scalar::Float(f64::from_bits(self.bits)),
            NumberKind::Int => Scalar::Int(self.bits as i64),
            NumberKind::Bool => Scalar::Bool(self.bits != 0),
        }
    }
}

/// Little-endian bytes of a number as `dtype`, rounded as a C cast would (floats to ints truncate).
pub(crate) fn encode(kind: NumberKind, bits: u64, dtype: DType) -> Result<([u8; 8], usize)> {
    let number = Number {
        index: None,
        kind,
        bits,
        host: None,
    };
    let float = number.as_f64();
    let int = match kind {
        NumberKind::Float => float as i64,
        _ => bits as i64,
    };
    let mut out = [0; 8];
    let raw: u64 = match dtype {
        DType::Bool => u64::from(float != 0.0 || float.is_nan()),
        DType::U8
        | DType::I8
        | DType::U16
        | DType::I16
        | DType::U32
        | DType::I32
        | DType::I64
        | DType::U64 => int as u64,
        DType::F16 => u64::from(half::f16::from_f64(float).to_bits()),
        DType::BF16 => u64::from(half::bf16::from_f64(float).to_bits()),
        DType::F32 => u64::from((float as f32).to_bits()),
        DType::F64 => float.to_bits(),
        DType::C64 | DType::C128 => return Err(Error::not_lowered("a complex run-time number")),
    };
    out.copy_from_slice(&raw.to_le_bytes());
    Ok((out, dtype.size()))
}
