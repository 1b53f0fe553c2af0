//! Matrix products.

use crate::check;
use crate::text::list;
use crate::{Builder, DType, Dims, Result, Value};

/// How exactly a product of floats is computed; matters where the hardware multiplies bf16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// As fast as possible.
    #[default]
    Default,
    /// Three bf16 passes.
    High,
    /// As good as f32.
    Highest,
}

impl Precision {
    /// The attribute for two operands.
    pub(crate) fn attribute(self) -> String {
        let name = match self {
            Self::Default => "DEFAULT",
            Self::High => "HIGH",
            Self::Highest => "HIGHEST",
        };
        format!("precision_config = [#stablehlo<precision {name}>, #stablehlo<precision {name}>]")
    }
}

impl Builder {
    /// The general product: batch dimensions run together and come first, contracted dimensions
    /// are summed over, then follow what is left of `a` and of `b`.
    pub fn dot_general(
        &mut self,
        a: &Value,
        b: &Value,
        batch: (&[usize], &[usize]),
        contract: (&[usize], &[usize]),
        precision: Precision,
        out: DType,
    ) -> Result<Value> {
        const OP: &str = "dot_general";
        check::same_dtype(OP, a.dtype, b.dtype)?;
        check::count(OP, "batch dimensions", batch.1.len(), batch.0.len())?;
        check::count(
            OP,
            "contracted dimensions",
            contract.1.len(),
            contract.0.len(),
        )?;
        let used_a = [batch.0, contract.0].concat();
        let used_b = [batch.1, contract.1].concat();
        check::dims_of(OP, &used_a, a.rank())?;
        check::dims_of(OP, &used_b, b.rank())?;
        let sizes =
            |x: &Value, used: &[usize]| -> Dims { used.iter().map(|&d| x.dims[d]).collect() };
        if sizes(a, &used_a) != sizes(b, &used_b) {
            return Err(crate::Error::ShapeMismatch {
                op: OP,
                lhs: a.dims().into(),
                rhs: b.dims().into(),
            });
        }
        let mut dims = sizes(a, batch.0);
        dims.extend(check::remaining(&a.dims, &used_a));
        dims.extend(check::remaining(&b.dims, &used_b));
        let attributes = format!(
            "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {}, \
             rhs_batching_dimensions = {}, lhs_contracting_dimensions = {}, \
             rhs_contracting_dimensions = {}>, {}",
            list(batch.0),
            list(batch.1),
            list(contract.0),
            list(contract.1),
            precision.attribute()
        );
        self.emit(OP, &[a, b], &attributes, out, dims)
    }

    /// `a @ b` of two matrices, or of two equally long batches of matrices.
    pub fn matmul(&mut self, a: &Value, b: &Value, precision: Precision) -> Result<Value> {
        const OP: &str = "dot_general";
        check::rank(OP, "right matrix", b.rank(), a.rank())?;
        let Some(batch) = a.rank().checked_sub(2) else {
            return Err(crate::Error::Rank {
                op: OP,
                what: "matrix",
                found: a.rank(),
                expected: 2,
            });
        };
        let leading: Vec<_> = (0..batch).collect();
        let contracted = ([batch + 1], [batch]);
        self.dot_general(
            a,
            b,
            (&leading, &leading),
            (&contracted.0, &contracted.1),
            precision,
            a.dtype,
        )
    }
}
