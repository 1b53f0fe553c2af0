//! Elementwise operations.

use crate::check::{self, Kinds};
use crate::{Builder, DType, Dims, Result, Value};

/// An operation on one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    Abs,
    Negate,
    Exp,
    Expm1,
    Log,
    Log1p,
    Sqrt,
    Rsqrt,
    Cbrt,
    Tanh,
    Logistic,
    Sine,
    Cosine,
    Tan,
    Floor,
    Ceil,
    RoundNearestEven,
    RoundNearestAfz,
    Sign,
    Not,
    Popcnt,
    CountLeadingZeros,
    IsFinite,
    Real,
    Imag,
    Erf,
    Erfc,
    ErfInv,
    Lgamma,
    Digamma,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Sinh,
    Cosh,
    BesselI1e,
    IsInf,
    IsPosInf,
    IsNegInf,
}

impl Unary {
    /// Name in the text and operand types.
    const fn spec(self) -> (&'static str, Kinds) {
        match self {
            Self::Abs => ("abs", Kinds::SIGNED.or(Kinds::INEXACT)),
            Self::Negate => ("negate", Kinds::NUMBER),
            Self::Exp => ("exponential", Kinds::INEXACT),
            Self::Expm1 => ("exponential_minus_one", Kinds::INEXACT),
            Self::Log => ("log", Kinds::INEXACT),
            Self::Log1p => ("log_plus_one", Kinds::INEXACT),
            Self::Sqrt => ("sqrt", Kinds::INEXACT),
            Self::Rsqrt => ("rsqrt", Kinds::INEXACT),
            Self::Cbrt => ("cbrt", Kinds::FLOAT),
            Self::Tanh => ("tanh", Kinds::INEXACT),
            Self::Logistic => ("logistic", Kinds::INEXACT),
            Self::Sine => ("sine", Kinds::INEXACT),
            Self::Cosine => ("cosine", Kinds::INEXACT),
            Self::Tan => ("tan", Kinds::INEXACT),
            Self::Floor => ("floor", Kinds::FLOAT),
            Self::Ceil => ("ceil", Kinds::FLOAT),
            Self::RoundNearestEven => ("round_nearest_even", Kinds::FLOAT),
            Self::RoundNearestAfz => ("round_nearest_afz", Kinds::FLOAT),
            Self::Sign => ("sign", Kinds::SIGNED.or(Kinds::INEXACT)),
            Self::Not => ("not", Kinds::BITS),
            Self::Popcnt => ("popcnt", Kinds::INT),
            Self::CountLeadingZeros => ("count_leading_zeros", Kinds::INT),
            Self::IsFinite => ("is_finite", Kinds::FLOAT),
            Self::Real => ("real", Kinds::COMPLEX),
            Self::Imag => ("imag", Kinds::COMPLEX),
            Self::Erf => ("chlo.erf", Kinds::FLOAT),
            Self::Erfc => ("chlo.erfc", Kinds::FLOAT),
            Self::ErfInv => ("chlo.erf_inv", Kinds::FLOAT),
            Self::Lgamma => ("chlo.lgamma", Kinds::FLOAT),
            Self::Digamma => ("chlo.digamma", Kinds::FLOAT),
            Self::Acos => ("chlo.acos", Kinds::INEXACT),
            Self::Acosh => ("chlo.acosh", Kinds::INEXACT),
            Self::Asin => ("chlo.asin", Kinds::INEXACT),
            Self::Asinh => ("chlo.asinh", Kinds::INEXACT),
            Self::Atan => ("chlo.atan", Kinds::INEXACT),
            Self::Atanh => ("chlo.atanh", Kinds::INEXACT),
            Self::Sinh => ("chlo.sinh", Kinds::INEXACT),
            Self::Cosh => ("chlo.cosh", Kinds::INEXACT),
            Self::BesselI1e => ("chlo.bessel_i1e", Kinds::FLOAT),
            Self::IsInf => ("chlo.is_inf", Kinds::FLOAT),
            Self::IsPosInf => ("chlo.is_pos_inf", Kinds::FLOAT),
            Self::IsNegInf => ("chlo.is_neg_inf", Kinds::FLOAT),
        }
    }

