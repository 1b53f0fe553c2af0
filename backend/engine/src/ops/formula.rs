//! Formulas over values, written as arithmetic and built in one go. Numbers take the dtype of what they meet,
//! and 0-d operands spread over the others.

use std::collections::HashMap;
use std::ops;
use std::rc::Rc;

use tpulab_stablehlo::{Binary, Builder, Cmp, DType, Dims, Scalar, Unary, Value};

use crate::error::{Error, Kind, Result};
use crate::lower::{Ctx, one};
use crate::registry::Lowered;

/// A node and all it depends on; shared nodes are built once.
#[derive(Clone)]
pub(crate) struct Formula(Rc<Node>);

enum Node {
    Value(Value),
    Number(Scalar),
    Unary(Unary, Formula),
    Binary(Binary, Formula, Formula),
    Compare(Cmp, Formula, Formula),
    Select(Formula, Formula, Formula),
    Convert(Formula, DType),
    Bitcast(Formula, DType),
}

type Memo = HashMap<*const Node, Value>;

impl Formula {
    fn new(node: Node) -> Self {
        Self(Rc::new(node))
    }

    pub(crate) fn unary(&self, op: Unary) -> Self {
        Self::new(Node::Unary(op, self.clone()))
    }

    pub(crate) fn binary(&self, op: Binary, other: impl Into<Self>) -> Self {
        Self::new(Node::Binary(op, self.clone(), other.into()))
    }

    pub(crate) fn compare(&self, direction: Cmp, other: impl Into<Self>) -> Self {
        Self::new(Node::Compare(direction, self.clone(), other.into()))
    }

    /// Where this holds the one, else the other; at most one of them a plain number.
    pub(crate) fn choose(&self, on_true: impl Into<Self>, on_false: impl Into<Self>) -> Self {
        Self::new(Node::Select(self.clone(), on_true.into(), on_false.into()))
    }

    pub(crate) fn to(&self, dtype: DType) -> Self {
        Self::new(Node::Convert(self.clone(), dtype))
    }

    pub(crate) fn bits(&self, dtype: DType) -> Self {
        Self::new(Node::Bitcast(self.clone(), dtype))
    }

    /// Differs from itself only where it is NaN.
    pub(crate) fn is_nan(&self) -> Self {
        self.ne(self)
    }

    /// Towards zero; StableHLO has only floor and ceil.
    pub(crate) fn trunc(&self) -> Self {
        self.lt(0.0).choose(self.ceil(), self.floor())
    }

    pub(crate) fn square(&self) -> Self {
        self * self
    }

    pub(crate) fn build(&self, b: &mut Builder) -> Result<Value> {
        self.make(b, &mut Memo::new())
    }

    fn make(&self, b: &mut Builder, memo: &mut Memo) -> Result<Value> {
        let key = Rc::as_ptr(&self.0);
        if let Some(value) = memo.get(&key) {
            return Ok(value.clone());
        }
        let value = match &*self.0 {
            Node::Value(value) => value.clone(),
            Node::Number(_) => return Err(Error::runtime("a formula of numbers only")),
            Node::Unary(op, x) => {
                let x = x.make(b, memo)?;
                b.unary(*op, &x)?
            }
            Node::Binary(op, x, y) => {
                let (x, y) = pair(x, y, b, memo)?;
                b.binary(*op, &x, &y)?
            }
            Node::Compare(direction, x, y) => {
                let (x, y) = pair(x, y, b, memo)?;
                b.compare(*direction, &x, &y)?
            }
            Node::Select(pred, x, y) => {
                let mut pred = pred.make(b, memo)?;
                let (mut x, mut y) = pair(x, y, b, memo)?;
                let dims = wider(&pred.dims, &x.dims);
                x = b.broadcast_to(&x, &dims)?;
                y = b.broadcast_to(&y, &dims)?;
                if pred.rank() != 0 {
                    pred = b.broadcast_to(&pred, &dims)?;
                }
                b.select(&pred, &x, &y)?
            }
            Node::Convert(x, dtype) => {
                let x = x.make(b, memo)?;
                b.convert(&x, *dtype)?
            }
            Node::Bitcast(x, dtype) => {
                let x = x.make(b, memo)?;
                b.bitcast(&x, *dtype)?
            }
        };
        memo.insert(key, value.clone());
        Ok(value)
    }

