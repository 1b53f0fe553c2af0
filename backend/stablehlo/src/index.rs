//! Gather and scatter.

use crate::builder::{Sight, scalars};
use crate::check::{self, Kinds, remaining};
use crate::shape::fits;
use crate::text::{i64s, list};
use crate::{Builder, Dims, Error, Result, Value};

/// Which dimension plays which part in a gather.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatherDims {
    /// Result dimensions that run over a slice.
    pub offset_dims: Vec<usize>,
    /// Operand dimensions of slice size one that are left out of the result.
    pub collapsed_slice_dims: Vec<usize>,
    /// Operand dimensions that run together with dimensions of the indices.
    pub operand_batching_dims: Vec<usize>,
    /// The dimensions of the indices that run together with those.
    pub start_indices_batching_dims: Vec<usize>,
    /// The operand dimension that each component of an index addresses.
    pub start_index_map: Vec<usize>,
    /// The dimension of the indices that holds the components; their rank if each is a scalar.
    pub index_vector_dim: usize,
}

/// Which dimension plays which part in a scatter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScatterDims {
    /// Dimensions of the updates that run over a window.
    pub update_window_dims: Vec<usize>,
    /// Operand dimensions of window size one that are left out of the updates.
    pub inserted_window_dims: Vec<usize>,
    /// Operand dimensions that run together with dimensions of the indices.
    pub input_batching_dims: Vec<usize>,
    /// The dimensions of the indices that run together with those.
    pub scatter_indices_batching_dims: Vec<usize>,
    /// The operand dimension that each component of an index addresses.
    pub scatter_dims_to_operand_dims: Vec<usize>,
    /// The dimension of the indices that holds the components; their rank if each is a scalar.
    pub index_vector_dim: usize,
}

/// What gather and scatter have in common, under one set of names.
struct Indexing<'a> {
    op: &'static str,
    window: &'a [usize],
    collapsed: &'a [usize],
    batching: &'a [usize],
    index_batching: &'a [usize],
    index_map: &'a [usize],
    vector_dim: usize,
}

impl Indexing<'_> {
    /// Checks the dimension numbers and gives the sizes of the indices without their components.
    fn batch(&self, operand: &Value, indices: &Value) -> Result<Dims> {
        let op = self.op;
        Kinds::INT.check(op, indices.dtype)?;
        check::ascending(op, self.collapsed, operand.rank())?;
        check::ascending(op, self.batching, operand.rank())?;
        check::dims_of(op, self.index_batching, indices.rank())?;
        check::dims_of(op, self.index_map, operand.rank())?;
        for pair in [
            (self.collapsed, self.batching),
            (self.index_map, self.batching),
        ] {
            if let Some(&dim) = pair.0.iter().find(|dim| pair.1.contains(dim)) {
                return Err(Error::Repeated { op, dim });
            }
        }
        if self.vector_dim > indices.rank() {
            return Err(Error::Dim {
                op,
                dim: self.vector_dim,
                rank: indices.rank(),
            });
        }
        if self.index_batching.contains(&self.vector_dim) {
            return Err(Error::Repeated {
                op,
                dim: self.vector_dim,
            });
        }
        let components = indices
            .dims
            .get(self.vector_dim)
            .map_or(1, |size| *size as usize);
        check::count(op, "index components", components, self.index_map.len())?;
        check::count(
            op,
            "batching dimensions",
            self.index_batching.len(),
            self.batching.len(),
        )?;
        for (&dim, &index_dim) in self.batching.iter().zip(self.index_batching) {
            let sizes = (operand.dims[dim], indices.dims[index_dim]);
            if sizes.0 != sizes.1 {
                return Err(Error::Shape {
                    op,
                    dims: operand.dims().into(),
                    detail: format!(
                        "batching dimension {dim} has size {}, the indices' has {}",
                        sizes.0, sizes.1
                    ),
                });
            }
        }
        Ok(remaining(&indices.dims, &[self.vector_dim]))
    }

    /// The shape whose `window` dimensions have the window's sizes and whose others are `batch`.
    fn interleave(&self, batch: &[i64], sizes: &[i64]) -> Result<Dims> {
        let rank = batch.len() + sizes.len();
        check::count(self.op, "window dimensions", self.window.len(), sizes.len())?;
        check::ascending(self.op, self.window, rank)?;
        let (mut batch, mut sizes) = (batch.iter(), sizes.iter());
        Ok((0..rank)
            .filter_map(|dim| {
                if self.window.contains(&dim) {
                    sizes.next()
                } else {
                    batch.next()
                }
                .copied()
            })
            .collect())
    }

    fn left_out(&self) -> Vec<usize> {
        [self.collapsed, self.batching].concat()
    }
}