    const fn result(self, operand: DType) -> DType {
        match self {
            Self::Abs | Self::Real | Self::Imag => operand.real(),
            Self::IsFinite | Self::IsInf | Self::IsPosInf | Self::IsNegInf => DType::Bool,
            _ => operand,
        }
    }
}

/// An operation on two operands of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Maximum,
    Minimum,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Atan2,
    NextAfter,
    Zeta,
    Polygamma,
    /// Real and imaginary part to a complex number.
    Complex,
}

impl Binary {
    const fn spec(self) -> (&'static str, Kinds) {
        match self {
            Self::Add => ("add", Kinds::ANY),
            Self::Subtract => ("subtract", Kinds::NUMBER),
            Self::Multiply => ("multiply", Kinds::ANY),
            Self::Divide => ("divide", Kinds::NUMBER),
            Self::Remainder => ("remainder", Kinds::REAL),
            Self::Power => ("power", Kinds::NUMBER),
            Self::Maximum => ("maximum", Kinds::ORDERED),
            Self::Minimum => ("minimum", Kinds::ORDERED),
            Self::And => ("and", Kinds::BITS),
            Self::Or => ("or", Kinds::BITS),
            Self::Xor => ("xor", Kinds::BITS),
            Self::ShiftLeft => ("shift_left", Kinds::INT),
            Self::ShiftRightArithmetic => ("shift_right_arithmetic", Kinds::INT),
            Self::ShiftRightLogical => ("shift_right_logical", Kinds::INT),
            Self::Atan2 => ("atan2", Kinds::INEXACT),
            Self::NextAfter => ("chlo.next_after", Kinds::FLOAT),
            Self::Zeta => ("chlo.zeta", Kinds::FLOAT),
            Self::Polygamma => ("chlo.polygamma", Kinds::FLOAT),
            Self::Complex => ("complex", Kinds::FLOAT),
        }
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Cmp {
    const fn name(self) -> &'static str {
        match self {
            Self::Eq => "EQ",
            Self::Ne => "NE",
            Self::Lt => "LT",
            Self::Le => "LE",
            Self::Gt => "GT",
            Self::Ge => "GE",
        }
    }
}

impl Builder {
    /// An operation on one operand.
    pub fn unary(&mut self, op: Unary, x: &Value) -> Result<Value> {
        // StableHLO leaves these two out for unsigned integers, torch has them.
        match op {
            Unary::Abs if x.dtype.is_unsigned() => return Ok(x.clone()),
            Unary::Sign if x.dtype.is_unsigned() => {
                let one = self.splat_like(x, 1)?;
                return self.min(x, &one);
            }
            _ => {}
        }
        let (name, kinds) = op.spec();
        kinds.check(name, x.dtype)?;
        self.emit(name, &[x], "", op.result(x.dtype), x.dims.clone())
    }

    /// An operation on two operands of one type.
    pub fn binary(&mut self, op: Binary, a: &Value, b: &Value) -> Result<Value> {
        let (name, kinds) = op.spec();
        kinds.check(name, a.dtype)?;
        check::same_type(name, a, b)?;
        let dtype = match (op, a.dtype) {
            (Binary::Complex, DType::F32) => DType::C64,
            (Binary::Complex, DType::F64) => DType::C128,
            (Binary::Complex, found) => {
                return Err(crate::Error::Attribute {
                    op: name,
                    detail: format!("there is no complex type of two {found}"),
                });
            }
            (_, same) => same,
        };
        self.emit(name, &[a, b], "", dtype, a.dims.clone())
    }

    /// A comparison; floats compare as in IEEE 754, complex numbers only for equality.
    pub fn compare(&mut self, direction: Cmp, a: &Value, b: &Value) -> Result<Value> {
        let equality = matches!(direction, Cmp::Eq | Cmp::Ne);
        let kinds = if equality { Kinds::ANY } else { Kinds::ORDERED };
        kinds.check("compare", a.dtype)?;
        self.compare_as(direction, a, b, "")
    }

