"""All checks that run nothing of the product: formatting, lints, documentation, and what must not be committed."""

import re
import subprocess

import build
import environment
import system
from environment import Environment
from places import CLONE, say, stop

# Written so that this file does not match itself.
FORBIDDEN = {
    "a package registry's host": r"(?:pypi|pythonhosted|anaconda)[.]org|download[.]pytorch[.]org"
    r"|(?<!rust-lang/)crates[.]io|registry[.](?:npmjs[.]org|yarnpkg[.]com)|deb(?:ian)?[.]debian[.]org",
    "somebody's home folder": r"(?<![\w.$}~])/(?:root|home/\w+|Users/\w+)/",
}


def run(env: Environment) -> None:
    """Runs every check, then names those that failed."""
    environ = environment.environ(env)
    system.check_compilers(environ)
    locked = build.locked()
    checks = {
        "rustfmt": ["cargo", "fmt", "--all", "--check"],
        "clippy": ["cargo", "clippy", "--workspace", "--all-targets", *locked, "--", "-D", "warnings"],
        "rustdoc": ["cargo", "doc", "--workspace", "--no-deps", "--document-private-items", *locked],
        "ruff check": ["ruff", "check"],
        "ruff format": ["ruff", "format", "--check"],
    }
    # The documentation is built with private items, so links to them lead somewhere.
    environ["RUSTDOCFLAGS"] = "-D warnings -A rustdoc::private_intra_doc_links"
    failed = []
    for name, command in checks.items():
        say(name)
        with build.claim():
            if subprocess.run(command, cwd=CLONE, env=environ).returncode != 0:
                failed.append(name)
    say("committed text")
    if not _text_is_clean():
        failed.append("committed text")
    if failed:
        stop(f"failed: {', '.join(failed)}")
    say(f"{len(checks) + 1} checks passed")


def _text_is_clean() -> bool:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CLONE, capture_output=True, text=True, check=True).stdout
    clean = True
    for name in filter(None, listed.split("\0")):
        path = CLONE / name
        try:
            lines = path.read_text().splitlines()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        for number, line in enumerate(lines, 1):
            for what, pattern in FORBIDDEN.items():
                if re.search(pattern, line):
                    say(f"{name}:{number}: {what}: {line.strip()[:120]}")
                    clean = False
    return clean
