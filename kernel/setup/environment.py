"""The one Python environment: made once outside the clone, then found again in a second."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import interpreters
import places
import system
from interpreters import MARKER, Choice
from places import CLONE, PACKAGE, SETUP, say, stop

LOCKS = [SETUP / name for name in ("installer.lock", "environment.lock", "plugins.lock")]
# What an active torch brings itself. Everything else is installed as locked, also where the active Python has it.
TORCH_PACKAGES = ("torch", "triton", "nvidia-", "cuda-")
# The system's certificates on Debian, Fedora and openSUSE.
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
# Room to ask for, and what a real run took (Python 3.11, x86-64): with torch from PyPI, and with an active torch.
SIZE = {
    True: (7 << 30, "about 3.4 GB to download and 6.7 GB on the disk"),
    False: (2 << 30, "about 0.4 GB to download and 1.2 GB on the disk"),
}


@dataclass(frozen=True)
class Environment:
    """A folder with a Python, and what it was made from."""

    folder: Path
    choice: Choice
    key: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        major, minor, _ = self.choice.python.version
        return self.folder / "lib" / f"python{major}.{minor}" / "site-packages"

    @property
    def torch(self) -> Path:
        """The folder of the installed torch: its headers and libraries."""
        sites = [self.site, *(Path(site) for site in (self.choice.torch_from.sites if self.choice.torch_from else ()))]
        for site in sites:
            if (site / "torch" / "include").is_dir():
                return site / "torch"
        stop(f"no torch with headers under {', '.join(map(str, sites))}")

    @property
    def plugins(self) -> list[Path]:
        """The PJRT plugins that the tests run on, the product's own first."""
        return [*sorted(self.site.glob("*/*pjrt*.so")), *sorted(self.site.glob("xla_plugins/*/*pjrt*.so"))]

    def ready(self) -> bool:
        return _marker(self.folder).get("key") == self.key and self.python.exists()


@cache
def find() -> Environment:
    """The environment for this clone and this Python, whether it is made yet or not."""
    choice = interpreters.choose()
    if choice is None:
        system.no_python()
    digest = hashlib.sha256()
    for lock in LOCKS:
        digest.update(lock.read_bytes())
    python, parent = choice.python, choice.torch_from
    digest.update(repr((python.version, python.base_prefix, platform.machine())).encode())
    if parent:
        digest.update(repr((parent.sites, parent.torch)).encode())
    key = digest.hexdigest()[:12]
    chosen = os.environ.get("TPULAB_ENV")
    folder = Path(chosen).expanduser().absolute() if chosen else places.cache() / f"env-{key}"
    return Environment(folder, choice, key)


def ensure() -> Environment:
    """The environment, made first if need be."""
    env = find()
    if not env.ready():
        with places.alone(env.folder.with_name(f"{env.folder.name}.lock")):
            # Another command may have made it in the meantime.
            if not env.ready():
                _make(env)
    return env


def environ(env: Environment) -> dict[str, str]:
    """The variables that a command runs under: this environment, this clone, and no network but package registries."""
    result = dict(os.environ)
    result["PATH"] = f"{env.folder / 'bin'}:{result.get('PATH', os.defpath)}"
    result["VIRTUAL_ENV"] = str(env.folder)
    # Several clones may share an environment: the one a command was given in comes first.
    result["PYTHONPATH"] = ":".join(filter(None, [str(PACKAGE), result.get("PYTHONPATH")]))
    result["CARGO_TARGET_DIR"] = str(places.target())
    result["TPULAB_TEST_PLUGINS"] = ":".join(map(str, env.plugins))
    if env.ready():
        result["TORCH_DIR"] = str(env.torch)
    result.setdefault("HF_HUB_OFFLINE", "1")
    for name in ("PYTHONHOME", "CONDA_PREFIX"):
        result.pop(name, None)
    if home := system.rustup_home(result):
        result["RUSTUP_HOME"] = home
    return result


