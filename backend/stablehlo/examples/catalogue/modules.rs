//! Small modules, at least one for each operation.

use tpulab_stablehlo::{
    Binary, Builder, Cmp, ConvSpec, DType, Dims, Error, FftKind, GatherDims, Precision, Reducer,
    Result, Rng, Scalar, ScatterDims, Transpose, Unary, Value, WindowSpec,
};

use DType::{BF16, Bool, C64, C128, F16, F32, F64, I8, I32, I64, U8, U16, U32, U64};

/// Name and text.
pub(crate) type Module = (String, String);

pub(crate) const UNARY: [Unary; 42] = [
    Unary::Abs,
    Unary::Negate,
    Unary::Exp,
    Unary::Expm1,
    Unary::Log,
    Unary::Log1p,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Cbrt,
    Unary::Tanh,
    Unary::Logistic,
    Unary::Sine,
    Unary::Cosine,
    Unary::Tan,
    Unary::Floor,
    Unary::Ceil,
    Unary::RoundNearestEven,
    Unary::RoundNearestAfz,
    Unary::Sign,
    Unary::Not,
    Unary::Popcnt,
    Unary::CountLeadingZeros,
    Unary::IsFinite,
    Unary::Real,
    Unary::Imag,
    Unary::Erf,
    Unary::Erfc,
    Unary::ErfInv,
    Unary::Lgamma,
    Unary::Digamma,
    Unary::Acos,
    Unary::Acosh,
    Unary::Asin,
    Unary::Asinh,
    Unary::Atan,
    Unary::Atanh,
    Unary::Sinh,
    Unary::Cosh,
    Unary::BesselI1e,
    Unary::IsInf,
    Unary::IsPosInf,
    Unary::IsNegInf,
];

pub(crate) const BINARY: [Binary; 19] = [
    Binary::Add,
    Binary::Subtract,
    Binary::Multiply,
    Binary::Divide,
    Binary::Remainder,
    Binary::Power,
    Binary::Maximum,
    Binary::Minimum,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::ShiftLeft,
    Binary::ShiftRightArithmetic,
    Binary::ShiftRightLogical,
    Binary::Atan2,
    Binary::NextAfter,
    Binary::Zeta,
    Binary::Polygamma,
    Binary::Complex,
];

const REDUCERS: [Reducer; 6] = [
    Reducer::Sum,
    Reducer::Prod,
    Reducer::Max,
    Reducer::Min,
    Reducer::And,
    Reducer::Or,
];

/// A module with the results that the closure makes.
pub(crate) fn module(make: impl FnOnce(&mut Builder) -> Result<Vec<Value>>) -> Result<String> {
    let mut builder = Builder::new();
    let results = make(&mut builder)?;
    Ok(builder.finish(&results, |_| None))
}

/// Everything: every operation with every element type it takes, and [`samples`].
pub(crate) fn all() -> Result<Vec<Module>> {
    let mut modules = samples()?;
    let mut add = |name: String, text: Result<String>| match text {
        Ok(text) => {
            modules.push((name.to_lowercase(), text));
            Ok(())
        }
        // Not defined for the element type.
        Err(Error::DType { .. } | Error::Attribute { .. } | Error::Scalar { .. }) => Ok(()),
        Err(other) => Err(other),
    };
    for dtype in DType::ALL {
        for op in UNARY {
            let text = module(|b| {
                let x = b.param(dtype, &[2, 3]);
                Ok(vec![b.unary(op, &x)?])
            });
            add(format!("unary_{op:?}_{dtype}"), text)?;
        }
        for op in BINARY {
            let text = module(|b| {
                let x = b.param(dtype, &[2, 3]);
                let y = b.param(dtype, &[2, 3]);
                Ok(vec![b.binary(op, &x, &y)?])
            });
            add(format!("binary_{op:?}_{dtype}"), text)?;
        }
        for op in REDUCERS {
            let text = module(|b| {
                let x = b.param(dtype, &[2, 3]);
                Ok(vec![
                    b.reduce_with(op, &x, &[1])?,
                    b.reduce_with(op, &x, &[0, 1])?,
                ])
            });
            add(format!("reduce_{op:?}_{dtype}"), text)?;
        }
        for other in DType::ALL {
            let convert = module(|b| {
                let x = b.param(dtype, &[4]);
                Ok(vec![b.convert(&x, other)?])
            });
            add(format!("convert_{dtype}_{other}"), convert)?;
            let bitcast = module(|b| {
                let (from, to) = (dtype.size(), other.size());
                let x = if to > from {
                    b.param(dtype, &[3, (to / from) as i64])
                } else {
                    b.param(dtype, &[3])
                };
                Ok(vec![b.bitcast(&x, other)?])
            });
            add(format!("bitcast_{dtype}_{other}"), bitcast)?;
        }
        for (name, text) in per_dtype(dtype) {
            add(format!("{name}_{dtype}"), text)?;
        }
    }
    Ok(modules)
}

