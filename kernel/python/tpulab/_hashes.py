"""SHA-256 of large files, remembered in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path


def sha256(path: str) -> str:
    """The SHA-256 of a file in hex.

    Hashing 270 MB takes about a second, so it is done once for each path, size and time of change.

    Raises:
        OSError: the file cannot be read.
    """
    key = _key(path)
    known = _read()
    if key in known:
        return known[key]
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    known[key] = digest
    _write(known)
    return digest


def remembered(path: str) -> str | None:
    """The SHA-256 of a file if it has been computed before."""
    try:
        return _read().get(_key(path))
    except OSError:
        return None


def cache_file() -> Path:
    """Where the hashes are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "tpulab" / "plugin-sha256.json"


def _key(path: str) -> str:
    facts = Path(path).stat()
    return f"{Path(path).resolve()}|{facts.st_size}|{facts.st_mtime_ns}"


def _read() -> dict[str, str]:
    try:
        known = json.loads(cache_file().read_text())
    except (OSError, ValueError, RuntimeError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(known: dict[str, str]) -> None:
    # A cache that cannot be written costs a second at each start, no more. Several processes may write at once: the
    # rename leaves one whole file.
    with contextlib.suppress(OSError, RuntimeError):
        target = cache_file()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as file:
            json.dump(known, file, indent=1, sort_keys=True)
        Path(file.name).replace(target)
