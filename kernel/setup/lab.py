"""JupyterLab at the first notebook, for this machine only."""

import os

import environment
from environment import Environment
from places import CLONE, say

NOTEBOOKS = CLONE / "notebooks"
FIRST = "01_first_steps.ipynb"


def start(env: Environment, arguments: list[str]) -> None:
    """Replaces this process, so that Ctrl-C reaches JupyterLab alone."""
    command = [str(env.python), "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={NOTEBOOKS}"]
    # Part of the printed address too, for those who open it by hand.
    command.append(f"--LabApp.default_url=/lab/tree/{FIRST}")
    if os.geteuid() == 0:
        command.append("--allow-root")
    say("starting JupyterLab on this machine's loopback address; Ctrl-C twice ends it")
    os.chdir(NOTEBOOKS)
    os.execve(command[0], [*command, *arguments], environment.environ(env))
