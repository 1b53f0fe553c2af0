"""`import torch` in processes of their own: with the device, and with everything that can keep it away.

Each process imports torch, which takes seconds; so a test looks at all that one process can show.
"""

from pathlib import Path

import pytest
import torch
from conftest import PACKAGE, Run
from tpulab import _load
from tpulab._errors import BridgeError

OTHER = "libtpulab_torch_1_13.so"
OURS = f"libtpulab_torch_{'_'.join(torch.__version__.split('.')[:2])}.so"
TRY = """
def attempt(use):
    try:
        use()
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])

attempt(lambda: torch.ones(2, device="tpu"))
"""


@pytest.fixture
def other_torch(copy_of_package: Path) -> Path:
    """A package that is built for another torch."""
    folder = copy_of_package / "tpulab/_bridge"
    folder.mkdir()
    (folder / OTHER).write_bytes(b"")
    return copy_of_package


def test_a_wrong_torch(python: Run, other_torch: Path) -> None:
    code = f"""
import torch, tpulab
{TRY}
attempt(lambda: tpulab.configure(devices=2))
attempt(tpulab.settings)
attempt(lambda: tpulab.eager_mode("strict"))
attempt(tpulab.reset)
attempt(lambda: torch.tpu.memory_allocated())

# People who do not use the device notice nothing.
from torch.utils.data import DataLoader
torch.manual_seed(0)
with torch.random.fork_rng():
    pass
x = torch.ones(2, requires_grad=True)
torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
print(len(list(DataLoader(range(4), num_workers=1))))
print(torch.accelerator.is_available(), torch.accelerator.device_count(), hasattr(torch.tpu, "anything"))
"""
    done = python(code, package=other_torch)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning") == 1
    both = f"tpulab is built for torch 1.13, but torch {torch.__version__} is installed: install torch 1.13.*, or build"
    assert both in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f'RuntimeError: device "tpu" is not available: {both}')
    assert [line.startswith(f"BridgeError: {both}") for line in lines[1:5]] == [True] * 4, lines
    assert lines[5].startswith("AttributeError: torch.tpu has no 'memory_allocated', because")
    assert lines[6:] == ["4", "False 0 False"]


def test_the_doctor_says_wrong_torch_in_one_line_and_exits_with_3(python: Run, other_torch: Path) -> None:
    done = python("-m", "tpulab", "doctor", package=other_torch)
    assert (done.returncode, done.stderr) == (3, "")
    first = done.stdout.splitlines()[0]
    assert first.startswith('device "tpu" does not work: tpulab is built for torch 1.13, but torch 2.')
    assert "install torch 1.13" in first


def test_without_a_bridge_library_the_remedy_is_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_load, "BRIDGE_FOLDER", tmp_path)
    with pytest.raises(BridgeError, match=r"no bridge library yet \(torch 9.9.1 is installed\).*make wheel") as caught:
        _load.choose("9.9.1")
    assert caught.value.kind == "not-built"


def test_the_newest_version_is_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_load, "BRIDGE_FOLDER", tmp_path)
    for minor in (9, 10):
        (tmp_path / f"libtpulab_torch_2_{minor}.so").touch()
    assert _load.choose("2.10.0+cpu").name == "libtpulab_torch_2_10.so"
    with pytest.raises(BridgeError, match=r"torch 2\.9 or 2\.10, but torch 2\.11.0a0.* install torch 2\.10\.\*"):
        _load.choose("2.11.0a0+git1")


def test_another_backend_came_first(python: Run, other_torch: Path) -> None:
    (other_torch / "torch_rival.py").write_text("def device_count():\n    return 1\n")
    (other_torch / "tpulab/_bridge" / OURS).write_bytes(b"")
    code = """
import torch, torch_rival
torch.utils.rename_privateuse1_backend("tpu")
torch._register_device_module("tpu", torch_rival)
import tpulab
try:
    tpulab.settings()
except ImportError as error:
    print(error.kind, error)
print(torch.tpu.device_count())
"""
    done = python("-Wignore", "-c", code, package=other_torch, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout.startswith("name-taken torch_rival has already taken"), done.stderr
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stdout
    assert done.stdout.splitlines()[-1] == "1", "the other backend must go on working"


def test_a_file_that_is_no_library(python: Run, other_torch: Path) -> None:
    native = PACKAGE / "_native.abi3.so"
    if not native.exists():
        pytest.skip("no compiled module: `make build`")
    (other_torch / "tpulab" / native.name).symlink_to(native)
    (other_torch / "tpulab/_bridge" / OURS).write_bytes(b"no library")
    done = python("-Wignore", "-c", f"import torch{TRY}", package=other_torch)
    assert "tpulab could not register device" in done.stdout
    assert "cannot load" in done.stdout


def test_without_torch_the_package_still_imports(python: Run, copy_of_package: Path) -> None:
    (copy_of_package / "torch").mkdir()
    (copy_of_package / "torch/__init__.py").write_text("raise ModuleNotFoundError('no', name='torch')\n")
    done = python("-m", "tpulab", "doctor", package=copy_of_package)
    assert done.returncode == 1
    assert "tpulab needs torch, which is not installed" in done.stdout


STARTS_NOTHING = """
import os, time
import torch

def state():
    nodes = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    sockets = [node for node in nodes if os.path.lexists(node) and os.readlink(node).startswith("socket:")]
    with open("/proc/self/maps") as file:
        maps = file.read()
    return len(os.listdir("/proc/self/task")), len(sockets), "pjrt" in maps, "libtpu.so" in maps

assert not hasattr(torch, "tpu")
before, start = state(), time.thread_time()
import tpulab
spent = time.thread_time() - start
assert state() == before, (before, state())
assert torch.tpu.is_available() and torch.tpu.device_count() == 8 and torch.accelerator.device_count() == 8
torch.manual_seed(0)
import torch.tpu.memory, torch.tpu.amp
from torch.tpu.random import manual_seed_all
assert torch.tpu.memory.memory_allocated is torch.tpu.memory_allocated
assert torch.tpu.OutOfMemoryError is torch.OutOfMemoryError
assert not torch.tpu.is_initialized()
assert state() == before, (before, state())
print((torch.ones(2, device="tpu:1") + 1).tolist())
print(1000 * spent)
"""


@pytest.mark.usefixtures("bridge")
class TestWithTheBridge:
    def test_it_starts_nothing_and_costs_little(self, python: Run) -> None:
        done = python("-Werror", "-c", STARTS_NOTHING, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        assert done.returncode == 0, done.stderr
        result, spent = done.stdout.splitlines()
        assert result == "[2.0, 2.0]"
        assert float(spent) < 100, f"{spent} ms of CPU time"

    @pytest.mark.parametrize("first", ["import tpulab, torch", "import torch"])
    def test_in_any_order(self, python: Run, first: str) -> None:
        done = python("-Werror", "-c", f'{first}\nprint((torch.ones(2, device="tpu") + 1).tolist())')
        assert (done.stdout, done.stderr) == ("[2.0, 2.0]\n", "")

    def test_a_wrong_variable_is_raised_by_the_first_use_only(self, python: Run) -> None:
        done = python(f"import torch; torch.manual_seed(0); torch.ones(2){TRY}", TPULAB_DEVICES="many")
        assert done.stdout.startswith("ValueError: environment variable TPULAB_DEVICES=many"), done.stderr
