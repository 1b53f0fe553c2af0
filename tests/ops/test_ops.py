"""Every operator equals the CPU's: values, dtypes, shapes, strides, and gradients."""

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_leaves

from . import names
from .database import Case, move, seed

TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-9}


def call(case: Case, arguments: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> Any:
    first, rest, keywords = arguments
    seed()
    return case.op.op(first, *rest, **keywords)


def compare(
    got: Any, want: Any, case: Case, told: str, strides: bool, where: str = "tpu", gradients: bool = False
) -> None:
    mine, _my_structure = tree_flatten(got)
    theirs, _their_structure = tree_flatten(want)
    assert len(mine) == len(theirs), told
    for a, b in zip(mine, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b or (isinstance(b, float) and a == pytest.approx(b, rel=1e-5)), told
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{told}: {a.dtype} {a.shape}, CPU {b.dtype} {b.shape}"
        assert a.device.type == where, f"{told}: on {a.device}"
        if strides and b.numel() > 1:
            assert a.stride() == b.stride(), f"{told}: strides {a.stride()}, CPU {b.stride()}"
        if case.name in names.RANDOM:
            continue
        # A gradient is composed of several ops, each of which rounds.
        steps = 10 if gradients and b.dtype.itemsize == 2 else 1
        tolerance = steps * names.LOOSER.get(case.name, 1) * TOLERANCE.get(b.dtype, 0)
        torch.testing.assert_close(
            a.detach().cpu(), b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{told}: {m}"
        )


def test_values(case: Case) -> None:
    tried = 0
    for number, sample in enumerate(case.inputs()):
        arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
        try:
            want = call(case, move(arguments, "cpu"))
        except (RuntimeError, IndexError, ValueError):
            continue
        tried += 1
        told = f"{case} sample {number} {sample.summary()}"
        got = call(case, move(arguments, "tpu"))
        # A factory without a device argument makes its tensor on the CPU.
        named = "device" in sample.kwargs or any(isinstance(t, torch.Tensor) for t in tree_leaves(arguments))
        strides = case.name not in names.OTHER_STRIDES
        compare(got, want, case, told, strides, "tpu" if named else "cpu")
    assert tried or not case.inputs()


def test_gradients(case: Case) -> None:
    if case.dtype not in case.op.supported_backward_dtypes("cpu") or not case.op.supports_autograd:
        return
    for number, sample in enumerate(case.inputs(requires_grad=True)):
        arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))

        def gradients(device: str, arguments: Any = arguments, sample: Any = sample) -> Any:
            here = move(arguments, device)
            seed()
            first, rest, keywords = here
            result = sample.output_process_fn_grad(case.op.gradcheck_wrapper(case.op.op, first, *rest, **keywords))
            outs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
            ins = [t for t in tree_leaves(here) if isinstance(t, torch.Tensor) and t.requires_grad]
            if not outs or not ins:
                return None
            generator = torch.Generator().manual_seed(1)
            weights = [torch.randn(t.shape, dtype=t.dtype, generator=generator).to(t.device) for t in outs]
            return torch.autograd.grad(outs, ins, weights, allow_unused=True)

        try:
            want = gradients("cpu")
        except (RuntimeError, IndexError, ValueError):
            continue
        if want is not None:
            told = f"gradient of {case} sample {number} {sample.summary()}"
            compare(gradients("tpu"), want, case, told, strides=False, gradients=True)