fn per_dtype(dtype: DType) -> Vec<(&'static str, Result<String>)> {
    vec![
        (
            "compare",
            module(|b| {
                let x = b.param(dtype, &[3]);
                let y = b.param(dtype, &[3]);
                let equal = b.eq(&x, &y)?;
                let unequal = b.ne(&x, &y)?;
                Ok(vec![equal, unequal])
            }),
        ),
        (
            "order",
            module(|b| {
                let x = b.param(dtype, &[3]);
                let y = b.param(dtype, &[3]);
                let low = b.min_value(dtype)?;
                let high = b.max_value(dtype)?;
                Ok(vec![
                    b.compare(Cmp::Lt, &x, &y)?,
                    b.compare(Cmp::Le, &x, &y)?,
                    b.compare(Cmp::Gt, &x, &y)?,
                    b.compare(Cmp::Ge, &x, &y)?,
                    b.compare_total(Cmp::Lt, &x, &y)?,
                    b.clamp(&low, &x, &high)?,
                    b.clamp(&x, &y, &y)?,
                ])
            }),
        ),
        (
            "constant",
            module(|b| {
                Ok(vec![
                    b.scalar(dtype, 1)?,
                    b.splat(dtype, true, &[2])?,
                    b.splat(dtype, 0, &[0, 2])?,
                    b.dense_ints(dtype, &[1, 2, 3, 4, 5, 6], &[2, 3])?,
                    b.dense_floats(dtype, &[0.5, 1.5], &[2, 1])?,
                    b.dense_floats(dtype, &[], &[3, 0])?,
                ])
            }),
        ),
        (
            "nonfinite",
            module(|b| {
                Ok(vec![
                    b.scalar(dtype, f64::NAN)?,
                    b.dense_floats(
                        dtype,
                        &[f64::INFINITY, -0.0, f64::NEG_INFINITY, 1e-40],
                        &[4],
                    )?,
                ])
            }),
        ),
        (
            "iota",
            module(|b| Ok(vec![b.iota(dtype, &[2, 3], 1)?, b.iota(dtype, &[0], 0)?])),
        ),
        (
            "moves",
            module(|b| {
                let x = b.param(dtype, &[2, 3]);
                let p = b.param(Bool, &[]);
                let zero = b.scalar(dtype, 0)?;
                let y = b.reverse(&x, &[0, 1])?;
                Ok(vec![
                    b.select(&p, &x, &y)?,
                    b.reshape(&x, &[3, 2])?,
                    b.transpose(&x, &[1, 0])?,
                    b.broadcast_to(&x, &[4, 2, 3])?,
                    b.slice(&x, &[0, 1], &[2, 3], &[2, 1])?,
                    b.pad(&x, &zero, &[1, -1], &[0, 2], &[0, 1])?,
                    b.concatenate(&[x, y], 1)?,
                ])
            }),
        ),
        (
            "dot",
            module(|b| {
                let x = b.param(dtype, &[5, 2, 3]);
                let y = b.param(dtype, &[5, 3, 4]);
                Ok(vec![b.matmul(&x, &y, Precision::Highest)?])
            }),
        ),
        (
            "convolution",
            module(|b| {
                let x = b.param(dtype, &[2, 3, 8]);
                let y = b.param(dtype, &[4, 3, 3]);
                Ok(vec![b.convolution(&x, &y, &ConvSpec::new(1, dtype))?])
            }),
        ),
        (
            "sort",
            module(|b| {
                let x = b.param(dtype, &[4, 3]);
                b.sort(&[x], 0, true, |b, v| b.compare_total(Cmp::Lt, &v[0], &v[1]))
            }),
        ),
        (
            "top_k",
            module(|b| {
                let x = b.param(dtype, &[4, 3]);
                let (values, places) = b.top_k(&x, 2)?;
                Ok(vec![values, places])
            }),
        ),
        (
            "cumulative_sum",
            module(|b| {
                let x = b.param(dtype, &[4]);
                let init = b.reducer_init(Reducer::Sum, dtype)?;
                let mut window = WindowSpec::new(&[4]);
                window.padding = vec![(3, 0)];
                b.reduce_window(&[x], &[init], &window, |b, acc, new| {
                    Ok(vec![b.add(&acc[0], &new[0])?])
                })
            }),
        ),
        (
            "linalg",
            module(|b| {
                let x = b.param(dtype, &[2, 3, 3]);
                let y = b.param(dtype, &[2, 3, 1]);
                Ok(vec![
                    b.cholesky(&x, true)?,
                    b.triangular_solve(&x, &y, true, true, false, Transpose::Adjoint)?,
                ])
            }),
        ),
        (
            "fft",
            module(|b| {
                let x = b.param(dtype, &[2, 8]);
                Ok(vec![
                    b.fft(&x, FftKind::Fft, &[8])?,
                    b.fft(&x, FftKind::Ifft, &[2, 8])?,
                ])
            }),
        ),
        (
            "irfft",
            module(|b| {
                let x = b.param(dtype, &[2, 5]);
                Ok(vec![
                    b.fft(&x, FftKind::Irfft, &[8])?,
                    b.fft(&x, FftKind::Irfft, &[9])?,
                ])
            }),
        ),
        (
            "rfft",
            module(|b| {
                let x = b.param(dtype, &[2, 8]);
                Ok(vec![b.fft(&x, FftKind::Rfft, &[8])?])
            }),
        ),
        (
            "rng",
            module(|b| {
                let two = b.param(U64, &[2]);
                let three = b.param(U64, &[3]);
                let (state, bits) = b.rng_bits(&two, dtype, &[5, 2], Rng::ThreeFry)?;
                let (other, more) = b.rng_bits(&three, dtype, &[7], Rng::Philox)?;
                Ok(vec![state, bits, other, more])
            }),
        ),
        ("gather", gather(dtype)),
        ("scatter", scatter(dtype)),
        ("select_and_scatter", select_and_scatter(dtype)),
    ]
}

