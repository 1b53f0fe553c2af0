//! The quick way to compile gives the results of the thorough one.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::{Duration, Instant};

use common::{binary, clients, download, fast, module, run, unary, upload};
use tpulab_pjrt::{Buffer, Client, CompileOptions};

const SIDE: usize = 24;
const TY: &str = "tensor<24x24xf32>";

/// Values of every size, with the awkward ones among them.
fn values(seed: u32) -> Vec<f32> {
    let awkward = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        88.8,
        -104.0,
        1e-38,
        3e38,
    ];
    let mut state = seed;
    (0..SIDE * SIDE)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let unit = f32::from_bits(0x3f80_0000 | state >> 9) - 1.5;
            if i % 41 == 0 {
                awkward[i / 41 % awkward.len()]
            } else {
                unit * 16.0
            }
        })
        .collect()
}

fn finite(seed: u32) -> Vec<f32> {
    values(seed)
        .into_iter()
        .map(|value| {
            if value.is_finite() && value.abs() < 100.0 {
                value
            } else {
                1.0
            }
        })
        .collect()
}

/// Results of the program compiled thoroughly and quickly.
fn both(client: Client, text: &str, inputs: &[Vec<f32>], count: usize) -> [Vec<f32>; 2] {
    let side = i64::try_from(SIDE).unwrap();
    let args: Vec<Buffer> = inputs
        .iter()
        .map(|input| upload(client, input, &[side, side], 0))
        .collect();
    let args: Vec<&Buffer> = args.iter().collect();
    [CompileOptions::default(), fast()].map(|options| {
        download(
            &run(&client.compile(text, &options).unwrap(), 0, &args),
            count,
        )
    })
}

/// Equal within `ulps` units in the last place; NaN equals NaN.
fn assert_close(what: &str, [thorough, quick]: [Vec<f32>; 2], ulps: u32) {
    for (i, (&a, &b)) in thorough.iter().zip(&quick).enumerate() {
        let both_nan = a.is_nan() && b.is_nan();
        let distance = (a.to_bits().cast_signed()).abs_diff(b.to_bits().cast_signed());
        assert!(
            both_nan || a == b || distance <= ulps,
            "{what}[{i}]: {a:?} by default, {b:?} fast"
        );
    }
}

#[test]
fn elementwise_results_agree() {
    for client in clients() {
        for op in [
            "exponential",
            "tanh",
            "log",
            "sqrt",
            "rsqrt",
            "logistic",
            "sine",
            "negate",
            "floor",
        ] {
            assert_close(
                op,
                both(client, &unary(op, TY), &[values(1)], SIDE * SIDE),
                8,
            );
        }
        for op in [
            "add",
            "subtract",
            "multiply",
            "divide",
            "remainder",
            "maximum",
            "minimum",
        ] {
            assert_close(
                op,
                both(
                    client,
                    &binary(op, TY, &[]),
                    &[values(2), values(3)],
                    SIDE * SIDE,
                ),
                0,
            );
        }
    }
}

#[test]
fn minimum_and_maximum_pass_nan_on() {
    for client in clients() {
        for op in ["maximum", "minimum"] {
            let (a, b) = (values(2), values(3).into_iter().rev().collect::<Vec<_>>());
            for result in both(
                client,
                &binary(op, TY, &[]),
                &[a.clone(), b.clone()],
                SIDE * SIDE,
            ) {
                for (i, value) in result.iter().enumerate() {
                    assert_eq!(
                        value.is_nan(),
                        a[i].is_nan() || b[i].is_nan(),
                        "{op}({:?}, {:?}) = {value:?}",
                        a[i],
                        b[i]
                    );
                }
            }
        }
    }
}

#[test]
fn reductions_pass_nan_on() {
    for client in clients() {
        for (op, init) in [("maximum", "0xFF800000"), ("minimum", "0x7F800000")] {
            let a = values(8);
            for result in both(
                client,
                &module(&[TY], &[], &reduce(op, "%0", "m", init), "%mb", TY),
                std::slice::from_ref(&a),
                SIDE * SIDE,
            ) {
                for (row, reduced) in a.chunks_exact(SIDE).zip(result.chunks_exact(SIDE)) {
                    assert_eq!(
                        reduced[0].is_nan(),
                        row.iter().any(|value| value.is_nan()),
                        "{op} of {row:?}"
                    );
                }
            }
        }
    }
}

