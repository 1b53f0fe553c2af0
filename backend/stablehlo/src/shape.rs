//! Operations that move elements and compute nothing.

use crate::check::{self, Kinds};
use crate::text::i64s;
use crate::{Builder, Dims, Error, Result, Value};

impl Builder {
    /// The same elements in row-major order under another shape.
    pub fn reshape(&mut self, x: &Value, dims: &[i64]) -> Result<Value> {
        check::valid_dims("reshape", dims)?;
        if x.dims() == dims {
            return Ok(x.clone());
        }
        if x.numel() != dims.iter().product::<i64>() {
            return Err(Error::Shape {
                op: "reshape",
                dims: dims.into(),
                detail: format!("does not hold the {} elements of {:?}", x.numel(), x.dims),
            });
        }
        self.emit("reshape", &[x], "", x.dtype, dims.into())
    }

    /// Result dimension `i` is operand dimension `perm[i]`.
    pub fn transpose(&mut self, x: &Value, perm: &[usize]) -> Result<Value> {
        check::count("transpose", "dimensions", perm.len(), x.rank())?;
        check::dims_of("transpose", perm, x.rank())?;
        if perm.is_sorted() {
            return Ok(x.clone());
        }
        let dims = perm.iter().map(|&dim| x.dims[dim]).collect();
        let attributes = format!("permutation = {}", i64s(perm));
        self.emit("transpose", &[x], &attributes, x.dtype, dims)
    }

    /// Operand dimension `i` becomes result dimension `map[i]`; size one is stretched.
    pub fn broadcast_in_dim(&mut self, x: &Value, dims: &[i64], map: &[usize]) -> Result<Value> {
        const OP: &str = "broadcast_in_dim";
        check::valid_dims(OP, dims)?;
        check::count(OP, "mapped dimensions", map.len(), x.rank())?;
        check::dims_of(OP, map, dims.len())?;
        for (&size, &target) in x.dims.iter().zip(map) {
            if size != 1 && size != dims[target] {
                return Err(Error::Shape {
                    op: OP,
                    dims: x.dims().into(),
                    detail: format!("does not stretch to {dims:?} along {map:?}"),
                });
            }
        }
        if x.dims() == dims && map.is_sorted() {
            return Ok(x.clone());
        }
        let attributes = format!("broadcast_dimensions = {}", i64s(map));
        self.emit(OP, &[x], &attributes, x.dtype, dims.into())
    }

    /// Stretches as numpy does: shapes are aligned at the end, missing dimensions are added.
    pub fn broadcast_to(&mut self, x: &Value, dims: &[i64]) -> Result<Value> {
        let Some(added) = dims.len().checked_sub(x.rank()) else {
            return Err(Error::Shape {
                op: "broadcast_in_dim",
                dims: x.dims().into(),
                detail: format!("has more dimensions than {dims:?}"),
            });
        };
        let map: Vec<_> = (added..dims.len()).collect();
        self.broadcast_in_dim(x, dims, &map)
    }

    /// Elements `start`, `start + stride`, ... below `limit`, per dimension.
    pub fn slice(
        &mut self,
        x: &Value,
        start: &[i64],
        limit: &[i64],
        stride: &[i64],
    ) -> Result<Value> {
        for list in [start, limit, stride] {
            check::count("slice", "bounds", list.len(), x.rank())?;
        }
        let mut dims = Dims::new();
        for (index, &size) in x.dims.iter().enumerate() {
            let (low, high, step) = (start[index], limit[index], stride[index]);
            if low < 0 || low > high || high > size || step < 1 {
                return Err(Error::Shape {
                    op: "slice",
                    dims: x.dims().into(),
                    detail: format!("dimension {index} has no slice {low}:{high}:{step}"),
                });
            }
            dims.push((high - low + step - 1) / step);
        }
        if dims == x.dims {
            return Ok(x.clone());
        }
        let attributes = format!(
            "limit_indices = {}, start_indices = {}, strides = {}",
            i64s(limit),
            i64s(start),
            i64s(stride)
        );
        self.emit("slice", &[x], &attributes, x.dtype, dims)
    }

    /// A slice along one dimension.
    pub fn slice_dim(
        &mut self,
        x: &Value,
        dim: usize,
        start: i64,
        limit: i64,
        stride: i64,
    ) -> Result<Value> {
        check::dim("slice", dim, x.rank())?;
        let mut starts = vec![0; x.rank()];
        let mut limits = x.dims.clone();
        let mut strides = vec![1; x.rank()];
        starts[dim] = start;
        limits[dim] = limit;
        strides[dim] = stride;
        self.slice(x, &starts, &limits, &strides)
    }

