//! What the tests share: the plugins under test, and small programs.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;

use smallvec::SmallVec;
use tpulab_pjrt::{Buffer, Client, CompileOptions, ElementType, Executable, OptionValue, Plugin};

pub(crate) const DEVICES: usize = 8;

/// The plugins under test. The tests fail without any: a skipped test would look like a passed one.
pub(crate) fn plugin_paths() -> Vec<PathBuf> {
    let list = std::env::var("TPULAB_TEST_PLUGINS")
        .expect("TPULAB_TEST_PLUGINS names PJRT CPU plugins, separated by ':'");
    let paths: Vec<PathBuf> = std::env::split_paths(&list)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    assert!(!paths.is_empty(), "TPULAB_TEST_PLUGINS is empty");
    paths
}

/// A client with eight devices on each plugin.
pub(crate) fn clients() -> Vec<Client> {
    plugin_paths()
        .iter()
        .map(|path| client(Plugin::load(path).unwrap()))
        .collect()
}

pub(crate) fn client(plugin: &'static Plugin) -> Client {
    let count = i64::try_from(DEVICES).unwrap();
    Client::create(plugin, &[("cpu_device_count", OptionValue::Int(count))]).unwrap()
}

/// A module with one function; `body` defines `result` out of the arguments `%0`, `%1`, ...
pub(crate) fn module(
    params: &[&str],
    attrs: &[&str],
    body: &str,
    result: &str,
    result_type: &str,
) -> String {
    let types = params.join(", ");
    let args: Vec<String> = params
        .iter()
        .enumerate()
        .map(|(i, ty)| format!("%{i}: {ty}"))
        .collect();
    let args = args.join(", ");
    let attrs = if attrs.is_empty() {
        String::new()
    } else {
        format!("arg_attrs = [{}], ", attrs.join(", "))
    };
    format!(
        r#""builtin.module"() ({{
  "func.func"() <{{{attrs}function_type = ({types}) -> {result_type}, sym_name = "main"}}> ({{
  ^bb0({args}):
    {body}
    "func.return"({result}) : ({result_type}) -> ()
  }}) : () -> ()
}}) : () -> ()"#
    )
}

/// `a + b` for 2x3 floats.
pub(crate) fn add() -> String {
    binary("add", "tensor<2x3xf32>", &[])
}

/// `a + b` whose result takes over the memory of `a`.
pub(crate) fn donating_add() -> String {
    binary(
        "add",
        "tensor<2x3xf32>",
        &["{tf.aliasing_output = 0 : i32}", "{}"],
    )
}

pub(crate) fn binary(op: &str, ty: &str, attrs: &[&str]) -> String {
    module(
        &[ty, ty],
        attrs,
        &format!(r#"%r = "stablehlo.{op}"(%0, %1) : ({ty}, {ty}) -> {ty}"#),
        "%r",
        ty,
    )
}

pub(crate) fn unary(op: &str, ty: &str) -> String {
    module(
        &[ty],
        &[],
        &format!(r#"%r = "stablehlo.{op}"(%0) : ({ty}) -> {ty}"#),
        "%r",
        ty,
    )
}

pub(crate) fn fast() -> CompileOptions {
    CompileOptions {
        fast: true,
        ..CompileOptions::default()
    }
}

pub(crate) fn bytes_of(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

pub(crate) fn upload(client: Client, values: &[f32], dims: &[i64], device: usize) -> Buffer {
    client
        .buffer_from_host(&bytes_of(values), ElementType::F32, dims, device)
        .unwrap()
}

pub(crate) fn download(buffer: &Buffer, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * 4];
    buffer.copy_to_host(&mut bytes).unwrap();
    bytes
        .chunks_exact(4)
        .map(|chunk| f32::from_ne_bytes(chunk.try_into().unwrap()))
        .collect()
}

/// Runs a program with one output on `device`.
pub(crate) fn run(program: &Executable, device: usize, args: &[&Buffer]) -> Buffer {
    let raw: Vec<_> = args.iter().map(|buffer| buffer.as_raw()).collect();
    let mut outputs = SmallVec::new();
    program.execute(device, &raw, &[], &mut outputs).unwrap();
    assert_eq!(outputs.len(), 1);
    outputs.pop().unwrap()
}
