"""The commands behind the Makefile: `sh kernel/setup/python.sh kernel/setup COMMAND`."""

import os
import shutil
import sys
from collections.abc import Callable

import browser
import build
import environment
import lab
import lint
import lock
import wheel
from environment import Environment
from places import stop


def _exec(env: Environment, command: list[str]) -> None:
    if not command:
        stop("exec needs a command")
    variables = environment.environ(env)
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        stop(f"no such command: {command[0]}")
    os.execve(program, command, variables)


def _lab(env: Environment, arguments: list[str]) -> None:
    build.build(env)
    lab.start(env, arguments)


# Each makes the environment first if need be.
COMMANDS: dict[str, Callable[[Environment, list[str]], None]] = {
    "env": lambda env, _: None,
    "build": lambda env, _: build.build(env),
    "build-tests": lambda env, _: build.build_tests(env),
    "rust-tests": lambda env, _: build.run_tests(env),
    "wheel": lambda env, _: wheel.make(env),
    "widget": lambda env, _: browser.build(env),
    "browser-tests": lambda env, _: browser.run_tests(env),
    "lint": lambda env, _: lint.run(env),
    "lock": lambda env, arguments: lock.write(env, upgrade="--upgrade" in arguments),
    "lab": _lab,
    "exec": _exec,
}


def main() -> None:
    """Does what the first argument names."""
    command, *arguments = sys.argv[1:] or [""]
    if command == "print-env":
        print(environment.find().folder)
    elif command in COMMANDS:
        COMMANDS[command](environment.ensure(), arguments)
    else:
        stop(f"unknown command {command!r}; there are: print-env, {', '.join(COMMANDS)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
