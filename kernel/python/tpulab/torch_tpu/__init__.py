"""`torch.tpu`: CUDA's names, where they mean something here.

Functions that take a device take None (the current one), an index, "tpu:1" or a torch.device. Sizes are in bytes.
Asking how many devices there are starts nothing; the first tensor does.
"""

from __future__ import annotations

import os
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from .. import _control
from . import _utils as _utils
from . import amp, memory, random, streams
from ._utils import _get_device_index
from .memory import (
    OutOfMemoryError,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream

if TYPE_CHECKING:
    from .properties import DeviceProperties, get_device_capability, get_device_name, get_device_properties

__all__ = [
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]

#: True once the device has been used; torch.utils.checkpoint asks for this name.
_initialized = False
_initializing = threading.RLock()
_inside = False


def register(torch_module: ModuleType) -> None:
    """Makes this module `torch.tpu`, and gives tensors and modules `.tpu()` and `.is_tpu`. Starts nothing."""
    torch_module.utils.rename_privateuse1_backend("tpu")
    torch_module._register_device_module("tpu", sys.modules[__name__])
    for name in ("_utils", "amp", "memory", "random", "streams"):
        # `import torch.tpu.memory` would otherwise make a second module of the same file.
        sys.modules[f"torch.tpu.{name}"] = sys.modules[f"{__name__}.{name}"]
    # Storages are left out: torch would make a method for every dtype, and `.to("tpu")` does the same.
    torch_module.utils.generate_methods_for_privateuse1_backend(for_storage=False)


def init() -> None:
    """Gets ready for the first tensor, as using "tpu" does by itself.

    Raises:
        RuntimeError: no plugin was found, or its file is not the tested one; or this is a forked child of a process
            that used the device.
        ValueError: one of the environment variables TPULAB_... makes no sense.
    """
    _lazy_init()


def is_initialized() -> bool:
    """Whether the device has been used in this process."""
    return _initialized and not _is_in_bad_fork()


def is_available() -> bool:
    """Whether tensors can be made on "tpu". Starts nothing and never raises."""
    from .. import _plugins

    return device_count() > 0 and (
        _initialized or _plugins.find() is not None or bool(_control.call("settings").get("plugin"))
    )


def device_count() -> int:
    """The number of devices. Starts nothing, so until the start it is the number that was configured."""
    return torch._C._accelerator_hooks_device_count()


def current_device() -> int:
    """The index of the current device of this thread."""
    _lazy_init()
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: Any) -> None:
    """Makes `device` the current one of this thread; `torch.device("tpu")` then means it.

    Raises:
        RuntimeError: there is no such device.
    """
    index = _get_device_index(device)
    if index >= 0:
        _lazy_init()
        torch._C._accelerator_setDeviceIndex(index)


def synchronize(device: Any = None) -> None:
    """Waits for everything that runs on `device`, and raises what went wrong there.

    Raises:
        IndexError: an index was out of range in an op that has run since the last look.
        RuntimeError: a program failed.
    """
    if _initialized:
        _control.call("synchronize", device=_get_device_index(device, optional=True))


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether data goes from one device to the other without the host: always, between two different devices."""
    return _get_device_index(device) != _get_device_index(peer_device)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is what a TPU's matrix units take."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("tpu")` takes."""
    return [torch.bfloat16, torch.float16]


class device:
    """Context manager: `device` is the current one inside the block.

    Args:
        device: an index, "tpu:1" or a torch.device; None, or a negative index, changes nothing.
    """

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            _lazy_init()
            self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *_: object) -> None:
        if self.idx >= 0:
            torch._C._accelerator_maybeExchangeDevice(self.prev_idx)


class device_of(device):
    """Context manager: the device of a tensor or storage is the current one inside the block.

    Args:
        obj: a tensor or storage; one on another device type changes nothing.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == "tpu" else None)


def _is_in_bad_fork() -> bool:
    """Whether this is a forked child of a process that had started the devices."""
    try:
        return bool(_control.call("forked"))
    except Exception:
        return False


def _lazy_init() -> None:
    """Called by torch before the first use of the device in this process. Checks, but starts nothing."""
    global _initialized, _inside
    if _initialized:
        return
    with _initializing:
        # torch calls again from inside, since it notes only afterwards that this has been done.
        if _initialized or _inside:
            return
        _inside = True
        try:
            from .. import _plugins, _settings

            if _is_in_bad_fork():
                raise RuntimeError(
                    'device "tpu" cannot be used in a forked child of a process that used it: start the child with '
                    'multiprocessing\'s "spawn" method, or use the device only in the child'
                )
            if _settings.environment_error is not None:
                raise _settings.environment_error.with_traceback(None)
            _plugins.prepare(_control.call("settings").get("plugin"))
            # XLA logs each start to stderr, which a notebook shows in red; its warnings stay.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
            random.seed_pending()
            _initialized = True
        finally:
            _inside = False


def __getattr__(name: str) -> Any:
    if name in ("DeviceProperties", "get_device_capability", "get_device_name", "get_device_properties"):
        # Imported late: `import torch` would pay for the dataclass.
        from . import properties

        return getattr(properties, name)
    if name == "default_generators":
        return tuple(map(random.generator, range(device_count())))
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")