fn gather(dtype: DType) -> Result<String> {
    module(|b| {
        let x = b.param(dtype, &[6, 4]);
        let indices = b.param(I64, &[3]);
        let dims = GatherDims {
            offset_dims: vec![1],
            collapsed_slice_dims: vec![0],
            start_index_map: vec![0],
            index_vector_dim: 1,
            ..GatherDims::default()
        };
        Ok(vec![b.gather(&x, &indices, &dims, &[1, 4], false)?])
    })
}

fn scatter(dtype: DType) -> Result<String> {
    module(|b| {
        let x = b.param(dtype, &[6, 4]);
        let indices = b.param(I64, &[3, 1]);
        let updates = b.param(dtype, &[3, 4]);
        let dims = ScatterDims {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 1,
            ..ScatterDims::default()
        };
        Ok(vec![b.scatter(
            &x,
            &indices,
            &updates,
            &dims,
            false,
            false,
            Builder::add,
        )?])
    })
}

fn select_and_scatter(dtype: DType) -> Result<String> {
    module(|b| {
        let x = b.param(dtype, &[4, 6]);
        let source = b.param(dtype, &[2, 3]);
        let zero = b.scalar(dtype, 0)?;
        let mut window = WindowSpec::new(&[2, 2]);
        window.strides = vec![2, 2];
        Ok(vec![b.select_and_scatter(
            &x,
            &source,
            &zero,
            &window,
            Builder::ge,
            Builder::add,
        )?])
    })
}

/// Modules that show every kind of text.
pub(crate) fn samples() -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    let mut add = |name: &str, text: Result<String>| -> Result<()> {
        modules.push((name.to_owned(), text?));
        Ok(())
    };
    add("empty", module(|_| Ok(vec![])))?;
    add("parameters", parameters())?;
    add("constants", module(constants))?;
    add("shapes", module(shapes))?;
    add("dynamic_slices", module(dynamic_slices))?;
    add("gather_batched", module(gather_batched))?;
    add("scatter_batched", module(scatter_batched))?;
    add("dot_int8", module(dot_int8))?;
    add("convolution_2d", module(convolution_2d))?;
    add("convolution_gradient", module(convolution_gradient))?;
    add("argmax", module(argmax))?;
    add("max_pool", module(max_pool))?;
    add("sort_pairs", module(sort_pairs))?;
    add("while_power", module(while_power))?;
    add("if_nested", module(if_nested))?;
    add("zero_sizes", module(zero_sizes))?;
    add("custom_call", module(custom_call))?;
    add("select_and_scatter_f32", select_and_scatter(F32))?;
    add("rng_philox", module(rng_philox))?;
    Ok(modules)
}

fn parameters() -> Result<String> {
    let mut b = Builder::new();
    b.set_name("adds in place");
    let x = b.param(F32, &[2]);
    let y = b.param(F32, &[2]);
    let sum = b.add(&x, &y)?;
    let alias = |index| (index == 0).then(|| "tf.aliasing_output = 0 : i32".to_owned());
    Ok(b.finish(&[sum, y], alias))
}

