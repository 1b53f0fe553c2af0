//! Optimizer steps of a whole list of parameters in one program, and gradient scaling.
//!
//! Formulas as in torch's `native/cpu/Fused*Kernel.cpp`; scalars that the CPU derives in double are derived without
//! cancellation here.

use tpulab_stablehlo::{DType, Unary, Value};

use super::util::acc_type as wide;
use crate::error::{Error, Result};
use crate::lower::{Ctx, many};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("_fused_sgd", sgd).changing();
    r.op("_fused_adam", |c| adam(c, false)).changing();
    r.op("_fused_adamw", |c| adam(c, true)).changing();
    r.op("_fused_adagrad", adagrad).changing();
    r.op("_amp_foreach_non_finite_check_and_unscale", unscale);
    r.op("_amp_update_scale", update_scale);
    r.direct(&[
        "_fused_sgd_",
        "_fused_sgd_.tensor_lr",
        "_fused_adam_",
        "_fused_adam_.tensor_lr",
        "_fused_adamw_",
        "_fused_adamw_.tensor_lr",
        "_fused_adagrad_",
        "_fused_adagrad_.tensor_lr",
        "_amp_foreach_non_finite_check_and_unscale_",
        "_amp_update_scale_",
    ]);
}

/// The parameter of one list element at its step, in the dtype it is computed in.
struct Step<'c, 'a> {
    c: &'c mut Ctx<'a>,
    item: usize,
    dtype: DType,
    /// Whether infinities were found, so that nothing may change.
    skip: Option<Value>,
}

impl<'a> Step<'_, 'a> {
    fn each<T>(&mut self, read: impl FnOnce(&mut Ctx<'a>) -> Result<T>) -> Result<T> {
        self.c.each(self.item, &[], read)
    }

    /// A tensor of the lists at this element, widened.
    fn tensor(&mut self, name: &str) -> Result<Value> {
        let dtype = self.dtype;
        self.each(|c| {
            let value = c.tensor(name)?;
            Ok(c.b.convert(&value, dtype)?)
        })
    }

    /// A number, or a tensor of one element (`tensor_lr`, steps), as a 0-d value.
    fn scalar(&mut self, name: &str) -> Result<Value> {
        let dtype = self.dtype;
        self.each(|c| {
            let operand = c.operand(name)?;
            let value = c.value(&operand, dtype)?;
            Ok(c.b.reshape(&value, &[])?)
        })
    }

    /// 1 - the number, subtracted in double.
    fn complement(&mut self, name: &str) -> Result<Value> {
        complement(self.c, name, self.dtype)
    }

    /// This parameter's element of a vector over all of them, 0-d.
    fn of_item(&mut self, vector: &Value) -> Result<Value> {
        let at = self.item as i64;
        let own = self.c.b.slice_dim(vector, 0, at, at + 1, 1)?;
        let own = self.c.b.reshape(&own, &[])?;
        Ok(self.c.b.convert(&own, self.dtype)?)
    }

    fn like(&mut self, scalar: &Value, x: &Value) -> Result<Value> {
        Ok(self.c.b.broadcast_to(scalar, &x.dims)?)
    }

    fn times(&mut self, x: &Value, scalar: &Value) -> Result<Value> {
        let scalar = self.like(scalar, x)?;
        Ok(self.c.b.mul(x, &scalar)?)
    }

    /// a + x·scalar
    fn plus_scaled(&mut self, a: &Value, x: &Value, scalar: &Value) -> Result<Value> {
        let scaled = self.times(x, scalar)?;
        Ok(self.c.b.add(a, &scaled)?)
    }

    /// `old + weight·(new - old)` as torch's lerp: from the nearer end.
    fn lerp(&mut self, old: &Value, new: &Value, weight: &Value, rest: &Value) -> Result<Value> {
        let gap = self.c.b.sub(new, old)?;
        let forward = self.plus_scaled(old, &gap, weight)?;
        let back = self.times(&gap, rest)?;
        let backward = self.c.b.sub(new, &back)?;
        let half = self.c.b.scalar(self.dtype, 0.5)?;
        let small = self.c.b.lt(weight, &half)?;
        Ok(self.c.b.select(&small, &forward, &backward)?)
    }

    /// The gradient, unscaled (which is written back), turned around to maximize, with weight decay added.
    fn gradient(&mut self, param: &Value, decay: bool) -> Result<Value> {
        let mut grad = self.tensor("grads")?;
        if let Some(scale) = self.c.opt_tensor("grad_scale")? {
            let scale = self.c.b.convert(&scale, self.dtype)?;
            let scale = self.c.b.reshape(&scale, &[])?;
            let scale = self.like(&scale, &grad)?;
            grad = self.c.b.div(&grad, &scale)?;
            self.write("grads", &grad)?;
        }
        if self.c.bool("maximize")? {
            grad = self.c.b.neg(&grad)?;
        }
        if decay {
            // Without decay an infinite parameter must not make its gradient NaN.
            let decay = self.scalar("weight_decay")?;
            let decayed = self.plus_scaled(&grad, param, &decay)?;
            let zero = self.c.b.scalar(self.dtype, 0.0)?;
            let none = self.c.b.eq(&decay, &zero)?;
            grad = self.c.b.select(&none, &grad, &decayed)?;
        }
        Ok(grad)
    }

    fn write(&mut self, name: &str, value: &Value) -> Result<()> {
        let old = self.each(|c| c.tensor(name))?;
        let mut value = self.c.b.convert(value, old.dtype)?;
        if let Some(skip) = &self.skip {
            value = self.c.b.select(skip, &old, &value)?;
        }
        self.c.write(name, Some(self.item), value)
    }
}

