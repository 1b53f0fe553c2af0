import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import FakeEngine
from tpulab import __main__, _doctor, _load, _plugins
from tpulab._errors import BridgeError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a TPU, whose processes are this one's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    machine = tmp_path / "machine"
    for folder in ("dev", "tmp", "sys/bus/pci/devices"):
        (machine / folder).mkdir(parents=True)
    (machine / "proc").symlink_to("/proc")
    return machine


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "plugin.so"
    path.write_bytes(b"any")
    monkeypatch.setattr(_plugins, "CPU_PACKAGES", ())
    return path


def add_tpu(root: Path) -> None:
    (root / "dev/accel0").touch()
    card = root / "sys/bus/pci/devices/0000:00:05.0"
    card.mkdir()
    (card / "vendor").write_text("0x1ae0\n")
    (card / "device").write_text("0x006f\n")


def look(root: Path, **environ: str) -> dict[str, _doctor.Check]:
    return {check.name: check for check in _doctor.examine(environ, str(root)).checks}


def test_all_is_well(engine: FakeEngine, root: Path, plugin: Path) -> None:
    report = _doctor.examine({"TPULAB_PLUGIN": str(plugin)}, str(root))
    assert report.status == 0, report.text()
    assert report.verdict.startswith('device "tpu" works')
    for name in ("python", "torch", "bridge library", "settings", "plugin", "TPU", "libtpu's lock", "memory"):
        assert name in report.text()


def test_no_check_fails_to_look(engine: FakeEngine, root: Path) -> None:
    assert "could not be looked at" not in _doctor.examine({}, str(root)).text()


def test_a_hole_in_the_report_is_not_its_end(engine: FakeEngine, root: Path) -> None:
    (root / "proc").unlink()
    text = _doctor.examine({}, str(root)).text()
    assert "could not be looked at: FileNotFoundError" in text
    assert "notebook" in text


def test_it_starts_nothing_and_asks_only(engine: FakeEngine, root: Path) -> None:
    _doctor.examine({}, str(root))
    assert set(engine.asked) <= {"settings", "status", "devices", "counters"}


def test_no_plugin(engine: FakeEngine, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plugins, "CPU_PACKAGES", ())
    found = look(root)["plugin"]
    assert (found.state, found.found) == ("bad", "no PJRT plugin is installed")
    assert "pip install" in found.remedy