fn constants(b: &mut Builder) -> Result<Vec<Value>> {
    let half = b.scalar(F16, 65504)?;
    let again = b.scalar(F16, 65504.0)?;
    Ok(vec![
        b.add(&half, &again)?,
        b.scalar(F32, 0.1)?,
        b.scalar(BF16, 0.1)?,
        b.scalar(F64, 1e300)?,
        b.scalar(F32, f64::NEG_INFINITY)?,
        b.scalar(U64, u64::MAX)?,
        b.scalar(C64, Scalar::Complex(1.5, -2.0))?,
        b.scalar(C128, Scalar::Complex(f64::NAN, f64::INFINITY))?,
        b.splat(Bool, true, &[3])?,
        b.dense_ints(I8, &[-128, 0, 1, 127, 5, 6], &[3, 2])?,
        b.dense_ints(U16, &[7, 7], &[2])?,
        b.dense_floats(F32, &[1.0, 0.5, f64::NAN], &[3])?,
        b.dense_floats(BF16, &[f64::INFINITY, -1.0], &[2])?,
        b.dense_ints(I64, &[], &[0, 3])?,
        b.iota(I32, &[2, 3], 1)?,
    ])
}

fn shapes(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[2, 1, 3]);
    let zero = b.scalar(F32, 0)?;
    let turned = b.transpose(&x, &[2, 0, 1])?;
    let flat = b.reshape(&x, &[6])?;
    Ok(vec![
        turned,
        b.broadcast_to(&x, &[4, 2, 5, 3])?,
        b.broadcast_in_dim(&flat, &[6, 2], &[0])?,
        b.slice_dim(&flat, 0, 1, 6, 2)?,
        b.pad(&flat, &zero, &[-1], &[2], &[1])?,
        b.concatenate(&[flat.clone(), flat.clone()], 0)?,
        b.reverse(&flat, &[0])?,
    ])
}

fn dynamic_slices(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[4, 5]);
    let at = [b.param(I32, &[]), b.param(I32, &[])];
    let part = b.dynamic_slice(&x, &at, &[2, 3])?;
    let double = b.add(&part, &part)?;
    Ok(vec![b.dynamic_update_slice(&x, &double, &at)?])
}

/// `take_along_axis` on the second dimension.
fn gather_batched(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[3, 5]);
    let indices = b.param(I32, &[3, 2, 1]);
    let dims = GatherDims {
        collapsed_slice_dims: vec![1],
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![0],
        start_index_map: vec![1],
        index_vector_dim: 2,
        ..GatherDims::default()
    };
    Ok(vec![b.gather(&x, &indices, &dims, &[1, 1], false)?])
}

fn scatter_batched(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[3, 5]);
    let indices = b.param(I32, &[3, 2]);
    let updates = b.param(F32, &[3, 2]);
    let dims = ScatterDims {
        inserted_window_dims: vec![1],
        input_batching_dims: vec![0],
        scatter_indices_batching_dims: vec![0],
        scatter_dims_to_operand_dims: vec![1],
        index_vector_dim: 2,
        ..ScatterDims::default()
    };
    Ok(vec![b.scatter(
        &x,
        &indices,
        &updates,
        &dims,
        false,
        true,
        |b, old, new| {
            let two = b.scalar(F32, 2)?;
            let scaled = b.mul(new, &two)?;
            b.add(old, &scaled)
        },
    )?])
}

fn dot_int8(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(I8, &[2, 4]);
    let y = b.param(I8, &[3, 4]);
    let none: &[usize] = &[];
    Ok(vec![b.dot_general(
        &x,
        &y,
        (none, none),
        (&[1], &[1]),
        Precision::Default,
        I32,
    )?])
}

fn convolution_2d(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(BF16, &[2, 4, 9, 9]);
    let kernel = b.param(BF16, &[6, 2, 3, 3]);
    let mut spec = ConvSpec::new(2, F32);
    spec.strides = vec![2, 1];
    spec.padding = vec![(1, 1), (2, 0)];
    spec.rhs_dilation = vec![1, 2];
    spec.feature_group_count = 2;
    spec.precision = Precision::High;
    Ok(vec![b.convolution(&x, &kernel, &spec)?])
}

