//! Operands of pointwise ops: promotion and broadcasting.

use tpulab_stablehlo::{DType, Dims, Value};

use super::{Ctx, Number};
use crate::error::{Error, Result};
use crate::promote::Promotion;

#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Tensor(Value),
    Number(Number),
}

impl Operand {
    pub(crate) fn dims(&self) -> &[i64] {
        match self {
            Self::Tensor(value) => &value.dims,
            Self::Number(_) => &[],
        }
    }
}

/// Broadcast sizes, with torch's message when they do not fit.
pub(crate) fn broadcast_dims(shapes: &[&[i64]]) -> Result<Dims> {
    let mut out = Dims::new();
    for shape in shapes {
        let rank = out.len().max(shape.len());
        let at = |dims: &[i64], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |j| dims[j]);
        let mut next = Dims::new();
        for i in 0..rank {
            let (a, b) = (at(&out, i), at(shape, i));
            next.push(match (a, b) {
                _ if a == b => a,
                (1, _) => b,
                (_, 1) => a,
                _ => {
                    return Err(Error::runtime(format!(
                        "The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton \
                         dimension {i}"
                    )));
                }
            });
        }
        out = next;
    }
    Ok(out)
}

impl Ctx<'_> {
    /// A tensor or number argument, unconverted.
    pub(crate) fn operand(&mut self, name: &str) -> Result<Operand> {
        Ok(match self.opt_number(name)? {
            Some(number) => Operand::Number(number),
            None => Operand::Tensor(self.tensor(name)?),
        })
    }

    /// `torch.result_type` of the operands.
    pub(crate) fn result_type(&self, operands: &[&Operand]) -> DType {
        let mut promotion = Promotion::default();
        for operand in operands {
            match operand {
                Operand::Tensor(value) => promotion.tensor(value.dtype, value.rank()),
                Operand::Number(Number {
                    host: Some(dtype), ..
                }) => promotion.tensor(*dtype, 0),
                Operand::Number(number) => promotion.number(number.dtype(self.default_dtype())),
            }
        }
        promotion.result()
    }

    /// The operand as a value of `dtype`, its own dims.
    pub(crate) fn value(&mut self, operand: &Operand, dtype: DType) -> Result<Value> {
        match operand {
            Operand::Tensor(value) => Ok(self.b.convert(value, dtype)?),
            Operand::Number(number) => self.number_value(number, dtype),
        }
    }

    /// All operands promoted to `dtype` and broadcast to one shape.
    pub(crate) fn aligned(&mut self, operands: &[&Operand], dtype: DType) -> Result<Vec<Value>> {
        let shapes: Vec<&[i64]> = operands.iter().map(|operand| operand.dims()).collect();
        let dims = broadcast_dims(&shapes)?;
        operands
            .iter()
            .map(|operand| {
                let value = self.value(operand, dtype)?;
                Ok(self.b.broadcast_to(&value, &dims)?)
            })
            .collect()
    }

    /// Two arguments promoted together and broadcast: (a, b, common dtype).
    pub(crate) fn binary(&mut self, a: &str, b: &str) -> Result<(Value, Value, DType)> {
        let (a, b) = (self.operand(a)?, self.operand(b)?);
        let dtype = self.result_type(&[&a, &b]);
        let mut values = self.aligned(&[&a, &b], dtype)?.into_iter();
        match (values.next(), values.next()) {
            (Some(a), Some(b)) => Ok((a, b, dtype)),
            _ => Err(Error::runtime("two operands were expected")),
        }
    }

    /// dtype that a floating-point function of `dtype` computes in: ints and bool become the default dtype.
    pub(crate) fn float_type(&self, dtype: DType) -> DType {
        if dtype.is_float() || dtype.is_complex() {
            dtype
        } else {
            self.default_dtype()
        }
    }
}
