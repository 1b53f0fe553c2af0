//! The core of the builder: values, regions and the text of a module.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::text::{join, push, push_tensor, tensor};
use crate::{DType, Dims, Error, Result, Value, check};

/// Writes one StableHLO module, operation by operation.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    declarations: Vec<String>,
    params: Vec<Value>,
    /// The scope that computes each value, by the value's number.
    owners: Vec<u32>,
    scopes: u32,
    current: Scope,
    outer: Vec<Scope>,
}

/// The body of the function, or a region that is being written.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    serial: u32,
    /// XLA turns bodies of reductions into computations of their own, which cannot see outside.
    closed: bool,
    text: String,
    pub(crate) constants: HashMap<String, Value>,
}

/// What a region may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Values of the enclosing regions too.
    Outside,
    /// Its own arguments only.
    Arguments,
}

/// A finished region.
#[derive(Debug)]
pub(crate) struct Region {
    text: String,
    pub(crate) results: Vec<Value>,
}

/// Element type and shape of a result.
pub(crate) type Type = (DType, Dims);

impl Builder {
    /// An empty module.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the module; profilers show the name. Characters other than letters, digits and
    /// underscores become underscores.
    pub fn set_name(&mut self, name: &str) {
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        self.name = Some(name.chars().map(clean).collect());
    }

    /// Adds a line in front of the function, such as the declaration of a device mesh.
    pub fn declare(&mut self, line: impl Into<String>) {
        self.declarations.push(line.into());
    }

    /// The next parameter of the function; parameters are numbered in the order of the calls.
    pub fn param(&mut self, dtype: DType, dims: &[i64]) -> Value {
        let value = self.new_value(0, dtype, dims.into());
        self.params.push(value.clone());
        value
    }

    /// How many parameters there are so far.
    #[must_use]
    pub fn num_params(&self) -> usize {
        self.params.len()
    }

    /// The text of the module, with these results of the function, which must not come out of a
    /// region. `param_attrs` gives a parameter's attributes, such as
    /// `tf.aliasing_output = 0 : i32`.
    #[must_use]
    pub fn finish(
        self,
        results: &[Value],
        param_attrs: impl Fn(usize) -> Option<String>,
    ) -> String {
        let name = self.name.as_deref().unwrap_or("tpulab");
        let mut out = format!("module @{name} {{\n");
        for line in &self.declarations {
            push(&mut out, format_args!("  {line}\n"));
        }
        let params = join(self.params.iter().enumerate().map(|(index, param)| {
            let mut text = argument(param);
            if let Some(attributes) = param_attrs(index) {
                push(&mut text, format_args!(" {{{attributes}}}"));
            }
            text
        }));
        let types = types(results.iter().map(|value| (value.dtype, &value.dims)));
        push(
            &mut out,
            format_args!("  func.func public @main({params}) -> {types} {{\n"),
        );
        out.push_str(&self.current.text);
        let returned = names(results);
        push(
            &mut out,
            format_args!("    \"func.return\"({returned}) : {types} -> ()\n  }}\n}}\n"),
        );
        out
    }

    pub(crate) fn constants(&mut self) -> &mut HashMap<String, Value> {
        &mut self.current.constants
    }

    /// A constant that an enclosing scope has and this one may use.
    pub(crate) fn known_constant(&self, attribute: &str) -> Option<Value> {
        let mut scope = &self.current;
        let mut rest = self.outer.iter().rev();
        loop {
            if let Some(value) = scope.constants.get(attribute) {
                return Some(value.clone());
            }
            if scope.closed {
                return None;
            }
            scope = rest.next()?;
        }
    }

    fn new_value(&mut self, owner: u32, dtype: DType, dims: Dims) -> Value {
        // 2^32 values would not fit into memory as text.
        let id = self.owners.len() as u32;
        self.owners.push(owner);
        Value { id, dtype, dims }
    }

    fn visible(&self, value: &Value) -> bool {
        let Some(&owner) = self.owners.get(value.id as usize) else {
            return false;
        };
        let mut scope = &self.current;
        let mut rest = self.outer.iter().rev();
        loop {
            if scope.serial == owner {
                return true;
            }
            if scope.closed {
                return false;
            }
            match rest.next() {
                Some(next) => scope = next,
                None => return false,
            }
        }
    }