/// Runs `step` on every parameter.
fn every(c: &mut Ctx<'_>, step: impl Fn(&mut Step<'_, '_>) -> Result<()>) -> Result<Lowered> {
    let skip = match c.opt_tensor("found_inf")? {
        Some(found) => {
            let found = c.b.reshape(&found, &[])?;
            let one = c.b.splat_like(&found, 1i64)?;
            Some(c.b.eq(&found, &one)?)
        }
        None => None,
    };
    for item in 0..c.len("self").unwrap_or(0) {
        let dtype = c.each(item, &[], |c| Ok(c.type_of("self")))?;
        let (dtype, _) = dtype.ok_or_else(|| Error::runtime("a parameter must be a tensor"))?;
        if !dtype.is_float() {
            return Err(Error::runtime(format!(
                "\"{}\" not implemented for '{}'",
                c.base_name().trim_start_matches('_'),
                dtype.torch_name()
            )));
        }
        step(&mut Step {
            c: &mut *c,
            item,
            dtype: wide(dtype),
            skip: skip.clone(),
        })?;
    }
    Ok(Vec::new())
}

fn sgd(c: &mut Ctx<'_>) -> Result<Lowered> {
    let momentum = c.len("momentum_buffer_list").unwrap_or(0) > 0;
    let (first, nesterov) = (c.bool("is_first_step")?, c.bool("nesterov")?);
    every(c, |s| {
        let param = s.tensor("self")?;
        let mut grad = s.gradient(&param, true)?;
        if momentum {
            let factor = s.scalar("momentum")?;
            let mut buffer = grad.clone();
            if !first {
                let old = s.tensor("momentum_buffer_list")?;
                let undamped = s.complement("dampening")?;
                let fresh = s.times(&grad, &undamped)?;
                buffer = s.plus_scaled(&fresh, &old, &factor)?;
            }
            s.write("momentum_buffer_list", &buffer)?;
            grad = if nesterov {
                s.plus_scaled(&grad, &buffer, &factor)?
            } else {
                buffer
            };
        }
        let lr = s.scalar("lr")?;
        let step = s.times(&grad, &lr)?;
        let param = s.c.b.sub(&param, &step)?;
        s.write("self", &param)
    })
}

fn adam(c: &mut Ctx<'_>, decoupled: bool) -> Result<Lowered> {
    let amsgrad = c.bool("amsgrad")?;
    if c.len("self").unwrap_or(0) == 0 {
        return Ok(Vec::new());
    }
    let factors = Factors::new(c, decoupled)?;
    every(c, |s| {
        let mut param = s.tensor("self")?;
        let grad = s.gradient(&param, !decoupled)?;
        if decoupled {
            let shrink = s.c.b.convert(&factors.shrink, s.dtype)?;
            let loss = s.times(&param, &shrink)?;
            param = s.c.b.sub(&param, &loss)?;
        }
        let rest1 = s.c.b.convert(&factors.rest1, s.dtype)?;
        let rest2 = s.c.b.convert(&factors.rest2, s.dtype)?;
        let (beta1, beta2) = (s.scalar("beta1")?, s.scalar("beta2")?);

        let average = s.tensor("exp_avgs")?;
        let average = s.lerp(&average, &grad, &rest1, &beta1)?;
        s.write("exp_avgs", &average)?;
        let square = s.tensor("exp_avg_sqs")?;
        let square = s.times(&square, &beta2)?;
        let fresh = s.times(&grad, &rest2)?;
        let fresh = s.c.b.mul(&fresh, &grad)?;
        let square = s.c.b.add(&square, &fresh)?;
        s.write("exp_avg_sqs", &square)?;
        let mut bound = square;
        if amsgrad {
            let most = s.tensor("max_exp_avg_sqs")?;
            bound = s.c.b.max(&most, &bound)?;
            s.write("max_exp_avg_sqs", &bound)?;
        }

        let size = s.of_item(&factors.size)?;
        let root = s.of_item(&factors.root)?;
        let root = s.like(&root, &bound)?;
        let length = s.c.b.sqrt(&bound)?;
        let length = s.c.b.div(&length, &root)?;
        let eps = s.scalar("eps")?;
        let eps = s.like(&eps, &length)?;
        let length = s.c.b.add(&length, &eps)?;
        let step = s.times(&average, &size)?;
        let step = s.c.b.div(&step, &length)?;
        let param = s.c.b.sub(&param, &step)?;
        s.write("self", &param)
    })
}