def _make(env: Environment) -> None:
    started = time.monotonic()
    _may_replace(env.folder)
    python, parent = env.choice.python, env.choice.torch_from
    space, words = SIZE[parent is None]
    say(f"making the environment {env.folder} with {python.name}")
    if env.choice.remark:
        say(env.choice.remark)
    if parent:
        say(f"torch {parent.torch} is used as it is; the other packages are {words}")
    else:
        say(f"torch from PyPI does not import without its CUDA packages: {words}")
    env.folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(env.folder.parent).free
    if free < space:
        stop(
            f"{env.folder.parent} has {free / 1e9:.1f} GB free, {space / 1e9:.1f} GB are needed",
            "set TPULAB_ENV to a folder elsewhere",
        )

    _run([python.executable, "-m", "venv", "--clear", str(env.folder)])
    _mark(env, key="unfinished")
    installer, *locks = LOCKS
    _run([str(env.python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(installer)])
    _run([str(env.folder / "bin" / "uv"), "pip", "install", "--python", str(env.python), *_packages(env, locks)])
    if parent:
        # Last, or the installers would count the active Python's packages as installed here.
        lines = "".join(f"import site; site.addsitedir({site!r})\n" for site in parent.sites)
        (env.site / "tpulab_torch.pth").write_text(lines)
    say("checking that torch can be imported")
    _run([str(env.python), "-c", "import torch"])
    _mark(env, key=env.key)
    say(f"the environment is ready after {time.monotonic() - started:.0f} s and takes {_size(env.folder) / 1e9:.1f} GB")
    others = sorted(str(path) for path in env.folder.parent.glob("env-*") if path.is_dir() and path != env.folder)
    if others and not os.environ.get("TPULAB_ENV"):
        say(f"environments of other lock files or Pythons, to be removed when no clone needs them: {' '.join(others)}")


def _packages(env: Environment, locks: list[Path]) -> list[str]:
    """The arguments of the installation: complete lists with hashes, nothing resolved, nothing compiled."""
    if env.choice.torch_from:
        reduced = []
        for lock in locks:
            entries = lock.read_text().replace("\\\n", "\\\0").splitlines(keepends=True)
            kept = [entry for entry in entries if not entry.startswith(TORCH_PACKAGES)]
            reduced.append(env.folder / lock.name)
            reduced[-1].write_text("".join(kept).replace("\\\0", "\\\n"))
        locks = reduced
    return [
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        *(arg for lock in locks for arg in ("-r", str(lock))),
    ]


def _run(command: list[str]) -> None:
    environ = dict(os.environ, PIP_ROOT_USER_ACTION="ignore", PIP_DISABLE_PIP_VERSION_CHECK="1")
    for name in ("PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "UV_SYSTEM_PYTHON", "UV_TORCH_BACKEND"):
        environ.pop(name, None)
    # A network with a certificate authority of its own has it among the system's; uv comes with a list of its own.
    if any(Path(bundle).exists() for bundle in CERTIFICATES):
        environ.setdefault("UV_SYSTEM_CERTS", "1")
    # uv does not read pip's settings: a mirror and its certificate are passed on.
    for pip, uv in (("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), ("PIP_CERT", "SSL_CERT_FILE")):
        if environ.get(pip):
            environ.setdefault(uv, environ[pip])
    if (code := subprocess.run(command, env=environ, cwd=CLONE).returncode) != 0:
        stop(
            f"failed with exit code {code}: {' '.join(command)}", "what is already downloaded is kept for the next run"
        )


def _marker(folder: Path) -> dict[str, str]:
    try:
        return json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        return {}


def _mark(env: Environment, key: str) -> None:
    # `python` is the one that `interpreters.behind` goes back to when this environment is the active one.
    python = env.choice.python
    marker = {"key": key, "python": python.executable if env.choice.torch_from else python.base}
    (env.folder / MARKER).write_text(json.dumps(marker, indent=1) + "\n")


def _may_replace(folder: Path) -> None:
    """Only a folder that is empty or ours is cleared."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        stop(
            f"{folder} was not made by tpulab, so it is left alone.",
            "name another folder in TPULAB_ENV; to use that environment's torch, activate it instead",
        )


def _size(folder: Path) -> int:
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*"))
