"""Random number generators: one a device, seeded by `torch.manual_seed` too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ._utils import _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

#: Seeds given before the device was first used: (index, seed), None for all devices, -1 for the current one.
_pending: list[tuple[int | None, int]] = []
#: The last seed that was given to all devices; devices that `configure` adds get it as well.
_last: int | None = None


def generator(device: Any = None) -> torch.Generator:
    """The default generator of `device`."""
    _lazy_init()
    return torch._C._accelerator_getDefaultGenerator(_get_device_index(device, optional=True))


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator. Before the device's first use the seed is kept until then."""
    _seed(-1, int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator. Before the device's first use the seed is kept until then."""
    _seed(None, int(seed))


def seed() -> None:
    """Seeds the current device's generator with a number that nobody can foresee."""
    generator().seed()


def seed_all() -> None:
    """Seeds every device's generator with one number that nobody can foresee."""
    chosen = generator(0).seed()
    manual_seed_all(chosen)


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return generator().initial_seed()


def get_rng_state(device: Any = "tpu") -> torch.Tensor:
    """The state of `device`'s generator, a CPU tensor of bytes."""
    return generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The state of every device's generator."""
    return [get_rng_state(index) for index in range(_device_count())]


def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
    """Sets the state of `device`'s generator to what `get_rng_state` gave."""
    generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the state of every device's generator to what `get_rng_state_all` gave."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def seed_pending() -> None:
    """Gives the generators the seeds that came before the first use of the device."""
    waiting, _pending[:] = list(_pending), []
    for index, value in waiting:
        _seed_now(index, value)


def reseed() -> None:
    """Gives all generators, of which there may be more now, the last seed that was meant for all."""
    if _last is not None:
        manual_seed_all(_last)


def _seed(index: int | None, value: int) -> None:
    global _last
    from . import is_initialized

    if index is None:
        _last = value
        _pending.clear()
    if is_initialized():
        _seed_now(index, value)
    else:
        _pending.append((index, value))


def _seed_now(index: int | None, value: int) -> None:
    if index == -1:
        index = torch._C._accelerator_getDeviceIndex()
    for one in range(_device_count()) if index is None else (index,):
        torch._C._accelerator_getDefaultGenerator(one).manual_seed(value)


def _device_count() -> int:
    from . import device_count

    return device_count()


def _lazy_init() -> None:
    from . import _lazy_init

    _lazy_init()
