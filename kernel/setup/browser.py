"""The notebook widget: its bundle, and the tests that need Node and a browser."""

import filecmp
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import environment
import places
import system
from environment import Environment
from places import CLONE, PACKAGE, say, stop

WIDGET = CLONE / "ui" / "widget"
TESTS = CLONE / "tests" / "browser"
# What is committed, so that nobody needs Node to use the widget.
BUNDLES = PACKAGE / "tpulab" / "static"
MANIFESTS = ("package.json", "package-lock.json", ".npmrc")


def build(env: Environment) -> None:
    """Writes the committed bundles anew."""
    _bundle(_variables(env), BUNDLES)


def run_tests(env: Environment) -> None:
    """Types, the widget's own tests, the committed bundles, then JupyterLab in a browser."""
    variables = _variables(env)
    variables["TPULAB_CHROMIUM"] = system.browser(variables)
    for folder in (WIDGET, TESTS):
        _node(variables, "typescript/bin/tsc", "--noEmit", "-p", str(folder))
    _node(variables, "vitest/vitest.mjs", "run", "--root", str(WIDGET))
    with tempfile.TemporaryDirectory() as folder:
        _bundle(variables, Path(folder))
        names = sorted(path.name for path in Path(folder).iterdir())
        _, differing, missing = filecmp.cmpfiles(folder, BUNDLES, names, shallow=False)
    if differing or missing:
        wrong = ", ".join(differing + missing)
        stop(f"not what ui/widget builds, in {BUNDLES.relative_to(CLONE)}: {wrong}", "make widget, and commit them")
    say(f"the committed bundles are what ui/widget builds: {', '.join(names)}")
    _node(variables, "vitest/vitest.mjs", "run", "--root", str(TESTS))


def _variables(env: Environment) -> dict[str, str]:
    variables = environment.environ(env)
    system.check_node(variables)
    _modules(variables)
    return variables


def _bundle(variables: dict[str, str], folder: Path) -> None:
    if subprocess.run(["node", "build.mjs", str(folder)], cwd=WIDGET, env=variables).returncode != 0:
        stop("the widget does not build, see above")


def _node(variables: dict[str, str], script: str, *arguments: str) -> None:
    path = CLONE / "node_modules" / script
    if subprocess.run(["node", str(path), *arguments], cwd=CLONE, env=variables).returncode != 0:
        stop(f"failed: {path.stem} {' '.join(arguments)}")


def _modules(variables: dict[str, str]) -> None:
    """Packages as locked, in a folder outside the clone; a link in the clone leads Node's look-up there."""
    digest = hashlib.sha256(b"".join((WIDGET / name).read_bytes() for name in MANIFESTS)).hexdigest()[:12]
    folder = places.cache() / f"node-{digest}"
    with places.alone(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "complete").exists():
            started = time.monotonic()
            folder.mkdir(exist_ok=True)
            for name in MANIFESTS:
                shutil.copy(WIDGET / name, folder / name)
            if subprocess.run(["npm", "ci"], cwd=folder, env=variables).returncode != 0:
                stop("npm ci failed, see above")
            (folder / "complete").touch()
            say(f"the widget's packages are in {folder} after {time.monotonic() - started:.0f} s")
        link = CLONE / "node_modules"
        if not link.is_symlink() or link.readlink() != folder / "node_modules":
            if link.exists() and not link.is_symlink():
                stop(f"{link} is in the way", "remove it; packages are kept outside the clone")
            fresh = link.with_name(f".node_modules.{os.getpid()}")
            fresh.symlink_to(folder / "node_modules")
            fresh.replace(link)
