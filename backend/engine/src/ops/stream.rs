//! A stream of random numbers: a counter-based generator, keyed by the seed, with counters of its own for every draw.

use tpulab_stablehlo::{DType, Rng, Unary, Value};

use crate::error::{Error, Result};
use crate::lower::Ctx;

/// The random bits of one call.
pub(super) struct Stream {
    state: Value,
}

impl Stream {
    pub(super) fn new(c: &mut Ctx<'_>) -> Self {
        Self {
            state: c.rng_state(),
        }
    }

    pub(super) fn bits(&mut self, c: &mut Ctx<'_>, dtype: DType, dims: &[i64]) -> Result<Value> {
        if dims.contains(&0) {
            return Ok(c.b.splat(dtype, 0, dims)?);
        }
        let (state, bits) = c.b.rng_bits(&self.state, dtype, dims, Rng::Philox)?;
        self.state = state;
        Ok(bits)
    }

    /// Whole numbers below 2^digits as floats; `dtype` is F32 or F64.
    fn whole(&mut self, c: &mut Ctx<'_>, dtype: DType, digits: i64, dims: &[i64]) -> Result<Value> {
        let (word, width) = if dtype == DType::F64 {
            (DType::U64, 64)
        } else {
            (DType::U32, 32)
        };
        let bits = self.bits(c, word, dims)?;
        let by = c.b.splat_like(&bits, width - digits)?;
        let bits = c.b.shr_logical(&bits, &by)?;
        Ok(c.b.convert(&bits, dtype)?)
    }

    /// Multiples of 2^-digits in [0, 1), as F32 or F64.
    pub(super) fn unit(
        &mut self,
        c: &mut Ctx<'_>,
        dtype: DType,
        digits: i64,
        dims: &[i64],
    ) -> Result<Value> {
        let whole = self.whole(c, dtype, digits, dims)?;
        let scale = c.b.splat_like(&whole, (-digits as f64).exp2())?;
        Ok(c.b.mul(&whole, &scale)?)
    }

    /// In (0, 1): the middles of equal intervals, fine enough for tails.
    pub(super) fn open_unit(
        &mut self,
        c: &mut Ctx<'_>,
        dtype: DType,
        dims: &[i64],
    ) -> Result<Value> {
        let digits = if dtype == DType::F64 { 52 } else { 31 };
        let whole = self.whole(c, dtype, digits, dims)?;
        let half = c.b.splat_like(&whole, 0.5)?;
        let middle = c.b.add(&whole, &half)?;
        let scale = c.b.splat_like(&middle, (-digits as f64).exp2())?;
        let unit = c.b.mul(&middle, &scale)?;
        // Float32 rounds the topmost middles up to one.
        let top = if dtype == DType::F64 {
            1.0 - f64::EPSILON / 2.0
        } else {
            1.0 - f64::from(f32::EPSILON) / 2.0
        };
        let top = c.b.splat_like(&unit, top)?;
        Ok(c.b.min(&unit, &top)?)
    }

    /// Standard normal values, as F32 or F64.
    pub(super) fn normal(&mut self, c: &mut Ctx<'_>, dtype: DType, dims: &[i64]) -> Result<Value> {
        let root = std::f64::consts::SQRT_2;
        if dtype == DType::F64 {
            let tail = self.open_unit(c, dtype, dims)?;
            let one = c.b.splat_like(&tail, 1.0)?;
            let two = c.b.splat_like(&tail, 2.0)?;
            let twice = c.b.mul(&tail, &two)?;
            let x = c.b.sub(&one, &twice)?;
            let z = c.b.unary(Unary::ErfInv, &x)?;
            let root = c.b.splat_like(&z, root)?;
            return Ok(c.b.mul(&z, &root)?);
        }
        let bits = self.bits(c, DType::U32, dims)?;
        let one_bit = c.b.splat_like(&bits, 1)?;
        let whole = c.b.shr_logical(&bits, &one_bit)?;
        let whole = c.b.convert(&whole, DType::F32)?;
        let half = c.b.splat_like(&whole, 0.5)?;
        let middle = c.b.add(&whole, &half)?;
        // Probability of the tail beyond the value, in (0, 1/2].
        let scale = c.b.splat_like(&middle, (-32.0f64).exp2())?;
        let tail = c.b.mul(&middle, &scale)?;
        let size = normal_quantile(c, &tail)?;
        let sign = c.b.and(&bits, &one_bit)?;
        let zero = c.b.splat_like(&sign, 0)?;
        let negative = c.b.ne(&sign, &zero)?;
        let minus = c.b.neg(&size)?;
        Ok(c.b.select(&negative, &minus, &size)?)
    }

    /// Standard exponential values, above zero.
    pub(super) fn exponential(
        &mut self,
        c: &mut Ctx<'_>,
        dtype: DType,
        dims: &[i64],
    ) -> Result<Value> {
        let unit = self.open_unit(c, dtype, dims)?;
        let log = c.b.log(&unit)?;
        Ok(c.b.neg(&log)?)
    }
}

/// sqrt(2)·erfinv(1 - 2t) for tail probabilities t in (0, 1/2]: M. Giles, "Approximating the erfinv function", single
/// precision. Its w = -log((1-x)(1+x)) is found from t itself, which keeps the far tail exact.
fn normal_quantile(c: &mut Ctx<'_>, tail: &Value) -> Result<Value> {
    const CENTRAL: [f64; 9] = [
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    ];
    const OUTER: [f64; 9] = [
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    ];
    let one = c.b.splat_like(tail, 1.0)?;
    let four = c.b.splat_like(tail, 4.0)?;
    let rest = c.b.sub(&one, tail)?;
    let product = c.b.mul(tail, &rest)?;
    let product = c.b.mul(&product, &four)?;
    let product = c.b.min(&product, &one)?;
    let w = c.b.log(&product)?;
    let w = c.b.neg(&w)?;
    let five = c.b.splat_like(&w, 5.0)?;
    let central = c.b.lt(&w, &five)?;
    let shift = c.b.splat_like(&w, 2.5)?;
    let near = c.b.sub(&w, &shift)?;
    let root = c.b.sqrt(&w)?;
    let shift = c.b.splat_like(&w, 3.0)?;
    let far = c.b.sub(&root, &shift)?;
    let at = c.b.select(&central, &near, &far)?;
    let mut sum: Option<Value> = None;
    for (a, b) in CENTRAL.iter().zip(&OUTER) {
        let a = c.b.splat_like(tail, *a)?;
        let b = c.b.splat_like(tail, *b)?;
        let term = c.b.select(&central, &a, &b)?;
        sum = Some(match sum {
            None => term,
            Some(sum) => {
                let product = c.b.mul(&sum, &at)?;
                c.b.add(&product, &term)?
            }
        });
    }
    let sum = sum.ok_or_else(|| Error::runtime("a polynomial without terms"))?;
    let twice = c.b.add(tail, tail)?;
    let x = c.b.sub(&one, &twice)?;
    let z = c.b.mul(&sum, &x)?;
    let root = c.b.splat_like(&z, std::f64::consts::SQRT_2)?;
    Ok(c.b.mul(&z, &root)?)
}

/// Type to compute in, and binary digits of a uniform number of `dtype`.
pub(super) fn precision_of(dtype: DType) -> (DType, i64) {
    match dtype {
        DType::F64 => (DType::F64, 53),
        DType::F16 => (DType::F32, 11),
        DType::BF16 => (DType::F32, 8),
        _ => (DType::F32, 24),
    }
}