/// What Adam computes before the parameters' loops, which would work it out anew for each element.
struct Factors {
    /// 1 - beta
    rest1: Value,
    rest2: Value,
    /// lr·weight_decay
    shrink: Value,
    /// Of every parameter: lr / (1 - beta1^step), √(1 - beta2^step).
    size: Value,
    root: Value,
}

impl Factors {
    fn new(c: &mut Ctx<'_>, decoupled: bool) -> Result<Self> {
        let mut dtype = DType::F32;
        let mut line = Vec::new();
        let mut steps = Vec::new();
        for item in 0..c.len("state_steps").unwrap_or(0) {
            let (own, step) = c.each(item, &[], |c| {
                Ok((c.type_of("self"), c.operand("state_steps")?))
            })?;
            if own.is_some_and(|(own, _)| own == DType::F64) {
                dtype = DType::F64;
            }
            steps.push(step);
        }
        for step in &steps {
            let step = c.value(step, dtype)?;
            line.push(c.b.reshape(&step, &[1])?);
        }
        let steps = c.b.concatenate(&line, 0)?;
        let (rest1, rest2) = (
            complement(c, "beta1", dtype)?,
            complement(c, "beta2", dtype)?,
        );
        let (first, second) = (
            bias_correction(c, &rest1, &steps)?,
            bias_correction(c, &rest2, &steps)?,
        );
        let root = c.b.sqrt(&second)?;
        let lr = c.operand("lr")?;
        let lr = c.value(&lr, dtype)?;
        let lr = c.b.reshape(&lr, &[])?;
        let mut shrink = lr.clone();
        if decoupled {
            let decay = c.scalar_or("weight_decay", 0.0, dtype)?;
            shrink = c.b.mul(&lr, &decay)?;
        }
        let lr = c.b.broadcast_to(&lr, &steps.dims)?;
        let size = c.b.div(&lr, &first)?;
        let fixed =
            c.b.optimization_barrier(&[rest1, rest2, shrink, size, root])?;
        match <[Value; 5]>::try_from(fixed) {
            Ok([rest1, rest2, shrink, size, root]) => Ok(Self {
                rest1,
                rest2,
                shrink,
                size,
                root,
            }),
            Err(_) => Err(Error::runtime("a barrier of five values")),
        }
    }
}

/// 1 - beta^step from 1 - beta.
fn bias_correction(c: &mut Ctx<'_>, rest: &Value, steps: &Value) -> Result<Value> {
    let minus = c.b.neg(rest)?;
    let log = c.b.unary(Unary::Log1p, &minus)?;
    let log = c.b.broadcast_to(&log, &steps.dims)?;
    let exponent = c.b.mul(steps, &log)?;
    let change = c.b.unary(Unary::Expm1, &exponent)?;
    Ok(c.b.neg(&change)?)
}

/// 1 - the number, subtracted in double.
fn complement(c: &mut Ctx<'_>, name: &str, dtype: DType) -> Result<Value> {
    let number = c.number(name)?;
    let value = c.number_value(&number, DType::F64)?;
    let one = c.b.scalar(DType::F64, 1.0)?;
    let rest = c.b.sub(&one, &value)?;
    Ok(c.b.convert(&rest, dtype)?)
}

