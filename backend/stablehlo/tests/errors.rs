//! Wrong programs are refused, in readable words.

use tpulab_stablehlo::{
    Binary, Builder, Cmp, ConvSpec, DType, Error, FftKind, GatherDims, Precision, Reducer, Result,
    Rng, ScatterDims, Unary, Value, WindowSpec,
};

use DType::{Bool, C64, F16, F32, I32, I64, U8, U64};

fn said<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.expect_err("a wrong program").to_string()
}

#[test]
fn messages() {
    let mut b = Builder::new();
    let x = b.param(F32, &[2, 3]);
    let y = b.param(F32, &[3, 2]);
    let i = b.param(I64, &[2, 3]);
    let c = b.param(C64, &[2, 3]);
    let p = b.param(Bool, &[2, 3]);
    let s = b.param(F32, &[]);
    let key = b.param(U64, &[3]);
    let square = b.param(F32, &[3, 3]);
    let none: &[usize] = &[];
    let mut grouped = ConvSpec::new(0, F32);
    grouped.feature_group_count = 2;
    let far = GatherDims {
        offset_dims: vec![0, 1],
        start_index_map: vec![0, 1],
        index_vector_dim: 1,
        ..GatherDims::default()
    };
    let all = [
        said(b.add(&x, &y)),
        said(b.add(&x, &i)),
        said(b.unary(Unary::Floor, &i)),
        said(b.unary(Unary::Erf, &c)),
        said(b.binary(Binary::ShiftLeft, &x, &x)),
        said(b.binary(Binary::Subtract, &p, &p)),
        said(b.compare(Cmp::Lt, &c, &c)),
        said(b.select(&x, &x, &x)),
        said(b.select(&p, &y, &y)),
        said(b.clamp(&s, &i, &s)),
        said(b.bitcast(&x, DType::F64)),
        said(b.reshape(&x, &[5])),
        said(b.reshape(&x, &[-1, 6])),
        said(b.transpose(&x, &[0])),
        said(b.transpose(&x, &[0, 0])),
        said(b.transpose(&x, &[0, 2])),
        said(b.broadcast_to(&x, &[2, 2])),
        said(b.broadcast_to(&x, &[3])),
        said(b.slice_dim(&x, 1, 2, 5, 1)),
        said(b.slice_dim(&x, 2, 0, 1, 1)),
        said(b.pad(&x, &s, &[-3, 0], &[0, 0], &[0, 0])),
        said(b.pad(&x, &x, &[0, 0], &[0, 0], &[0, 0])),
        said(b.concatenate(&[], 0)),
        said(b.concatenate(&[x.clone(), y.clone()], 0)),
        said(b.dynamic_slice(&x, &[s.clone(), s.clone()], &[1, 1])),
        said(b.gather(&x, &i, &far, &[1, 1], false)),
        said(b.dot_general(&x, &y, (none, none), (&[0], &[0]), Precision::Default, F32)),
        said(b.matmul(&s, &s, Precision::Default)),
        said(b.convolution(&x, &x, &grouped)),
        said(b.reduce_with(Reducer::Sum, &p, &[0])),
        said(b.reduce_with(Reducer::Max, &x, &[2])),
        said(b.rng_bits(&key, U8, &[2], Rng::ThreeFry)),
        said(b.rng_bits(&key, F32, &[2], Rng::Philox)),
        said(b.cholesky(&x, true)),
        said(b.triangular_solve(&square, &x, true, true, false, false)),
        said(b.fft(&x, FftKind::Fft, &[3])),
        said(b.fft(&c, FftKind::Fft, &[4])),
        said(b.top_k(&x, 4)),
        said(b.scalar(U8, 256)),
        said(b.scalar(U8, -1)),
        said(b.scalar(I32, f64::NAN)),
        said(b.scalar(I64, 1e19)),
        said(b.dense_ints(I64, &[1, 2, 3], &[2])),
        said(b.splat(F16, 1, &[1 << 40, 1 << 40])),
        said(b.min_value(C64)),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn facts_are_in_the_fields() {
    let mut b = Builder::new();
    let x = b.param(F32, &[2]);
    let y = b.param(I32, &[2]);
    let found = b.mul(&x, &y).unwrap_err();
    assert_eq!(
        found,
        Error::DTypeMismatch {
            op: "multiply",
            lhs: F32,
            rhs: I32
        }
    );
}

#[test]
fn bodies_must_give_what_is_expected() {
    let mut b = Builder::new();
    let x = b.param(F32, &[4]);
    let zero = b.scalar(F32, 0).unwrap();
    let xs = [x.clone()];
    let inits = [zero.clone()];
    assert_eq!(
        said(b.reduce(&xs, &inits, &[0], |_, acc, new| Ok(vec![
            acc[0].clone(),
            new[0].clone()
        ]))),
        "reduce: 2 results of the body, expected 1"
    );
    assert_eq!(
        said(b.sort(&xs, 0, true, |b, v| b.add(&v[0], &v[1]))),
        "sort: element types differ: float32 and bool"
    );
    assert_eq!(
        said(b.while_loop(
            &xs,
            |b, _| b.scalar(Bool, true),
            |b, v| Ok(vec![b.reshape(&v[0], &[2, 2])?])
        )),
        "while: shapes differ: [2, 2] and [4]"
    );
    let pred = b.param(Bool, &[]);
    assert_eq!(
        said(b.if_else(&pred, |_| Ok(vec![x.clone()]), |_| Ok(vec![]))),
        "if: 0 results of the body, expected 1"
    );
    let dims = ScatterDims {
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..ScatterDims::default()
    };
    let at = b.param(I64, &[2]);
    let updates = b.param(F32, &[2]);
    assert_eq!(
        said(
            b.scatter(&x, &at, &updates, &dims, false, false, |b, old, new| b
                .lt(old, new))
        ),
        "scatter: element types differ: bool and float32"
    );
    assert_eq!(
        said(b.select_and_scatter(
            &x,
            &x,
            &zero,
            &WindowSpec::new(&[1]),
            Builder::add,
            Builder::add
        )),
        "select_and_scatter: element types differ: float32 and bool"
    );
}

#[test]
fn values_stay_in_their_region() {
    let mut b = Builder::new();
    let pred = b.param(Bool, &[]);
    let x = b.param(F32, &[]);
    let mut inside: Option<Value> = None;
    b.if_else(
        &pred,
        |b| {
            let made = b.neg(&x)?;
            inside = Some(made.clone());
            Ok(vec![made])
        },
        |_| Ok(vec![x.clone()]),
    )
    .unwrap();
    let escaped = inside.unwrap();
    let found = b.neg(&escaped).unwrap_err();
    assert_eq!(
        found,
        Error::Scope {
            op: "negate",
            id: escaped.id()
        }
    );
}

#[test]
fn reductions_see_their_arguments_only() {
    let mut b = Builder::new();
    let x = b.param(F32, &[4]);
    let scale = b.param(F32, &[]);
    let zero = b.scalar(F32, 0).unwrap();
    let found = b.reduce(&[x], &[zero], &[0], |b, acc, new| {
        let scaled = b.mul(&new[0], &scale)?;
        Ok(vec![b.add(&acc[0], &scaled)?])
    });
    assert_eq!(
        found.unwrap_err(),
        Error::Scope {
            op: "multiply",
            id: scale.id()
        }
    );
}

#[test]
fn an_error_inside_a_body_leaves_the_builder_usable() {
    let mut b = Builder::new();
    let x = b.param(F32, &[4]);
    let one = b.scalar(F32, 1).unwrap();
    let before = b.neg(&x).unwrap();
    let failed = b.reduce(std::slice::from_ref(&x), &[one], &[0], |b, acc, new| {
        let other = b.scalar(F32, 2)?;
        b.add(&acc[0], &other)?;
        Ok(vec![b.and(&acc[0], &new[0])?])
    });
    assert!(failed.is_err());
    let two = b.splat(F32, 2, &[4]).unwrap();
    let sum = b.add(&before, &two).unwrap();
    insta::assert_snapshot!(b.finish(&[sum], |_| None));
}
