//! Shape inference against naive models.

use proptest::prelude::*;
use tpulab_stablehlo::{
    Builder, ConvSpec, DType, Dims, GatherDims, Precision, Reducer, WindowSpec,
};

fn dims(rank: std::ops::Range<usize>) -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(0..5_i64, rank)
}

/// A shape and a permutation of its dimensions.
fn permuted() -> impl Strategy<Value = (Vec<i64>, Vec<usize>)> {
    dims(0..5).prop_flat_map(|sizes| {
        let order: Vec<usize> = (0..sizes.len()).collect();
        (Just(sizes), Just(order).prop_shuffle())
    })
}

/// Places of a window along an axis, by trying each.
fn places(size: i64, window: i64, stride: i64, base: i64, dilation: i64, pad: (i64, i64)) -> i64 {
    let spread = if size == 0 { 0 } else { (size - 1) * base + 1 };
    let padded = spread + pad.0 + pad.1;
    let reach = (window - 1) * dilation + 1;
    (0..)
        .map(|place| place * stride)
        .take_while(|start| start + reach <= padded)
        .count() as i64
}

proptest! {
    #[test]
    fn transpose((sizes, order) in permuted()) {
        let mut b = Builder::new();
        let x = b.param(DType::F32, &sizes);
        let y = b.transpose(&x, &order).unwrap();
        for (index, &from) in order.iter().enumerate() {
            prop_assert_eq!(y.dims[index], sizes[from]);
        }
        let mut back = vec![0; order.len()];
        for (index, &from) in order.iter().enumerate() {
            back[from] = index;
        }
        let z = b.transpose(&y, &back).unwrap();
        prop_assert_eq!(z.dims(), sizes.as_slice());
    }

    #[test]
    fn slice(bounds in prop::collection::vec((0..6_i64, -1..7_i64, -1..7_i64, 0..4_i64), 0..4)) {
        let sizes: Vec<_> = bounds.iter().map(|t| t.0).collect();
        let start: Vec<_> = bounds.iter().map(|t| t.1).collect();
        let limit: Vec<_> = bounds.iter().map(|t| t.2).collect();
        let stride: Vec<_> = bounds.iter().map(|t| t.3).collect();
        let mut b = Builder::new();
        let x = b.param(DType::F32, &sizes);
        let made = b.slice(&x, &start, &limit, &stride);
        let valid = bounds.iter().all(|&(size, low, high, step)| {
            0 <= low && low <= high && high <= size && step >= 1
        });
        prop_assert_eq!(made.is_ok(), valid);
        if let Ok(made) = made {
            let expected: Dims = bounds
                .iter()
                .map(|&(_, low, high, step)| (low..high).step_by(step as usize).count() as i64)
                .collect();
            prop_assert_eq!(made.dims, expected);
        }
    }

    #[test]
    fn pad(axes in prop::collection::vec((0..5_i64, -3..4_i64, -3..4_i64, 0..3_i64), 0..4)) {
        let sizes: Vec<_> = axes.iter().map(|t| t.0).collect();
        let low: Vec<_> = axes.iter().map(|t| t.1).collect();
        let high: Vec<_> = axes.iter().map(|t| t.2).collect();
        let between: Vec<_> = axes.iter().map(|t| t.3).collect();
        let mut b = Builder::new();
        let x = b.param(DType::F32, &sizes);
        let zero = b.scalar(DType::F32, 0).unwrap();
        let made = b.pad(&x, &zero, &low, &high, &between);
        // Writes the elements down with what stands between them, then pads or crops both ends.
        let expected: Option<Dims> = axes
            .iter()
            .map(|&(size, low, high, between)| {
                let mut line = Vec::new();
                for element in 0..size {
                    if element > 0 {
                        line.extend(std::iter::repeat_n(0, between as usize));
                    }
                    line.push(1);
                }
                let total = line.len() as i64 + low + high;
                (total >= 0).then_some(total)
            })
            .collect();
        prop_assert_eq!(made.ok().map(|made| made.dims), expected);
    }

    #[test]
    fn broadcast_to(from in prop::collection::vec(prop_oneof![Just(1), 0..4_i64], 0..4),
                    to in prop::collection::vec(prop_oneof![Just(1), 0..4_i64], 0..5)) {
        let mut b = Builder::new();
        let x = b.param(DType::F32, &from);
        let fits = from.len() <= to.len()
            && from.iter().rev().zip(to.iter().rev()).all(|(a, b)| a == b || *a == 1);
        let made = b.broadcast_to(&x, &to);
        prop_assert_eq!(made.is_ok(), fits);
        if let Ok(made) = made {
            prop_assert_eq!(made.dims(), to.as_slice());
        }
    }

    #[test]
    fn reshape(from in dims(0..4), to in dims(0..4)) {
        let mut b = Builder::new();
        let x = b.param(DType::F32, &from);
        let fits = from.iter().product::<i64>() == to.iter().product::<i64>();
        prop_assert_eq!(b.reshape(&x, &to).is_ok(), fits);
    }

    #[test]
    fn concatenate(base in dims(1..4), lengths in prop::collection::vec(0..4_i64, 1..4), pick in any::<prop::sample::Index>()) {
        let dim = pick.index(base.len());
        let mut b = Builder::new();
        let parts: Vec<_> = lengths
            .iter()
            .map(|length| {
                let mut sizes = base.clone();
                sizes[dim] = *length;
                b.param(DType::I32, &sizes)
            })
            .collect();
        let made = b.concatenate(&parts, dim).unwrap();
        for (index, &size) in base.iter().enumerate() {
            let expected = if index == dim { lengths.iter().sum() } else { size };
            prop_assert_eq!(made.dims[index], expected);
        }
    }

    #[test]
    fn reduce(sizes in dims(0..5), mask in prop::collection::vec(any::<bool>(), 5)) {
        let mut b = Builder::new();
        let x = b.param(DType::F32, &sizes);
        let removed: Vec<usize> = (0..sizes.len()).filter(|&dim| mask[dim]).collect();
        let made = b.reduce_with(Reducer::Max, &x, &removed).unwrap();
        let mut left = sizes.clone();
        for dim in removed.iter().rev() {
            left.remove(*dim);
        }
        prop_assert_eq!(made.dims(), left.as_slice());
    }

    #[test]
    fn reduce_window(size in 0..9_i64, window in 1..4_i64, stride in 1..4_i64, base in 1..4_i64,
                     dilation in 1..4_i64, low in 0..3_i64, high in 0..3_i64) {
        let mut b = Builder::new();
        let x = b.param(DType::F32, &[size]);
        let zero = b.scalar(DType::F32, 0).unwrap();
        let spec = WindowSpec {
            dims: vec![window],
            strides: vec![stride],
            base_dilations: vec![base],
            window_dilations: vec![dilation],
            padding: vec![(low, high)],
        };
        let made = b
            .reduce_window(&[x], &[zero], &spec, |b, acc, new| Ok(vec![b.add(&acc[0], &new[0])?]))
            .unwrap();
        let expected = places(size, window, stride, base, dilation, (low, high));
        prop_assert_eq!(made[0].dims(), [expected]);
    }

    #[test]
    fn convolution(size in 0..9_i64, kernel in 1..4_i64, stride in 1..4_i64, base in 1..3_i64,
                   dilation in 1..4_i64, low in 0..3_i64, high in 0..3_i64) {
        let mut b = Builder::new();
        let x = b.param(DType::F32, &[2, 3, size]);
        let y = b.param(DType::F32, &[4, 3, kernel]);
        let mut spec = ConvSpec::new(1, DType::F32);
        spec.strides = vec![stride];
        spec.lhs_dilation = vec![base];
        spec.rhs_dilation = vec![dilation];
        spec.padding = vec![(low, high)];
        let made = b.convolution(&x, &y, &spec).unwrap();
        prop_assert_eq!(made.dims(), [2, 4, places(size, kernel, stride, base, dilation, (low, high))]);
    }

    /// Labels as in einsum: each letter has a size, the roles decide where it goes.
    #[test]
    fn dot_general(roles in prop::collection::vec((0..4_u8, 0..4_i64), 0..6), seed in any::<u64>()) {
        let letters = |wanted: &[u8]| -> Vec<usize> {
            (0..roles.len()).filter(|&letter| wanted.contains(&roles[letter].0)).collect()
        };
        // 0 batch, 1 contracted, 2 only left, 3 only right.
        let mut left = letters(&[0, 1, 2]);
        let mut right = letters(&[0, 1, 3]);
        let (left_turn, right_turn) = (seed as usize % left.len().max(1), (seed >> 32) as usize % right.len().max(1));
        left.rotate_left(left_turn);
        right.rotate_left(right_turn);
        let sizes = |axes: &[usize]| -> Vec<i64> { axes.iter().map(|&letter| roles[letter].1).collect() };
        let at = |axes: &[usize], wanted: &[usize]| -> Vec<usize> {
            wanted.iter().map(|letter| axes.iter().position(|axis| axis == letter).unwrap()).collect()
        };
        let mut b = Builder::new();
        let x = b.param(DType::F32, &sizes(&left));
        let y = b.param(DType::F32, &sizes(&right));
        let (batch, inner) = (letters(&[0]), letters(&[1]));
        let made = b.dot_general(
            &x, &y,
            (&at(&left, &batch), &at(&right, &batch)),
            (&at(&left, &inner), &at(&right, &inner)),
            Precision::Default, DType::F32,
        ).unwrap();
        let mut expected = sizes(&batch);
        expected.extend(sizes(&left.iter().copied().filter(|&l| roles[l].0 == 2).collect::<Vec<_>>()));
        expected.extend(sizes(&right.iter().copied().filter(|&l| roles[l].0 == 3).collect::<Vec<_>>()));
        prop_assert_eq!(made.dims(), expected.as_slice());
    }

    /// Rows picked by indices of any shape: `x[indices]`.
    #[test]
    fn gather_rows(rows in 1..5_i64, columns in 0..4_i64, shape in dims(0..4)) {
        let mut b = Builder::new();
        let x = b.param(DType::F32, &[rows, columns]);
        let indices = b.param(DType::I64, &shape);
        let dims = GatherDims {
            offset_dims: vec![shape.len()],
            collapsed_slice_dims: vec![0],
            start_index_map: vec![0],
            index_vector_dim: shape.len(),
            ..GatherDims::default()
        };
        let made = b.gather(&x, &indices, &dims, &[1, columns], false).unwrap();
        let mut expected = shape.clone();
        expected.push(columns);
        prop_assert_eq!(made.dims(), expected.as_slice());
    }

    #[test]
    fn bitcast_keeps_the_bytes(sizes in dims(0..3), from in 0..15_usize, to in 0..15_usize) {
        let (from, to) = (DType::ALL[from], DType::ALL[to]);
        let mut sizes = sizes;
        if to.size() > from.size() {
            sizes.push((to.size() / from.size()) as i64);
        }
        let mut b = Builder::new();
        let x = b.param(from, &sizes);
        let made = b.bitcast(&x, to).unwrap();
        prop_assert_eq!(made.dtype, to);
        prop_assert_eq!(made.numel() * to.size() as i64, x.numel() * from.size() as i64);
    }
}
