"""Streams and events.

A device runs its programs in order, so it has one stream, and every stream of it is that one. The names are here so
that scripts written for CUDA run.
"""

from __future__ import annotations

from typing import Any

import torch

from ._utils import _get_device_index

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]

Stream = torch.Stream
Event = torch.Event


def current_stream(device: Any = None) -> torch.Stream:
    """The stream of `device`."""
    return torch._C._accelerator_getStream(_get_device_index(device, optional=True))


def default_stream(device: Any = None) -> torch.Stream:
    """The stream of `device`."""
    return current_stream(device)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes the stream's device the current one; None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Context manager: `stream` is the current one inside the block.

    Args:
        stream: a stream of a tpu device; None changes nothing.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = current_stream()
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        set_stream(self._before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """A context manager inside which `stream` is the current one."""
    return StreamContext(stream)
