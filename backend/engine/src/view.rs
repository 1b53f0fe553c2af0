//! Views as programs: how (sizes, strides, offset) over a base value is read and written.
//!
//! The base is reshaped (and padded) to a *frame* whose axes the view walks with constant steps: then a read is
//! slice → reshape → transpose → broadcast, a write its inverse. What has no frame is a gather or a scatter.

use smallvec::{SmallVec, smallvec};
use tpulab_stablehlo::{Binary, Builder, DType, Dims, GatherDims, ScatterDims, Value};

use crate::error::{Error, Result};

/// Sizes, strides and dtype of a view; its offset is a number of the call, so that it may change between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub sizes: Dims,
    pub strides: Dims,
    pub dtype: DType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// No element at all.
    Empty,
    /// The base in its order, perhaps with other dims.
    Reshape,
    /// A strided box of the frame.
    Box,
    /// Element by element.
    Gather,
}

/// Start of the view, known when lowering or only when running.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    Static(i64),
    /// Offset (for gathers) and start on every frame axis, as 0-d i64 values.
    Runtime {
        offset: Value,
        starts: Vec<Value>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub road: Road,
    /// Elements of the flat base (counted in the view's dtype), and once padded to fill the frame.
    total: i64,
    padded: i64,
    pub frame: Dims,
    pub count: Dims,
    pub step: Dims,
    /// View dims that move (size > 1, stride ≠ 0) and the frame axis of each.
    kept: SmallVec<[usize; 6]>,
    axis: SmallVec<[usize; 6]>,
}

pub(crate) fn numel(dims: &[i64]) -> i64 {
    dims.iter().product()
}

pub(crate) fn is_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size == 0 {
            return true;
        }
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected *= size;
        }
    }
    true
}

pub(crate) fn row_major(sizes: &[i64]) -> Dims {
    let mut strides: Dims = smallvec![1; sizes.len()];
    for i in (0..sizes.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * sizes[i + 1].max(1);
    }
    strides
}

/// Index of element `offset` of the frame, an axis at a time.
pub(crate) fn unravel(offset: i64, frame: &[i64]) -> Dims {
    let mut rest = offset;
    let mut index: Dims = smallvec![0; frame.len()];
    for (axis, stride) in row_major(frame).iter().enumerate() {
        index[axis] = rest / stride;
        rest %= stride;
    }
    index
}

impl Plan {
    pub(crate) fn new(base: &[i64], view: &View, offset: i64) -> Self {
        let total = numel(base);
        let simple = |road| Self {
            road,
            total,
            padded: total,
            frame: Dims::new(),
            count: Dims::new(),
            step: Dims::new(),
            kept: SmallVec::new(),
            axis: SmallVec::new(),
        };
        if numel(&view.sizes) == 0 {
            return simple(Road::Empty);
        }
        if offset == 0 && total == numel(&view.sizes) && is_contiguous(&view.sizes, &view.strides) {
            return simple(Road::Reshape);
        }
        let kept: SmallVec<[usize; 6]> = (0..view.sizes.len())
            .filter(|&i| view.sizes[i] > 1 && view.strides[i] != 0)
            .collect();
        box_on_base(base, view, offset, &kept)
            .or_else(|| box_on_digits(total, view, offset, &kept))
            .unwrap_or_else(|| simple(Road::Gather))
    }

    /// Whether the box still fits when it starts at `offset`: what a run-time start must fulfil.
    pub(crate) fn fits(&self, offset: i64) -> bool {
        match self.road {
            Road::Box => unravel(offset, &self.frame)
                .iter()
                .zip(self.frame.iter().zip(self.count.iter().zip(&self.step)))
                .all(|(start, (dim, (count, step)))| start + (count - 1) * step < *dim),
            Road::Gather => true,
            Road::Empty | Road::Reshape => offset == 0,
        }
    }

    /// True if a write through the view replaces every element of the base.
    pub(crate) fn covers(&self, start: &Start) -> bool {
        match self.road {
            Road::Reshape => true,
            Road::Box => {
                matches!(start, Start::Static(offset) if *offset == 0)
                    && self.count == self.frame
                    && self.step.iter().all(|&step| step == 1)
            }
            Road::Empty | Road::Gather => false,
        }
    }

