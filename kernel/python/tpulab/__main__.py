"""`python -m tpulab doctor`."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    For `doctor`: 0 when nothing is wrong, 3 when tpulab is built for another torch version, 1 for anything else.
    2 when there is no such command.
    """
    parser = argparse.ArgumentParser(prog="python -m tpulab", description='Device "tpu" for PyTorch.')
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("doctor", help="say what was found on this machine and what is wrong, without touching a TPU")
    given = parser.parse_args(arguments)
    if given.version:
        from . import __version__

        sys.stdout.write(f"tpulab {__version__}\n")
        return 0
    if given.command != "doctor":
        parser.print_help()
        return 2
    from . import _doctor

    report = _doctor.examine()
    sys.stdout.write(report.text() + "\n")
    return report.status


if __name__ == "__main__":
    sys.exit(main())
