"""What the system must bring, and the command that installs what is missing."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import interpreters
from places import say, stop, workspace

_MANAGERS = {
    "apt-get": ("apt-get install", {"compiler": "g++", "node": "nodejs npm"}),
    "dnf": ("dnf install", {"compiler": "gcc-c++", "node": "nodejs npm"}),
    "pacman": ("pacman -S", {"compiler": "gcc", "node": "nodejs npm"}),
    "zypper": ("zypper install", {"compiler": "gcc-c++", "node": "nodejs20 npm20"}),
}
_NODE = 20
_BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def _command(need: str, fallback: str) -> str:
    """The shell command that installs a package on this system."""
    for manager, (install, packages) in _MANAGERS.items():
        if shutil.which(manager):
            return f"{'' if os.geteuid() == 0 else 'sudo '}{install} {packages.get(need, need)}"
    return fallback


def no_python() -> None:
    """Says why no Python can make an environment."""
    without = [python for python in interpreters.active() if python.usable]
    if without:
        major, minor, _ = without[0].version
        stop(
            f"{without[0].name} cannot make environments: its module ensurepip is missing.",
            f"install it: {_command(f'python{major}.{minor}-venv', 'the venv package of this system')}",
        )
    stop("no Python from 3.11 to 3.14 was found.", f"install one: {_command('python3', 'Python 3.11 or newer')}")


def check_compilers(environ: dict[str, str]) -> None:
    """Stops with every missing tool named, not only the first."""
    wrong = []
    compiler = environ.get("CXX", "c++").split()[0]
    if not shutil.which(compiler, path=environ["PATH"]):
        wrong.append(f"no C++ compiler ({compiler}). Install one: {_command('compiler', 'g++ or clang++')}")
    needed = workspace()["rust-version"]
    found = _rust(environ)
    if found is None:
        wrong.append(f"no Rust. Install {needed} or newer with rustup: {_rustup()}")
    elif tuple(map(int, found.split("."))) < tuple(map(int, needed.split("."))):
        wrong.append(f"Rust {found} is too old, {needed} is needed. With rustup: {_rustup()}")
    if wrong:
        stop(*wrong)


def _rustup() -> str:
    if shutil.which("rustup"):
        return "rustup update stable && rustup default stable"
    return "see https://rustup.rs, or the package rustup of your system, then: rustup default stable"


def _rust(environ: dict[str, str]) -> str | None:
    """The version of the rustc that cargo will use, or None."""
    if not shutil.which("cargo", path=environ["PATH"]):
        return None
    try:
        done = subprocess.run(["rustc", "--version"], capture_output=True, text=True, env=environ, timeout=60)
    except OSError:
        return None
    version = re.match(r"rustc (\d+\.\d+)", done.stdout)
    if version is None:
        say(f"rustc --version says: {done.stderr.strip().splitlines()[0] if done.stderr else done.stdout}")
        return None
    return version[1]


def rustup_home(environ: dict[str, str]) -> str | None:
    """Where rustup keeps its toolchains when HOME is not the one that it was installed under."""
    cargo = shutil.which("cargo", path=environ["PATH"])
    toolchains = Path(environ["HOME"]) / ".rustup" / "toolchains"
    if cargo is None or environ.get("RUSTUP_HOME") or any(toolchains.glob("*")):
        return None
    folder = Path(cargo).absolute().parent
    beside = folder.parents[1] / ".rustup"
    return str(beside) if folder.parts[-2:] == (".cargo", "bin") and beside.is_dir() else None


def check_node(environ: dict[str, str]) -> None:
    """Stops unless Node and npm are there: the widget's build and tests need them, nothing else does."""
    wanted = f"Install {_NODE} or newer: {_command('node', 'Node with npm')}"
    for program in ("node", "npm"):
        if not shutil.which(program, path=environ["PATH"]):
            stop(f"no {program}, which the tests of the notebook widget need. {wanted}")
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, env=environ, timeout=60).stdout
    version = re.match(r"v(\d+)", told)
    if version is None or int(version[1]) < _NODE:
        stop(f"Node {told.strip()} is too old for the tests of the notebook widget. {wanted}")


def browser(environ: dict[str, str]) -> str:
    """Path of the browser that the tests drive."""
    for name in _BROWSERS:
        if found := shutil.which(name, path=environ["PATH"]):
            return found
    stop(f"no Chromium, which the browser tests need. Install it: {_command('chromium', 'Chromium')}")
