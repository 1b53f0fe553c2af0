//! Stable sorting of narrow values as single 64-bit words: a key that orders as the value does, then its place.
//!
//! A compiler for the CPU sorts plain integers several times faster than pairs with a comparator of their own.

use tpulab_stablehlo::{Builder, DType, Value};

use crate::error::{Error, Result};

const SIGN: u32 = 1 << 31;

/// Whether values of `dtype`, so many in a row, fit a word together with their place.
pub(crate) fn fits(dtype: DType, size: i64) -> bool {
    let narrow = dtype.size() <= 4 && !dtype.is_complex();
    narrow && dtype != DType::U32 && size < i64::from(i32::MAX)
}

/// Sorted values along `dim` and their former places as int32. NaN counts as the greatest value.
pub(crate) fn sort(
    b: &mut Builder,
    x: &Value,
    dim: usize,
    descending: bool,
) -> Result<(Value, Value)> {
    let (mut key, tag) = if x.dtype.is_float() {
        float_key(b, x)?
    } else {
        (int_key(b, x)?, None)
    };
    if descending {
        key = b.not(&key)?;
    }
    let mut low = b.iota(DType::U32, &x.dims, dim)?;
    if let Some(tag) = &tag {
        let one = b.splat_like(&low, 1u32)?;
        low = b.shl(&low, &one)?;
        low = b.or(&low, tag)?;
    }
    let high = b.convert(&key, DType::U64)?;
    let half = b.splat_like(&high, 32u32)?;
    let high = b.shl(&high, &half)?;
    let low = b.convert(&low, DType::U64)?;
    let word = b.or(&high, &low)?;
    let sorted = b.sort(std::slice::from_ref(&word), dim, false, |b, pair| {
        b.lt(&pair[0], &pair[1])
    })?;
    let word = sorted
        .into_iter()
        .next()
        .ok_or_else(|| Error::runtime("a sort gave no result"))?;
    let high = b.shr_logical(&word, &half)?;
    let mut key = b.convert(&high, DType::U32)?;
    let mask = b.splat_like(&word, u64::from(u32::MAX))?;
    let low = b.and(&word, &mask)?;
    let low = b.convert(&low, DType::U32)?;
    if descending {
        key = b.not(&key)?;
    }
    if tag.is_none() {
        let value = int_value(b, &key, x.dtype)?;
        return Ok((value, b.convert(&low, DType::I32)?));
    }
    let one = b.splat_like(&low, 1u32)?;
    let tag = b.and(&low, &one)?;
    let place = b.shr_logical(&low, &one)?;
    let value = float_value(b, &key, &tag, x.dtype)?;
    Ok((value, b.convert(&place, DType::I32)?))
}

/// An unsigned key in the order of a float, zeros alike and NaN above all; and 1 for −0, which the key forgets.
fn float_key(b: &mut Builder, x: &Value) -> Result<(Value, Option<Value>)> {
    let x = b.convert(x, DType::F32)?;
    let bits = b.bitcast(&x, DType::U32)?;
    let sign = b.splat_like(&bits, SIGN)?;
    let signed = b.and(&bits, &sign)?;
    let nothing = b.splat_like(&bits, 0u32)?;
    let negative = b.ne(&signed, &nothing)?;
    // Negative floats order against their bits.
    let up = b.or(&bits, &sign)?;
    let down = b.not(&bits)?;
    let key = b.select(&negative, &down, &up)?;
    let zero = b.splat_like(&x, 0)?;
    let is_zero = b.eq(&x, &zero)?;
    let key = b.select(&is_zero, &sign, &key)?;
    let nan = b.ne(&x, &x)?;
    let most = b.splat_like(&bits, u32::MAX)?;
    let key = b.select(&nan, &most, &key)?;
    let minus_zero = b.and(&negative, &is_zero)?;
    let tag = b.convert(&minus_zero, DType::U32)?;
    Ok((key, Some(tag)))
}

fn float_value(b: &mut Builder, key: &Value, tag: &Value, dtype: DType) -> Result<Value> {
    let sign = b.splat_like(key, SIGN)?;
    let signed = b.and(key, &sign)?;
    let nothing = b.splat_like(key, 0u32)?;
    let positive = b.ne(&signed, &nothing)?;
    let up = b.xor(key, &sign)?;
    let down = b.not(key)?;
    let bits = b.select(&positive, &up, &down)?;
    let end = b.splat_like(key, 31u32)?;
    let minus = b.shl(tag, &end)?;
    let bits = b.or(&bits, &minus)?;
    let value = b.bitcast(&bits, DType::F32)?;
    Ok(b.convert(&value, dtype)?)
}

/// An unsigned key in the order of an integer.
fn int_key(b: &mut Builder, x: &Value) -> Result<Value> {
    if !x.dtype.is_signed() || x.dtype == DType::Bool {
        return Ok(b.convert(x, DType::U32)?);
    }
    let wide = b.convert(x, DType::I32)?;
    let bits = b.bitcast(&wide, DType::U32)?;
    let sign = b.splat_like(&bits, SIGN)?;
    Ok(b.xor(&bits, &sign)?)
}

fn int_value(b: &mut Builder, key: &Value, dtype: DType) -> Result<Value> {
    if !dtype.is_signed() || dtype == DType::Bool {
        return Ok(b.convert(key, dtype)?);
    }
    let sign = b.splat_like(key, SIGN)?;
    let bits = b.xor(key, &sign)?;
    let wide = b.bitcast(&bits, DType::I32)?;
    Ok(b.convert(&wide, dtype)?)
}
