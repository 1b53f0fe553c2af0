"""`%tpu doctor` and `python -m tpulab doctor`: what was found on this machine, what is wrong, and what to do.

Looks at files and at what is loaded already. Starts no device, loads no plugin, touches neither a TPU nor its lock.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal

from . import _control, _load, _plugins, _sizes

State = Literal["ok", "info", "warn", "bad"]

#: Exit statuses of `python -m tpulab doctor`.
FINE, WRONG, OTHER_TORCH = 0, 1, 3
#: Other packages that bring a device for TPUs.
OTHERS = ("torch_tpu", "torch_xla", "torch_npu", "intel_extension_for_pytorch", "torch_openreg")
TESTED_MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: what was looked at.
        state: "ok", "info" (neither good nor bad), "warn" or "bad" (device "tpu" does not work because of it).
        found: what was found.
        remedy: what to do, empty when there is nothing to do.
    """

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """All checks, in the order in which they are shown."""

    checks: list[Check]

    @property
    def status(self) -> int:
        """The exit status: 0 when nothing is wrong, 3 when tpulab is built for another torch, 1 for anything else."""
        if _load.error is not None and _load.error.kind == "torch-version":
            return OTHER_TORCH
        return WRONG if any(check.state == "bad" for check in self.checks) else FINE

    @property
    def verdict(self) -> str:
        """One line."""
        bad = [check for check in self.checks if check.state == "bad"]
        warned = sum(check.state == "warn" for check in self.checks)
        if bad:
            return f'device "tpu" does not work: {bad[0].found}'
        if warned:
            return f'device "tpu" works; {warned} thing{"s" if warned > 1 else ""} to look at'
        return 'device "tpu" works'

    def text(self) -> str:
        """For a terminal."""
        width = max(len(check.name) for check in self.checks)
        lines = [self.verdict, ""]
        for check in self.checks:
            lines.append(f"{check.state:<5} {check.name:<{width}}  {check.found}")
            if check.remedy:
                lines.append(f"{'':<5} {'':<{width}}  → {check.remedy}")
        return "\n".join(lines)

    def html(self) -> str:
        """For a notebook."""
        from . import _html

        return _html.report([(c.name, c.state, c.found, c.remedy) for c in self.checks], self.verdict)


def examine(environ: Mapping[str, str] | None = None, root: str = "/") -> Report:
    """Looks at everything.

    Args:
        environ: the environment; None is this process's.
        root: the folder that holds dev, proc, sys and tmp.
    """
    environ = dict(os.environ) if environ is None else environ
    looks: list[Callable[[], Iterator[Check]]] = [
        _python,
        _torch,
        _bridge,
        lambda: _rivals(environ),
        lambda: _settings(environ),
        lambda: _plugin(environ, root),
        lambda: _tpu(environ, root),
        lambda: _lock(environ, root),
        lambda: _memory(root),
        _running,
        _notebook,
    ]
    checks: list[Check] = []
    for look in looks:
        try:
            checks += look()
        except Exception as error:
            # A report with a hole is worth more than none.
            name = getattr(look, "__name__", "check").strip("_").replace("<lambda>", "check")
            checks.append(Check(name, "warn", f"could not be looked at: {type(error).__name__}: {error}"))
    return Report(checks)


def _python() -> Iterator[Check]:
    from . import __version__

    yield Check("tpulab", "info", f"{__version__} in {Path(__file__).parent}")
    yield Check("python", "ok", f"{platform.python_version()} at {sys.executable}")
    machine, libc = platform.machine(), " ".join(platform.libc_ver())
    state: State = "ok" if sys.platform == "linux" and machine in TESTED_MACHINES else "warn"
    remedy = "" if state == "ok" else "tpulab runs on Linux, x86_64 and aarch64; on Windows, in WSL2"
    yield Check("system", state, f"{platform.system()} {platform.release()}, {machine}, {libc}".rstrip(", "), remedy)


def _torch() -> Iterator[Check]:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "__version__"):
        found = str(_load.error) if _load.error else "torch is not imported"
        yield Check("torch", "bad", found, "install a torch for which tpulab is built: " + (_built() or "none yet"))
        return
    yield Check("torch", "ok", f"{torch.__version__} in {Path(torch.__file__).parent}")


def _built() -> str:
    return ", ".join(f"torch {version}" for version in _load.bridges())