def test_a_plugin_that_is_not_the_tested_file(
    engine: FakeEngine, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some/plugin.so").write_bytes(b"x")
    monkeypatch.setattr(_plugins, "CPU_PACKAGES", (("some-package", "some", "plugin.so"),))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = look(root)["plugin"]
    assert found.state == "bad"
    assert "reinstall some-package" in found.remedy


def test_a_plugin_of_ones_own_is_told_as_such(engine: FakeEngine, root: Path, plugin: Path) -> None:
    found = look(root, TPULAB_PLUGIN=str(plugin))["plugin"]
    assert found.state == "info"
    assert "TPULAB_PLUGIN" in found.found


def test_a_tpu_without_libtpu(engine: FakeEngine, root: Path) -> None:
    add_tpu(root)
    found = look(root)
    assert found["TPU"].state == "warn"
    assert "1 on the PCI bus (v6e), device nodes /dev/accel0, but libtpu is not installed" in found["TPU"].found
    assert "tpulab[tpu]" in found["TPU"].remedy


def test_a_tpu_that_is_hidden(engine: FakeEngine, root: Path) -> None:
    add_tpu(root)
    found = look(root, TPU_VISIBLE_CHIPS="")["TPU"]
    assert (found.state, found.remedy) == ("warn", "unset it to use the TPU")


def test_a_tpu_without_nodes(engine: FakeEngine, root: Path) -> None:
    add_tpu(root)
    (root / "dev/accel0").unlink()
    assert "in a container, pass them in" in look(root)["TPU"].remedy


def test_libtpu_is_named_but_not_loaded(engine: FakeEngine, root: Path, tmp_path: Path) -> None:
    library = tmp_path / "libtpu.so"
    library.write_bytes(b"not a library")
    found = look(root, TPU_LIBRARY_PATH=str(library))["libtpu"]
    assert "not loaded, since there is no TPU" in found.found
    assert str(library) not in Path("/proc/self/maps").read_text()


@pytest.fixture
def holder(root: Path) -> Iterator[int]:
    """Another process that holds libtpu's lock."""
    lock = root / "tmp/libtpu_lockfile"
    lock.touch()
    code = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
input()
"""
    command = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.stdin.close()


def test_the_holder_of_the_lock_is_named(engine: FakeEngine, root: Path, holder: int) -> None:
    add_tpu(root)
    found = look(root)["libtpu's lock"]
    assert found.state == "warn"
    assert f"is held by process {holder} (python" in found.found


def test_the_lock_is_looked_at_and_not_taken(engine: FakeEngine, root: Path) -> None:
    lock = root / "tmp/libtpu_lockfile"
    assert "free" in look(root)["libtpu's lock"].found
    assert not lock.exists()
    lock.touch()
    before = lock.stat()
    assert "no process holds it" in look(root)["libtpu's lock"].found
    assert lock.stat() == before
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert "held by this process" in look(root)["libtpu's lock"].found


def test_wrong_variables_are_named(engine: FakeEngine, root: Path) -> None:
    report = _doctor.examine({"TPULAB_CHIP": "v9", "TPULAB_DEVICES": "0"}, str(root))
    text = report.text()
    assert "TPULAB_CHIP=v9" in text
    assert "TPULAB_DEVICES=0" in text
    assert report.status == 1


def test_autoload_switched_off_is_told(engine: FakeEngine, root: Path) -> None:
    assert "import tpulab" in look(root, TORCH_DEVICE_BACKEND_AUTOLOAD="0")["autoload"].remedy


def test_rivals_are_named(engine: FakeEngine, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rivals/torch_tpu").mkdir(parents=True)
    (tmp_path / "rivals/torch_tpu/__init__.py").write_text("raise RuntimeError('must not be imported')")
    info = tmp_path / "rivals/torch_other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-other\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nother = torch_other.boot:go\n")
    monkeypatch.syspath_prepend(str(tmp_path / "rivals"))
    found = look(root)["other backends"]
    assert found.state == "warn"
    assert "torch_other, torch_tpu installed too" in found.found


@pytest.mark.parametrize(("kind", "status"), [("torch-version", 3), ("not-built", 1), ("name-taken", 1), ("load", 1)])
def test_exit_statuses(
    engine: FakeEngine,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    status: int,
) -> None:
    monkeypatch.setattr(_load, "loaded", False)
    monkeypatch.setattr(_load, "error", BridgeError(kind, "the reason"))
    assert __main__.main(["doctor"]) == status
    assert capsys.readouterr().out.startswith('device "tpu" does not work: the reason\n')


def test_a_short_memory_is_told(engine: FakeEngine, root: Path) -> None:
    (root / "proc").unlink()
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal: 2000000 kB\nMemAvailable: 900000 kB\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/memory.max").write_text("1000000000\n")
    found = look(root)["memory"]
    assert found.state == "warn"
    assert "this process may use 954 MiB" in found.found


def test_the_report_in_a_notebook(engine: FakeEngine, root: Path) -> None:
    html = _doctor.examine({"TPULAB_CHIP": "<v9>"}, str(root)).html()
    assert "&lt;v9&gt;" in html
    assert len(html.encode()) < 64 * 1024


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([]) == 2
    assert "doctor" in capsys.readouterr().out
    assert __main__.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tpulab ")
    with pytest.raises(SystemExit):
        __main__.main(["surgeon"])


def test_who_asks_is_not_counted_as_a_holder(root: Path) -> None:
    facts = Path("/proc/self/exe").stat()
    assert _doctor._holders(root, facts.st_dev, facts.st_ino) == []
