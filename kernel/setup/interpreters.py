"""Which Python to build on, and whether it brings a torch that fits."""

import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

# The bridge library is built against one minor version of torch.
TORCH = "2.15"
VERSIONS = ((3, 11), (3, 14))
# Written into every environment that the set-up makes.
MARKER = "tpulab-env.json"

_PROBE = """
import importlib.metadata, importlib.util, json, os, sys
try:
    torch = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    torch = None
print(json.dumps({
    "executable": sys.executable,
    "base": sys._base_executable,
    "version": list(sys.version_info[:3]),
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
    "torch": torch,
    "sites": [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)],
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What a Python says of itself."""

    executable: str
    base: str
    version: tuple[int, int, int]
    prefix: str
    base_prefix: str
    venv: bool
    torch: str | None
    sites: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"Python {'.'.join(map(str, self.version))} ({self.executable})"

    @property
    def usable(self) -> bool:
        return VERSIONS[0] <= self.version[:2] <= VERSIONS[1]

    @property
    def fitting_torch(self) -> bool:
        return self.torch is not None and self.torch.split("+")[0].split(".")[:2] == TORCH.split(".")


@dataclass(frozen=True)
class Choice:
    """The Python that an environment is made from; `torch_from` is set when its torch is used as it is."""

    python: Interpreter
    torch_from: Interpreter | None
    # Why an active Python's torch is not used; empty when there is nothing to tell.
    remark: str = ""


def probe(executable: str) -> Interpreter | None:
    """Asks a Python about itself; None when it does not start (a shim without its version, say)."""
    try:
        # From the root folder, so that nothing in the current one is imported.
        done = subprocess.run([executable, "-c", _PROBE], capture_output=True, text=True, cwd="/", timeout=60)
        facts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    facts["version"] = tuple(facts["version"])
    facts["sites"] = tuple(facts["sites"])
    return Interpreter(**facts)


def active() -> list[Interpreter]:
    """The Pythons that a user means by "the active one", best first."""
    names = [
        str(Path(os.environ[name]) / "bin" / "python")
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX")
        if os.environ.get(name)
    ]
    found = [probe(name) for name in [*names, "python3"]]
    return [behind(python) for python in found if python is not None]


def behind(python: Interpreter) -> Interpreter:
    """The Python that one of our own environments was made from, so that activating one does not make another."""
    try:
        made_from = json.loads((Path(python.prefix) / MARKER).read_text())["python"]
    except (OSError, ValueError, KeyError):
        return python
    return probe(made_from) or replace(python, torch=None)


def choose() -> Choice | None:
    """An active Python with a fitting torch, else the first Python that can make an environment, else None."""
    remarks = []
    candidates = active()
    for python in candidates:
        if python.usable and python.fitting_torch:
            if python.venv:
                return Choice(python, torch_from=python)
            remarks.append(f"{python.name} has torch {python.torch}, but cannot make environments (no ensurepip)")
        elif python.torch is not None:
            remarks.append(f"{python.name} has torch {python.torch}; {TORCH} is needed, so it is not used")
    for python in candidates:
        if python.usable and python.venv:
            return Choice(python, None, "; ".join(dict.fromkeys(remarks)))
    for minor in range(VERSIONS[0][1], VERSIONS[1][1] + 1):
        python = probe(f"python3.{minor}")
        if python is not None and python.usable and python.venv:
            return Choice(python, None, "; ".join(dict.fromkeys(remarks)))
    return None
