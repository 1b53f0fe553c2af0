"""`tpulab.configure` and the environment variables that say the same."""

from __future__ import annotations

import os
from typing import Any

from . import _control

#: Settings and the variables that give their first values.
VARIABLES = {
    "devices": "TPULAB_DEVICES",
    "chip": "TPULAB_CHIP",
    "hbm": "TPULAB_HBM",
    "mode": "TPULAB_MODE",
    "plugin": "TPULAB_PLUGIN",
}
#: The variable that switches `tpulab.cpu_fallback` on from the start.
FALLBACK = "TPULAB_CPU_FALLBACK"
MODES = ("strict", "blocking")
MIN_HBM = 1 << 20

#: A wrong value in the environment; raised by the first use of the device.
environment_error: ValueError | TypeError | NotImplementedError | None = None


def configure(
    *,
    devices: int | None = None,
    chip: str | None = None,
    hbm: str | int | None = None,
    mode: str | None = None,
    plugin: str | os.PathLike[str] | None = None,
) -> None:
    """Sets what the devices are. What is left out stays as it is.

    Works until the first tensor. On a TPU, `devices`, `chip` and `hbm` are the hardware's and may not be set.

    Args:
        devices: number of virtual devices, at most 64. `TPULAB_DEVICES`.
        chip: generation that the virtual devices imitate: v2, v3, v4, v5e, v5p, v6e or v7x; other names of these are
            taken too, such as "TPU v6 lite" or "ironwood". `TPULAB_CHIP`.
        hbm: memory of each virtual device, in bytes or as in "2GiB"; at least 1 MiB. `TPULAB_HBM`.
        mode: "strict" (each op runs as one program, asynchronously) or "blocking" (and is waited for). `TPULAB_MODE`.
        plugin: path of the PJRT plugin to run on. `TPULAB_PLUGIN`.

    Raises:
        ValueError: a value that makes no sense; the message names it and what to write.
        TypeError: a value of the wrong type.
        NotImplementedError: mode="fused".
        RuntimeError: a tensor exists already; `tpulab.reset()` starts afresh.
        BridgeError: device "tpu" is not registered, and why.
    """
    given = {"devices": devices, "chip": chip, "hbm": hbm, "mode": mode, "plugin": plugin}
    wanted = {name: check(name, value) for name, value in given.items() if value is not None}
    if not wanted:
        return
    if _started():
        now = settings()
        # A notebook's first cell is run twice, too.
        if all(now.get(name) == value for name, value in wanted.items()):
            return
        names = ", ".join(f"{name}={wanted[name]!r}" for name in wanted if now.get(name) != wanted[name])
        raise RuntimeError(
            f"tpulab.configure({names}) comes after the first tensor, when the devices have started: call it before, "
            'or call tpulab.reset() first, which discards all tensors on device "tpu"'
        )
    _apply(wanted)


def settings() -> dict[str, Any]:
    """The settings in force: devices, chip, hbm (bytes), mode, plugin (path) and whatever else the engine reports.

    Raises:
        BridgeError: device "tpu" is not registered, and why.
    """
    return _control.call("settings")


def reset() -> None:
    """Discards every tensor on device "tpu" and stops the devices; `configure` works again afterwards.

    Reading such a tensor later raises RuntimeError.

    Raises:
        BridgeError: device "tpu" is not registered, and why.
    """
    _control.call("reset")


def check(name: str, value: Any) -> Any:
    """The value of a setting in the form that the engine takes; `configure` documents what is raised."""
    return _CHECKS[name](value)


def apply_environment(environ: dict[str, str] | None = None) -> None:
    """Hands the environment's settings, and the plugin that is found without them, to the engine.

    A wrong value is kept in `environment_error`, since this runs inside `import torch`.
    """
    global environment_error
    from . import _plugins

    environ = dict(os.environ) if environ is None else environ
    wanted, environment_error = {}, None
    for name, variable in VARIABLES.items():
        value = environ.get(variable)
        if not value:
            continue
        try:
            wanted[name] = check(name, value)
        except (ValueError, TypeError, NotImplementedError) as error:
            environment_error = type(error)(f"environment variable {variable}={value}: {error}")
    if "plugin" not in wanted:
        plugin = _plugins.find(environ)
        if plugin is not None:
            wanted["plugin"] = plugin.path
    if wanted:
        try:
            _control.call("configure", **wanted)
        except ValueError as error:
            environment_error = ValueError(f"environment variables TPULAB_...: {error}")
    fallback = environ.get(FALLBACK)
    if fallback in ("0", "1"):
        _control.call("cpu_fallback", on=fallback == "1")
    elif fallback:
        environment_error = ValueError(f"environment variable {FALLBACK}={fallback}: write 1 or 0")


def _apply(wanted: dict[str, Any]) -> None:
    if "plugin" in wanted:
        from . import _plugins

        _plugins.verify(wanted["plugin"], chosen=True)
    _control.call("configure", **wanted)
    if "devices" in wanted:
        from .torch_tpu import random

        random.reseed()


def _started() -> bool:
    return bool(_control.call("status").get("started"))


def _check_devices(value: Any) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"devices={value!r} is not a number of devices; give a whole number from 1 to 64")
    return number


def _check_chip(value: Any) -> str:
    from ._generations import GENERATIONS, canonical

    if not isinstance(value, str):
        raise TypeError(f"chip={value!r} is not text; give the name of a generation: {', '.join(GENERATIONS)}")
    return canonical(value)


def _check_hbm(value: Any) -> int:
    from . import _sizes

    try:
        size = _sizes.parse(value)
    except (ValueError, TypeError) as error:
        raise type(error)(f"hbm={value!r}: {error}") from None
    if size < MIN_HBM:
        raise ValueError(f'hbm={value!r} is {size} bytes for a whole device; give at least 1 MiB, such as "2GiB"')
    return size


def _check_mode(value: Any) -> str:
    choices = " or ".join(f'"{mode}"' for mode in MODES)
    if value == "fused":
        raise NotImplementedError(f'mode="fused" is not there: tpulab runs ops one by one; take {choices}')
    if value not in MODES:
        raise ValueError(f"mode={value!r} is no eager mode; take {choices}")
    return value


def _check_plugin(value: Any) -> str:
    path = os.path.abspath(os.path.expanduser(os.fspath(value)))
    if not os.path.isfile(path):
        raise ValueError(f"plugin={os.fspath(value)!r} is no file; give the path of a PJRT plugin, such as libtpu.so")
    return path


_CHECKS = {
    "devices": _check_devices,
    "chip": _check_chip,
    "hbm": _check_hbm,
    "mode": _check_mode,
    "plugin": _check_plugin,
}
