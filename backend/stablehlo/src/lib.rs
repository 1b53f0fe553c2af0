//! A typed builder of StableHLO modules.
//!
//! [`Builder`] writes a module as MLIR text in generic form, one line per operation. Every method
//! checks element types and shapes first and answers with an [`Error`] that names the operation
//! and the facts, so that a wrong program is refused here and not inside a compiler.
//!
//! ```
//! use tpulab_stablehlo::{Builder, DType, Precision, Reducer};
//!
//! # fn main() -> tpulab_stablehlo::Result<()> {
//! let mut b = Builder::new();
//! let x = b.param(DType::F32, &[8, 4]);
//! let w = b.param(DType::F32, &[4, 2]);
//! let product = b.matmul(&x, &w, Precision::Default)?;
//! let active = b.tanh(&product)?;
//! let total = b.reduce_with(Reducer::Sum, &active, &[0])?;
//! assert_eq!(total.dims(), [2]);
//! let text = b.finish(&[total], |_| None);
//! # assert!(text.contains("dot_general"));
//!
//! let mut b = Builder::new();
//! let x = b.param(DType::F32, &[8]);
//! let y = b.param(DType::F32, &[4]);
//! let wrong = b.add(&x, &y).unwrap_err();
//! assert_eq!(wrong.to_string(), "add: shapes differ: [8] and [4]");
//! # Ok(())
//! # }
//! ```

mod builder;
mod check;
mod constant;
mod contract;
mod control;
mod convolution;
mod dtype;
mod elementwise;
mod error;
mod index;
mod linalg;
mod random;
mod reduce;
mod scalar;
mod shape;
mod text;
mod value;
mod window;

pub use builder::Builder;
pub use check::Kinds;
pub use contract::Precision;
pub use convolution::{ConvDims, ConvSpec};
pub use dtype::DType;
pub use elementwise::{Binary, Cmp, Unary};
pub use error::{Error, Result};
pub use index::{GatherDims, ScatterDims};
pub use linalg::{FftKind, Transpose};
pub use random::Rng;
pub use reduce::Reducer;
pub use scalar::Scalar;
pub use value::{Dims, Value};
pub use window::WindowSpec;
