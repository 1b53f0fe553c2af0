"""Random chains of views and in-place writes, run on the CPU and on device tpu side by side."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Step = Callable[[torch.Tensor], torch.Tensor]
SHAPES = [(4, 6), (6,), (2, 3, 4), (3, 1, 5), (5, 4), (2, 2, 3, 2)]
DTYPES = [torch.float32, torch.float32, torch.int64, torch.int32, torch.float64, torch.bfloat16, torch.uint8]


@dataclass
class Chain:
    """Steps to run from one base tensor; `text` tells them to a reader."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    steps: list[Step] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    writes: int = 0

    def base(self) -> torch.Tensor:
        count = torch.Size(self.shape).numel()
        return (torch.arange(count) % 100 + 1).reshape(self.shape).to(self.dtype)

    def run(self, base: torch.Tensor) -> list[torch.Tensor]:
        """All tensors the chain made; the base is the first."""
        made = [base]
        for step in self.steps:
            made.append(step(made[-1]))
        return made


def _view(rng: random.Random, x: torch.Tensor) -> tuple[str, Step]:
    """A view of x, chosen among those its shape allows."""
    dims = [d for d in range(x.dim()) if x.shape[d] > 1]
    kinds = ["expand", "view", "unsqueeze", "permute"]
    if dims:
        kinds += ["slice", "step", "select", "transpose", "narrow", "slice", "step", "select", "diagonal", "unfold"]
    kind = rng.choice(kinds)
    dim = rng.choice(dims) if dims else 0
    size = x.shape[dim] if dims else 1
    if kind == "slice":
        low = rng.randrange(size)
        high = rng.randrange(low + 1, size + 1)
        return f"narrow({dim}, {low}:{high})", lambda t: t.narrow(dim, low, high - low)
    if kind == "step":
        low, step = rng.randrange(size), rng.choice([2, 3])
        index = (slice(None),) * dim + (slice(low, None, step),)
        return f"[{dim}: {low}::{step}]", lambda t: t[index]
    if kind == "select":
        at = rng.randrange(-size, size)
        return f"select({dim}, {at})", lambda t: t.select(dim, at)
    if kind == "transpose":
        other = rng.randrange(x.dim())
        return f"transpose({dim}, {other})", lambda t: t.transpose(dim, other)
    if kind == "narrow":
        return f"chunk(2, {dim})[-1]", lambda t: t.chunk(2, dim)[-1]
    if kind == "diagonal" and x.dim() >= 2:
        return "diagonal()", lambda t: t.diagonal()
    if kind == "unfold" and size >= 2:
        return f"unfold({dim}, 2, 1)", lambda t: t.unfold(dim, 2, 1)
    if kind == "permute":
        order = rng.sample(range(x.dim()), x.dim())
        return f"permute({order})", lambda t: t.permute(order)
    if kind == "expand" and x.dim() < 5:
        shape = (2, *x.shape)
        return f"expand{shape}", lambda t: t.expand(shape)
    if kind == "view" and x.is_contiguous():
        return "view(-1)", lambda t: t.view(-1)
    at = rng.randrange(x.dim() + 1)
    return f"unsqueeze({at})", lambda t: t.unsqueeze(at)


def _result(rng: random.Random, x: torch.Tensor) -> tuple[str, Step]:
    """A new tensor computed from x, perhaps of another dtype."""
    kind = rng.choice(["add", "cast", "mul", "clone", "reshape"])
    if kind == "cast":
        dtype = rng.choice(DTYPES)
        return f"to({dtype})", lambda t: t.to(dtype)
    if kind == "mul":
        return "* 2", lambda t: t * 2
    if kind == "clone":
        return "clone()", lambda t: t.clone()
    if kind == "reshape":
        return "reshape(-1)", lambda t: t.reshape(-1)
    return "+ 1", lambda t: t + 1


def _overlaps(x: torch.Tensor) -> bool:
    """Whether two elements share memory, so that a write is undefined."""
    if any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)):
        return True
    offsets = torch.zeros(x.shape, dtype=torch.int64)
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        shape = [1] * x.dim()
        shape[dim] = size
        offsets = offsets + (torch.arange(size) * stride).reshape(shape)
    return offsets.unique().numel() != offsets.numel()


def _write(rng: random.Random, x: torch.Tensor) -> tuple[str, Step]:
    """A write into x, which reaches the tensors it is a view of."""
    kind = rng.choice(["add_", "mul_", "fill_", "zero_", "copy_", "index", "self", "rows"])

    def write(action: Callable[[torch.Tensor], object]) -> Step:
        def step(t: torch.Tensor) -> torch.Tensor:
            action(t)
            return t

        return step

    if kind == "add_":
        by = rng.choice([1, 2, 3])
        return f"add_({by})", write(lambda t: t.add_(by))
    if kind == "mul_":
        return "mul_(3)", write(lambda t: t.mul_(3))
    if kind == "fill_":
        value = rng.randrange(50)
        return f"fill_({value})", write(lambda t: t.fill_(value))
    if kind == "copy_":
        return "copy_(t * 2)", write(lambda t: t.copy_(t * 2))
    if kind == "self":
        return "add_(t)", write(lambda t: t.add_(t))
    if kind == "index" and x.dim() and x.shape[0] > 1:
        at = rng.randrange(x.shape[0])
        return f"[{at}] += 5", write(lambda t: t.__setitem__(at, t[at] + 5))
    if kind == "rows" and x.dim() and x.shape[0] > 1:
        return "[::2] = 7", write(lambda t: t.__setitem__(slice(None, None, 2), 7))
    return "zero_()", write(lambda t: t.zero_())


def make(rng: random.Random) -> Chain:
    """A chain of 3 to 8 steps; in at least half of all chains something is written after a view."""
    chain = Chain(rng.choice(SHAPES), rng.choice(DTYPES))
    now = chain.base()
    wants_write = rng.random() < 0.7
    for index in range(rng.randrange(3, 9)):
        writable = index > 0 and not _overlaps(now)
        roll = rng.random()
        if writable and wants_write and (roll < 0.4 or (chain.writes == 0 and index >= 2)):
            text, step = _write(rng, now)
            chain.writes += 1
        elif roll < 0.85:
            text, step = _view(rng, now)
        else:
            text, step = _result(rng, now)
        chain.text.append(text)
        chain.steps.append(step)
        now = step(now)
    return chain
