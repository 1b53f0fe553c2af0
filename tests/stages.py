"""`make test`: runs the stages one after another, each within its share of the hour, and prints what each took."""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
SETUP = [sys.executable, "-B", str(CLONE / "kernel" / "setup")]
PYTEST = [*SETUP, "exec", "python", "-m", "pytest"]


@dataclass(frozen=True)
class Stage:
    """Commands that stand or fall together; `share` is in minutes of a cold machine with two cores."""

    name: str
    share: float
    commands: list[list[str]]
    # Without this one the later stages have nothing to run.
    essential: bool = False


@dataclass(frozen=True)
class Result:
    """What became of a stage."""

    stage: Stage
    seconds: float
    verdict: str


def stages(full: bool) -> list[Stage]:
    """All stages; tests of one kind stand in one folder."""
    everything = ["-m", ""] if full else []
    # Of the operator cases, how many the other plugin and mode see.
    other = "1" if full else "10"
    return [
        Stage("environment", 8, [[*SETUP, "env"]], essential=True),
        Stage("Rust builds", 20, [[*SETUP, "build"], [*SETUP, "build-tests"]], essential=True),
        Stage("Rust tests", 5, [[*SETUP, "rust-tests"]]),
        Stage(
            "Python",
            12,
            [
                [*PYTEST, "tests", "-n", "2", "--ignore=tests/notebooks", *everything],
                [*PYTEST, "tests/ops", "-n", "2", "--plugin", "second", "--mode", "blocking", "--every", other],
            ],
        ),
        Stage("notebooks", 3, [[*PYTEST, "tests/notebooks", *everything]]),
        Stage("browser", 5, [[*SETUP, "browser-tests"]]),
    ]


def run(stage: Stage, limited: bool) -> Result:
    """Runs a stage's commands until one fails or the stage has taken twice its share."""
    print(f"\n=== {stage.name} (share {stage.share:g} min)", flush=True)
    started = time.monotonic()
    deadline = started + 2 * 60 * stage.share if limited else None
    verdict = "passed"
    for command in stage.commands:
        code = _run(command, deadline)
        if code is None:
            verdict = "FAILED: twice its share"
            break
        if code != 0:
            verdict = f"FAILED: exit code {code}"
            break
    return Result(stage, time.monotonic() - started, verdict)


def _run(command: list[str], deadline: float | None) -> int | None:
    """The exit code, or None when the deadline ended the command and all that it had started."""
    process = subprocess.Popen(command, cwd=CLONE, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        print(f"\n=== out of time: {' '.join(command)}", flush=True)
        return None
    finally:
        if process.returncode is None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a command and its descendants, those in sessions of their own (Jupyter kernels) included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in brackets may hold spaces and brackets itself.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    doomed = [process.pid]
    for pid in doomed:
        doomed += children.get(pid, [])
    for pid in doomed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def table(results: list[Result], skipped: list[Stage]) -> str:
    """One line a stage."""
    rows = [("stage", "seconds", "share", "verdict")]
    rows += [(r.stage.name, f"{r.seconds:.1f}", f"{r.stage.share:g} min", r.verdict) for r in results]
    rows += [(stage.name, "-", f"{stage.share:g} min", "not run") for stage in skipped]
    total = sum(result.seconds for result in results)
    share = sum(result.stage.share for result in results)
    rows.append(("all", f"{total:.1f}", f"{share:g} min", ""))
    return "\n".join(f"{row[0]:<12} {row[1]:>8} {row[2]:>7}  {row[3]}".rstrip() for row in rows)


def main() -> int:
    """Runs everything that can be run, and fails if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="run the long tests too, without time limits")
    full = parser.parse_args().full
    # A stop from outside ends the running stage as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    todo = stages(full)
    results: list[Result] = []
    while todo:
        result = run(todo.pop(0), limited=not full)
        results.append(result)
        if result.verdict != "passed" and result.stage.essential:
            break
    print(f"\n{table(results, todo)}", flush=True)
    return int(any(result.verdict != "passed" for result in results))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
