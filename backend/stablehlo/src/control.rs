//! Loops and branches. Their bodies may use values from outside.

use crate::builder::{Sight, Type, scalars};
use crate::check::{self, Kinds};
use crate::{Builder, DType, Result, Value};

impl Builder {
    /// Repeats `body` on the values while `cond` holds.
    pub fn while_loop(
        &mut self,
        init: &[Value],
        cond: impl FnOnce(&mut Self, &[Value]) -> Result<Value>,
        body: impl FnOnce(&mut Self, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        const OP: &str = "while";
        let types: Vec<Type> = init.iter().map(|x| (x.dtype, x.dims.clone())).collect();
        let test = self.region(OP, Sight::Outside, &types, |b, values| {
            Ok(vec![cond(b, values)?])
        })?;
        test.expect(OP, &scalars([DType::Bool]))?;
        let step = self.region(OP, Sight::Outside, &types, body)?;
        step.expect(OP, &types)?;
        let operands: Vec<_> = init.iter().collect();
        self.emit_with(OP, &operands, "", &[test, step], types)
    }

    /// The results of one of two branches.
    pub fn if_else(
        &mut self,
        pred: &Value,
        then: impl FnOnce(&mut Self) -> Result<Vec<Value>>,
        otherwise: impl FnOnce(&mut Self) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        const OP: &str = "if";
        Kinds::BOOL.check(OP, pred.dtype)?;
        check::scalar(OP, "predicate", pred)?;
        let yes = self.region(OP, Sight::Outside, &[], |b, _| then(b))?;
        let types: Vec<Type> = yes
            .results
            .iter()
            .map(|x| (x.dtype, x.dims.clone()))
            .collect();
        let no = self.region(OP, Sight::Outside, &[], |b, _| otherwise(b))?;
        no.expect(OP, &types)?;
        self.emit_with(OP, &[pred], "", &[yes, no], types)
    }

    /// The same values, which the compiler may not compute earlier, later or together.
    pub fn optimization_barrier(&mut self, xs: &[Value]) -> Result<Vec<Value>> {
        let operands: Vec<_> = xs.iter().collect();
        let types = xs.iter().map(|x| (x.dtype, x.dims.clone())).collect();
        self.emit_with("optimization_barrier", &operands, "", &[], types)
    }
}