    fn number(&self) -> Option<Scalar> {
        match &*self.0 {
            Node::Number(scalar) => Some(*scalar),
            _ => None,
        }
    }
}

/// Both sides with one dtype and shape.
fn pair(x: &Formula, y: &Formula, b: &mut Builder, memo: &mut Memo) -> Result<(Value, Value)> {
    match (x.number(), y.number()) {
        (Some(number), None) => {
            let y = y.make(b, memo)?;
            Ok((b.splat_like(&y, number)?, y))
        }
        (None, Some(number)) => {
            let x = x.make(b, memo)?;
            let y = b.splat_like(&x, number)?;
            Ok((x, y))
        }
        _ => {
            let (x, y) = (x.make(b, memo)?, y.make(b, memo)?);
            let dims = wider(&x.dims, &y.dims);
            Ok((b.broadcast_to(&x, &dims)?, b.broadcast_to(&y, &dims)?))
        }
    }
}

fn wider(a: &Dims, b: &Dims) -> Dims {
    if a.is_empty() { b.clone() } else { a.clone() }
}

impl From<&Self> for Formula {
    fn from(formula: &Self) -> Self {
        formula.clone()
    }
}

impl From<Value> for Formula {
    fn from(value: Value) -> Self {
        Self::new(Node::Value(value))
    }
}

impl From<&Value> for Formula {
    fn from(value: &Value) -> Self {
        Self::new(Node::Value(value.clone()))
    }
}

impl From<f64> for Formula {
    fn from(number: f64) -> Self {
        Self::new(Node::Number(Scalar::Float(number)))
    }
}

impl From<i64> for Formula {
    fn from(number: i64) -> Self {
        Self::new(Node::Number(Scalar::Int(number)))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)+) => {$(
        impl<R: Into<Formula>> ops::$trait<R> for Formula {
            type Output = Formula;
            fn $method(self, other: R) -> Formula {
                self.binary(Binary::$op, other)
            }
        }
        impl<R: Into<Formula>> ops::$trait<R> for &Formula {
            type Output = Formula;
            fn $method(self, other: R) -> Formula {
                self.binary(Binary::$op, other)
            }
        }
        impl ops::$trait<Formula> for f64 {
            type Output = Formula;
            fn $method(self, other: Formula) -> Formula {
                Formula::from(self).binary(Binary::$op, other)
            }
        }
        impl ops::$trait<&Formula> for f64 {
            type Output = Formula;
            fn $method(self, other: &Formula) -> Formula {
                Formula::from(self).binary(Binary::$op, other)
            }
        }
    )+};
}

operators! {
    Add add Add;
    Sub sub Subtract;
    Mul mul Multiply;
    Div div Divide;
    Rem rem Remainder;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
}

impl ops::Neg for Formula {
    type Output = Self;
    fn neg(self) -> Self {
        self.unary(Unary::Negate)
    }
}

impl ops::Neg for &Formula {
    type Output = Formula;
    fn neg(self) -> Formula {
        self.unary(Unary::Negate)
    }
}

impl ops::Not for Formula {
    type Output = Self;
    fn not(self) -> Self {
        self.unary(Unary::Not)
    }
}

macro_rules! methods {
    ($(($name:ident, $op:ident))+; $(($two:ident, $binary:ident))+; $(($cmp:ident, $direction:ident))+) => {
        impl Formula {
            $(pub(crate) fn $name(&self) -> Self {
                self.unary(Unary::$op)
            })+
            $(pub(crate) fn $two(&self, other: impl Into<Self>) -> Self {
                self.binary(Binary::$binary, other)
            })+
            $(pub(crate) fn $cmp(&self, other: impl Into<Self>) -> Self {
                self.compare(Cmp::$direction, other)
            })+
        }
    };
}