    pub(crate) fn read(
        &self,
        b: &mut Builder,
        base: &Value,
        view: &View,
        start: &Start,
    ) -> Result<Value> {
        let base = as_dtype(b, base, view.dtype)?;
        match self.road {
            Road::Empty => Ok(b.splat(view.dtype, 0i64, &view.sizes)?),
            Road::Reshape => Ok(b.reshape(&base, &view.sizes)?),
            Road::Gather => self.gather(b, &base, view, start),
            Road::Box => {
                let frame = self.enter_frame(b, &base)?;
                let span = self.span();
                let boxed = match start {
                    Start::Static(offset) => {
                        let low = unravel(*offset, &self.frame);
                        let high: Dims = low.iter().zip(&span).map(|(l, s)| l + s).collect();
                        b.slice(&frame, &low, &high, &self.step)?
                    }
                    Start::Runtime { starts, .. } => {
                        let spanned = b.dynamic_slice(&frame, starts, &span)?;
                        let zeros: Dims = smallvec![0; span.len()];
                        b.slice(&spanned, &zeros, &span, &self.step)?
                    }
                };
                self.leave_box(b, &boxed, view)
            }
        }
    }

    /// The new base after `value` (of the view's sizes and dtype) was written through the view.
    /// `base` may be absent only if the view covers it.
    pub(crate) fn write(
        &self,
        b: &mut Builder,
        base: Option<&Value>,
        base_type: (DType, &[i64]),
        value: &Value,
        view: &View,
        start: &Start,
    ) -> Result<Value> {
        let (base_dtype, base_dims) = base_type;
        let missing = || Error::runtime("a partial write needs the value it writes into");
        let written = match self.road {
            Road::Empty => return base.cloned().ok_or_else(missing),
            Road::Reshape => value.clone(),
            Road::Gather => {
                let old = as_dtype(b, base.ok_or_else(missing)?, view.dtype)?;
                self.scatter(b, &old, value, view, start)?
            }
            Road::Box => {
                let boxed = self.enter_box(b, value)?;
                let frame = if self.covers(start) {
                    boxed
                } else {
                    let old = as_dtype(b, base.ok_or_else(missing)?, view.dtype)?;
                    let frame = self.enter_frame(b, &old)?;
                    self.update(b, &frame, &boxed, start)?
                };
                self.leave_frame(b, &frame)?
            }
        };
        let native = as_dtype(b, &written, base_dtype)?;
        Ok(b.reshape(&native, base_dims)?)
    }

    fn span(&self) -> Dims {
        self.count
            .iter()
            .zip(&self.step)
            .map(|(count, step)| (count - 1) * step + 1)
            .collect()
    }

    fn enter_frame(&self, b: &mut Builder, base: &Value) -> Result<Value> {
        let total = numel(&base.dims);
        let mut flat = base.clone();
        if self.padded != total {
            flat = b.reshape(&flat, &[total])?;
            let zero = b.scalar(base.dtype, 0i64)?;
            flat = b.pad(&flat, &zero, &[0], &[self.padded - total], &[0])?;
        }
        Ok(b.reshape(&flat, &self.frame)?)
    }

    fn leave_frame(&self, b: &mut Builder, frame: &Value) -> Result<Value> {
        let flat = b.reshape(frame, &[self.padded])?;
        if self.total == self.padded {
            return Ok(flat);
        }
        Ok(b.slice(&flat, &[0], &[self.total], &[1])?)
    }

    /// A box of `count` elements an axis, as the view shows it.
    fn leave_box(&self, b: &mut Builder, boxed: &Value, view: &View) -> Result<Value> {
        let mut order: Vec<usize> = self.axis.to_vec();
        order.sort_unstable();
        let dims: Dims = order.iter().map(|&axis| self.count[axis]).collect();
        let dense = b.reshape(boxed, &dims)?;
        let perm: Vec<usize> = self
            .axis
            .iter()
            .map(|axis| order.iter().position(|o| o == axis).unwrap_or(0))
            .collect();
        let moved = b.transpose(&dense, &perm)?;
        if moved.dims == view.sizes {
            return Ok(moved);
        }
        Ok(b.broadcast_in_dim(&moved, &view.sizes, &self.kept)?)
    }

