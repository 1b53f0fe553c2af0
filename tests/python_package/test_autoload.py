"""`import torch` in processes of their own: with the device, and with everything that can keep it away."""

from pathlib import Path

import pytest
from conftest import Run

OTHER = "libtpulab_torch_1_13.so"
TRY = """
try:
    torch.ones(2, device="tpu")
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.fixture
def other_torch(copy_of_package: Path) -> Path:
    """A package that is built for another torch."""
    folder = copy_of_package / "tpulab/_bridge"
    folder.mkdir()
    (folder / OTHER).write_bytes(b"")
    return copy_of_package


def test_a_wrong_torch_is_one_warning_and_no_broken_import(python: Run, other_torch: Path) -> None:
    done = python("import torch; import tpulab; print(torch.ones(2).sum().item())", package=other_torch)
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert done.stderr.count("RuntimeWarning") == 1
    assert "built for torch 1.13, but torch 2." in done.stderr


def test_a_wrong_torch_names_both_versions_when_the_device_is_used(python: Run, other_torch: Path) -> None:
    done = python("-Wignore", "-c", f"import torch{TRY}", package=other_torch)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        'RuntimeError device "tpu" is not available: tpulab is built for torch 1.13, but torch 2.'
    )
    assert "install torch 1.13.*, or build tpulab for torch 2." in done.stdout


def test_a_wrong_torch_raises_in_every_setting(python: Run, other_torch: Path) -> None:
    code = """
import tpulab
for use in (lambda: tpulab.configure(devices=2), tpulab.settings, lambda: tpulab.eager_mode("strict"), tpulab.reset):
    try:
        use()
    except ImportError as error:
        print(type(error).__name__, error.kind)
"""
    done = python("-Wignore", "-c", code, package=other_torch)
    assert done.stdout.splitlines() == ["BridgeError torch-version"] * 4, done.stderr


def test_the_doctor_says_wrong_torch_in_one_line_and_exits_with_3(python: Run, other_torch: Path) -> None:
    done = python("-m", "tpulab", "doctor", package=other_torch)
    assert done.returncode == 3
    assert done.stderr == ""
    first = done.stdout.splitlines()[0]
    assert first.startswith('device "tpu" does not work: tpulab is built for torch 1.13, but torch 2.')
    assert "install torch 1.13" in first


def test_people_who_do_not_use_tpu_notice_nothing_else(python: Run, other_torch: Path) -> None:
    code = """
import torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
with torch.random.fork_rng():
    pass
x = torch.ones(2, requires_grad=True)
torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
print(len(list(DataLoader(range(4), num_workers=2, pin_memory=True))))
print(torch.accelerator.is_available(), torch.accelerator.device_count(), hasattr(torch.tpu, "anything"))
"""
    done = python("-Wignore", "-c", code, package=other_torch)
    assert (done.returncode, done.stdout) == (0, "4\nFalse 0 False\n"), done.stderr


def test_without_a_bridge_library_the_remedy_is_to_build(python: Run, copy_of_package: Path) -> None:
    done = python("-Wignore", "-c", f"import torch{TRY}", package=copy_of_package)
    assert "has no bridge library yet" in done.stdout
    assert "make wheel" in done.stdout


def test_another_backend_came_first(python: Run, other_torch: Path) -> None:
    (other_torch / "torch_rival.py").write_text("def device_count():\n    return 1\n")
    (bridge_for_this_torch(python, other_torch)).write_bytes(b"")
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


def bridge_for_this_torch(python: Run, package: Path) -> Path:
    version = python("-Wignore", "-c", "import torch; print(torch.__version__)", package=package).stdout
    return package / "tpulab/_bridge" / f"libtpulab_torch_{'_'.join(version.split('.')[:2])}.so"


def test_a_file_that_is_no_library(python: Run, other_torch: Path) -> None:
    native = Path(__file__).parents[2] / "kernel/python/tpulab/_native.abi3.so"
    if not native.exists():
        pytest.skip("no compiled module: `make build`")
    (other_torch / "tpulab" / native.name).symlink_to(native)
    bridge_for_this_torch(python, other_torch).write_bytes(b"no library")
    done = python("-Wignore", "-c", f"import torch{TRY}", package=other_torch)
    assert "tpulab could not register device" in done.stdout
    assert "cannot load" in done.stdout


def test_without_torch_the_package_still_imports(python: Run, copy_of_package: Path) -> None:
    (copy_of_package / "torch").mkdir()
    (copy_of_package / "torch/__init__.py").write_text("raise ModuleNotFoundError('no', name='torch')\n")
    done = python("-m", "tpulab", "doctor", package=copy_of_package)
    assert done.returncode == 1
    assert "tpulab needs torch, which is not installed" in done.stdout


QUIET = """
import os, sys, threading
import torch
def sockets():
    nodes = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return [node for node in nodes if os.path.lexists(node) and os.readlink(node).startswith("socket:")]