fn adagrad(c: &mut Ctx<'_>) -> Result<Lowered> {
    every(c, |s| {
        let param = s.tensor("self")?;
        let grad = s.gradient(&param, true)?;
        let sum = s.tensor("state_sums")?;
        let square = s.c.b.mul(&grad, &grad)?;
        let sum = s.c.b.add(&sum, &square)?;
        s.write("state_sums", &sum)?;
        // lr / (1 + (step - 1)·lr_decay)
        let (step, lr) = (s.scalar("state_steps")?, s.scalar("lr")?);
        let one = s.c.b.scalar(s.dtype, 1.0)?;
        let past = s.c.b.sub(&step, &one)?;
        let decay = s.scalar("lr_decay")?;
        let slow = s.plus_scaled(&one, &past, &decay)?;
        let lr = s.c.b.div(&lr, &slow)?;
        let length = s.c.b.sqrt(&sum)?;
        let eps = s.scalar("eps")?;
        let eps = s.like(&eps, &length)?;
        let length = s.c.b.add(&length, &eps)?;
        let step = s.times(&grad, &lr)?;
        let step = s.c.b.div(&step, &length)?;
        let param = s.c.b.sub(&param, &step)?;
        s.write("self", &param)
    })
}

/// Gradients times `inv_scale`; `found_inf` becomes one if any of them was not finite.
fn unscale(c: &mut Ctx<'_>) -> Result<Lowered> {
    let scale = c.tensor("inv_scale")?;
    let found = c.tensor("found_inf")?;
    let scale = c.b.reshape(&scale, &[])?;
    let mut bad: Option<Value> = None;
    for (item, grad) in c.tensors("self")?.into_iter().enumerate() {
        if !grad.dtype.is_float() {
            return Err(Error::not_lowered(format!(
                "unscaling gradients of {}",
                grad.dtype.name()
            )));
        }
        let finite = c.b.unary(Unary::IsFinite, &grad)?;
        let infinite = c.b.not(&finite)?;
        let dims: Vec<usize> = (0..grad.rank()).collect();
        let any =
            c.b.reduce_with(tpulab_stablehlo::Reducer::Or, &infinite, &dims)?;
        bad = Some(match bad {
            Some(bad) => c.b.or(&bad, &any)?,
            None => any,
        });
        let value = c.b.convert(&grad, wide(grad.dtype))?;
        let factor = c.b.convert(&scale, value.dtype)?;
        let factor = c.b.broadcast_to(&factor, &value.dims)?;
        let value = c.b.mul(&value, &factor)?;
        let value = c.b.convert(&value, grad.dtype)?;
        c.write("self", Some(item), value)?;
    }
    if let Some(bad) = bad {
        let one = c.b.splat_like(&found, 1i64)?;
        let value = c.b.select(&bad, &one, &found)?;
        c.write("found_inf", None, value)?;
    }
    Ok(Vec::new())
}

/// The scale shrinks when infinities were found, and grows after `growth_interval` steps without.
fn update_scale(c: &mut Ctx<'_>) -> Result<Lowered> {
    let (scale, tracker) = (c.tensor("self")?, c.tensor("growth_tracker")?);
    let found = c.tensor("found_inf")?;
    let zero = c.b.splat_like(&found, 0i64)?;
    let found = c.b.ne(&found, &zero)?;
    let found = c.b.reshape(&found, &[])?;
    let growth = c.scalar_or("scale_growth_factor", 2.0, scale.dtype)?;
    let backoff = c.scalar_or("scale_backoff_factor", 0.5, scale.dtype)?;
    let growth = c.b.broadcast_to(&growth, &scale.dims)?;
    let backoff = c.b.broadcast_to(&backoff, &scale.dims)?;
    let interval = c.int("growth_interval")?;

    let (grown, shrunk) = (c.b.mul(&scale, &growth)?, c.b.mul(&scale, &backoff)?);
    let none = c.b.splat_like(&tracker, 0i64)?;
    let one = c.b.splat_like(&tracker, 1i64)?;
    let next = c.b.add(&tracker, &one)?;
    let full = c.b.splat_like(&tracker, interval)?;
    let due = c.b.eq(&next, &full)?;
    // A scale that would overflow stays.
    let finite = c.b.unary(Unary::IsFinite, &grown)?;
    let due_scale = c.b.reshape(&due, &scale.dims)?;
    let grows = c.b.and(&due_scale, &finite)?;
    let kept = c.b.select(&grows, &grown, &scale)?;
    let scale = c.b.select(&found, &shrunk, &kept)?;
    let counted = c.b.select(&due, &none, &next)?;
    let tracker = c.b.select(&found, &none, &counted)?;
    Ok(many([scale, tracker]))
}