    /// The inverse: a value of the view's sizes as a box. Repeated elements (stride 0) count once.
    fn enter_box(&self, b: &mut Builder, value: &Value) -> Result<Value> {
        let zeros: Dims = smallvec![0; value.dims.len()];
        let ones: Dims = smallvec![1; value.dims.len()];
        let limit: Dims = (0..value.dims.len())
            .map(|i| {
                if self.kept.contains(&i) {
                    value.dims[i]
                } else {
                    1
                }
            })
            .collect();
        let once = b.slice(value, &zeros, &limit, &ones)?;
        let dims: Dims = self.kept.iter().map(|&i| value.dims[i]).collect();
        let dense = b.reshape(&once, &dims)?;
        let mut perm: Vec<usize> = (0..self.axis.len()).collect();
        perm.sort_unstable_by_key(|&k| self.axis[k]);
        let moved = b.transpose(&dense, &perm)?;
        Ok(b.reshape(&moved, &self.count)?)
    }

    fn update(
        &self,
        b: &mut Builder,
        frame: &Value,
        boxed: &Value,
        start: &Start,
    ) -> Result<Value> {
        let starts = match start {
            Start::Static(offset) => unravel(*offset, &self.frame)
                .iter()
                .map(|&low| b.scalar(DType::I64, low))
                .collect::<std::result::Result<Vec<_>, _>>()?,
            Start::Runtime { starts, .. } => starts.clone(),
        };
        if self.step.iter().all(|&step| step == 1) {
            return Ok(b.dynamic_update_slice(frame, boxed, &starts)?);
        }
        // Between the steps the old elements stay: merge within the span, then write the span.
        let span = self.span();
        let old = b.dynamic_slice(frame, &starts, &span)?;
        let zeros: Dims = smallvec![0; span.len()];
        let gaps: Dims = self.step.iter().map(|step| step - 1).collect();
        let zero = b.scalar(boxed.dtype, 0i64)?;
        let spread = b.pad(boxed, &zero, &zeros, &zeros, &gaps)?;
        let hit = b.splat(DType::Bool, true, &self.count)?;
        let miss = b.scalar(DType::Bool, false)?;
        let mask = b.pad(&hit, &miss, &zeros, &zeros, &gaps)?;
        let merged = b.select(&mask, &spread, &old)?;
        Ok(b.dynamic_update_slice(frame, &merged, &starts)?)
    }

    fn flat_index(&self, b: &mut Builder, view: &View, start: &Start) -> Result<Value> {
        let mut index = match start {
            Start::Static(offset) => b.splat(DType::I64, *offset, &view.sizes)?,
            Start::Runtime { offset, .. } => b.broadcast_to(offset, &view.sizes)?,
        };
        for (dim, (&size, &stride)) in view.sizes.iter().zip(&view.strides).enumerate() {
            if size == 1 || stride == 0 {
                continue;
            }
            let position = b.iota(DType::I64, &view.sizes, dim)?;
            let scale = b.splat(DType::I64, stride, &view.sizes)?;
            let moved = b.binary(Binary::Multiply, &position, &scale)?;
            index = b.binary(Binary::Add, &index, &moved)?;
        }
        Ok(b.reshape(&index, &[numel(&view.sizes), 1])?)
    }

    fn gather(&self, b: &mut Builder, base: &Value, view: &View, start: &Start) -> Result<Value> {
        let flat = b.reshape(base, &[numel(&base.dims)])?;
        let index = self.flat_index(b, view, start)?;
        let dims = GatherDims {
            collapsed_slice_dims: vec![0],
            start_index_map: vec![0],
            index_vector_dim: 1,
            ..GatherDims::default()
        };
        let taken = b.gather(&flat, &index, &dims, &[1], false)?;
        Ok(b.reshape(&taken, &view.sizes)?)
    }

    fn scatter(
        &self,
        b: &mut Builder,
        base: &Value,
        value: &Value,
        view: &View,
        start: &Start,
    ) -> Result<Value> {
        let flat = b.reshape(base, &[numel(&base.dims)])?;
        let index = self.flat_index(b, view, start)?;
        let updates = b.reshape(value, &[numel(&value.dims)])?;
        let dims = ScatterDims {
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 1,
            ..ScatterDims::default()
        };
        Ok(
            b.scatter(&flat, &index, &updates, &dims, false, false, |_, _, new| {
                Ok(new.clone())
            })?,
        )
    }
}

