"""A fake engine for what is Python alone; the folder of the bridge library for what is not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "kernel" / "python" / "tpulab"


class FakeEngine:
    """Answers control calls from a dictionary, and writes down what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.started = False
        self.settings: dict[str, Any] = {"devices": 2, "chip": "v6e", "hbm": 2**35, "mode": "strict", "plugin": None}
        self.fallback = False
        self.ops: list[dict[str, Any]] = []
        self.counters: dict[str, Any] = {"programs_compiled": 3, "program_executions": 1234, "fallbacks": {}}
        self.allocated = {0: 2**30, 1: 0}

    def send(self, request: str) -> str:
        asked = json.loads(request)
        name = asked.pop("call")
        self.asked.append(name)
        return json.dumps(getattr(self, f"on_{name}")(**asked))

    def on_settings(self) -> Any:
        return self.settings

    def on_status(self) -> Any:
        return {"started": self.started, "plugin": self.settings["plugin"], "platform": "cpu", "api_version": [0, 106]}

    def on_configure(self, **changes: Any) -> Any:
        self.settings.update(changes)
        return self.settings

    def on_devices(self) -> Any:
        return [
            {
                "index": index,
                "chip": self.settings["chip"],
                "chip_index": index,
                "virtual": True,
                "hbm_bytes": self.settings["hbm"],
                "allocated": self.allocated.get(index, 0),
                "peak": self.allocated.get(index, 0) * 2,
            }
            for index in range(self.settings["devices"])
        ]

    def on_memory(self, device: int) -> Any:
        used = self.allocated.get(device, 0)
        return {"allocated": used, "peak": 2 * used, "allocations": 9, "frees": 4}

    def on_counters(self) -> Any:
        return self.counters

    def on_last_ops(self, n: int) -> Any:
        return self.ops[-n:]

    def on_set_mode(self, mode: str) -> Any:
        self.settings["mode"] = mode

    def on_cpu_fallback(self, on: bool | None = None) -> Any:
        self.fallback = self.fallback if on is None else on
        return self.fallback

    def on_reset(self) -> Any:
        self.started = False

    def on_forked(self) -> Any:
        return False


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The package talks to a fake engine, as if the bridge library had been loaded."""
    from tpulab import _control, _load, _settings

    fake = FakeEngine()
    monkeypatch.setattr(_control, "send", fake.send)
    monkeypatch.setattr(_load, "loaded", True)
    monkeypatch.setattr(_load, "error", None)
    monkeypatch.setattr(_settings, "environment_error", None)
    for variable in (*_settings.VARIABLES.values(), _settings.FALLBACK, "TPU_LIBRARY_PATH"):
        monkeypatch.delenv(variable, raising=False)
    return fake


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def python(tmp_path: Path) -> Run:
    """Runs Python code, or `-m ...`, in a process of its own: `python(code, TPULAB_DEVICES="4")`."""

    def run(*arguments: str, package: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        command = list(arguments) if arguments[0].startswith("-") else ["-c", *arguments]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TPULAB_", "TPU_"))}
        path = os.pathsep.join(filter(None, [str(package) if package else "", clean.get("PYTHONPATH", "")]))
        clean |= {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")} | environ
        return subprocess.run([sys.executable, *command], env=clean, capture_output=True, text=True, timeout=100)

    return run


@pytest.fixture
def copy_of_package(tmp_path: Path) -> Path:
    """A folder with the package in it, and no bridge library. Installed under its name, so that torch loads it."""
    folder = tmp_path / "site"
    target = folder / "tpulab"
    for source in PACKAGE.rglob("*.py"):
        copied = target / source.relative_to(PACKAGE)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(source.read_bytes())
    info = folder / "tpulab-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tpulab\nVersion: 9\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntpulab = tpulab:_autoload\n")
    return folder


@pytest.fixture
def bridge() -> None:
    """Skips the test where no bridge library has been built; `make test` builds it before."""
    if not any((PACKAGE / "_bridge").glob("*.so")) or not (PACKAGE / "_native.abi3.so").exists():
        pytest.skip("no bridge library: `make build`")
