//! Random bits.

use crate::builder::pair;
use crate::check::{self, Kinds};
use crate::{Builder, DType, Error, Result, Value};

/// A counter-based generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rng {
    /// Threefry 2x32; its state is key and counter.
    ThreeFry,
    /// Philox 4x32-10; its state is key and one or two words of counter.
    Philox,
}

impl Builder {
    /// Uniform bits, and the state after them. The state is a vector of two `U64`, or three for
    /// Philox.
    pub fn rng_bits(
        &mut self,
        state: &Value,
        dtype: DType,
        dims: &[i64],
        algo: Rng,
    ) -> Result<(Value, Value)> {
        const OP: &str = "rng_bit_generator";
        Kinds::INT.check(OP, dtype)?;
        check::same_dtype(OP, state.dtype, DType::U64)?;
        let (name, fits) = match algo {
            Rng::ThreeFry => ("THREE_FRY", state.dims() == [2]),
            Rng::Philox => ("PHILOX", state.dims() == [2] || state.dims() == [3]),
        };
        if !fits {
            return Err(Error::Shape {
                op: OP,
                dims: state.dims().into(),
                detail: format!("is no state of {name}"),
            });
        }
        let attributes = format!("rng_algorithm = #stablehlo<rng_algorithm {name}>");
        let results = vec![(state.dtype, state.dims.clone()), (dtype, dims.into())];
        pair(OP, self.emit_with(OP, &[state], &attributes, &[], results)?)
    }
}
