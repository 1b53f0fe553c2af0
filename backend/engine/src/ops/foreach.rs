//! Ops on lists of tensors, a whole list in one program: each element through the lowering of the op on one tensor.

use crate::error::{Error, Result};
use crate::lower::Ctx;
use crate::registry::{Lowered, REGISTRY, Registry};

/// What lowerings of single ops call their arguments, and the names these have in ops on lists.
const ALIASES: &[(&str, &str)] = &[
    ("other", "scalar"),
    ("other", "scalars"),
    ("exponent", "scalar"),
    ("end", "tensors1"),
    ("weight", "weights"),
    ("value", "scalars"),
];

/// Clamps have one bound, which must not read as the other.
const LOWER: &[(&str, &str)] = &[("min", "scalar"), ("min", "scalars"), ("min", "other")];
const UPPER: &[(&str, &str)] = &[("max", "scalar"), ("max", "scalars"), ("max", "other")];

macro_rules! foreach {
    ($r:ident: $($name:literal => $op:literal;)+) => {
        $($r.op($name, |c| each(c, $op, ALIASES)).like_each("self").changing();)+
    };
}

pub(crate) fn register(r: &mut Registry) {
    foreach! { r:
        "_foreach_add" => "add";
        "_foreach_sub" => "sub";
        "_foreach_mul" => "mul";
        "_foreach_div" => "div";
        "_foreach_addcmul" => "addcmul";
        "_foreach_addcdiv" => "addcdiv";
        "_foreach_lerp" => "lerp";
        "_foreach_pow" => "pow";
        "_foreach_norm" => "linalg_vector_norm";
        "_foreach_zero" => "zero";
        "_foreach_abs" => "abs";
        "_foreach_acos" => "acos";
        "_foreach_asin" => "asin";
        "_foreach_atan" => "atan";
        "_foreach_ceil" => "ceil";
        "_foreach_cos" => "cos";
        "_foreach_cosh" => "cosh";
        "_foreach_erf" => "erf";
        "_foreach_erfc" => "erfc";
        "_foreach_exp" => "exp";
        "_foreach_expm1" => "expm1";
        "_foreach_floor" => "floor";
        "_foreach_frac" => "frac";
        "_foreach_lgamma" => "lgamma";
        "_foreach_log" => "log";
        "_foreach_log10" => "log10";
        "_foreach_log1p" => "log1p";
        "_foreach_log2" => "log2";
        "_foreach_neg" => "neg";
        "_foreach_reciprocal" => "reciprocal";
        "_foreach_round" => "round";
        "_foreach_rsqrt" => "rsqrt";
        "_foreach_sigmoid" => "sigmoid";
        "_foreach_sign" => "sign";
        "_foreach_sin" => "sin";
        "_foreach_sinh" => "sinh";
        "_foreach_sqrt" => "sqrt";
        "_foreach_tan" => "tan";
        "_foreach_tanh" => "tanh";
        "_foreach_trunc" => "trunc";
    }
    for name in ["_foreach_clamp_min", "_foreach_maximum"] {
        r.op(name, |c| each(c, "clamp_min", LOWER))
            .like_each("self")
            .changing();
    }
    for name in ["_foreach_clamp_max", "_foreach_minimum"] {
        r.op(name, |c| each(c, "clamp_max", UPPER))
            .like_each("self")
            .changing();
    }
    direct(r);
}

/// Copies and clones of whole tensors share values, which no program beats; their composites stay.
fn direct(r: &mut Registry) {
    r.direct(&[
        "_foreach_add.Tensor",
        "_foreach_add_.Tensor",
        "_foreach_mul.Tensor",
        "_foreach_mul_.Tensor",
        "_foreach_div.Tensor",
        "_foreach_div_.Tensor",
        "_foreach_pow.ScalarAndTensor",
        "_foreach_norm.Scalar",
        "_foreach_zero_",
    ]);
    macro_rules! forms {
        ($($name:literal)+; $($overload:literal)+) => {
            forms!(@each [$($name)+] [$($overload)+]);
        };
        (@each [$($name:literal)+] $overloads:tt) => {
            $(forms!(@one $name $overloads);)+
        };
        (@one $name:literal [$($overload:literal)+]) => {
            r.direct(&[$(
                concat!("_foreach_", $name, $overload),
                concat!("_foreach_", $name, "_", $overload),
            )+]);
        };
    }
    forms! {
        "add" "sub" "mul" "div" "pow" "lerp" "clamp_max" "clamp_min" "maximum" "minimum";
        ".Scalar" ".List" ".ScalarList"
    }
    forms! { "addcmul" "addcdiv"; ".Scalar" ".ScalarList" }
    forms! {
        "abs" "acos" "asin" "atan" "ceil" "cos" "cosh" "erf" "erfc" "exp" "expm1" "floor" "frac" "lgamma" "log"
        "log10" "log1p" "log2" "neg" "reciprocal" "round" "rsqrt" "sigmoid" "sign" "sin" "sinh" "sqrt" "tan" "tanh"
        "trunc";
        ""
    }
}

/// Lists that go together, by name.
const LISTS: &[&str] = &[
    "self", "other", "exponent", "scalars", "tensors1", "tensor1", "tensor2", "weights", "weight",
];

/// Elements of the op's lists, which must agree.
fn count(c: &Ctx<'_>) -> Result<usize> {
    let mut lengths = LISTS.iter().filter_map(|name| c.len(name));
    let first = lengths.next().unwrap_or(0);
    if first == 0 {
        return Err(Error::runtime("Tensor list must have at least one tensor."));
    }
    match lengths.find(|&length| length != first) {
        None => Ok(first),
        Some(other) => Err(Error::runtime(format!(
            "Tensor lists must have the same number of tensors, got {first} and {other}"
        ))),
    }
}

/// The op of one tensor on each element.
fn each(
    c: &mut Ctx<'_>,
    op: &str,
    aliases: &'static [(&'static str, &'static str)],
) -> Result<Lowered> {
    let lower = REGISTRY
        .lowering(op)
        .ok_or_else(|| Error::not_lowered(op.to_owned()))?;
    let mut results = Vec::new();
    for item in 0..count(c)? {
        results.extend(c.each(item, aliases, lower)?);
    }
    Ok(results)
}
