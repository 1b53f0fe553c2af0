"""Turns the groups in pyproject.toml into lock files with hashes, for both platforms and every Python version."""

import subprocess
import sys

from environment import LOCKS, Environment
from places import SETUP, say, stop


def write(env: Environment, upgrade: bool) -> None:
    """Keeps the versions that are locked, unless `upgrade` is asked for."""
    for lock in LOCKS:
        command = [
            str(env.folder / "bin" / "uv"),
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--python-version",
            "3.11",
        ]
        command += ["--generate-hashes", "--no-emit-index-url", "--no-annotate", "--no-header"]
        command += ["--group", lock.stem, "--output-file", lock.name]
        command += ["--no-deps"] if lock.stem == "plugins" else []
        command += ["--upgrade"] if upgrade else []
        if subprocess.run(command, cwd=SETUP, stdout=sys.stderr).returncode != 0:
            stop(f"{lock.name} was not written, see above")
        say(f"wrote {lock.relative_to(SETUP.parents[1])}")
