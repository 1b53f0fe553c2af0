"""tpulab: device "tpu" for PyTorch, with a TPU or without one.

`import torch` is enough: torch finds this package by its `torch.backends` entry point and calls `_autoload`, which
registers the device and starts nothing. The first tensor on "tpu" starts the devices. `import tpulab` gives the
settings (`configure`, `eager_mode`, ...) and, in a notebook, `%load_ext tpulab` the magics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "configure",
    "cpu_fallback",
    "deterministic",
    "eager_mode",
    "reset",
    "settings",
]

# Names that are looked up on first use, so that `import torch` does not pay for them.
_LAZY = {
    "configure": "._settings",
    "cpu_fallback": "._switches",
    "deterministic": "._switches",
    "eager_mode": "._switches",
    "reset": "._settings",
    "settings": "._settings",
}

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ._settings import configure, reset, settings
    from ._switches import cpu_fallback, deterministic, eager_mode


def _autoload() -> None:
    """Registers device "tpu" in torch. Called by torch at the end of its own import; calling it again does nothing.

    Never raises, because torch would turn that into a failed `import torch`: what prevents the device is kept, warned
    about once, and raised when "tpu" is used.
    """
    from . import _load

    _load.autoload()


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magic `%tpu`: what `%load_ext tpulab` calls."""
    from . import _magics

    _magics.register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Takes the magic `%tpu` away: what `%unload_ext tpulab` calls."""
    from . import _magics

    _magics.unregister(shell)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(_LAZY[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tpulab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


def _import_torch() -> None:
    """Imports torch, which calls `_autoload`, unless this import came from there or autoloading is switched off."""
    import sys

    from . import _load

    if "torch" not in sys.modules:
        try:
            import torch  # noqa: F401
        except Exception as error:
            _load.torch_missing(error)
            return
    if getattr(sys.modules["torch"], "_register_device_module", None) is not None:
        _load.autoload()
    # Else torch is being imported right now, and will call `_autoload` when it is ready.


_import_torch()
