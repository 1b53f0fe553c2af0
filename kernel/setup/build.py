"""Builds the two libraries of the package, and puts them and the package where Python finds them."""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import environment
import places
import system
from environment import Environment
from interpreters import TORCH
from places import CLONE, PACKAGE, say, stop

# The crate's library, and its name inside the package.
LIBRARIES = {
    "_native": "_native.abi3.so",
    "tpulab_torch": f"_bridge/libtpulab_torch_{TORCH.replace('.', '_')}.so",
}


def locked() -> list[str]:
    """On CI the committed Cargo.lock must be complete; a developer's build may add to it."""
    return ["--locked"] if os.environ.get("CI") else []


def build(env: Environment) -> None:
    """The release libraries, in the source tree of the package, and the package in the environment."""
    environ = environment.environ(env)
    system.check_compilers(environ)
    with claim():
        command = ["cargo", "build", "--release", *locked(), "--message-format=json-render-diagnostics"]
        done = subprocess.run(
            [*command, "-p", "tpulab-torch", "-p", "tpulab-python"],
            cwd=CLONE,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            stop("the Rust build failed, see above")
        for message in map(json.loads, done.stdout.splitlines()):
            if message["reason"] == "compiler-artifact" and (name := LIBRARIES.get(message["target"]["name"])):
                built = next(file for file in message["filenames"] if file.endswith(".so"))
                _place(Path(built), PACKAGE / "tpulab" / name)
    register(env)


def build_tests(env: Environment) -> None:
    """The Rust tests, compiled but not run, so that their own stage measures them and not the compiler."""
    _cargo(env, [*_test_runner(env), "--no-run"], "the Rust tests do not compile")


def run_tests(env: Environment) -> None:
    """The examples in the documentation, then all other Rust tests."""
    _cargo(env, ["cargo", "test", "--workspace", "--doc", *locked()], "an example in the documentation fails")
    _cargo(env, _test_runner(env), "a Rust test fails")


def _test_runner(env: Environment) -> list[str]:
    """nextest where it is installed, else cargo's own runner."""
    nextest = shutil.which("cargo-nextest", path=environment.environ(env)["PATH"])
    runner = ["nextest", "run"] if nextest else ["test", "--lib", "--bins", "--tests"]
    return ["cargo", *runner, "--workspace", *locked()]


def _cargo(env: Environment, command: list[str], failure: str) -> None:
    environ = environment.environ(env)
    system.check_compilers(environ)
    with claim():
        if subprocess.run(command, cwd=CLONE, env=environ).returncode != 0:
            stop(f"{failure}, see above")


@contextmanager
def claim() -> Iterator[None]:
    """Keeps clones that share the target folder apart.

    Cargo names a workspace's own artifacts by their path inside the workspace, and compares only times. It takes those
    of another clone for this one's if they are newer than the sources, so they are forgotten when the clone changes.
    Dependencies stay built.
    """
    target = places.target()
    with places.alone(target / "tpulab.lock"):
        owner = target / "tpulab-clone"
        if not owner.exists() or owner.read_text() != str(CLONE):
            for pattern in ("*/.fingerprint/tpulab-*", "*/*/.fingerprint/tpulab-*"):
                for stale in target.glob(pattern):
                    shutil.rmtree(stale)
            owner.write_text(str(CLONE))
        yield


def _place(built: Path, installed: Path) -> None:
    """Replaces the file in one step: a running program keeps the library that it has mapped."""
    installed.parent.mkdir(exist_ok=True)
    old = installed.stat() if installed.exists() else None
    new = built.stat()
    if old and (old.st_mtime_ns, old.st_size) == (new.st_mtime_ns, new.st_size):
        return
    fresh = installed.with_name(f".{installed.name}.{os.getpid()}")
    shutil.copy2(built, fresh)
    fresh.replace(installed)
    say(f"built {installed.relative_to(CLONE)}")


def register(env: Environment) -> None:
    """Makes the source tree an installed package, as an editable installation would.

    maturin's own would compile the module once more with its own settings; the libraries are already where they belong.
    """
    with open(PACKAGE / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    version = places.workspace()["version"]
    entry_points = ""
    for group, entries in project.get("entry-points", {}).items():
        entry_points += f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
    info = f"tpulab-{version}.dist-info"
    files = {
        "tpulab.pth": f"{PACKAGE}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tpulab\nVersion: {version}\n",
        f"{info}/entry_points.txt": entry_points,
        f"{info}/INSTALLER": "tpulab\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    for old in env.site.glob("tpulab-*.dist-info"):
        if old.name != info:
            shutil.rmtree(old)
    (env.site / info).mkdir(exist_ok=True)
    for name, text in files.items():
        path = env.site / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
