"""Views and in-place writes equal the CPU's, chain by chain, with a fresh seed every run."""

import os
import random

import pytest
import torch

from . import chains

TOTAL = 2000
PARTS = 20


def seed() -> int:
    """A fresh seed a run, shared by all workers; set TPULAB_TEST_SEED to repeat one."""
    given = os.environ.get("TPULAB_TEST_SEED") or os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    return int.from_bytes(given.encode()[-6:], "big") if given else random.SystemRandom().randrange(2**32)


SEED = seed()


def moving(x: torch.Tensor) -> list[int]:
    """Strides of the dims that have a second element; that of a dim of size 1 means nothing."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.parametrize("part", range(PARTS))
def test_random_chains_equal_the_cpu(part: int) -> None:
    rng = random.Random(SEED * PARTS + part)
    print(f"seed {SEED}, part {part}")
    writes = 0
    for number in range(TOTAL // PARTS):
        chain = chains.make(rng)
        writes += chain.writes > 0
        expected = chain.run(chain.base())
        got = chain.run(chain.base().to("tpu"))
        for step, (want, have) in enumerate(zip(expected, got, strict=True)):
            told = f"seed {SEED} part {part} chain {number}: {chain.shape} {chain.dtype} {chain.text}, tensor {step}"
            assert (have.shape, have.dtype) == (want.shape, want.dtype), told
            assert moving(have) == moving(want), f"{told}: strides {have.stride()} and {want.stride()}"
            assert torch.equal(have.cpu(), want), f"{told}:\n{have.cpu()}\n{want}"
    assert writes * 2 >= TOTAL // PARTS


def test_a_loop_over_rows_compiles_at_most_four_programs() -> None:
    from tpulab import _control

    x = torch.arange(100.0).to("tpu")
    before = _control.call("counters")["programs_compiled"]
    for i in range(100):
        x[i] += i
    assert torch.equal(x.cpu(), torch.arange(100.0) * 2)
    assert _control.call("counters")["programs_compiled"] - before <= 4
