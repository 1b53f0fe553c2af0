//! Strides of new outputs, as torch would choose them.

use std::cmp::Ordering;

use smallvec::smallvec;
use tpulab_stablehlo::Dims;

use crate::view::{is_contiguous, row_major};

/// Every element once, in some order of the dims, without gaps.
pub(crate) fn is_dense(sizes: &[i64], strides: &[i64]) -> bool {
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&i| sizes[i] != 1).collect();
    order.sort_by_key(|&i| strides[i]);
    let mut expected = 1;
    for i in order {
        if sizes[i] == 0 {
            return true;
        }
        if strides[i] != expected {
            return false;
        }
        expected *= sizes[i];
    }
    true
}

/// Dims from the slowest to the fastest in memory; ties keep their order.
pub(crate) fn memory_order(sizes: &[i64], strides: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    // Size-1 dims have no place of their own: they stay beside their neighbours.
    if is_contiguous(sizes, strides) {
        return order;
    }
    order.sort_by(|&a, &b| strides[b].cmp(&strides[a]));
    order
}

fn strides_in_order(sizes: &[i64], order: &[usize]) -> Dims {
    let mut strides: Dims = smallvec![1; sizes.len()];
    let mut next = 1;
    for &dim in order.iter().rev() {
        strides[dim] = next;
        next *= sizes[dim].max(1);
    }
    strides
}

/// channels_last strides for 4-D (NHWC) and 5-D (NDHWC) sizes.
pub(crate) fn channels_last(sizes: &[i64]) -> Option<Dims> {
    match sizes.len() {
        4 => Some(strides_in_order(sizes, &[0, 2, 3, 1])),
        5 => Some(strides_in_order(sizes, &[0, 2, 3, 4, 1])),
        _ => None,
    }
}

/// torch's `suggest_memory_format() == ChannelsLast(3d)`.
pub(crate) fn suggests_channels_last(sizes: &[i64], strides: &[i64]) -> bool {
    let order: &[usize] = match sizes.len() {
        4 => &[1, 3, 2, 0],
        5 => &[1, 4, 3, 2, 0],
        _ => return false,
    };
    if strides[1] == 0 {
        return false;
    }
    let mut least = 0;
    for &dim in order {
        if sizes[dim] == 0 || strides[dim] < least {
            return false;
        }
        // A contiguous tensor with one channel or no image is not channels_last.
        if dim == 0 && least == strides[1] {
            return false;
        }
        least = strides[dim];
        if sizes[dim] > 1 {
            least *= sizes[dim];
        }
    }
    true
}

/// `empty_like` with preserve_format.
pub(crate) fn like(sizes: &[i64], strides: &[i64]) -> Dims {
    if is_dense(sizes, strides) {
        return Dims::from_slice(strides);
    }
    pointwise(sizes, &[(sizes, strides)])
}

/// TensorIterator: one shared dense layout is kept, else dims are ordered by the operands' strides.
pub(crate) fn pointwise(out: &[i64], operands: &[(&[i64], &[i64])]) -> Dims {
    let full: Vec<_> = operands.iter().filter(|(sizes, _)| *sizes == out).collect();
    if full.len() == operands.len()
        && let Some((sizes, strides)) = full.first()
    {
        if full
            .iter()
            .all(|(sizes, strides)| is_contiguous(sizes, strides))
        {
            return row_major(out);
        }
        if is_dense(sizes, strides) && full.iter().all(|(_, other)| other == strides) {
            return Dims::from_slice(strides);
        }
    }
    let aligned: Vec<Dims> = operands
        .iter()
        .map(|(sizes, strides)| {
            let lead = out.len() - sizes.len().min(out.len());
            (0..out.len())
                .map(|i| {
                    if i < lead || sizes[i - lead] == 1 && out[i] != 1 {
                        0
                    } else {
                        strides[i - lead]
                    }
                })
                .collect()
        })
        .collect();
    // perm[0] is the fastest dim; insertion sort with torch's comparison, which may leave pairs undecided.
    let mut perm: Vec<usize> = (0..out.len()).rev().collect();
    for i in 1..perm.len() {
        let mut moving = i;
        for j in (0..i).rev() {
            match compare(out, &aligned, perm[j], perm[moving]) {
                Ordering::Greater => {
                    perm.swap(j, moving);
                    moving = j;
                }
                Ordering::Less => break,
                Ordering::Equal => {}
            }
        }
    }
    perm.reverse();
    strides_in_order(out, &perm)
}

fn compare(out: &[i64], operands: &[Dims], a: usize, b: usize) -> Ordering {
    for strides in operands {
        let (x, y) = (strides[a], strides[b]);
        if x == 0 || y == 0 {
            continue;
        }
        match x.cmp(&y) {
            Ordering::Equal => {
                if out[a] > out[b] {
                    return Ordering::Greater;
                }
            }
            decided => return decided,
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permuted_operands_keep_their_order() {
        assert_eq!(
            pointwise(&[2, 3], &[(&[2, 3], &[1, 2])]).as_slice(),
            &[1, 2]
        );
        assert_eq!(
            pointwise(&[2, 3], &[(&[2, 3], &[1, 2]), (&[3], &[1])]).as_slice(),
            &[1, 2]
        );
        assert_eq!(
            pointwise(&[2, 3], &[(&[2, 3], &[3, 1]), (&[2, 3], &[1, 2])]).as_slice(),
            &[3, 1]
        );
        assert_eq!(like(&[4, 6], &[12, 2]).as_slice(), &[6, 1]);
        assert_eq!(
            channels_last(&[2, 3, 4, 5]).unwrap().as_slice(),
            &[60, 1, 15, 3]
        );
        assert!(suggests_channels_last(&[2, 3, 4, 5], &[60, 1, 15, 3]));
        assert!(!suggests_channels_last(&[2, 3, 4, 5], &[60, 20, 5, 1]));
    }
}
