"""Which device is meant. torch.load asks for this module by its name."""

from __future__ import annotations

from typing import Any

import torch


def _get_device_index(device: Any, optional: bool = False) -> int:
    """The index that `device` means; None means the current device if `optional`.

    Raises:
        ValueError: another device type, or None where a device is needed.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "tpu":
            raise ValueError(f"expected a tpu device, but got {device}")
        if device.index is not None:
            return device.index
    elif device is not None or not optional:
        raise ValueError(f'expected a tpu device, such as "tpu:0" or 0, but got {device!r}')
    from . import current_device

    return current_device()
