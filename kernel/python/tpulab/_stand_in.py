"""What stands in `torch.tpu`'s place when the device could not be registered."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ._errors import BridgeError


def module(reason: BridgeError) -> ModuleType:
    """A module that answers "no device" where torch asks in passing, and raises `reason` everywhere else."""
    stand_in = ModuleType("torch.tpu", f"Not available: {reason}")

    def fail() -> NoReturn:
        raise RuntimeError(f'device "tpu" is not available: {reason}') from reason

    def missing(name: str) -> NoReturn:
        # An AttributeError, so that whoever walks over all modules and asks each for a name is not stopped here.
        raise AttributeError(f'torch.tpu has no {name!r}, because device "tpu" is not available: {reason}')

    stand_in._lazy_init = fail
    stand_in.init = fail
    stand_in.is_available = lambda: False
    stand_in.is_initialized = lambda: False
    stand_in._initialized = False
    stand_in.device_count = lambda: 0
    stand_in.manual_seed = lambda seed: None
    stand_in.manual_seed_all = lambda seed: None
    stand_in._is_in_bad_fork = lambda: False
    stand_in.__getattr__ = missing
    return stand_in