    /// A comparison of floats in the total order: -NaN < -inf < -0 < 0 < inf < NaN.
    pub fn compare_total(&mut self, direction: Cmp, a: &Value, b: &Value) -> Result<Value> {
        if !a.dtype.is_float() {
            return self.compare(direction, a, b);
        }
        let kind = "compare_type = #stablehlo<comparison_type TOTALORDER>, ";
        self.compare_as(direction, a, b, kind)
    }

    fn compare_as(&mut self, direction: Cmp, a: &Value, b: &Value, kind: &str) -> Result<Value> {
        check::same_type("compare", a, b)?;
        let name = direction.name();
        let attributes =
            format!("{kind}comparison_direction = #stablehlo<comparison_direction {name}>");
        self.emit("compare", &[a, b], &attributes, DType::Bool, a.dims.clone())
    }

    /// `on_true` where `pred` holds, else `on_false`; `pred` has their shape or is 0-d.
    pub fn select(&mut self, pred: &Value, on_true: &Value, on_false: &Value) -> Result<Value> {
        Kinds::BOOL.check("select", pred.dtype)?;
        check::same_type("select", on_true, on_false)?;
        if pred.rank() != 0 {
            check::same_dims("select", &pred.dims, &on_true.dims)?;
        }
        let dims = on_true.dims.clone();
        self.emit(
            "select",
            &[pred, on_true, on_false],
            "",
            on_true.dtype,
            dims,
        )
    }

    /// `x` held between bounds, each of its shape or 0-d.
    pub fn clamp(&mut self, min: &Value, x: &Value, max: &Value) -> Result<Value> {
        Kinds::ORDERED.check("clamp", x.dtype)?;
        for bound in [min, max] {
            check::same_dtype("clamp", x.dtype, bound.dtype)?;
            if bound.rank() != 0 {
                check::same_dims("clamp", &x.dims, &bound.dims)?;
            }
        }
        self.emit("clamp", &[min, x, max], "", x.dtype, x.dims.clone())
    }

    /// The same values in another element type; to `Bool`, whether they differ from zero; from
    /// complex to real, the real part.
    pub fn convert(&mut self, x: &Value, dtype: DType) -> Result<Value> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        if dtype == DType::Bool {
            let zero = self.splat_like(x, 0)?;
            return self.compare(Cmp::Ne, x, &zero);
        }
        if x.dtype.is_complex() && !dtype.is_complex() {
            let real = self.unary(Unary::Real, x)?;
            return self.convert(&real, dtype);
        }
        self.emit("convert", &[x], "", dtype, x.dims.clone())
    }

