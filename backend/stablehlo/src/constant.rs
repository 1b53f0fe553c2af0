//! Constants.

use crate::check::{self, Kinds};
use crate::text::{join, tensor};
use crate::{Builder, DType, Error, Result, Scalar, Value};

impl Builder {
    /// A 0-d constant, converted to the element type. Integers must fit, floats are rounded, and
    /// a float becomes an integer by truncation if it is finite and in range.
    pub fn scalar(&mut self, dtype: DType, value: impl Into<Scalar>) -> Result<Value> {
        self.splat(dtype, value, &[])
    }

    /// A constant with one value everywhere.
    pub fn splat(&mut self, dtype: DType, value: impl Into<Scalar>, dims: &[i64]) -> Result<Value> {
        check::valid_dims("constant", dims)?;
        let literal = if dims.contains(&0) {
            String::new()
        } else {
            value.into().literal(dtype)?
        };
        let attribute = format!("value = dense<{literal}> : {}", tensor(dtype, dims));
        if let Some(known) = self.known_constant(&attribute) {
            return Ok(known);
        }
        let made = self.emit("constant", &[], &attribute, dtype, dims.into())?;
        self.constants().insert(attribute, made.clone());
        Ok(made)
    }

    /// A constant with one value everywhere and the type of another value.
    pub fn splat_like(&mut self, like: &Value, value: impl Into<Scalar>) -> Result<Value> {
        self.splat(like.dtype, value, &like.dims)
    }

    /// A constant with these elements in row-major order.
    pub fn dense_ints(&mut self, dtype: DType, values: &[i64], dims: &[i64]) -> Result<Value> {
        self.dense(dtype, values, dims)
    }

    /// A constant with these elements in row-major order.
    pub fn dense_floats(&mut self, dtype: DType, values: &[f64], dims: &[i64]) -> Result<Value> {
        self.dense(dtype, values, dims)
    }

    fn dense<T: Copy + Into<Scalar>>(
        &mut self,
        dtype: DType,
        values: &[T],
        dims: &[i64],
    ) -> Result<Value> {
        check::valid_dims("constant", dims)?;
        let numel: i64 = dims.iter().product();
        check::count(
            "constant",
            "elements",
            values.len(),
            usize::try_from(numel).unwrap_or(0),
        )?;
        let texts = values
            .iter()
            .map(|value| (*value).into().literal(dtype))
            .collect::<Result<Vec<_>>>()?;
        let literal = match texts.as_slice() {
            [] => String::new(),
            [first, rest @ ..] if rest.iter().all(|text| text == first) => first.clone(),
            many => nested(many, dims),
        };
        let attribute = format!("value = dense<{literal}> : {}", tensor(dtype, dims));
        self.emit("constant", &[], &attribute, dtype, dims.into())
    }

    /// Numbers counting up from zero along one dimension.
    pub fn iota(&mut self, dtype: DType, dims: &[i64], dim: usize) -> Result<Value> {
        Kinds::NUMBER.check("iota", dtype)?;
        check::dim("iota", dim, dims.len())?;
        let attribute = format!("iota_dimension = {dim} : i64");
        self.emit("iota", &[], &attribute, dtype, dims.into())
    }

    /// The least value of the type, minus infinity for floats; 0-d.
    pub fn min_value(&mut self, dtype: DType) -> Result<Value> {
        let (low, _) = extremes(dtype)?;
        self.scalar(dtype, low)
    }

    /// The greatest value of the type, infinity for floats; 0-d.
    pub fn max_value(&mut self, dtype: DType) -> Result<Value> {
        let (_, high) = extremes(dtype)?;
        self.scalar(dtype, high)
    }
}

fn extremes(dtype: DType) -> Result<(Scalar, Scalar)> {
    Kinds::ORDERED.check("extreme value", dtype)?;
    Ok(match dtype.int_range() {
        Some((low, high)) => {
            // Every integer type's bounds fit: the low ones into i64, the high ones into u64.
            let unfit = |_| Error::DType {
                op: "extreme value",
                found: dtype,
                expected: Kinds::ORDERED,
            };
            let low = i64::try_from(low).map_err(unfit)?;
            let high = u64::try_from(high).map_err(unfit)?;
            (Scalar::Int(low), Scalar::UInt(high))
        }
        None if dtype == DType::Bool => (false.into(), true.into()),
        None => (f64::NEG_INFINITY.into(), f64::INFINITY.into()),
    })
}

/// Elements in nested brackets, as MLIR spells a tensor of several dimensions.
fn nested(texts: &[String], dims: &[i64]) -> String {
    let Some((_, inner)) = dims.split_first() else {
        return join(texts);
    };
    let step = inner.iter().product::<i64>().unsigned_abs() as usize;
    let parts = texts.chunks(step.max(1)).map(|chunk| nested(chunk, inner));
    format!("[{}]", join(parts))
}
