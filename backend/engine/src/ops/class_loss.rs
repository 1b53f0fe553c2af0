//! Losses of class scores against class numbers, with their gradients.

use tpulab_stablehlo::{DType, Dims, GatherDims, Reducer, Value};

use super::loss::Reduction;
use super::util::{acc_type, like, stretch};
use crate::error::{Error, Result};
use crate::lower::{Ctx, one};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("nll_loss_forward", nll);
    r.op("nll_loss_backward", nll_backward);
    r.op("nll_loss2d_forward", nll);
    r.op("nll_loss2d_backward", nll_backward);
    r.direct(&["nll_loss_forward", "nll_loss_backward"]);
}

/// Above this number of classes a gather beats a comparison with every class.
const WIDE: i64 = 4096;

/// Scores, class numbers and weights of a call.
pub(crate) struct Classes {
    /// Scores as the op got them.
    pub input: Value,
    /// Scores in the dtype of the computation; a lone row has a batch dim of one.
    pub x: Value,
    /// Class numbers as int64: the dims of `x` without dim 1.
    pub target: Value,
    /// The weight of each class.
    pub weight: Option<Value>,
    /// Sizes of the result that is not reduced.
    pub sizes: Dims,
}

impl Classes {
    pub(crate) fn of(c: &mut Ctx<'_>) -> Result<Self> {
        let input = c.tensor("self")?;
        let target = c.tensor("target")?;
        let two_dims = c.base_name().starts_with("nll_loss2d");
        let margin = c.base_name().starts_with("multi_margin");
        if margin {
            check_margin(&input, &target)?;
        } else {
            check(&input, &target, two_dims)?;
        }
        let lone = input.rank() <= 1;
        let mut x = c.b.convert(&input, acc_type(input.dtype))?;
        if lone {
            x = c.b.reshape(&x, &[1, input.numel()])?;
        }
        let classes = x.dims[1];
        let weight = match c.opt_tensor("weight")? {
            Some(weight) if weight.numel() != classes || weight.rank() > 1 => {
                return Err(Error::runtime(if margin {
                    format!(
                        "inconsistent weight size, expected {classes} but got {:?}",
                        weight.dims.as_slice()
                    )
                } else if two_dims {
                    "weight tensor should be defined either for all or no classes".to_owned()
                } else {
                    format!(
                        "weight tensor should be defined either for all {classes} classes or no classes but got \
                         weight tensor of shape: {:?}",
                        weight.dims.as_slice()
                    )
                }));
            }
            Some(weight) => Some(c.b.convert(&weight, x.dtype)?),
            None => None,
        };
        let mut places = x.dims.clone();
        places.remove(1);
        let scalar = lone && (target.rank() == 0 || !margin);
        let target = c.b.convert(&target, DType::I64)?;
        let target = c.b.reshape(&target, &places)?;
        let sizes = if scalar { Dims::new() } else { places };
        Ok(Self {
            input,
            x,
            target,
            weight,
            sizes,
        })
    }

    pub(crate) fn count(&self) -> i64 {
        self.x.dims[1]
    }

    /// Which class each place has, over the dims of the scores.
    pub(crate) fn one_hot(&self, c: &mut Ctx<'_>) -> Result<Value> {
        let numbers = c.b.iota(DType::I32, &self.x.dims, 1)?;
        let target = self.narrow(c)?;
        let target = stretch(&mut c.b, &target, &self.x.dims, &[1])?;
        Ok(c.b.eq(&numbers, &target)?)
    }

    /// Class numbers as int32, those that are none as −1.
    fn narrow(&self, c: &mut Ctx<'_>) -> Result<Value> {
        let valid = self.valid(c)?;
        let none = like(&mut c.b, &self.target, -1.0)?;
        let target = c.b.select(&valid, &self.target, &none)?;
        Ok(c.b.convert(&target, DType::I32)?)
    }

    /// Where the class number is that of a class.
    fn valid(&self, c: &mut Ctx<'_>) -> Result<Value> {
        let zero = c.b.splat_like(&self.target, 0)?;
        let count = c.b.splat_like(&self.target, self.count())?;
        let low = c.b.ge(&self.target, &zero)?;
        let high = c.b.lt(&self.target, &count)?;
        Ok(c.b.and(&low, &high)?)
    }

