"""Finds the PJRT plugin to run on, and checks that it is the one that was tested."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

#: Libraries that tpulab's tests run on, by the SHA-256 of their bytes: (package, version, machine).
KNOWN = {
    "0a0fe56ca17be9efc7b942e89e534e5e0ad4a0f1e369b66d27b62184509015b9": (
        "fastatomstruct-xla-cpu",
        "2026.6.23",
        "x86_64",
    ),
    "ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2": ("lammps-jax-pjrt-cpu", "0.11.2", "x86_64"),
    "88c3f28c5900f48ad4a82cab9e79bba9537809743395e341485f8794268820dc": ("xla-cpu-pjrt", "0.0.1", "x86_64"),
    "fcf411f3e8ff635c2b2cf87215aa7016f460e66d236c3db08309e7486583532d": ("xla-cpu-pjrt", "0.0.1", "aarch64"),
}
#: Where packages keep XLA's CPU plugin, best first: (package, folders below site-packages, file).
CPU_PACKAGES = (
    ("fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu", "libpjrt_cpu.so"),
    ("xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt", "xla_cpu_pjrt.so"),
)
#: PCI vendor and device numbers of TPUs; the vendor's network and disk devices do not count.
GOOGLE = "0x1ae0"
TPU_PCI = {
    "0x0027": "v2 or v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "v7x",
}
#: Set to nothing, these hide every TPU.
VISIBLE = ("TPU_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS")


class Plugin(NamedTuple):
    """A plugin's file, and why it was chosen."""

    path: str
    package: str
    #: True when the user named the file; such a file is not held against the list of tested ones.
    chosen: bool


def find(environ: Mapping[str, str] | None = None, root: str = "/") -> Plugin | None:
    """The plugin to run on: TPULAB_PLUGIN, else libtpu where a TPU is, else XLA's CPU plugin. None when there is none.

    Loads and imports nothing; well under a millisecond.
    """
    environ = os.environ if environ is None else environ
    named = environ.get("TPULAB_PLUGIN")
    if named:
        return Plugin(os.path.abspath(os.path.expanduser(named)), "TPULAB_PLUGIN", chosen=True)
    if tpu_possible(environ, root):
        library = libtpu(environ)
        if library is not None:
            return Plugin(library, "libtpu", chosen=True)
    for package, folder, file in CPU_PACKAGES:
        path = _in_package(folder, file)
        if path is not None:
            return Plugin(path, package, chosen=False)
    return None


def missing_text() -> str:
    """One line for when `find` finds nothing."""
    package = "xla-cpu-pjrt" if os.uname().machine == "aarch64" else "fastatomstruct-xla-cpu"
    return f"no PJRT plugin is installed: `pip install {package}`, or set TPULAB_PLUGIN to the path of one"


def libtpu(environ: Mapping[str, str] | None = None) -> str | None:
    """The path of libtpu.so: TPU_LIBRARY_PATH, else the package `libtpu`. Loads nothing."""
    environ = os.environ if environ is None else environ
    return environ.get("TPU_LIBRARY_PATH") or _in_package("libtpu", "libtpu.so")


def tpu_possible(environ: Mapping[str, str] | None = None, root: str = "/") -> bool:
    """Whether a TPU can be in this machine and visible to this process.

    libtpu must not be loaded elsewhere: it asks a metadata server that does not answer, and takes a lock.
    """
    environ = os.environ if environ is None else environ
    if any(environ.get(name) == "" for name in VISIBLE):
        return False
    if not tpu_nodes(root):
        return False
    listed = pci_devices(root)
    # A container may hide the PCI bus; then the nodes must do.
    return listed is None or bool(listed)


def tpu_nodes(root: str = "/") -> list[str]:
    """Device nodes that a TPU's driver makes: /dev/accel0, ... and numbered /dev/vfio groups."""
    dev = os.path.join(root, "dev")
    found = [f"/dev/{name}" for name in _names(dev) if name[:5] == "accel" and name[5:].isdigit()]
    found += [f"/dev/vfio/{name}" for name in _names(os.path.join(dev, "vfio")) if name.isdigit()]
    return sorted(found)


def pci_devices(root: str = "/") -> list[str] | None:
    """The TPUs on the PCI bus, by generation; None when the bus cannot be read."""
    bus = os.path.join(root, "sys/bus/pci/devices")
    if not os.path.isdir(bus):
        return None
    found = []
    for name in _names(bus):
        if _word(f"{bus}/{name}/vendor") == GOOGLE:
            generation = TPU_PCI.get(_word(f"{bus}/{name}/device"))
            if generation is not None:
                found.append(generation)
    return sorted(found)


def describe(path: str) -> str:
    """A plugin's package and version, as in "fastatomstruct-xla-cpu 2026.6.23"; its path when it is unknown."""
    from . import _hashes

    digest = _hashes.remembered(path)
    if digest in KNOWN:
        return " ".join(KNOWN[digest][:2])
    for package, folder, file in (*CPU_PACKAGES, ("libtpu", "libtpu", "libtpu.so")):
        if path.endswith(f"/{folder}/{file}"):
            from importlib import metadata

            try:
                return f"{package} {metadata.version(package)}"
            except metadata.PackageNotFoundError:
                return package
    return path or "none"


def prepare(told: str | None) -> None:
    """Checks the plugin that the engine is about to load; `told` is the path that it has, if any.

    Raises:
        RuntimeError: there is none, or the installed package's file is not the tested one.
    """
    found = find()
    if told and (found is None or found.path != told):
        # Named by `configure(plugin=...)`.
        verify(told, chosen=True)
    elif found is None:
        raise RuntimeError(missing_text())
    else:
        verify(found.path, chosen=found.chosen)


def verify(path: str, *, chosen: bool) -> str:
    """The SHA-256 of the plugin at `path`, computed once for each version of the file.

    Raises:
        RuntimeError: the file is missing, or nobody chose it by name and it is not one of the tested ones.
    """
    from . import _hashes

    if not os.path.isfile(path):
        raise RuntimeError(f"the PJRT plugin {path} does not exist: {missing_text()}")
    if chosen:
        return ""
    digest = _hashes.sha256(path)
    if digest not in KNOWN:
        raise RuntimeError(
            f"{path} is not the plugin that tpulab was tested with (its SHA-256 is {digest}): reinstall its package, "
            "or set TPULAB_PLUGIN to its path to use it all the same"
        )
    return digest


def _in_package(folder: str, file: str) -> str | None:
    # importlib's find_spec would import a package's parents; a look at the folders on sys.path does not.
    for place in sys.path:
        path = f"{place or '.'}/{folder}/{file}"
        if os.path.isfile(path):
            return os.path.abspath(path)
    return None


def _names(folder: str) -> Iterator[str]:
    try:
        yield from os.listdir(folder)
    except OSError:
        return


def _word(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
