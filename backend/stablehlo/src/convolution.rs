//! Convolution.

use crate::check;
use crate::text::{bools, i64s, list, pairs};
use crate::window::axis_size;
use crate::{Builder, DType, Dims, Error, Precision, Result, Value};

/// Where batch, feature and spatial dimensions stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConvDims {
    pub input_batch: usize,
    pub input_feature: usize,
    pub input_spatial: Vec<usize>,
    pub kernel_out: usize,
    pub kernel_in: usize,
    pub kernel_spatial: Vec<usize>,
    pub output_batch: usize,
    pub output_feature: usize,
    pub output_spatial: Vec<usize>,
}

impl ConvDims {
    /// torch's order: batch, feature, spatial; kernels out, in, spatial.
    #[must_use]
    pub fn channels_first(spatial: usize) -> Self {
        let places: Vec<_> = (2..2 + spatial).collect();
        Self {
            input_batch: 0,
            input_feature: 1,
            input_spatial: places.clone(),
            kernel_out: 0,
            kernel_in: 1,
            kernel_spatial: places.clone(),
            output_batch: 0,
            output_feature: 1,
            output_spatial: places,
        }
    }
}

/// Everything about a convolution but its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvSpec {
    /// Steps of the window.
    pub strides: Vec<i64>,
    /// Padding below and above; negative crops.
    pub padding: Vec<(i64, i64)>,
    /// Spacing of the input's elements.
    pub lhs_dilation: Vec<i64>,
    /// Spacing of the kernel's elements.
    pub rhs_dilation: Vec<i64>,
    /// Spatial dimensions in which the kernel is turned around.
    pub reversal: Vec<bool>,
    /// Groups of features that do not mix.
    pub feature_group_count: i64,
    /// Groups of the batch that belong to different output features.
    pub batch_group_count: i64,
    /// Where which dimension stands.
    pub dims: ConvDims,
    /// How exactly to multiply.
    pub precision: Precision,
    /// Element type of the result.
    pub out_dtype: DType,
}

impl ConvSpec {
    /// A plain convolution in torch's dimension order: stride one, no padding, no groups.
    #[must_use]
    pub fn new(spatial: usize, out_dtype: DType) -> Self {
        Self {
            strides: vec![1; spatial],
            padding: vec![(0, 0); spatial],
            lhs_dilation: vec![1; spatial],
            rhs_dilation: vec![1; spatial],
            reversal: vec![false; spatial],
            feature_group_count: 1,
            batch_group_count: 1,
            dims: ConvDims::channels_first(spatial),
            precision: Precision::Default,
            out_dtype,
        }
    }
}

const OP: &str = "convolution";

impl Builder {
    /// A convolution (a correlation, as usual in this field) of `lhs` with the kernel `rhs`.
    pub fn convolution(&mut self, lhs: &Value, rhs: &Value, spec: &ConvSpec) -> Result<Value> {
        check::same_dtype(OP, lhs.dtype, rhs.dtype)?;
        let dims = &spec.dims;
        let input = places(dims.input_batch, dims.input_feature, &dims.input_spatial);
        let kernel = places(dims.kernel_out, dims.kernel_in, &dims.kernel_spatial);
        let output = places(dims.output_batch, dims.output_feature, &dims.output_spatial);
        check::rank(OP, "input", lhs.rank(), input.len())?;
        check::rank(OP, "kernel", rhs.rank(), input.len())?;
        for place in [&input, &kernel, &output] {
            check::count(OP, "dimension numbers", place.len(), input.len())?;
            check::dims_of(OP, place, input.len())?;
        }
        let spatial = dims.input_spatial.len();
        for (what, found) in [
            ("strides", spec.strides.len()),
            ("paddings", spec.padding.len()),
            ("input dilations", spec.lhs_dilation.len()),
            ("kernel dilations", spec.rhs_dilation.len()),
            ("reversals", spec.reversal.len()),
        ] {
            check::count(OP, what, found, spatial)?;
        }
        let result = output_dims(lhs, rhs, spec)?;
        let attributes = format!(
            "batch_group_count = {} : i64, dimension_numbers = {}, feature_group_count = {} : i64, \
             lhs_dilation = {}, padding = {}, {}, rhs_dilation = {}, window_reversal = {}, \
             window_strides = {}",
            spec.batch_group_count,
            dimension_numbers(dims),
            spec.feature_group_count,
            i64s(&spec.lhs_dilation),
            pairs(&spec.padding),
            spec.precision.attribute(),
            i64s(&spec.rhs_dilation),
            bools(&spec.reversal),
            i64s(&spec.strides)
        );
        self.emit(OP, &[lhs, rhs], &attributes, spec.out_dtype, result)
    }
}

fn places(first: usize, second: usize, spatial: &[usize]) -> Vec<usize> {
    let mut all = vec![first, second];
    all.extend(spatial);
    all
}

fn output_dims(lhs: &Value, rhs: &Value, spec: &ConvSpec) -> Result<Dims> {
    let dims = &spec.dims;
    let (groups, batches) = (spec.feature_group_count, spec.batch_group_count);
    let wrong = |detail: String| Error::Attribute { op: OP, detail };
    if groups < 1 || batches < 1 || (groups > 1 && batches > 1) {
        return Err(wrong(format!(
            "group counts {groups} of features and {batches} of the batch"
        )));
    }
    let (batch, features) = (lhs.dims[dims.input_batch], lhs.dims[dims.input_feature]);
    let (outs, ins) = (rhs.dims[dims.kernel_out], rhs.dims[dims.kernel_in]);
    if features % groups != 0 || features / groups != ins {
        return Err(wrong(format!(
            "{features} input features in {groups} groups do not fit a kernel for {ins}"
        )));
    }
    if outs % groups != 0 || outs % batches != 0 || batch % batches != 0 {
        return Err(wrong(format!(
            "{outs} output features and a batch of {batch} do not fit {groups} feature groups \
             and {batches} batch groups"
        )));
    }
    let mut result: Dims = smallvec::smallvec![0; lhs.rank()];
    result[dims.output_batch] = batch / batches;
    result[dims.output_feature] = outs;
    for index in 0..dims.input_spatial.len() {
        result[dims.output_spatial[index]] = axis_size(
            OP,
            lhs.dims[dims.input_spatial[index]],
            rhs.dims[dims.kernel_spatial[index]],
            spec.strides[index],
            spec.lhs_dilation[index],
            spec.rhs_dilation[index],
            spec.padding[index],
        )?;
    }
    Ok(result)
}

fn dimension_numbers(dims: &ConvDims) -> String {
    format!(
        "#stablehlo.conv<raw input_batch_dimension = {}, input_feature_dimension = {}, \
         input_spatial_dimensions = {}, kernel_input_feature_dimension = {}, \
         kernel_output_feature_dimension = {}, kernel_spatial_dimensions = {}, \
         output_batch_dimension = {}, output_feature_dimension = {}, \
         output_spatial_dimensions = {}>",
        dims.input_batch,
        dims.input_feature,
        list(&dims.input_spatial),
        dims.kernel_in,
        dims.kernel_out,
        list(&dims.kernel_spatial),
        dims.output_batch,
        dims.output_feature,
        list(&dims.output_spatial)
    )
}
