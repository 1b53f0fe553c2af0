"""What a device is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .. import _control
from ._utils import _get_device_index


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is.

    Attributes:
        name: for people, as in "TPU v6e (virtual, on CPU)".
        index: what PyTorch calls it by.
        chip: its generation, as in "v6e".
        chip_index: the chip that it is on; on v2, v3, v4 and v7x a chip has two devices.
        virtual: whether it is imitated on the CPU.
        total_memory: its HBM in bytes.
        major: the generation's number, as in 6.
        minor: 0.
    """

    name: str
    index: int
    chip: str
    chip_index: int
    virtual: bool
    total_memory: int
    major: int
    minor: int = 0


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What `device` is.

    Raises:
        RuntimeError: there is no such device.
    """
    index = _get_device_index(device, optional=True)
    devices = _control.call("devices")
    if not 0 <= index < len(devices):
        raise RuntimeError(
            f"tpu:{index} does not exist: there are {len(devices)} devices, tpu:0 to tpu:{len(devices) - 1}"
        )
    found = devices[index]
    chip, virtual = str(found.get("chip", "")), bool(found.get("virtual", False))
    number = re.search(r"\d+", chip)
    return DeviceProperties(
        name=f"TPU {chip}" + (" (virtual, on CPU)" if virtual else ""),
        index=index,
        chip=chip,
        chip_index=int(found.get("chip_index", index)),
        virtual=virtual,
        total_memory=int(found.get("hbm_bytes", 0)),
        major=int(number[0]) if number else 0,
    )


def get_device_name(device: Any = None) -> str:
    """The device's name for people, as in "TPU v6e (virtual, on CPU)"."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The number of the TPU generation that the device is, and 0: (6, 0) for v6e."""
    properties = get_device_properties(device)
    return properties.major, properties.minor
