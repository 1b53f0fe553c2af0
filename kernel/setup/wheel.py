"""A wheel that runs in an existing environment with that environment's torch, without Rust or a compiler there."""

import subprocess
import zipfile
from pathlib import Path

import build
import environment
from environment import Environment
from places import CLONE, PACKAGE, say, stop

DIST = CLONE / "dist"


def make(env: Environment) -> None:
    """Builds the wheel into dist/ and checks that everything that is loaded at run time is inside."""
    build.build(env)
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("tpulab-*.whl"):
        old.unlink()
    manifest = str(PACKAGE / "Cargo.toml")
    # The tag `linux` promises no older glibc than this machine's, which the bridge library was linked against.
    command = ["maturin", "build", "--release", "--compatibility", "linux"]
    command += ["--manifest-path", manifest, "--out", str(DIST), *build.locked()]
    # maturin sets variables that pyo3 builds depend on: in a folder of its own it does not undo the other builds.
    environ = environment.environ(env)
    environ["CARGO_TARGET_DIR"] += "/wheel"
    with build.claim():
        done = subprocess.run(command, cwd=CLONE, env=environ)
    if done.returncode != 0:
        stop("maturin failed, see above")
    (wheel,) = DIST.glob("tpulab-*.whl")
    _check(wheel)
    say(f"{wheel.relative_to(CLONE)}, {wheel.stat().st_size / 1e6:.1f} MB. In an environment with torch {build.TORCH}:")
    say(f"python -m pip install {wheel.relative_to(CLONE)}")


def _check(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        wanted = [f"tpulab/{library}" for library in build.LIBRARIES.values()]
        wanted += ["tpulab/__init__.py", "tpulab/static/loader.js", "tpulab/static/widget.js"]
        missing = [name for name in wanted if name not in names]
        points = [archive.read(name).decode() for name in names if name.endswith(".dist-info/entry_points.txt")]
    if not any("[torch.backends]" in text for text in points):
        missing.append("the entry point torch.backends")
    if missing:
        stop(f"{wheel.name} lacks {', '.join(missing)}")
