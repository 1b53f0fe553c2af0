"""Which operators of PyTorch's database `make test` runs, and what is known of some."""

# Draw numbers of their own: only dtypes and shapes can be compared.
RANDOM = {
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.rrelu",
    "normal",
    "normal.in_place",
    "normal.number_mean",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "uniform",
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
}
# Factor on the tolerance, for ops whose float32 result depends on the order of many terms.
LOOSER: dict[str, float] = {}
# Strides differ from the CPU's for a reason.
OTHER_STRIDES: set[str] = set()

OPERATORS: list[str] = ["add", "sub", "mul", "div.no_rounding_mode", "mm", "addmm", "bmm", "exp", "neg", "fill", "zeros", "ones", "full"]
