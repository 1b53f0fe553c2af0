"""JupyterLab at the first notebook, for this machine only."""

import os

import environment
from environment import Environment
from places import CLONE, say

FIRST = CLONE / "notebooks" / "01_first_steps.ipynb"


def start(env: Environment, arguments: list[str]) -> None:
    """Replaces this process, so that Ctrl-C reaches JupyterLab alone."""
    command = [str(env.python), "-m", "jupyterlab", str(FIRST), "--ServerApp.ip=127.0.0.1", *arguments]
    if os.geteuid() == 0:
        command.append("--allow-root")
    say("starting JupyterLab on this machine's loopback address")
    os.chdir(CLONE / "notebooks")
    os.execve(command[0], command, environment.environ(env))
