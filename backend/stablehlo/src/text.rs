//! Spelling of types and attributes.

use std::fmt::{Display, Write as _};

use crate::DType;

/// Appends `tensor<2x3xf32>`.
pub(crate) fn push_tensor(out: &mut String, dtype: DType, dims: &[i64]) {
    out.push_str("tensor<");
    for dim in dims {
        push(out, dim);
        out.push('x');
    }
    out.push_str(dtype.mlir());
    out.push('>');
}

/// `tensor<2x3xf32>`.
pub(crate) fn tensor(dtype: DType, dims: &[i64]) -> String {
    let mut out = String::new();
    push_tensor(&mut out, dtype, dims);
    out
}

/// Appends what displays itself; writing to a string cannot fail.
pub(crate) fn push(out: &mut String, item: impl Display) {
    if write!(out, "{item}").is_err() {
        debug_assert!(false, "a Display implementation failed");
    }
}

/// `a, b, c`.
pub(crate) fn join<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut out = String::new();
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        push(&mut out, item);
    }
    out
}

/// `[0, 1]`.
pub(crate) fn list<T: Display>(items: &[T]) -> String {
    format!("[{}]", join(items))
}

/// `array<i64: 0, 1>`.
pub(crate) fn i64s<T: Display>(items: &[T]) -> String {
    array("i64", items)
}

/// `array<i1: true>`.
pub(crate) fn bools(items: &[bool]) -> String {
    array("i1", items)
}

fn array<T: Display>(element: &str, items: &[T]) -> String {
    if items.is_empty() {
        format!("array<{element}>")
    } else {
        format!("array<{element}: {}>", join(items))
    }
}

/// Low and high padding as the N x 2 tensor that windowed operations take.
pub(crate) fn pairs(items: &[(i64, i64)]) -> String {
    if items.is_empty() {
        return "dense<> : tensor<0x2xi64>".to_owned();
    }
    let rows = join(items.iter().map(|(low, high)| format!("[{low}, {high}]")));
    format!("dense<[{rows}]> : tensor<{}x2xi64>", items.len())
}

/// A quoted MLIR string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' => out.push_str("\\22"),
            b'\\' => out.push_str("\\5C"),
            0x20..=0x7E => out.push(char::from(byte)),
            other => push(&mut out, format_args!("\\{other:02X}")),
        }
    }
    out.push('"');
    out
}
