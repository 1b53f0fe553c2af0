"""The set-up's commands, as the Makefile starts them."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parents[2]
SETUP = CLONE / "kernel" / "setup"


def setup(*command: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a command with some variables set, or with None unset."""
    environ = dict(os.environ, PYTHONPATH=str(SETUP))
    for name, value in variables.items():
        environ.pop(name, None)
        if value is not None:
            environ[name] = value
    return subprocess.run(command, cwd=CLONE, env=environ, capture_output=True, text=True)


def command(name: str, *arguments: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
    return setup("sh", str(SETUP / "python.sh"), str(SETUP), name, *arguments, **variables)


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_home_that_is_no_folder_is_named(home):
    done = command("print-env", HOME=home, TPULAB_ENV=None)
    assert done.returncode == 1
    assert "HOME is" in done.stderr
    assert "set HOME to a folder" in done.stderr


def test_environment_is_found_by_an_empty_home(tmp_path):
    done = command("print-env", HOME=str(tmp_path), TPULAB_ENV=None)
    assert done.returncode == 0
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path / ".cache" / "tpulab"
    assert not folder.exists()


def test_chosen_environment_wins(tmp_path):
    assert command("print-env", TPULAB_ENV=str(tmp_path / "mine")).stdout.strip() == str(tmp_path / "mine")


def test_own_environment_leads_back_to_itself_when_active():
    if not (Path(sys.prefix) / "tpulab-env.json").exists() or os.environ.get("TPULAB_ENV"):
        pytest.skip("needs to run in the environment that `make test` made")
    assert command("print-env", VIRTUAL_ENV=sys.prefix, CONDA_PREFIX=None).stdout.strip() == sys.prefix


def test_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "precious").touch()
    done = command("env", TPULAB_ENV=str(tmp_path))
    assert done.returncode == 1
    assert "was not made by tpulab" in done.stderr
    assert (tmp_path / "precious").exists()


def test_missing_python_is_named_with_its_command(tmp_path):
    for tool in ("sh", "id"):
        (tmp_path / tool).symlink_to(Path("/usr/bin") / tool)
    (tmp_path / "apt-get").touch(mode=0o755)
    done = command("print-env", PATH=str(tmp_path), VIRTUAL_ENV=None, CONDA_PREFIX=None)
    assert done.returncode == 1
    assert "apt-get install python3 python3-venv" in done.stderr


def test_missing_compilers_are_all_named(tmp_path):
    program = "import system; system.check_compilers({'PATH': '/nowhere'})"
    (tmp_path / "apt-get").touch(mode=0o755)
    done = setup(sys.executable, "-c", program, PATH=str(tmp_path))
    assert done.returncode == 1
    assert "no C++ compiler (c++)" in done.stderr
    assert "apt-get install g++" in done.stderr
    assert "no Rust" in done.stderr


def test_artifacts_of_another_clone_are_forgotten(tmp_path):
    own = tmp_path / "release" / ".fingerprint" / "tpulab-engine-0123"
    other = tmp_path / "release" / ".fingerprint" / "serde-0123"
    program = "import build\nwith build.claim(): pass"
    for owner, survives in (("/another/clone", False), (str(CLONE), True)):
        own.mkdir(parents=True, exist_ok=True)
        other.mkdir(exist_ok=True)
        (tmp_path / "tpulab-clone").write_text(owner)
        done = setup(sys.executable, "-B", "-c", program, CARGO_TARGET_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert own.exists() == survives
        assert other.exists()


def test_lock_files_name_no_host_and_hash_everything():
    for lock in SETUP.glob("*.lock"):
        text = lock.read_text()
        assert "://" not in text
        for entry in text.replace("\\\n", "").splitlines():
            assert "--hash=sha256:" in entry, f"{lock.name}: {entry[:60]}"


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_wheel_runs_in_an_existing_environment_without_tools(tmp_path):
    """With the torch that is there: the new environment sees this one's packages, but not its tpulab."""
    assert command("wheel").returncode == 0
    (wheel,) = (CLONE / "dist").glob("tpulab-*.whl")
    assert any(name.endswith("entry_points.txt") for name in zipfile.ZipFile(wheel).namelist())
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    bare = {"PATH": str(python.parent), "HOME": str(tmp_path)}
    subprocess.run([python, "-m", "pip", "install", "--no-deps", "--no-index", wheel], env=bare, check=True)
    (site,) = (tmp_path / "env" / "lib").glob("python3.*/site-packages")
    (site / "torch.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    program = "import torch, tpulab; print(tpulab.__file__); print((torch.ones(2, device='tpu') + 1).cpu().tolist())"
    done = subprocess.run([python, "-c", program], env=bare, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(site / "tpulab" / "__init__.py"), "[2.0, 2.0]"]