    pub(crate) fn check_visible<'a>(
        &self,
        op: &'static str,
        values: impl IntoIterator<Item = &'a Value>,
    ) -> Result<()> {
        match values.into_iter().find(|value| !self.visible(value)) {
            Some(value) => Err(Error::Scope { op, id: value.id }),
            None => Ok(()),
        }
    }

    /// Writes an operation of one result.
    pub(crate) fn emit(
        &mut self,
        op: &'static str,
        operands: &[&Value],
        attributes: &str,
        dtype: DType,
        dims: Dims,
    ) -> Result<Value> {
        check::valid_dims(op, &dims)?;
        self.check_visible(op, operands.iter().copied())?;
        let result = self.new_value(self.current.serial, dtype, dims);
        self.write(op, operands, attributes, &[], std::slice::from_ref(&result));
        Ok(result)
    }

    /// Writes an operation with any number of results and regions.
    pub(crate) fn emit_with(
        &mut self,
        op: &'static str,
        operands: &[&Value],
        attributes: &str,
        regions: &[Region],
        results: Vec<Type>,
    ) -> Result<Vec<Value>> {
        for (_, dims) in &results {
            check::valid_dims(op, dims)?;
        }
        self.check_visible(op, operands.iter().copied())?;
        let serial = self.current.serial;
        let results: Vec<_> = results
            .into_iter()
            .map(|(dtype, dims)| self.new_value(serial, dtype, dims))
            .collect();
        self.write(op, operands, attributes, regions, &results);
        Ok(results)
    }

    fn write(
        &mut self,
        op: &'static str,
        operands: &[&Value],
        attributes: &str,
        regions: &[Region],
        results: &[Value],
    ) {
        let depth = self.outer.len();
        let out = &mut self.current.text;
        indent(out, depth);
        if !results.is_empty() {
            push(out, format_args!("{} = ", names(results)));
        }
        let dialect = if op.contains('.') { "" } else { "stablehlo." };
        let inputs = names(operands.iter().copied());
        push(out, format_args!("\"{dialect}{op}\"({inputs})"));
        if !attributes.is_empty() {
            push(out, format_args!(" <{{{attributes}}}>"));
        }
        for (index, region) in regions.iter().enumerate() {
            out.push_str(if index == 0 { " ({\n" } else { ", {\n" });
            out.push_str(&region.text);
            indent(out, depth);
            out.push('}');
        }
        if !regions.is_empty() {
            out.push(')');
        }
        let from = types(operands.iter().map(|value| (value.dtype, &value.dims)));
        push(out, format_args!(" : {from} -> "));
        match results {
            [one] => push_tensor(out, one.dtype, &one.dims),
            many => out.push_str(&types(many.iter().map(|value| (value.dtype, &value.dims)))),
        }
        out.push('\n');
    }

    /// Writes a region with the body that the closure makes; an error leaves the builder as it
    /// was before.
    pub(crate) fn region(
        &mut self,
        op: &'static str,
        sight: Sight,
        arguments: &[Type],
        body: impl FnOnce(&mut Self, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Region> {
        self.scopes += 1;
        let serial = self.scopes;
        let inner = Scope {
            serial,
            closed: sight == Sight::Arguments,
            ..Scope::default()
        };
        let before = std::mem::replace(&mut self.current, inner);
        self.outer.push(before);
        let arguments: Vec<_> = arguments
            .iter()
            .map(|(dtype, dims)| self.new_value(serial, *dtype, dims.clone()))
            .collect();
        let outcome = body(self, &arguments).and_then(|results| {
            self.check_visible(op, &results)?;
            Ok(results)
        });
        let depth = self.outer.len();
        let inner = match self.outer.pop() {
            Some(before) => std::mem::replace(&mut self.current, before),
            None => std::mem::take(&mut self.current),
        };
        let results = outcome?;
        let mut text = String::new();
        if !arguments.is_empty() {
            indent(&mut text, depth - 1);
            push(
                &mut text,
                format_args!("^bb0({}):\n", join(arguments.iter().map(argument))),
            );
        }
        text.push_str(&inner.text);
        indent(&mut text, depth);
        let from = types(results.iter().map(|value| (value.dtype, &value.dims)));
        push(
            &mut text,
            format_args!("\"stablehlo.return\"({}) : {from} -> ()\n", names(&results)),
        );
        Ok(Region { text, results })
    }
}

impl Region {
    /// Refuses a region whose results are not of these types.
    pub(crate) fn expect(&self, op: &'static str, expected: &[Type]) -> Result<()> {
        check::count(
            op,
            "results of the body",
            self.results.len(),
            expected.len(),
        )?;
        for (value, (dtype, dims)) in self.results.iter().zip(expected) {
            check::same_dtype(op, value.dtype, *dtype)?;
            check::same_dims(op, &value.dims, dims)?;
        }
        Ok(())
    }
}

/// A 0-d type per element type.
pub(crate) fn scalars(dtypes: impl IntoIterator<Item = DType>) -> Vec<Type> {
    dtypes
        .into_iter()
        .map(|dtype| (dtype, Dims::new()))
        .collect()
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth + 2 {
        out.push_str("  ");
    }
}

fn argument(value: &Value) -> String {
    format!("%{}: {}", value.id, tensor(value.dtype, &value.dims))
}

fn names<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    join(values.into_iter().map(|value| format!("%{}", value.id)))
}

fn types<'a>(items: impl IntoIterator<Item = (DType, &'a Dims)>) -> String {
    let texts: SmallVec<[String; 4]> = items
        .into_iter()
        .map(|(dtype, dims)| tensor(dtype, dims))
        .collect();
    format!("({})", join(&texts))
}

/// The one result of an operation that has one.
pub(crate) fn only(op: &'static str, results: Vec<Value>) -> Result<Value> {
    let found = results.len();
    results.into_iter().next().ok_or(Error::Count {
        op,
        what: "results",
        found,
        expected: 1,
    })
}

/// The two results of an operation that has two.
pub(crate) fn pair(op: &'static str, results: Vec<Value>) -> Result<(Value, Value)> {
    let found = results.len();
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(Error::Count {
            op,
            what: "results",
            found,
            expected: 2,
        }),
    }
}