/// Swapped roles of dimensions, dilated input, turned kernel, groups of the batch.
fn convolution_gradient(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[4, 2, 5]);
    let kernel = b.param(F32, &[4, 2, 3]);
    let mut spec = ConvSpec::new(1, F32);
    spec.dims.input_batch = 1;
    spec.dims.input_feature = 0;
    spec.dims.kernel_out = 1;
    spec.dims.kernel_in = 0;
    spec.dims.output_batch = 1;
    spec.dims.output_feature = 0;
    spec.lhs_dilation = vec![2];
    spec.padding = vec![(-1, 1)];
    spec.reversal = vec![true];
    spec.batch_group_count = 2;
    Ok(vec![b.convolution(&x, &kernel, &spec)?])
}

fn argmax(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[3, 4]);
    let places = b.iota(I64, &[3, 4], 1)?;
    let low = b.min_value(F32)?;
    let zero = b.scalar(I64, 0)?;
    b.reduce(&[x, places], &[low, zero], &[1], |b, acc, new| {
        let keep = b.ge(&acc[0], &new[0])?;
        Ok(vec![
            b.select(&keep, &acc[0], &new[0])?,
            b.select(&keep, &acc[1], &new[1])?,
        ])
    })
}

fn max_pool(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[1, 2, 7]);
    let low = b.min_value(F32)?;
    let window = WindowSpec {
        dims: vec![1, 1, 3],
        strides: vec![1, 1, 2],
        base_dilations: vec![1, 1, 2],
        window_dilations: vec![1, 1, 2],
        padding: vec![(0, 0), (0, 0), (1, 1)],
    };
    b.reduce_window(&[x], &[low], &window, |b, acc, new| {
        Ok(vec![b.max(&acc[0], &new[0])?])
    })
}

fn sort_pairs(b: &mut Builder) -> Result<Vec<Value>> {
    let keys = b.param(F32, &[5]);
    let places = b.iota(I64, &[5], 0)?;
    b.sort(&[keys, places], 0, true, |b, v| b.gt(&v[0], &v[1]))
}

/// Uses a parameter and a constant of the enclosing scope in both bodies.
fn while_power(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[]);
    let limit = b.param(I32, &[]);
    let zero = b.scalar(I32, 0)?;
    let one = b.scalar(F32, 1)?;
    b.while_loop(
        &[zero, one],
        |b, state| b.lt(&state[0], &limit),
        |b, state| {
            let one = b.scalar(I32, 1)?;
            let unit = b.scalar(F32, 1)?;
            let grown = b.mul(&state[1], &x)?;
            Ok(vec![b.add(&state[0], &one)?, b.mul(&grown, &unit)?])
        },
    )
}

fn if_nested(b: &mut Builder) -> Result<Vec<Value>> {
    let pred = b.param(Bool, &[]);
    let x = b.param(F32, &[3]);
    b.if_else(
        &pred,
        |b| {
            let sum = b.reduce_with(Reducer::Sum, &x, &[0])?;
            let zero = b.scalar(F32, 0)?;
            let positive = b.gt(&sum, &zero)?;
            b.if_else(&positive, |b| Ok(vec![b.neg(&x)?]), |_| Ok(vec![x.clone()]))
        },
        |b| {
            let two = b.splat_like(&x, 2)?;
            Ok(vec![b.mul(&x, &two)?])
        },
    )
}

fn zero_sizes(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[0, 3]);
    let y = b.param(F32, &[3, 2]);
    let sum = b.reduce_with(Reducer::Sum, &x, &[0])?;
    let product = b.matmul(&x, &y, Precision::Default)?;
    let inner = b.transpose(&x, &[1, 0])?;
    let outer = b.matmul(&inner, &x, Precision::Default)?;
    let joined = b.concatenate(&[x.clone(), x.clone()], 0)?;
    let stretched = b.broadcast_to(&joined, &[2, 0, 3])?;
    let flat = b.reshape(&stretched, &[0])?;
    let cut = b.slice_dim(&y, 0, 2, 2, 1)?;
    let sorted = b.sort(&[x], 0, true, |b, v| b.lt(&v[0], &v[1]))?;
    Ok(vec![sum, product, outer, flat, cut, sorted[0].clone()])
}

fn custom_call(b: &mut Builder) -> Result<Vec<Value>> {
    let x = b.param(F32, &[4, 3]);
    let results: [(DType, Dims); 2] = [
        (F32, Dims::from_slice(&[4, 3])),
        (F32, Dims::from_slice(&[3])),
    ];
    b.custom_call("Qr", &[x], &results, "")
}

fn rng_philox(b: &mut Builder) -> Result<Vec<Value>> {
    let state = b.param(U64, &[2]);
    let (state, bits) = b.rng_bits(&state, U32, &[3], Rng::Philox)?;
    let kept = b.optimization_barrier(&[state, bits])?;
    let bytes = b.bitcast(&kept[1], U8)?;
    Ok(vec![kept[0].clone(), bytes])
}