impl Builder {
    /// Slices of the operand at computed places.
    pub fn gather(
        &mut self,
        operand: &Value,
        indices: &Value,
        dims: &GatherDims,
        slice_sizes: &[i64],
        sorted: bool,
    ) -> Result<Value> {
        const OP: &str = "gather";
        let indexing = Indexing {
            op: OP,
            window: &dims.offset_dims,
            collapsed: &dims.collapsed_slice_dims,
            batching: &dims.operand_batching_dims,
            index_batching: &dims.start_indices_batching_dims,
            index_map: &dims.start_index_map,
            vector_dim: dims.index_vector_dim,
        };
        let batch = indexing.batch(operand, indices)?;
        check::count(OP, "slice sizes", slice_sizes.len(), operand.rank())?;
        fits(OP, slice_sizes, &operand.dims)?;
        let left_out = indexing.left_out();
        if let Some(&dim) = left_out.iter().find(|dim| slice_sizes[**dim] > 1) {
            return Err(Error::Attribute {
                op: OP,
                detail: format!(
                    "slice size {} in left out dimension {dim}",
                    slice_sizes[dim]
                ),
            });
        }
        let result = indexing.interleave(&batch, &remaining(slice_sizes, &left_out))?;
        let attributes = format!(
            "dimension_numbers = #stablehlo.gather<offset_dims = {}, collapsed_slice_dims = {}, \
             operand_batching_dims = {}, start_indices_batching_dims = {}, start_index_map = {}, \
             index_vector_dim = {}>, indices_are_sorted = {sorted}, slice_sizes = {}",
            list(&dims.offset_dims),
            list(&dims.collapsed_slice_dims),
            list(&dims.operand_batching_dims),
            list(&dims.start_indices_batching_dims),
            list(&dims.start_index_map),
            dims.index_vector_dim,
            i64s(slice_sizes)
        );
        self.emit(OP, &[operand, indices], &attributes, operand.dtype, result)
    }

    /// The operand with updates combined into computed places; places outside are skipped.
    #[expect(clippy::too_many_arguments, reason = "the operation has that many")]
    pub fn scatter(
        &mut self,
        operand: &Value,
        indices: &Value,
        updates: &Value,
        dims: &ScatterDims,
        sorted: bool,
        unique: bool,
        combine: impl FnOnce(&mut Self, &Value, &Value) -> Result<Value>,
    ) -> Result<Value> {
        const OP: &str = "scatter";
        let indexing = Indexing {
            op: OP,
            window: &dims.update_window_dims,
            collapsed: &dims.inserted_window_dims,
            batching: &dims.input_batching_dims,
            index_batching: &dims.scatter_indices_batching_dims,
            index_map: &dims.scatter_dims_to_operand_dims,
            vector_dim: dims.index_vector_dim,
        };
        let batch = indexing.batch(operand, indices)?;
        check::same_dtype(OP, operand.dtype, updates.dtype)?;
        check::rank(
            OP,
            "updates",
            updates.rank(),
            batch.len() + dims.update_window_dims.len(),
        )?;
        check::ascending(OP, &dims.update_window_dims, updates.rank())?;
        let window: Dims = dims
            .update_window_dims
            .iter()
            .map(|&dim| updates.dims[dim])
            .collect();
        let room = remaining(&operand.dims, &indexing.left_out());
        check::count(OP, "window dimensions", window.len(), room.len())?;
        fits(OP, &window, &room)?;
        check::same_dims(OP, &updates.dims, &indexing.interleave(&batch, &window)?)?;
        let types = scalars([operand.dtype]);
        let arguments = scalars([operand.dtype; 2]);
        let region = self.region(OP, Sight::Arguments, &arguments, |b, values| {
            Ok(vec![combine(b, &values[0], &values[1])?])
        })?;
        region.expect(OP, &types)?;
        let attributes = format!(
            "indices_are_sorted = {sorted}, scatter_dimension_numbers = \
             #stablehlo.scatter<update_window_dims = {}, inserted_window_dims = {}, \
             input_batching_dims = {}, scatter_indices_batching_dims = {}, \
             scatter_dims_to_operand_dims = {}, index_vector_dim = {}>, unique_indices = {unique}",
            list(&dims.update_window_dims),
            list(&dims.inserted_window_dims),
            list(&dims.input_batching_dims),
            list(&dims.scatter_indices_batching_dims),
            list(&dims.scatter_dims_to_operand_dims),
            dims.index_vector_dim
        );
        let results = vec![(operand.dtype, operand.dims.clone())];
        let made = self.emit_with(
            OP,
            &[operand, indices, updates],
            &attributes,
            &[region],
            results,
        )?;
        crate::builder::only(OP, made)
    }
}
