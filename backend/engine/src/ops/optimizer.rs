//! Optimizer steps of a whole list of parameters in one program, and gradient scaling.
//!
//! Formulas as in torch's `native/cpu/Fused*Kernel.cpp`; scalars that the CPU derives in double are derived without
//! cancellation here.

use tpulab_stablehlo::{DType, Unary, Value};

use super::util::acc_type as wide;
use crate::error::{Error, Result};
use crate::lower::{Ctx, Number, Operand, many};
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("_fused_sgd", sgd);
    r.op("_fused_adam", |c| adam(c, false));
    r.op("_fused_adamw", |c| adam(c, true));
    r.op("_fused_adagrad", adagrad);
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

/// A step's number: left out of the formulas if it is known to be zero.
#[derive(Clone)]
struct Scalar(Option<Value>);

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

    /// A number that may be left out when it is zero.
    fn factor(&mut self, name: &str) -> Result<Scalar> {
        let operand = self.c.operand(name)?;
        if let Operand::Number(number) = &operand
            && self.c.is_constant(number)
            && number.as_f64() == 0.0
        {
            return Ok(Scalar(None));
        }
        Ok(Scalar(Some(self.scalar(name)?)))
    }

    /// 1 - the number, subtracted in double.
    fn complement(&mut self, name: &str) -> Result<Value> {
        let number = self.c.number(name)?;
        if self.c.is_constant(&number) {
            let rest = Number::float(1.0 - number.as_f64());
            return self.c.number_value(&rest, self.dtype);
        }
        let value = self.c.number_value(&number, DType::F64)?;
        let one = self.c.b.scalar(DType::F64, 1.0)?;
        let rest = self.c.b.sub(&one, &value)?;
        Ok(self.c.b.convert(&rest, self.dtype)?)
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
        if decay && let Scalar(Some(decay)) = self.factor("weight_decay")? {
            grad = self.plus_scaled(&grad, param, &decay)?;
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
    every(c, |s| {
        let mut param = s.tensor("self")?;
        let grad = s.gradient(&param, !decoupled)?;
        let lr = s.scalar("lr")?;
        if decoupled && let Scalar(Some(decay)) = s.factor("weight_decay")? {
            let shrink = s.c.b.mul(&lr, &decay)?;
            let loss = s.times(&param, &shrink)?;
            param = s.c.b.sub(&param, &loss)?;
        }
        let step = s.scalar("state_steps")?;
        let (rest1, rest2) = (s.complement("beta1")?, s.complement("beta2")?);
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

        let correction1 = bias_correction(s, &rest1, &step)?;
        let correction2 = bias_correction(s, &rest2, &step)?;
        let root = s.c.b.sqrt(&correction2)?;
        let root = s.like(&root, &bound)?;
        let length = s.c.b.sqrt(&bound)?;
        let length = s.c.b.div(&length, &root)?;
        let eps = s.scalar("eps")?;
        let eps = s.like(&eps, &length)?;
        let length = s.c.b.add(&length, &eps)?;
        let size = s.c.b.div(&lr, &correction1)?;
        let step = s.times(&average, &size)?;
        let step = s.c.b.div(&step, &length)?;
        let param = s.c.b.sub(&param, &step)?;
        s.write("self", &param)
    })
}

/// 1 - beta^step from 1 - beta.
fn bias_correction(s: &mut Step<'_, '_>, rest: &Value, step: &Value) -> Result<Value> {
    let minus = s.c.b.neg(rest)?;
    let log = s.c.b.unary(Unary::Log1p, &minus)?;
    let exponent = s.c.b.mul(step, &log)?;
    let change = s.c.b.unary(Unary::Expm1, &exponent)?;
    Ok(s.c.b.neg(&change)?)
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
