"""Calls into the bridge library."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def _send(request: str) -> str:
    from . import _load

    _load.require()
    from . import _native

    return _native.control(request)


#: What carries a request, JSON in and JSON out. Tests put a fake here.
send: Callable[[str], str] = _send


def call(name: str, **arguments: Any) -> Any:
    """Returns the value of the control call `name`; arguments that are None are left out.

    Raises:
        BridgeError: the bridge library is not loaded.
        Exception: whatever the bridge reports, under the Python exception that it names.
    """
    request: dict[str, Any] = {"call": name}
    request.update((key, value) for key, value in arguments.items() if value is not None)
    return json.loads(send(json.dumps(request)))