/// The frame is the base itself: strides divide into steps on its own dims.
fn box_on_base(base: &[i64], view: &View, offset: i64, kept: &[usize]) -> Option<Plan> {
    let strides = row_major(base);
    let low = unravel(offset, base);
    if base.iter().zip(&low).any(|(dim, low)| low >= dim) {
        return None;
    }
    let mut count: Dims = smallvec![1; base.len()];
    let mut step: Dims = smallvec![1; base.len()];
    let mut axis: SmallVec<[usize; 6]> = SmallVec::new();
    for &i in kept {
        let (size, stride) = (view.sizes[i], view.strides[i]);
        let j = (0..base.len()).find(|&j| {
            base[j] > 1
                && stride % strides[j] == 0
                && low[j] + (size - 1) * (stride / strides[j]) < base[j]
        })?;
        if axis.contains(&j) {
            return None;
        }
        count[j] = size;
        step[j] = stride / strides[j];
        axis.push(j);
    }
    let total = numel(base);
    Some(Plan {
        road: Road::Box,
        total,
        padded: total,
        frame: Dims::from_slice(base),
        count,
        step,
        kept: SmallVec::from_slice(kept),
        axis,
    })
}

/// The frame is made from the view: its strides, sorted, divide each other like the digits of a number.
fn box_on_digits(total: i64, view: &View, offset: i64, kept: &[usize]) -> Option<Plan> {
    let mut order: SmallVec<[usize; 6]> = SmallVec::from_slice(kept);
    order.sort_by_key(|&i| -view.strides[i]);
    let (mut frame, mut count) = (Dims::new(), Dims::new());
    let mut padded = total;
    let mut rest = offset;
    let mut previous = 1;
    if order.is_empty() {
        frame.push(total);
        count.push(1);
    }
    for (k, &i) in order.iter().enumerate() {
        let (size, stride) = (view.sizes[i], view.strides[i]);
        let dim = if k == 0 {
            let dim = (total + stride - 1) / stride;
            padded = dim * stride;
            dim
        } else {
            if previous % stride != 0 {
                return None;
            }
            previous / stride
        };
        if rest / stride + size > dim {
            return None;
        }
        rest %= stride;
        frame.push(dim);
        count.push(size);
        previous = stride;
    }
    if previous > 1 {
        frame.push(previous);
        count.push(1);
    }
    let axis = kept
        .iter()
        .filter_map(|i| order.iter().position(|o| o == i))
        .collect();
    Some(Plan {
        road: Road::Box,
        total,
        padded,
        step: smallvec![1; frame.len()],
        frame,
        count,
        kept: SmallVec::from_slice(kept),
        axis,
    })
}

/// The same bytes as another dtype; flat where the item sizes differ. Bool counts as bytes 0 and 1.
fn as_dtype(b: &mut Builder, value: &Value, dtype: DType) -> Result<Value> {
    if value.dtype == dtype {
        return Ok(value.clone());
    }
    let mut current = value.clone();
    if current.dtype == DType::Bool {
        current = b.convert(&current, DType::U8)?;
    }
    let target = if dtype == DType::Bool {
        DType::U8
    } else {
        dtype
    };
    if current.dtype != target {
        current = bitcast_flat(b, &current, target)?;
    }
    if dtype == DType::Bool {
        Ok(b.convert(&current, DType::Bool)?)
    } else {
        Ok(current)
    }
}

fn bitcast_flat(b: &mut Builder, value: &Value, dtype: DType) -> Result<Value> {
    let total = numel(&value.dims);
    let (from, to) = (value.dtype.size() as i64, dtype.size() as i64);
    let shaped = match from.cmp(&to) {
        std::cmp::Ordering::Less => {
            if total * from % to != 0 {
                return Err(Error::runtime(format!(
                    "a storage of {} bytes cannot be viewed as {}",
                    total * from,
                    dtype.name()
                )));
            }
            b.reshape(value, &[total * from / to, to / from])?
        }
        _ => b.reshape(value, &[total])?,
    };
    let cast = b.bitcast(&shaped, dtype)?;
    Ok(b.reshape(&cast, &[total * from / to])?)
}