maps = open("/proc/self/maps").read()
print(len(os.listdir("/proc/self/task")), len(sockets()), "pjrt" in maps, "libtpu.so" in maps)
print(torch.tpu.is_available(), torch.tpu.device_count(), torch.tpu.is_initialized(), torch.device("tpu:1"))
print(len(os.listdir("/proc/self/task")), "pjrt" in open("/proc/self/maps").read())
"""


@pytest.mark.usefixtures("bridge")
class TestWithTheBridge:
    def test_import_torch_gives_the_device_and_starts_nothing(self, python: Run) -> None:
        without = python(
            "import os, torch; print(len(os.listdir('/proc/self/task')))", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
        )
        done = python("-Werror", "-c", QUIET, OMP_NUM_THREADS="1")
        threads = int(without.stdout)
        assert done.stdout.splitlines() == [
            f"{threads} 0 False False",
            "True 8 False tpu:1",
            f"{threads} False",
        ], done.stderr

    def test_import_costs_little(self, python: Run) -> None:
        code = """
import time
import torch
start = time.thread_time()
import tpulab
assert tpulab._load.loaded
print(1000 * (time.thread_time() - start))
"""
        spent = [float(python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout) for _ in range(3)]
        assert min(spent) < 60, f"{spent} ms of CPU time"

    @pytest.mark.parametrize("first", ["import tpulab, torch", "import torch, tpulab", "import torch"])
    def test_in_any_order(self, python: Run, first: str) -> None:
        done = python("-Werror", "-c", f'{first}\nprint(torch.ones(2, device="tpu").sum().item())')
        assert done.stdout == "2.0\n", done.stderr

    def test_without_autoload(self, python: Run) -> None:
        code = (
            'import torch; print(hasattr(torch, "tpu")); import tpulab; print(torch.ones(2, device="tpu").sum().item())'
        )
        done = python("-Werror", "-c", code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        assert done.stdout == "False\n2.0\n", done.stderr

    def test_submodules_are_modules(self, python: Run) -> None:
        code = """
import torch
import torch.tpu.memory, torch.tpu.amp
from torch.tpu import streams
from torch.tpu.random import manual_seed_all
assert torch.tpu.memory.memory_allocated is torch.tpu.memory_allocated
assert torch.tpu.OutOfMemoryError is torch.OutOfMemoryError
"""
        done = python("-Werror", "-c", code)
        assert done.returncode == 0, done.stderr

    def test_a_wrong_variable_is_raised_by_the_first_use_only(self, python: Run) -> None:
        done = python(f"import torch; torch.manual_seed(0); torch.ones(2){TRY}", TPULAB_DEVICES="many")
        assert done.stdout.startswith("ValueError environment variable TPULAB_DEVICES=many"), done.stderr

    def test_no_plugin_is_raised_by_the_first_use_only(self, python: Run) -> None:
        done = python(f"import torch; torch.manual_seed(0); torch.ones(2){TRY}", TPULAB_PLUGIN="/no/such.so")
        assert done.stdout.startswith("ValueError environment variable TPULAB_PLUGIN=/no/such.so"), done.stderr

    def test_the_doctor_is_content(self, python: Run) -> None:
        done = python("-m", "tpulab", "doctor")
        assert done.returncode == 0, done.stdout
        assert done.stdout.startswith('device "tpu" works')