fn reduce(op: &str, source: &str, name: &str, init: &str) -> String {
    format!(
        r#"%{name}i = "stablehlo.constant"() <{{value = dense<{init}> : tensor<f32>}}> : () -> tensor<f32>
    %{name} = "stablehlo.reduce"({source}, %{name}i) <{{dimensions = array<i64: 1>}}> ({{
    ^bb0(%{name}x: tensor<f32>, %{name}y: tensor<f32>):
      %{name}z = "stablehlo.{op}"(%{name}x, %{name}y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%{name}z) : (tensor<f32>) -> ()
    }}) : ({TY}, tensor<f32>) -> tensor<24xf32>
    %{name}b = "stablehlo.broadcast_in_dim"(%{name}) <{{broadcast_dimensions = array<i64: 0>}}> : (tensor<24xf32>) -> {TY}"#
    )
}

fn softmax() -> String {
    let body = [
        reduce("maximum", "%0", "m", "0xFF800000"),
        format!(r#"%s = "stablehlo.subtract"(%0, %mb) : ({TY}, {TY}) -> {TY}"#),
        format!(r#"%e = "stablehlo.exponential"(%s) : ({TY}) -> {TY}"#),
        reduce("add", "%e", "t", "0.0"),
        format!(r#"%r = "stablehlo.divide"(%e, %tb) : ({TY}, {TY}) -> {TY}"#),
    ];
    module(&[TY], &[], &body.join("\n    "), "%r", TY)
}

#[test]
fn softmax_and_matmul_agree() {
    let dot = format!(
        r#"%r = "stablehlo.dot_general"(%0, %1) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}}> : ({TY}, {TY}) -> {TY}"#
    );
    for client in clients() {
        let results = both(client, &softmax(), &[finite(4)], SIDE * SIDE);
        for row in results[1].chunks_exact(SIDE) {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        }
        assert_close("softmax", results, 16);
        let results = both(
            client,
            &module(&[TY, TY], &[], &dot, "%r", TY),
            &[finite(5), finite(6)],
            SIDE * SIDE,
        );
        for (a, b) in results[0].iter().zip(&results[1]) {
            assert!((a - b).abs() <= 1e-3, "{a} by default, {b} fast");
        }
    }
}

#[test]
fn running_sums_agree() {
    // XLA rewrites long windows into shorter ones, by a length that is among the debug options.
    let text = module(
        &[TY],
        &[],
        &format!(
            r#"%i = "stablehlo.constant"() <{{value = dense<0.0> : tensor<f32>}}> : () -> tensor<f32>
    %r = "stablehlo.reduce_window"(%0, %i) <{{window_dimensions = array<i64: 1, 24>, padding = dense<[[0, 0], [23, 0]]> : tensor<2x2xi64>}}> ({{
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %z = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%z) : (tensor<f32>) -> ()
    }}) : ({TY}, tensor<f32>) -> {TY}"#
        ),
        "%r",
        TY,
    );
    for client in clients() {
        let results = both(client, &text, &[finite(7)], SIDE * SIDE);
        for (a, b) in results[0].iter().zip(&results[1]) {
            assert!((a - b).abs() <= 1e-3, "{a} by default, {b} fast");
        }
    }
}

#[test]
fn fast_compiles_are_quicker() {
    for client in clients() {
        let text = binary("add", "tensor<64x64xf32>", &[]);
        let quickest = |options: &CompileOptions| -> Duration {
            (0..6)
                .map(|_| {
                    let start = Instant::now();
                    client.compile(&text, options).unwrap();
                    start.elapsed()
                })
                .min()
                .unwrap()
        };
        let (thorough, quick) = (quickest(&CompileOptions::default()), quickest(&fast()));
        eprintln!(
            "{:?}: add compiles in {thorough:.1?} by default, {quick:.1?} fast",
            client.plugin().api_version()
        );
        assert!(quick < thorough, "{quick:?} against {thorough:?}");
    }
}