def _bridge() -> Iterator[Check]:
    error = _load.error
    if _load.loaded:
        yield Check("bridge library", "ok", f'{_built()}; device "tpu" is registered')
    elif error is None:
        remedy = "import torch" if "torch" in sys.modules else ""
        yield Check("bridge library", "warn", 'device "tpu" is not registered yet', remedy)
    elif error.kind != "torch-missing":
        remedy = {
            "torch-version": f"there is a bridge library for {_built()}",
            "not-built": "in a clone of tpulab: `make wheel`, or `make lab`, which builds it too",
            "load": "the library was built for another torch or another system: build it here with `make wheel`",
        }
        yield Check("bridge library", "bad", str(error), remedy.get(error.kind, ""))


def _rivals(environ: Mapping[str, str]) -> Iterator[Check]:
    """Other packages that want the device's name, or torch's slot for it."""
    points = [point for point in metadata.entry_points(group="torch.backends") if point.name != "tpulab"]
    names = {point.value.split(":")[0].split(".")[0] for point in points}
    names |= {name for name in OTHERS if util.find_spec(name) is not None}
    if names:
        yield Check(
            "other backends",
            "warn",
            f"{', '.join(sorted(names))} installed too; torch has one slot for such devices: the first takes it",
            "keep one of them, or start Python with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want",
        )
    else:
        yield Check("other backends", "ok", "none installed")
    ours = [point for point in metadata.entry_points(group="torch.backends") if point.name == "tpulab"]
    if environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        yield Check(
            "autoload",
            "warn",
            "TORCH_DEVICE_BACKEND_AUTOLOAD switches it off, so `import torch` alone gives no device",
            "unset it, or `import tpulab` as well",
        )
    elif not ours:
        yield Check(
            "autoload",
            "warn",
            "tpulab's entry point is not installed, so `import torch` alone gives no device",
            "install tpulab, do not only put it on PYTHONPATH; or `import tpulab` as well",
        )


def _settings(environ: Mapping[str, str]) -> Iterator[Check]:
    from . import _settings

    given = [f"{variable}={environ[variable]}" for variable in _settings.VARIABLES.values() if environ.get(variable)]
    for name, variable in _settings.VARIABLES.items():
        value = environ.get(variable)
        if value:
            try:
                _settings.check(name, value)
            except (ValueError, TypeError, NotImplementedError) as error:
                yield Check(
                    "settings", "bad", f"environment variable {variable}={value}: {error}", f"unset or mend {variable}"
                )
    if _load.loaded:
        now = _settings.settings()
        hbm = _sizes.text(int(now.get("hbm", 0)))
        words = f"{now.get('devices')} devices of {now.get('chip')}, {hbm} each, mode {now.get('mode')}"
        yield Check("settings", "ok", words + (f" ({', '.join(given)})" if given else ""))


def _plugin(environ: Mapping[str, str], root: str) -> Iterator[Check]:
    plugin = _plugins.find(environ, root)
    if plugin is None:
        yield Check("plugin", "bad", "no PJRT plugin is installed", _plugins.missing_text().partition(": ")[2])
        return
    if not Path(plugin.path).is_file():
        yield Check("plugin", "bad", f"{plugin.path} does not exist ({plugin.package})", "mend or unset TPULAB_PLUGIN")
        return
    from . import _hashes

    digest = _hashes.sha256(plugin.path)
    size = _sizes.text(Path(plugin.path).stat().st_size)
    if digest in _plugins.KNOWN:
        package, version, _ = _plugins.KNOWN[digest]
        yield Check(
            "plugin", "ok", f"{package} {version}, the tested file ({size}, SHA-256 {digest[:12]}…): {plugin.path}"
        )
    elif plugin.chosen:
        found = f"{plugin.path} ({plugin.package}, {size}, SHA-256 {digest[:12]}…)"
        yield Check("plugin", "info", f"{found}; not one of those that tpulab is tested with")
    else:
        yield Check(
            "plugin",
            "bad",
            f"{plugin.path} is not the file that tpulab was tested with (SHA-256 {digest})",
            f"reinstall {plugin.package}, or set TPULAB_PLUGIN to its path to use it all the same",
        )