    /// The score of each place's class; zero for a class number that is none.
    pub(crate) fn scores(&self, c: &mut Ctx<'_>) -> Result<Value> {
        if self.count() > WIDE {
            return self.gather(c);
        }
        let hot = self.one_hot(c)?;
        let zero = like(&mut c.b, &self.x, 0.0)?;
        let alone = c.b.select(&hot, &self.x, &zero)?;
        Ok(c.b.reduce_with(Reducer::Sum, &alone, &[1])?)
    }

    fn gather(&self, c: &mut Ctx<'_>) -> Result<Value> {
        let rank = self.x.rank();
        let indices = self.narrow(c)?;
        let batching: Vec<usize> = (0..rank).filter(|&dim| dim != 1).collect();
        let dims = GatherDims {
            collapsed_slice_dims: vec![1],
            operand_batching_dims: batching,
            start_indices_batching_dims: (0..rank - 1).collect(),
            start_index_map: vec![1],
            index_vector_dim: rank - 1,
            ..GatherDims::default()
        };
        let slices = vec![1; rank];
        Ok(c.b.gather(&self.x, &indices, &dims, &slices, false)?)
    }

    /// The weight of each place's class; `None` without weights.
    pub(crate) fn weights(&self, c: &mut Ctx<'_>) -> Result<Option<Value>> {
        let Some(weight) = &self.weight else {
            return Ok(None);
        };
        if self.count() > WIDE {
            let indices = self.narrow(c)?;
            let dims = GatherDims {
                collapsed_slice_dims: vec![0],
                start_index_map: vec![0],
                index_vector_dim: indices.rank(),
                ..GatherDims::default()
            };
            return Ok(Some(c.b.gather(weight, &indices, &dims, &[1], false)?));
        }
        let hot = self.one_hot(c)?;
        let each = c.b.broadcast_in_dim(weight, &self.x.dims, &[1])?;
        let zero = like(&mut c.b, &self.x, 0.0)?;
        let alone = c.b.select(&hot, &each, &zero)?;
        Ok(Some(c.b.reduce_with(Reducer::Sum, &alone, &[1])?))
    }
}

/// torch's checks of shapes and dtypes.
fn check(input: &Value, target: &Value, two_dims: bool) -> Result<()> {
    let shown = |value: &Value| format!("{:?}", value.dims.as_slice());
    let complain = |text: String| Err(Error::runtime(text));
    if !matches!(target.dtype, DType::I64 | DType::U8) {
        return complain(format!(
            "expected target dtype to be Long or Byte, but got {}",
            target.dtype.torch_name()
        ));
    }
    if two_dims {
        if target.rank() != 3 {
            return complain(format!(
                "only batches of spatial targets supported (3D tensors) but got targets of dimension: {}",
                target.rank()
            ));
        }
        if input.rank() != 4 {
            return complain(format!(
                "only batches of spatial inputs supported (4D tensors), but got input of dimension: {}",
                input.rank()
            ));
        }
        let fits = input.dims[0] == target.dims[0] && input.dims[2..] == target.dims[1..];
        if !fits {
            return complain(format!(
                "size mismatch (got input: {} , target: {}",
                shown(input),
                shown(target)
            ));
        }
        return Ok(());
    }
    if !(1..=2).contains(&input.rank()) {
        return complain("input tensor should be 1D or 2D".to_owned());
    }
    if target.rank() > 1 {
        return complain("0D or 1D target tensor expected, multi-target not supported".to_owned());
    }
    let batch = if input.rank() == 1 { 1 } else { input.dims[0] };
    if target.numel() != batch {
        return complain(format!(
            "size mismatch (got input: {}, target: {})",
            shown(input),
            shown(target)
        ));
    }
    Ok(())
}

/// torch's checks of the margin loss.
fn check_margin(input: &Value, target: &Value) -> Result<()> {
    let classes = input.dims.last().copied().unwrap_or(1);
    if input.rank() > 2 || classes == 0 {
        return Err(Error::runtime(format!(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: {:?}",
            input.dims.as_slice()
        )));
    }
    let rows = if input.rank() == 2 { input.dims[0] } else { 1 };
    if target.rank() > 1 || target.numel() != rows {
        return Err(Error::runtime(format!(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch \
             size). Expected target size [{rows}], but got {:?}. Input has shape {:?}.",
            target.dims.as_slice(),
            input.dims.as_slice()
        )));
    }
    Ok(())
}

