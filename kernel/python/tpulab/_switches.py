"""Switches that are set by calling them, and set back when used in a `with` statement."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from . import _control
from ._settings import check


class _Switch:
    """Sets on construction; `__exit__` sets back what was there before."""

    _label: ClassVar[str]

    def __init__(self, value: Any) -> None:
        self._value = value
        self._before = self._get()
        self._set(value)

    def _get(self) -> Any:
        raise NotImplementedError

    def _set(self, value: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._before)

    def __repr__(self) -> str:
        return f"{self._label}: {self._value} (was {self._before})"


class eager_mode(_Switch):
    """Says how ops run outside of compiled programs.

    ``tpulab.eager_mode("blocking")`` sets it; ``with tpulab.eager_mode("blocking"):`` sets it for a block. Holds for
    all threads and devices, and may be changed at any time.

    Args:
        mode: "strict" runs each op as one program and returns before it has finished, so an error may show later;
            "blocking" waits for each op, so that the failing line is the one that raises.

    Raises:
        ValueError: another mode.
        NotImplementedError: "fused".
        BridgeError: device "tpu" is not registered, and why.
    """

    _label = "eager mode"

    def __init__(self, mode: str) -> None:
        super().__init__(check("mode", mode))

    def _get(self) -> str:
        return _control.call("settings").get("mode", "strict")

    def _set(self, value: str) -> None:
        _control.call("set_mode", mode=value)


class _OnOff(_Switch):
    def __init__(self, on: bool = True) -> None:
        if not isinstance(on, bool):
            raise TypeError(f"{type(self).__name__} takes True or False, not {on!r}")
        super().__init__(on)

    def __repr__(self) -> str:
        def word(on: bool) -> str:
            return "on" if on else "off"

        return f"{self._label}: {word(self._value)} (was {word(self._before)})"


class cpu_fallback(_OnOff):
    """Lets ops that tpulab does not have run on the CPU, copying there and back; off at first.

    Each is counted and shown by `%tpu`. A switch and a context manager, as `eager_mode` is; `TPULAB_CPU_FALLBACK=1`
    has it on from the start.

    Args:
        on: True or False.

    Raises:
        TypeError: neither True nor False.
        BridgeError: device "tpu" is not registered, and why.
    """

    _label = "CPU fallback"

    def _get(self) -> bool:
        return bool(_control.call("cpu_fallback"))

    def _set(self, value: bool) -> None:
        _control.call("cpu_fallback", on=value)


class deterministic(_OnOff):
    """Makes ops give the same bits on every run, at the price of speed; off at first.

    A switch and a context manager, as `eager_mode` is. It is torch's own switch, `torch.use_deterministic_algorithms`,
    which ops on "tpu" obey, so it holds for other devices too.

    Args:
        on: True or False.

    Raises:
        TypeError: neither True nor False.
    """

    _label = "deterministic"

    def _get(self) -> bool:
        import torch

        return torch.are_deterministic_algorithms_enabled()

    def _set(self, value: bool) -> None:
        import torch

        torch.use_deterministic_algorithms(value)
