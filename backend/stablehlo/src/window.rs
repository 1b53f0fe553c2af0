//! Reductions over sliding windows.

use crate::builder::{Sight, only, scalars};
use crate::check;
use crate::text::{i64s, pairs};
use crate::{Builder, DType, Dims, Error, Result, Value};

/// A window that slides over every dimension of an operand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowSpec {
    /// Sizes.
    pub dims: Vec<i64>,
    /// Steps.
    pub strides: Vec<i64>,
    /// Spacing of the operand's elements.
    pub base_dilations: Vec<i64>,
    /// Spacing of the window's elements.
    pub window_dilations: Vec<i64>,
    /// Padding below and above with the initial value.
    pub padding: Vec<(i64, i64)>,
}

impl WindowSpec {
    /// A window of these sizes: stride one, no dilation, no padding.
    #[must_use]
    pub fn new(dims: &[i64]) -> Self {
        let ones = vec![1; dims.len()];
        Self {
            dims: dims.into(),
            strides: ones.clone(),
            base_dilations: ones.clone(),
            window_dilations: ones,
            padding: vec![(0, 0); dims.len()],
        }
    }

    fn result_dims(&self, op: &'static str, x: &Value) -> Result<Dims> {
        for (what, found) in [
            ("window sizes", self.dims.len()),
            ("strides", self.strides.len()),
            ("base dilations", self.base_dilations.len()),
            ("window dilations", self.window_dilations.len()),
            ("paddings", self.padding.len()),
        ] {
            check::count(op, what, found, x.rank())?;
        }
        (0..x.rank())
            .map(|dim| {
                axis_size(
                    op,
                    x.dims[dim],
                    self.dims[dim],
                    self.strides[dim],
                    self.base_dilations[dim],
                    self.window_dilations[dim],
                    self.padding[dim],
                )
            })
            .collect()
    }

    fn attributes(&self) -> String {
        format!(
            "padding = {}, window_dimensions = {}, window_strides = {}",
            pairs(&self.padding),
            i64s(&self.dims),
            i64s(&self.strides)
        )
    }
}

/// How many places a window has along one dimension.
pub(crate) fn axis_size(
    op: &'static str,
    size: i64,
    window: i64,
    stride: i64,
    base_dilation: i64,
    window_dilation: i64,
    padding: (i64, i64),
) -> Result<i64> {
    if window < 1 || stride < 1 || base_dilation < 1 || window_dilation < 1 {
        return Err(Error::Attribute {
            op,
            detail: format!(
                "window of size {window} with stride {stride} and dilations {base_dilation} and \
                 {window_dilation}"
            ),
        });
    }
    let spread = |count: i64, step: i64| {
        if count == 0 {
            0
        } else {
            (count - 1) * step + 1
        }
    };
    let base = spread(size, base_dilation) + padding.0 + padding.1;
    if base < 0 {
        return Err(Error::Attribute {
            op,
            detail: format!("padding leaves a size of {base}"),
        });
    }
    let reach = spread(window, window_dilation);
    Ok(if base == 0 || reach > base {
        0
    } else {
        (base - reach) / stride + 1
    })
}

impl Builder {
    /// Reduces every window of operands of one shape; `body` combines accumulated with new values.
    pub fn reduce_window(
        &mut self,
        xs: &[Value],
        inits: &[Value],
        window: &WindowSpec,
        body: impl FnOnce(&mut Self, &[Value], &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        const OP: &str = "reduce_window";
        let dtypes = crate::reduce::check_operands(OP, xs, inits)?;
        let dims = window.result_dims(OP, &xs[0])?;
        let region = self.reduction_body(OP, &dtypes, body)?;
        let attributes = format!(
            "base_dilations = {}, {}, window_dilations = {}",
            i64s(&window.base_dilations),
            window.attributes(),
            i64s(&window.window_dilations)
        );
        let operands: Vec<_> = xs.iter().chain(inits).collect();
        let results = dtypes.iter().map(|dtype| (*dtype, dims.clone())).collect();
        self.emit_with(OP, &operands, &attributes, &[region], results)
    }

    /// The adjoint of pooling: each element of `source` goes to the place in its window of
    /// `operand` that `select` prefers, and `scatter` combines what meets there.
    pub fn select_and_scatter(
        &mut self,
        operand: &Value,
        source: &Value,
        init: &Value,
        window: &WindowSpec,
        select: impl FnOnce(&mut Self, &Value, &Value) -> Result<Value>,
        scatter: impl FnOnce(&mut Self, &Value, &Value) -> Result<Value>,
    ) -> Result<Value> {
        const OP: &str = "select_and_scatter";
        check::same_dtype(OP, operand.dtype, source.dtype)?;
        check::same_dtype(OP, operand.dtype, init.dtype)?;
        check::scalar(OP, "initial value", init)?;
        let dims = window.result_dims(OP, operand)?;
        check::same_dims(OP, &source.dims, &dims)?;
        if [&window.base_dilations, &window.window_dilations]
            .iter()
            .any(|list| list.iter().any(|d| *d != 1))
        {
            return Err(Error::Attribute {
                op: OP,
                detail: "windows cannot be dilated".to_owned(),
            });
        }
        let arguments = scalars([operand.dtype; 2]);
        let choose = self.region(OP, Sight::Arguments, &arguments, |b, values| {
            Ok(vec![select(b, &values[0], &values[1])?])
        })?;
        choose.expect(OP, &scalars([DType::Bool]))?;
        let combine = self.region(OP, Sight::Arguments, &arguments, |b, values| {
            Ok(vec![scatter(b, &values[0], &values[1])?])
        })?;
        combine.expect(OP, &scalars([operand.dtype]))?;
        let results = vec![(operand.dtype, operand.dims.clone())];
        let made = self.emit_with(
            OP,
            &[operand, source, init],
            &window.attributes(),
            &[choose, combine],
            results,
        )?;
        only(OP, made)
    }
}