/// The weight of each place: that of its class, zero where the target is `ignore_index`, and NaN for a class number
/// out of range, which a device cannot complain about.
fn place_weights(c: &mut Ctx<'_>, classes: &Classes) -> Result<Value> {
    let places = classes.target.dims.clone();
    let dtype = classes.x.dtype;
    let each = match classes.weights(c)? {
        Some(weights) => weights,
        None => c.b.splat(dtype, 1, &places)?,
    };
    let nan = c.b.splat(dtype, f64::NAN, &places)?;
    let zero = c.b.splat(dtype, 0, &places)?;
    let valid = classes.valid(c)?;
    let each = c.b.select(&valid, &each, &nan)?;
    let ignored = c.opt_int("ignore_index")?.unwrap_or(-100);
    let ignored = c.b.splat_like(&classes.target, ignored)?;
    let ignored = c.b.eq(&classes.target, &ignored)?;
    Ok(c.b.select(&ignored, &zero, &each)?)
}

/// (loss, sum of the weights); the latter is zero if nothing is reduced.
fn nll(c: &mut Ctx<'_>) -> Result<Lowered> {
    let classes = Classes::of(c)?;
    let reduction = Reduction::of(c)?;
    let dtype = classes.input.dtype;
    let scores = classes.scores(c)?;
    let weights = place_weights(c, &classes)?;
    let zero = like(&mut c.b, &weights, 0.0)?;
    let counts = c.b.ne(&weights, &zero)?;
    let scores = c.b.neg(&scores)?;
    let losses = c.b.mul(&weights, &scores)?;
    // An ignored place adds nothing, whatever its score.
    let losses = c.b.select(&counts, &losses, &zero)?;
    let dims: Vec<usize> = (0..losses.rank()).collect();
    // A lone row is always reduced.
    if reduction == Reduction::None && classes.input.rank() > 1 {
        let total = c.b.scalar(dtype, 0)?;
        let losses = c.b.reshape(&losses, &classes.sizes)?;
        let losses = c.b.convert(&losses, dtype)?;
        return Ok(vec![Some(losses), Some(total)]);
    }
    let mut loss = c.b.reduce_with(Reducer::Sum, &losses, &dims)?;
    let total = c.b.reduce_with(Reducer::Sum, &weights, &dims)?;
    if reduction == Reduction::Mean {
        loss = c.b.div(&loss, &total)?;
    }
    let loss = c.b.convert(&loss, dtype)?;
    let total = c.b.convert(&total, dtype)?;
    Ok(vec![Some(loss), Some(total)])
}

/// −weight·g at each place's class, zero elsewhere.
fn nll_backward(c: &mut Ctx<'_>) -> Result<Lowered> {
    let classes = Classes::of(c)?;
    let reduction = Reduction::of(c)?;
    let grad = c.tensor("grad_output")?;
    let mut grad = c.b.convert(&grad, classes.x.dtype)?;
    let places = classes.target.dims.clone();
    if reduction == Reduction::Mean {
        let total = c.tensor("total_weight")?;
        let total = c.b.convert(&total, classes.x.dtype)?;
        let total = c.b.reshape(&total, &[])?;
        grad = c.b.reshape(&grad, &[])?;
        grad = c.b.div(&grad, &total)?;
    }
    let grad = if grad.numel() == classes.target.numel() {
        c.b.reshape(&grad, &places)?
    } else {
        c.b.broadcast_to(&grad, &places)?
    };
    let weights = place_weights(c, &classes)?;
    let zero = like(&mut c.b, &weights, 0.0)?;
    let counts = c.b.ne(&weights, &zero)?;
    let each = c.b.mul(&grad, &weights)?;
    let each = c.b.select(&counts, &each, &zero)?;
    let each = c.b.neg(&each)?;
    let each = stretch(&mut c.b, &each, &classes.x.dims, &[1])?;
    let hot = classes.one_hot(c)?;
    let zero = like(&mut c.b, &each, 0.0)?;
    let value = c.b.select(&hot, &each, &zero)?;
    let value = c.b.reshape(&value, &classes.input.dims)?;
    Ok(one(c.b.convert(&value, classes.input.dtype)?))
}
