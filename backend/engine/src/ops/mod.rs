//! Lowerings, a family a file. Each names the ATen base ops it serves; overloads are told apart by their arguments.

mod activation;
mod argreduce;
mod axis;
mod bitwise;
mod clamp;
mod compare;
mod conv;
mod copies;
mod embedding;
mod factory;
mod foreach;
mod index;
mod loss;
mod masked;
mod math;
mod matmul;
mod norm;
mod optimizer;
mod pointwise;
mod pool;
mod random;
mod reduce;
mod resample;
mod scan;
mod scatter;
mod shape;
mod softmax;
mod sort;
mod window;
mod window_sum;

use crate::registry::Registry;

pub(crate) fn register(registry: &mut Registry) {
    activation::register(registry);
    argreduce::register(registry);
    bitwise::register(registry);
    clamp::register(registry);
    compare::register(registry);
    conv::register(registry);
    copies::register(registry);
    embedding::register(registry);
    factory::register(registry);
    foreach::register(registry);
    index::register(registry);
    loss::register(registry);
    masked::register(registry);
    math::register(registry);
    matmul::register(registry);
    norm::register(registry);
    optimizer::register(registry);
    pointwise::register(registry);
    pool::register(registry);
    random::register(registry);
    reduce::register(registry);
    resample::register(registry);
    scan::register(registry);
    scatter::register(registry);
    shape::register(registry);
    softmax::register(registry);
    sort::register(registry);
    window_sum::register(registry);
}
