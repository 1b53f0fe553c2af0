"""PyTorch's own operator database as test cases: (operator, dtype) with its sample inputs."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

from . import names

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@dataclass(frozen=True)
class Case:
    """One operator with one dtype; `samples` of its inputs, evenly spaced."""

    name: str
    dtype: torch.dtype
    samples: int

    def __str__(self) -> str:
        return f"{self.name}-{str(self.dtype).removeprefix('torch.')}"

    @property
    def op(self) -> OpInfo:
        return _operators()[self.name]

    def inputs(self, requires_grad: bool = False) -> list[SampleInput]:
        seed()
        found = list(self.op.sample_inputs("cpu", self.dtype, requires_grad=requires_grad))
        if len(found) <= self.samples:
            return found
        step = (len(found) - 1) / max(self.samples - 1, 1)
        return [found[round(i * step)] for i in range(self.samples)]


def seed() -> None:
    """Samples and random ops are the same in every run."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


@cache
def _operators() -> dict[str, OpInfo]:
    return {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}


def _dtypes(op: OpInfo) -> Iterator[torch.dtype]:
    yield from (dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu"))


def cases_of(name: str) -> list[Case]:
    """All cases of an operator and its variants."""
    found = [(full, op) for full, op in _operators().items() if full == name or op.name == name]
    return [Case(full, dtype, samples=40) for full, op in found for dtype in _dtypes(op)]


def default_cases(test: str) -> list[Case]:
    """What `make test` runs: float32 and one more dtype an operator, in turn, so that every dtype is met often."""
    cases = []
    for index, name in enumerate(names.OPERATORS):
        op = _operators()[name]
        if "grad" in test:
            if op.supports_autograd:
                cases.append(Case(name, torch.float32, samples=2))
            continue
        own = list(_dtypes(op))
        chosen = {torch.float32} & set(own) or {own[0]}
        others = [dtype for dtype in own if dtype not in chosen]
        if others:
            chosen.add(others[index % len(others)])
        cases += [Case(name, dtype, samples=2) for dtype in own if dtype in chosen]
    return [case for case in cases if str(case) not in names.EXCEPT]


def move(value: Any, device: str) -> Any:
    """The same structure with every tensor (and device) on `device`."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(device).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or (leaf == "cpu" and isinstance(leaf, str)):
            return torch.device(device)
        return leaf

    return tree_map(one, value)