    /// The same bytes as another element type. To a smaller type, a last dimension is added; to
    /// a larger one, the last dimension holds the parts and goes.
    pub fn bitcast(&mut self, x: &Value, dtype: DType) -> Result<Value> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        // StableHLO counts bits, and a boolean has one; in memory it is a byte of 0 or 1.
        if x.dtype == DType::Bool {
            let bytes = self.convert(x, DType::U8)?;
            return self.bitcast(&bytes, dtype);
        }
        if dtype == DType::Bool {
            let bytes = self.bitcast(x, DType::U8)?;
            return self.convert(&bytes, dtype);
        }
        let dims = bitcast_dims(x, dtype)?;
        self.bitcast_as(x, dtype, dims)
    }

    /// Complex numbers have no bit cast in StableHLO; their parts have.
    fn bitcast_as(&mut self, x: &Value, dtype: DType, dims: Dims) -> Result<Value> {
        if x.dtype.is_complex() {
            let part = x.dtype.real();
            let mut split = x.dims.clone();
            split.push(1);
            let re = self.unary(Unary::Real, x)?;
            let re = self.reshape(&re, &split)?;
            let im = self.unary(Unary::Imag, x)?;
            let im = self.reshape(&im, &split)?;
            let last = split.len() - 1;
            let parts = self.concatenate(&[re, im], last)?;
            if part == dtype {
                return Ok(parts);
            }
            let flat = self.flat_parts(&parts, dtype)?;
            return self.reshape(&flat, &dims);
        }
        if dtype.is_complex() {
            let part = dtype.real();
            let mut split = dims.clone();
            split.push(2);
            let floats = self.flat_parts(x, part)?;
            let floats = self.reshape(&floats, &split)?;
            let last = dims.len();
            let re = self.slice_dim(&floats, last, 0, 1, 1)?;
            let re = self.reshape(&re, &dims)?;
            let im = self.slice_dim(&floats, last, 1, 2, 1)?;
            let im = self.reshape(&im, &dims)?;
            return self.binary(Binary::Complex, &re, &im);
        }
        self.emit("bitcast_convert", &[x], "", dtype, dims)
    }

    /// The bytes of `x` as a vector of another type.
    fn flat_parts(&mut self, x: &Value, dtype: DType) -> Result<Value> {
        let ratio = (dtype.size() / x.dtype.size()).max(1) as i64;
        let dims: &[i64] = if ratio > 1 {
            &[x.numel() / ratio, ratio]
        } else {
            &[x.numel()]
        };
        let shaped = self.reshape(x, dims)?;
        let cast = self.bitcast(&shaped, dtype)?;
        let count = cast.numel();
        self.reshape(&cast, &[count])
    }
}

fn bitcast_dims(x: &Value, dtype: DType) -> Result<Dims> {
    let (from, to) = (x.dtype.size(), dtype.size());
    let mut dims = x.dims.clone();
    if from > to {
        dims.push((from / to) as i64);
    } else if from < to {
        let ratio = (to / from) as i64;
        if dims.pop() != Some(ratio) {
            return Err(crate::Error::Shape {
                op: "bitcast_convert",
                dims: x.dims().into(),
                detail: format!(
                    "the last dimension must be {ratio} to go from {} to {dtype}",
                    x.dtype
                ),
            });
        }
    }
    Ok(dims)
}

macro_rules! shorthands {
    ($(($name:ident, $op:ident))+; $(($two:ident, $binary:ident))+; $(($cmp:ident, $direction:ident))+) => {
        /// Short names of the common operations.
        impl Builder {
            $(
                #[doc = concat!("[`Unary::", stringify!($op), "`].")]
                pub fn $name(&mut self, x: &Value) -> Result<Value> {
                    self.unary(Unary::$op, x)
                }
            )+
            $(
                #[doc = concat!("[`Binary::", stringify!($binary), "`].")]
                pub fn $two(&mut self, a: &Value, b: &Value) -> Result<Value> {
                    self.binary(Binary::$binary, a, b)
                }
            )+
            $(
                #[doc = concat!("[`Cmp::", stringify!($direction), "`].")]
                pub fn $cmp(&mut self, a: &Value, b: &Value) -> Result<Value> {
                    self.compare(Cmp::$direction, a, b)
                }
            )+
        }
    };
}

shorthands! {
    (abs, Abs) (neg, Negate) (exp, Exp) (expm1, Expm1) (log, Log) (log1p, Log1p) (sqrt, Sqrt)
    (rsqrt, Rsqrt) (tanh, Tanh) (logistic, Logistic) (sin, Sine) (cos, Cosine) (floor, Floor)
    (ceil, Ceil) (sign, Sign) (not, Not) (is_finite, IsFinite) (real, Real) (imag, Imag)
    (erf, Erf);
    (add, Add) (sub, Subtract) (mul, Multiply) (div, Divide) (rem, Remainder) (pow, Power)
    (max, Maximum) (min, Minimum) (and, And) (or, Or) (xor, Xor) (shl, ShiftLeft)
    (shr, ShiftRightArithmetic) (shr_logical, ShiftRightLogical) (atan2, Atan2)
    (complex, Complex);
    (eq, Eq) (ne, Ne) (lt, Lt) (le, Le) (gt, Gt) (ge, Ge)
}
