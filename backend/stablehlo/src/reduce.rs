//! Reductions over whole dimensions, and sorting.

use crate::builder::{Region, Sight, only, scalars};
use crate::check::{self, Kinds, remaining};
use crate::text::i64s;
use crate::{Binary, Builder, DType, Error, Result, Value};

/// A reduction with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reducer {
    Sum,
    Prod,
    Max,
    Min,
    And,
    Or,
}

impl Reducer {
    /// The operation that combines two values.
    #[must_use]
    pub const fn binary(self) -> Binary {
        match self {
            Self::Sum => Binary::Add,
            Self::Prod => Binary::Multiply,
            Self::Max => Binary::Maximum,
            Self::Min => Binary::Minimum,
            Self::And => Binary::And,
            Self::Or => Binary::Or,
        }
    }

    const fn kinds(self) -> Kinds {
        match self {
            Self::Sum | Self::Prod => Kinds::NUMBER,
            Self::Max | Self::Min => Kinds::ORDERED,
            Self::And | Self::Or => Kinds::BITS,
        }
    }
}

impl Builder {
    /// Reduces operands of one shape together; `body` combines accumulated with new values. The
    /// dimensions are removed.
    pub fn reduce(
        &mut self,
        xs: &[Value],
        inits: &[Value],
        dims: &[usize],
        body: impl FnOnce(&mut Self, &[Value], &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        const OP: &str = "reduce";
        let dtypes = check_operands(OP, xs, inits)?;
        check::dims_of(OP, dims, xs[0].rank())?;
        let left = remaining(&xs[0].dims, dims);
        let region = self.reduction_body(OP, &dtypes, body)?;
        let operands: Vec<_> = xs.iter().chain(inits).collect();
        let results = dtypes.iter().map(|dtype| (*dtype, left.clone())).collect();
        let attributes = format!("dimensions = {}", i64s(dims));
        self.emit_with(OP, &operands, &attributes, &[region], results)
    }

    /// Reduces with one operation, from the value that leaves it unchanged.
    pub fn reduce_with(&mut self, op: Reducer, x: &Value, dims: &[usize]) -> Result<Value> {
        op.kinds().check("reduce", x.dtype)?;
        if dims.is_empty() {
            return Ok(x.clone());
        }
        let init = self.reducer_init(op, x.dtype)?;
        let made = self.reduce(std::slice::from_ref(x), &[init], dims, |b, acc, new| {
            Ok(vec![b.binary(op.binary(), &acc[0], &new[0])?])
        })?;
        only("reduce", made)
    }

    /// The 0-d value that leaves a reduction unchanged.
    pub fn reducer_init(&mut self, op: Reducer, dtype: DType) -> Result<Value> {
        op.kinds().check("reduce", dtype)?;
        match op {
            Reducer::Sum | Reducer::Or => self.scalar(dtype, 0),
            Reducer::Prod => self.scalar(dtype, 1),
            Reducer::Max => self.min_value(dtype),
            Reducer::Min => self.max_value(dtype),
            Reducer::And if dtype.is_signed() => self.scalar(dtype, -1),
            Reducer::And => self.max_value(dtype),
        }
    }

    /// Sorts operands together along a dimension. `less` gets the left and the right element of
    /// each operand in turn and says whether the left ones come first.
    pub fn sort(
        &mut self,
        xs: &[Value],
        dim: usize,
        stable: bool,
        less: impl FnOnce(&mut Self, &[Value]) -> Result<Value>,
    ) -> Result<Vec<Value>> {
        const OP: &str = "sort";
        let Some(first) = xs.first() else {
            return Err(Error::Count {
                op: OP,
                what: "operands",
                found: 0,
                expected: 1,
            });
        };
        check::dim(OP, dim, first.rank())?;
        for other in xs {
            check::same_dims(OP, &first.dims, &other.dims)?;
        }
        let arguments = scalars(xs.iter().flat_map(|x| [x.dtype; 2]));
        let region = self.region(OP, Sight::Arguments, &arguments, |b, values| {
            Ok(vec![less(b, values)?])
        })?;
        region.expect(OP, &scalars([DType::Bool]))?;
        let operands: Vec<_> = xs.iter().collect();
        let results = xs.iter().map(|x| (x.dtype, x.dims.clone())).collect();
        let attributes = format!("dimension = {dim} : i64, is_stable = {stable}");
        self.emit_with(OP, &operands, &attributes, &[region], results)
    }

    /// The largest `k` elements of the last dimension in descending order, and their places as
    /// `I32`.
    pub fn top_k(&mut self, x: &Value, k: i64) -> Result<(Value, Value)> {
        const OP: &str = "chlo.top_k";
        Kinds::REAL.check(OP, x.dtype)?;
        let mut dims = x.dims.clone();
        match dims.last_mut() {
            Some(last) if (0..=*last).contains(&k) => *last = k,
            _ => {
                return Err(Error::Shape {
                    op: OP,
                    dims: x.dims().into(),
                    detail: format!("has no {k} elements in the last dimension"),
                });
            }
        }
        let results = vec![(x.dtype, dims.clone()), (DType::I32, dims)];
        let made = self.emit_with(OP, &[x], &format!("k = {k} : i64"), &[], results)?;
        crate::builder::pair(OP, made)
    }

    pub(crate) fn reduction_body(
        &mut self,
        op: &'static str,
        dtypes: &[DType],
        body: impl FnOnce(&mut Self, &[Value], &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Region> {
        let arguments = scalars(dtypes.iter().chain(dtypes).copied());
        let region = self.region(op, Sight::Arguments, &arguments, |b, values| {
            let (acc, new) = values.split_at(dtypes.len());
            body(b, acc, new)
        })?;
        region.expect(op, &scalars(dtypes.iter().copied()))?;
        Ok(region)
    }
}

/// At least one operand, all of one shape, each with a 0-d initial value of its type.
pub(crate) fn check_operands(
    op: &'static str,
    xs: &[Value],
    inits: &[Value],
) -> Result<Vec<DType>> {
    let Some(first) = xs.first() else {
        return Err(Error::Count {
            op,
            what: "operands",
            found: 0,
            expected: 1,
        });
    };
    check::count(op, "initial values", inits.len(), xs.len())?;
    for (x, init) in xs.iter().zip(inits) {
        check::same_dims(op, &first.dims, &x.dims)?;
        check::same_dtype(op, x.dtype, init.dtype)?;
        check::scalar(op, "initial value", init)?;
    }
    Ok(xs.iter().map(|x| x.dtype).collect())
}