def _tpu(environ: Mapping[str, str], root: str) -> Iterator[Check]:
    nodes, listed = _plugins.tpu_nodes(root), _plugins.pci_devices(root)
    library = _plugins.libtpu(environ)
    possible = _plugins.tpu_possible(environ, root)
    hidden = [f"{name}=" for name in _plugins.VISIBLE if environ.get(name) == ""]
    chips = f"{len(listed)} on the PCI bus ({', '.join(sorted(set(listed)))})" if listed else "none on the PCI bus"
    places = f"device nodes {', '.join(nodes)}" if nodes else "no device nodes"
    if listed is None:
        chips = "the PCI bus cannot be read"
    found = f"{chips}, {places}"
    if hidden:
        yield Check("TPU", "warn", f"{found}; hidden by {', '.join(hidden)}", "unset it to use the TPU")
    elif possible and library is None:
        yield Check("TPU", "warn", f"{found}, but libtpu is not installed", "`pip install 'tpulab[tpu]'`")
    elif possible:
        yield Check("TPU", "ok", found)
    elif listed:
        yield Check("TPU", "warn", found, "the driver has made no device nodes here; in a container, pass them in")
    else:
        yield Check("TPU", "info", f"{found}; devices are virtual, on CPU")
    if library is None:
        yield Check("libtpu", "info", "not installed; only a TPU needs it")
    else:
        try:
            version = metadata.version("libtpu")
        except metadata.PackageNotFoundError:
            version = "of unknown version"
        use = "will be loaded" if possible else "not loaded, since there is no TPU"
        exists = "" if Path(library).is_file() else ", which does not exist"
        yield Check("libtpu", "bad" if exists and possible else "info", f"{version}, {library}{exists}; {use}")


def _lock(environ: Mapping[str, str], root: str) -> Iterator[Check]:
    path = Path(root) / "tmp" / "libtpu_lockfile"
    try:
        facts = path.stat()
    except OSError:
        yield Check("libtpu's lock", "ok", "free: no process on this machine uses libtpu")
        return
    holders = _holders(Path(root), facts.st_dev, facts.st_ino)
    if not holders:
        yield Check("libtpu's lock", "ok", f"{path} exists, and no process holds it")
        return
    who = ", ".join(f"{pid} ({_command(Path(root), pid)})" for pid in holders)
    if holders == [os.getpid()]:
        yield Check("libtpu's lock", "ok", "held by this process")
    else:
        remedy = "end that process to use the TPU here; ALLOW_MULTIPLE_LIBTPU_LOAD=1 is for compiling only"
        state: State = "warn" if _plugins.tpu_possible(environ, root) else "info"
        yield Check("libtpu's lock", state, f"{path} is held by process {who}", remedy)


def _holders(root: Path, device: int, inode: int) -> list[int]:
    """The processes that have locked a file, as the kernel lists them; asking for the lock would be taking it."""
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    try:
        lines = (root / "proc/locks").read_text().splitlines()
    except OSError:
        return []
    pids = {
        int(words[-4]) for words in map(str.split, lines) if len(words) >= 8 and wanted in words and "->" not in words
    }
    return sorted(pids)


def _command(root: Path, pid: int) -> str:
    try:
        return (root / f"proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of another user or container"


def _memory(root: str) -> Iterator[Check]:
    facts = {}
    for line in (Path(root) / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        facts[name] = int(rest.split()[0]) * 1024
    total, free = facts["MemTotal"], facts.get("MemAvailable", facts["MemTotal"])
    found = f"{_sizes.text(free)} of {_sizes.text(total)} free, {len(os.sched_getaffinity(0))} CPUs"
    limit = _group_limit(Path(root))
    if limit is not None and limit < total:
        found += f"; this process may use {_sizes.text(limit)}"
    short = min(free, limit or free) < 1 << 30
    yield Check(
        "memory",
        "warn" if short else "ok",
        found,
        "virtual devices live in this memory: close other programs" if short else "",
    )


def _group_limit(root: Path) -> int | None:
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int((root / name).read_text())
        except (OSError, ValueError):
            continue
    return None


def _running() -> Iterator[Check]:
    if not _load.loaded:
        return
    status: dict[str, Any] = _control.call("status")
    if not status.get("started"):
        yield Check("devices", "ok", "not started; the first tensor starts them")
        return
    found = _control.call("devices")
    kinds = sorted({f"{device.get('chip')}{', virtual, on CPU' if device.get('virtual') else ''}" for device in found})
    version = status.get("api_version")
    api = ".".join(map(str, version)) if isinstance(version, list | tuple) else version
    yield Check(
        "devices", "ok", f"{len(found)} started ({'; '.join(kinds)}); platform {status.get('platform')}, PJRT API {api}"
    )
    fallbacks = _control.call("counters").get("fallbacks") or {}
    if fallbacks:
        named = ", ".join(f"{op} ({count})" for op, count in sorted(fallbacks.items()))
        yield Check(
            "CPU fallback",
            "warn",
            f"ops that ran on the CPU instead: {named}",
            "tpulab.cpu_fallback(False) shows where",
        )


def _notebook() -> Iterator[Check]:
    found = []
    for name in ("ipython", "ipykernel", "jupyterlab", "anywidget", "numpy"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    yield Check("notebook", "info", ", ".join(found))
