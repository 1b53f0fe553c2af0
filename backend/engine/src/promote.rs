//! Type promotion, as `torch.result_type` defines it (c10/core/ScalarType and ATen/native/TypeProperties).

use tpulab_stablehlo::DType;

fn rank(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U16
        | DType::U32
        | DType::U64 => 1,
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => 2,
        DType::C64 | DType::C128 => 3,
    }
}

/// The dtype that holds both.
pub(crate) fn promote(a: DType, b: DType) -> DType {
    if a == b {
        return a;
    }
    match (rank(a), rank(b)) {
        (x, y) if x < y && y != 3 => b,
        (x, y) if x > y && x != 3 => a,
        (3, _) | (_, 3) => {
            let double = |d| matches!(d, DType::F64 | DType::C128);
            if double(a) || double(b) {
                DType::C128
            } else {
                DType::C64
            }
        }
        (2, _) => match (a, b) {
            (DType::F64, _) | (_, DType::F64) => DType::F64,
            _ => DType::F32,
        },
        _ => promote_ints(a, b),
    }
}

fn promote_ints(a: DType, b: DType) -> DType {
    let (a, b) = if a.size() >= b.size() { (a, b) } else { (b, a) };
    if a.is_signed() == b.is_signed() || a.is_signed() && a.size() > b.size() {
        return a;
    }
    // One unsigned of at least the other's width: the next signed width.
    match a.size().max(b.size()) {
        1 => DType::I16,
        2 => DType::I32,
        _ => DType::I64,
    }
}

/// Whether a result of `from` may be written to `to` without an explicit cast.
pub(crate) fn can_cast(from: DType, to: DType) -> bool {
    let (from_rank, to_rank) = (rank(from), rank(to));
    !(from_rank == 3 && to_rank != 3
        || from_rank >= 2 && to_rank < 2
        || from_rank != 0 && to_rank == 0)
}

/// Operands by how much they weigh: tensors with dims, without dims, wrapped numbers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Promotion {
    dimensioned: Option<DType>,
    zero_dim: Option<DType>,
    wrapped: Option<DType>,
}

impl Promotion {
    pub(crate) fn tensor(&mut self, dtype: DType, rank: usize) {
        let slot = if rank == 0 {
            &mut self.zero_dim
        } else {
            &mut self.dimensioned
        };
        *slot = Some(slot.map_or(dtype, |old| promote(old, dtype)));
    }

    pub(crate) fn number(&mut self, dtype: DType) {
        self.wrapped = Some(self.wrapped.map_or(dtype, |old| promote(old, dtype)));
    }

    pub(crate) fn result(self) -> DType {
        let combine = |higher: Option<DType>, lower: Option<DType>| match (higher, lower) {
            (Some(h), Some(l)) if rank(h) >= rank(l) => Some(h),
            // A complex number keeps the precision of a floating tensor.
            (Some(h), Some(l)) if rank(l) == 3 && rank(h) == 2 => Some(promote(h, DType::C64)),
            (Some(_) | None, lower) if lower.is_some() => lower,
            (higher, _) => higher,
        };
        combine(self.dimensioned, combine(self.zero_dim, self.wrapped)).unwrap_or(DType::F32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_follows_torch() {
        assert_eq!(promote(DType::U8, DType::I8), DType::I16);
        assert_eq!(promote(DType::I64, DType::F16), DType::F16);
        assert_eq!(promote(DType::F16, DType::BF16), DType::F32);
        assert_eq!(promote(DType::Bool, DType::U8), DType::U8);
        let mut p = Promotion::default();
        p.tensor(DType::F16, 2);
        p.tensor(DType::F32, 0);
        assert_eq!(p.result(), DType::F16);
        let mut p = Promotion::default();
        p.tensor(DType::I32, 1);
        p.number(DType::F32);
        assert_eq!(p.result(), DType::F32);
        assert!(!can_cast(DType::F32, DType::I64) && can_cast(DType::I64, DType::F16));
    }
}
