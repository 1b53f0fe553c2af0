//! Factorisations, transforms and calls of foreign code.

use crate::check::{self, Kinds};
use crate::text::{i64s, quoted};
use crate::{Builder, DType, Dims, Error, Result, Value};

/// How a triangular matrix enters a solve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transpose {
    /// As it is.
    #[default]
    No,
    /// Transposed.
    Yes,
    /// Transposed and conjugated.
    Adjoint,
}

impl From<bool> for Transpose {
    fn from(transposed: bool) -> Self {
        if transposed { Self::Yes } else { Self::No }
    }
}

/// A Fourier transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex to complex.
    Fft,
    /// Complex to complex, inverse, divided by the length.
    Ifft,
    /// Real to the non-negative half of the spectrum.
    Rfft,
    /// The non-negative half of a spectrum to real.
    Irfft,
}

impl Builder {
    /// The factor of positive definite matrices in the last two dimensions; the other triangle
    /// of the result is undefined.
    pub fn cholesky(&mut self, a: &Value, lower: bool) -> Result<Value> {
        const OP: &str = "cholesky";
        Kinds::INEXACT.check(OP, a.dtype)?;
        square(OP, a)?;
        self.emit(
            OP,
            &[a],
            &format!("lower = {lower}"),
            a.dtype,
            a.dims.clone(),
        )
    }

    /// Solves `op(a) x = b`, or `x op(a) = b` if not `left`, for triangular `a`.
    pub fn triangular_solve(
        &mut self,
        a: &Value,
        b: &Value,
        left: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose_a: impl Into<Transpose>,
    ) -> Result<Value> {
        const OP: &str = "triangular_solve";
        Kinds::INEXACT.check(OP, a.dtype)?;
        check::same_dtype(OP, a.dtype, b.dtype)?;
        square(OP, a)?;
        check::rank(OP, "right-hand side", b.rank(), a.rank())?;
        let batch = a.rank() - 2;
        let shared = if left { batch } else { batch + 1 };
        if a.dims[..batch] != b.dims[..batch] || a.dims[batch] != b.dims[shared] {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: a.dims().into(),
                rhs: b.dims().into(),
            });
        }
        let name = match transpose_a.into() {
            Transpose::No => "NO_TRANSPOSE",
            Transpose::Yes => "TRANSPOSE",
            Transpose::Adjoint => "ADJOINT",
        };
        let attributes = format!(
            "left_side = {left}, lower = {lower}, transpose_a = #stablehlo<transpose {name}>, \
             unit_diagonal = {unit_diagonal}"
        );
        self.emit(OP, &[a, b], &attributes, b.dtype, b.dims.clone())
    }

    /// A Fourier transform over the last one to three dimensions, whose lengths on the real (or
    /// wider) side are given.
    pub fn fft(&mut self, x: &Value, kind: FftKind, lengths: &[i64]) -> Result<Value> {
        const OP: &str = "fft";
        if !(1..=3).contains(&lengths.len()) || lengths.len() > x.rank() {
            return Err(Error::Attribute {
                op: OP,
                detail: format!("{} lengths for {} dimensions", lengths.len(), x.rank()),
            });
        }
        let first = x.rank() - lengths.len();
        let last = x.rank() - 1;
        let full: Dims = lengths.into();
        let mut half = full.clone();
        half[lengths.len() - 1] = lengths[lengths.len() - 1] / 2 + 1;
        let (name, operand, result) = match kind {
            FftKind::Fft => ("FFT", &full, &full),
            FftKind::Ifft => ("IFFT", &full, &full),
            FftKind::Rfft => ("RFFT", &full, &half),
            FftKind::Irfft => ("IRFFT", &half, &full),
        };
        let taken = if kind == FftKind::Rfft {
            Kinds::FLOAT
        } else {
            Kinds::COMPLEX
        };
        taken.check(OP, x.dtype)?;
        check::same_dims(OP, &x.dims[first..], operand)?;
        let mut dims = x.dims.clone();
        dims[last] = result[lengths.len() - 1];
        let dtype = match (kind, x.dtype) {
            (FftKind::Rfft, DType::F32) => DType::C64,
            (FftKind::Rfft, DType::F64) => DType::C128,
            (FftKind::Rfft, found) => {
                return Err(Error::Attribute {
                    op: OP,
                    detail: format!("there is no complex type of two {found}"),
                });
            }
            (FftKind::Irfft, complex) => complex.real(),
            (_, complex) => complex,
        };
        let attributes = format!(
            "fft_length = {}, fft_type = #stablehlo<fft_type {name}>",
            i64s(lengths)
        );
        self.emit(OP, &[x], &attributes, dtype, dims)
    }

    /// A call of code that the compiler or the plugin knows by name.
    pub fn custom_call(
        &mut self,
        target: &str,
        operands: &[Value],
        results: &[(DType, Dims)],
        backend_config: &str,
    ) -> Result<Vec<Value>> {
        let attributes = format!(
            "backend_config = {}, call_target_name = {}",
            quoted(backend_config),
            quoted(target)
        );
        let operands: Vec<_> = operands.iter().collect();
        self.emit_with("custom_call", &operands, &attributes, &[], results.to_vec())
    }
}

fn square(op: &'static str, a: &Value) -> Result<()> {
    match *a.dims() {
        [.., rows, columns] if rows == columns => Ok(()),
        _ => Err(Error::Shape {
            op,
            dims: a.dims().into(),
            detail: "the last two dimensions are no square matrix".to_owned(),
        }),
    }
}