methods! {
    (abs, Abs) (exp, Exp) (expm1, Expm1) (log, Log) (log1p, Log1p) (sqrt, Sqrt) (sin, Sine)
    (tanh, Tanh) (logistic, Logistic) (floor, Floor) (ceil, Ceil) (erf, Erf) (lgamma, Lgamma);
    (max, Maximum) (min, Minimum) (pow, Power);
    (eq, Eq) (ne, Ne) (lt, Lt) (le, Le) (gt, Gt) (ge, Ge)
}

/// dtype a computation of several steps runs in: half types widen, to round once at the end, as on the CPU.
pub(crate) fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// torch's error for a dtype a kernel has no code for.
pub(crate) fn unsupported(kernel: &str, dtype: DType) -> Error {
    Error::Message {
        kind: Kind::NotImplemented,
        text: format!("\"{kernel}\" not implemented for '{}'", dtype.torch_name()),
    }
}

/// torch's error for an operation it refuses.
pub(crate) fn refused(text: &str) -> Error {
    Error::Message {
        kind: Kind::NotImplemented,
        text: text.to_owned(),
    }
}

/// The formula rounded to `dtype`, as the op's only output.
pub(crate) fn finish(c: &mut Ctx<'_>, formula: &Formula, dtype: DType) -> Result<Lowered> {
    let value = formula.build(&mut c.b)?;
    Ok(one(c.b.convert(&value, dtype)?))
}

/// Arguments promoted and broadcast together, in the wide dtype of `dtype`, which is their common one unless
/// changed by `map`.
pub(crate) fn promoted<const N: usize>(
    c: &mut Ctx<'_>,
    names: [&str; N],
    map: impl FnOnce(&Ctx<'_>, DType) -> DType,
) -> Result<([Formula; N], DType)> {
    let operands = names
        .iter()
        .map(|name| c.operand(name))
        .collect::<Result<Vec<_>>>()?;
    let operands: Vec<_> = operands.iter().collect();
    let dtype = map(c, c.result_type(&operands));
    let values = c.aligned(&operands, wide(dtype))?;
    let formulas: Vec<Formula> = values.into_iter().map(Formula::from).collect();
    let formulas = formulas
        .try_into()
        .map_err(|_| Error::runtime("as many operands as names were expected"))?;
    Ok((formulas, dtype))
}

/// Arguments in their common dtype.
pub(crate) fn common<const N: usize>(
    c: &mut Ctx<'_>,
    names: [&str; N],
) -> Result<([Formula; N], DType)> {
    promoted(c, names, |_, dtype| dtype)
}

/// Arguments in their common floating dtype; ints and bools become the default one.
pub(crate) fn floats<const N: usize>(
    c: &mut Ctx<'_>,
    names: [&str; N],
) -> Result<([Formula; N], DType)> {
    promoted(c, names, |c, dtype| c.float_type(dtype))
}

/// A function of one float argument.
pub(crate) fn float_unary(c: &mut Ctx<'_>, f: impl Fn(&Formula) -> Formula) -> Result<Lowered> {
    let ([x], dtype) = floats(c, ["self"])?;
    finish(c, &f(&x), dtype)
}

/// A function of two float arguments.
pub(crate) fn float_binary(
    c: &mut Ctx<'_>,
    f: impl Fn(&Formula, &Formula) -> Formula,
) -> Result<Lowered> {
    let ([x, y], dtype) = floats(c, ["self", "other"])?;
    finish(c, &f(&x, &y), dtype)
}

/// A function of two operands whose common dtype must be a float.
pub(crate) fn float_only_binary(
    c: &mut Ctx<'_>,
    kernel: &str,
    f: impl Fn(&Formula, &Formula) -> Formula,
) -> Result<Lowered> {
    let ([x, y], dtype) = common(c, ["self", "other"])?;
    if !dtype.is_float() {
        return Err(unsupported(kernel, dtype));
    }
    finish(c, &f(&x, &y), dtype)
}

/// Whether the sign bit of a float is set, that of zeros and NaNs too.
pub(crate) fn sign_bit(x: &Formula) -> Formula {
    // A conversion to f32 keeps the sign, and some chips have no bit casts of f64.
    x.to(DType::F32).bits(DType::I32).lt(0i64)
}
