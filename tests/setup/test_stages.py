"""The runner behind `make test`."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[1] / "stages.py"


@pytest.fixture(scope="module")
def stages():
    spec = importlib.util.spec_from_file_location("stages", RUNNER)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that ended stays listed until its parent asks.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_overrun_is_ended_with_everything_it_started(stages, tmp_path):
    pids = tmp_path / "pids"
    script = f"setsid sleep 60 & echo $! > {pids}; echo $$ >> {pids}; wait"
    result = stages.run(stages.Stage("sleepy", 0.02, [["bash", "-c", script]]), limited=True)
    assert result.verdict == "FAILED: twice its share"
    assert 2.4 <= result.seconds < 10
    deadline = time.monotonic() + 5
    while any(map(alive, map(int, pids.read_text().split()))):
        assert time.monotonic() < deadline, "a process outlived its stage"
        time.sleep(0.05)


def test_first_failing_command_decides(stages, tmp_path):
    touched = tmp_path / "touched"
    result = stages.run(stages.Stage("two", 1, [["false"], ["touch", str(touched)]]), limited=True)
    assert result.verdict == "FAILED: exit code 1"
    assert not touched.exists()


def test_table_names_every_stage(stages):
    first, second = stages.Stage("Rust builds", 20, []), stages.Stage("Python", 12, [])
    text = stages.table([stages.Result(first, 71.26, "passed")], [second])
    assert text.splitlines() == [
        "stage         seconds   share  verdict",
        "Rust builds      71.3  20 min  passed",
        "Python              -  12 min  not run",
        "all              71.3  20 min",
    ]


def test_shares_fit_into_the_hour(stages):
    assert sum(stage.share for stage in stages.stages(full=False)) <= 60


def test_stop_from_outside_ends_the_stage(tmp_path):
    pids = tmp_path / "pids"
    program = f"""
import importlib.util, signal, sys
spec = importlib.util.spec_from_file_location("stages", {str(RUNNER)!r})
stages = importlib.util.module_from_spec(spec); sys.modules["stages"] = stages; spec.loader.exec_module(stages)
stages.stages = lambda full: [stages.Stage("sleepy", 9, [["bash", "-c", "echo $$ > {pids}; sleep 60; true"]])]
sys.argv = ["stages.py"]
sys.exit(stages.main())
"""
    runner = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 10
    while not (pids.exists() and pids.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(10) == 143
    assert not alive(int(pids.read_text()))
