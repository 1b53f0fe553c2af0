"""Where things lie: the clone, and the caches outside it."""

import fcntl
import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

CLONE = Path(__file__).resolve().parents[2]
SETUP = Path(__file__).resolve().parent
PACKAGE = CLONE / "kernel" / "python"


def say(text: str) -> None:
    """Prints a line of the set-up; standard output belongs to what a command was asked for."""
    print(f"tpulab: {text}", file=sys.stderr, flush=True)


def stop(*lines: str) -> NoReturn:
    """Ends the command with what is wrong and what to do about it."""
    for line in lines:
        say(line)
    sys.exit(1)


def cache() -> Path:
    """The folder for everything that is built or downloaded."""
    home = os.environ.get("HOME", "")
    if not home or not Path(home).is_absolute():
        stop(
            f"HOME is {home!r}, so there is no folder for caches.",
            "set HOME to a folder you can write to (an empty one will do), for example: HOME=/var/tmp/tpulab make test",
        )
    folder = Path(home) / ".cache" / "tpulab"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        stop(f"cannot make {folder}: {error.strerror}", "set HOME to a folder you can write to")
    return folder


def target() -> Path:
    """Cargo's folder. One serves every clone: dependencies are built once, and `build.claim` keeps clones apart."""
    chosen = os.environ.get("CARGO_TARGET_DIR")
    return Path(chosen).absolute() if chosen else cache() / "target"


def workspace() -> dict[str, str]:
    """Version and minimal Rust, from the one place that holds them."""
    with open(CLONE / "Cargo.toml", "rb") as manifest:
        return tomllib.load(manifest)["workspace"]["package"]


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One command at a time: a second one says so and waits."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command, which holds {lock}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
