"""`torch.tpu.memory`: what is in HBM. Sizes are in bytes.

The pool keeps nothing back when a tensor dies, so reserved memory is allocated memory, and `empty_cache` has nothing
to do.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from .. import _control, _sizes
from ._utils import _get_device_index

__all__ = [
    "OutOfMemoryError",
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
]

OutOfMemoryError = torch.OutOfMemoryError


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors on `device` take now."""
    return int(_figures(device).get("allocated", 0))


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors on `device` took at once, since the start or `reset_peak_memory_stats`."""
    return int(_figures(device).get("peak", 0))


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool holds on `device`: those of its tensors."""
    figures = _figures(device)
    return int(figures.get("reserved", figures.get("allocated", 0)))


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the pool held on `device` at once."""
    figures = _figures(device)
    return int(figures.get("reserved_peak", figures.get("peak", 0)))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of HBM on `device`."""
    index = _get_device_index(device, optional=True)
    total = int(_control.call("devices")[index].get("hbm_bytes", 0))
    return max(total - memory_reserved(index), 0), total


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """The figures of `device` under the names that CUDA's allocator gives them; only those that mean something here."""
    figures = _figures(device)
    allocated, peak = int(figures.get("allocated", 0)), int(figures.get("peak", 0))
    stats = {
        "allocated_bytes.all.current": allocated,
        "allocated_bytes.all.peak": peak,
        "reserved_bytes.all.current": int(figures.get("reserved", allocated)),
        "reserved_bytes.all.peak": int(figures.get("reserved_peak", peak)),
    }
    counts = {"num_device_alloc": "allocations", "num_device_free": "frees", "num_ooms": "ooms"}
    for ours, theirs in counts.items():
        if theirs in figures:
            stats[ours] = int(figures[theirs])
    if "num_device_alloc" in stats and "num_device_free" in stats:
        stats["allocation.all.current"] = stats["num_device_alloc"] - stats["num_device_free"]
        stats["allocation.all.allocated"] = stats["num_device_alloc"]
        stats["allocation.all.freed"] = stats["num_device_free"]
    return OrderedDict(sorted(stats.items()))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of the figures of `device` for people.

    Args:
        device: which one; None is the current one.
        abbreviated: leaves out the counts.
    """
    index = _get_device_index(device, optional=True)
    stats = memory_stats(index)
    free, total = mem_get_info(index)
    rows = [
        ("HBM", total, None),
        ("allocated", stats["allocated_bytes.all.current"], stats["allocated_bytes.all.peak"]),
        ("reserved", stats["reserved_bytes.all.current"], stats["reserved_bytes.all.peak"]),
        ("free", free, None),
    ]
    lines = [f"{f'tpu:{index}':<14}{'now':>14}{'peak':>14}", "-" * 42]
    lines += [
        f"{name:<14}{_sizes.text(now):>14}{'' if peak is None else _sizes.text(peak):>14}".rstrip()
        for name, now, peak in rows
    ]
    if not abbreviated:
        counts = [("allocations", "num_device_alloc"), ("frees", "num_device_free")]
        lines += [f"{name:<14}{stats[key]:>14}" for name, key in counts if key in stats]
    return "\n".join(lines)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Makes what is allocated on `device` now the peak."""
    _control.call("reset_peak", device=_get_device_index(device, optional=True))


def reset_max_memory_allocated(device: Any = None) -> None:
    """CUDA's older name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """CUDA's older name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Does nothing: the counts run from the start of the process. Here because torch.accelerator has it."""


def empty_cache() -> None:
    """Does nothing: memory of tensors that died is free at once."""


def _figures(device: Any) -> dict[str, Any]:
    return _control.call("memory", device=_get_device_index(device, optional=True))
