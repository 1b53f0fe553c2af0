"""Sizes in bytes, read and written."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    # As in PyTorch and CUDA, a bare letter counts in 1024; only "GB" and its like count in 1000.
    _UNITS.update({_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power})


def parse(size: str | int) -> int:
    """The number of bytes in `size`: an int, or text as in "2GiB", "1.5 GiB", "512MB", "64M".

    Raises:
        TypeError: neither an int nor text.
        ValueError: no size, or not a positive one.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(f'{size!r} is no size; give bytes as an int, or text such as "2GiB"')
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", size)
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError(f'{size!r} is no size; write a number and a unit, such as "2GiB", "512MiB" or "16GB"')
        number, unit = match[1], _UNITS[match[2].lower()]
        size = int(number) * unit if number.isdigit() else int(float(number) * unit)
    if size <= 0:
        raise ValueError(f"a size of {size} bytes is not positive")
    return size


def text(size: int) -> str:
    """`size` bytes for people, in powers of 1024 and three digits or more: "0 B", "1.50 GiB"."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    if unit == "B":
        return f"{size} B"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f} {unit}"
