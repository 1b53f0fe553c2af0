"""Exceptions of the package."""

from __future__ import annotations


class BridgeError(ImportError):
    """Device "tpu" could not be registered in torch. The message is one line: what was found, what to do.

    Attributes:
        kind: what went wrong: "torch-missing", "torch-version", "not-built", "name-taken" or "load".
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