    /// `value` around (`low`, `high`; negative crops) and between (`interior`) the elements.
    pub fn pad(
        &mut self,
        x: &Value,
        value: &Value,
        low: &[i64],
        high: &[i64],
        interior: &[i64],
    ) -> Result<Value> {
        for list in [low, high, interior] {
            check::count("pad", "paddings", list.len(), x.rank())?;
        }
        check::scalar("pad", "padding value", value)?;
        check::same_dtype("pad", x.dtype, value.dtype)?;
        let wrong = |detail| Error::Shape {
            op: "pad",
            dims: x.dims().into(),
            detail,
        };
        let mut dims = Dims::new();
        for (index, &size) in x.dims.iter().enumerate() {
            let between = interior[index];
            if between < 0 {
                return Err(wrong(format!(
                    "dimension {index} has interior padding {between}"
                )));
            }
            let padded = size + low[index] + high[index] + (size - 1).max(0) * between;
            if padded < 0 {
                return Err(wrong(format!("dimension {index} would have size {padded}")));
            }
            dims.push(padded);
        }
        let nothing = [low, high]
            .iter()
            .all(|list| list.iter().all(|amount| *amount == 0));
        if nothing && dims == x.dims {
            return Ok(x.clone());
        }
        let attributes = format!(
            "edge_padding_high = {}, edge_padding_low = {}, interior_padding = {}",
            i64s(high),
            i64s(low),
            i64s(interior)
        );
        self.emit("pad", &[x, value], &attributes, x.dtype, dims)
    }

    /// One after the other along a dimension.
    pub fn concatenate(&mut self, xs: &[Value], dim: usize) -> Result<Value> {
        const OP: &str = "concatenate";
        let Some(first) = xs.first() else {
            return Err(Error::Count {
                op: OP,
                what: "operands",
                found: 0,
                expected: 1,
            });
        };
        check::dim(OP, dim, first.rank())?;
        let mut dims = first.dims.clone();
        for other in &xs[1..] {
            check::same_dtype(OP, first.dtype, other.dtype)?;
            check::rank(OP, "operand", other.rank(), first.rank())?;
            let mut expected = first.dims.clone();
            expected[dim] = other.dims[dim];
            if expected != other.dims {
                return Err(Error::ShapeMismatch {
                    op: OP,
                    lhs: first.dims().into(),
                    rhs: other.dims().into(),
                });
            }
            dims[dim] += other.dims[dim];
        }
        if xs.len() == 1 {
            return Ok(first.clone());
        }
        let operands: Vec<_> = xs.iter().collect();
        let attributes = format!("dimension = {dim} : i64");
        self.emit(OP, &operands, &attributes, first.dtype, dims)
    }

    /// Turned around along the dimensions.
    pub fn reverse(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        check::dims_of("reverse", dims, x.rank())?;
        if dims.is_empty() {
            return Ok(x.clone());
        }
        let attributes = format!("dimensions = {}", i64s(dims));
        self.emit("reverse", &[x], &attributes, x.dtype, x.dims.clone())
    }

    /// A slice of constant size at computed starts, which are moved so that it fits.
    pub fn dynamic_slice(&mut self, x: &Value, starts: &[Value], sizes: &[i64]) -> Result<Value> {
        const OP: &str = "dynamic_slice";
        check::count(OP, "sizes", sizes.len(), x.rank())?;
        check_starts(OP, x, starts)?;
        fits(OP, sizes, &x.dims)?;
        let mut operands = vec![x];
        operands.extend(starts);
        let attributes = format!("slice_sizes = {}", i64s(sizes));
        self.emit(OP, &operands, &attributes, x.dtype, sizes.into())
    }

    /// `x` with `update` written at computed starts, which are moved so that it fits.
    pub fn dynamic_update_slice(
        &mut self,
        x: &Value,
        update: &Value,
        starts: &[Value],
    ) -> Result<Value> {
        const OP: &str = "dynamic_update_slice";
        check::same_dtype(OP, x.dtype, update.dtype)?;
        check::rank(OP, "update", update.rank(), x.rank())?;
        check_starts(OP, x, starts)?;
        fits(OP, &update.dims, &x.dims)?;
        let mut operands = vec![x, update];
        operands.extend(starts);
        self.emit(OP, &operands, "", x.dtype, x.dims.clone())
    }
}

fn check_starts(op: &'static str, x: &Value, starts: &[Value]) -> Result<()> {
    check::count(op, "start indices", starts.len(), x.rank())?;
    for start in starts {
        Kinds::INT.check(op, start.dtype)?;
        check::scalar(op, "start index", start)?;
        check::same_dtype(op, starts[0].dtype, start.dtype)?;
    }
    Ok(())
}

/// A window of these sizes lies within the shape.
pub(crate) fn fits(op: &'static str, sizes: &[i64], dims: &[i64]) -> Result<()> {
    if sizes
        .iter()
        .zip(dims)
        .all(|(size, dim)| (0..=*dim).contains(size))
    {
        return Ok(());
    }
    Err(Error::Shape {
        op,
        dims: dims.into(),
        detail: format!("a window of sizes {sizes:?} does not fit"),
    })
}
