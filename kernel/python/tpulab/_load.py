"""Chooses the bridge library for the torch in this process and registers device "tpu"."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._errors import BridgeError

BRIDGE_FOLDER = Path(__file__).parent / "_bridge"
#: torch's name for its one slot for devices from outside, as long as nobody has taken it.
FREE_SLOT = "privateuseone"

#: What keeps "tpu" from being registered, once that has been tried and failed.
error: BridgeError | None = None
#: True once "tpu" is registered.
loaded = False
#: True once registering has been tried, with whatever result.
_tried = False


def autoload() -> None:
    """Registers the device once; keeps and warns about what prevents it."""
    global error, loaded, _tried
    if _tried:
        return
    _tried = True
    try:
        _load(sys.modules["torch"])
        loaded = True
    except Exception as found:
        error = _as_bridge_error(found)
        _put_stand_in(error, sys.modules["torch"])
        _warn(error)


def torch_missing(reason: Exception) -> None:
    """Keeps the reason why torch itself could not be imported."""
    global error, _tried
    from ._errors import BridgeError

    _tried = True
    if isinstance(reason, ModuleNotFoundError) and reason.name == "torch":
        wanted = next(reversed(bridges()), None)
        text = "tpulab needs torch, which is not installed: `pip install " + (
            f"'torch=={wanted}.*'`" if wanted else "torch`"
        )
    else:
        text = f"torch cannot be imported ({type(reason).__name__}: {_one_line(str(reason))}): repair torch first"
    error = BridgeError("torch-missing", text)
    _warn(error)


def require() -> None:
    """Does nothing when the device is registered.

    Raises:
        BridgeError: it is not, and why.
    """
    if loaded:
        return
    if error is not None:
        raise error.with_traceback(None)
    autoload()
    if error is not None:
        raise error.with_traceback(None)


def bridges() -> dict[str, Path]:
    """The bridge libraries of this installation by torch version, as in {"2.15": path}, oldest first."""
    found = {}
    if BRIDGE_FOLDER.is_dir():
        for path in BRIDGE_FOLDER.iterdir():
            match = re.fullmatch(r"libtpulab_torch_(\d+)_(\d+)\.so", path.name)
            if match:
                found[(int(match[1]), int(match[2]))] = path
    return {f"{major}.{minor}": found[major, minor] for major, minor in sorted(found)}


def choose(version: str) -> Path:
    """The bridge library for torch `version`, as in "2.15.0+cu132".

    Raises:
        BridgeError: there is none; the message names both versions and the remedy.
    """
    from ._errors import BridgeError

    minor = ".".join(version.split(".")[:2])
    path = BRIDGE_FOLDER / f"libtpulab_torch_{minor.replace('.', '_')}.so"
    if path.is_file():
        return path
    built = bridges()
    if built:
        message = (
            f"tpulab is built for torch {_or(built)}, but torch {version} is installed: "
            f"install torch {next(reversed(built))}.*, or build tpulab for torch {minor} with `make wheel`"
        )
        raise BridgeError("torch-version", message)
    message = f"tpulab has no bridge library yet (torch {version} is installed): build it with `make wheel`"
    raise BridgeError("not-built", message)


def holder(torch: ModuleType) -> tuple[str, str] | None:
    """Who has taken torch's slot for devices from outside: (device name, package), none while it is free."""
    name = torch._C._get_privateuse1_backend_name()
    if name == FREE_SLOT:
        return None
    module = getattr(torch, name, None)
    package = getattr(module, "__name__", "") or ""
    if package.startswith("torch."):
        # A module made at run time: its functions know better where they come from.
        init = getattr(module, "_lazy_init", None) or getattr(module, "device_count", None)
        package = getattr(init, "__module__", None) or package
    return name, package.split(".")[0] or "an unknown package"


def _load(torch: ModuleType) -> None:
    from ._errors import BridgeError

    path = choose(torch.__version__)
    taken = holder(torch)
    if taken is not None:
        name, package = taken
        message = (
            f'{package} has already taken torch\'s one slot for such devices, as device "{name}": to use tpulab, '
            f"uninstall {package}, or start Python with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and `import tpulab` first"
        )
        raise BridgeError("name-taken", message)
    try:
        from . import _native
    except ImportError as reason:
        message = f"tpulab's compiled module does not load ({_one_line(str(reason))}): build it with `make wheel`"
        raise BridgeError("not-built", message) from reason
    _native.load_bridge(path)
    from . import _settings, torch_tpu

    torch_tpu.register(torch)
    _pass_files_through_the_host(torch)
    _settings.apply_environment()


def _pass_files_through_the_host(torch: ModuleType) -> None:
    """Lets pickle and torch's old file format write and read a storage of the device.

    torch moves such a storage's bytes through a tensor around its bare address, which belongs to no storage any more.
    """
    kind = torch.UntypedStorage
    write, read = kind._write_file, kind._set_from_file

    def write_file(self: Any, *arguments: Any) -> Any:
        return write(self.cpu() if self.device.type == "tpu" else self, *arguments)

    def set_from_file(self: Any, *arguments: Any) -> Any:
        if self.device.type != "tpu":
            return read(self, *arguments)
        host = kind(self.nbytes())
        read(host, *arguments)
        return self.copy_(host)

    kind._write_file, kind._set_from_file = write_file, set_from_file


def _as_bridge_error(reason: Exception) -> BridgeError:
    from ._errors import BridgeError

    if isinstance(reason, BridgeError):
        return reason
    found = BridgeError(
        "load", f'tpulab could not register device "tpu": {_one_line(str(reason))}; `python -m tpulab doctor` says more'
    )
    found.__cause__ = reason
    return found


def _put_stand_in(reason: BridgeError, torch: ModuleType) -> None:
    """Gives torch a `torch.tpu` that raises `reason` when used.

    The device's name is registered too, so that `torch.ones(2, device="tpu")` raises the reason. Not where another
    accelerator may be: torch lets a device from outside come first, and `torch.accelerator` would not find that one.
    """
    if reason.kind == "name-taken" or hasattr(torch, "tpu") or not hasattr(torch, "_register_device_module"):
        return
    from . import _stand_in

    module = _stand_in.module(reason)
    if holder(torch) is None and not _other_accelerator(torch):
        torch.utils.rename_privateuse1_backend("tpu")
        torch._register_device_module("tpu", module)
    else:
        torch.tpu = module
        sys.modules["torch.tpu"] = module


def _other_accelerator(torch: ModuleType) -> bool:
    nodes = {"cuda": ("/dev/nvidiactl", "/dev/dxg"), "hip": ("/dev/kfd",), "xpu": ("/dev/dri",)}
    return any(getattr(torch.version, kind, None) and any(map(os.path.exists, nodes[kind])) for kind in nodes)


def _warn(reason: BridgeError) -> None:
    # `python -m tpulab doctor` is about to say the same, with its remedy.
    if sys.orig_argv[1:3] == ["-m", "tpulab"]:
        return
    import warnings

    warnings.warn(f'device "tpu" is not available: {reason}', RuntimeWarning, stacklevel=2)


def _or(versions: dict[str, Path]) -> str:
    return " or ".join(versions)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:400]
