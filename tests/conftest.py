"""`--plugin second` and `--mode blocking` run the same tests on another plugin and in another mode."""

import importlib.util
import os
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plugin", choices=["first", "second"], default="first", help="which installed CPU plugin")
    parser.addoption("--mode", choices=["strict", "blocking"], default="strict", help="the device's eager mode")


def pytest_configure(config: pytest.Config) -> None:
    # Before anything imports torch, which reads the variables.
    os.environ["TPULAB_MODE"] = config.getoption("--mode")
    if config.getoption("--plugin") == "second":
        spec = importlib.util.find_spec("lammps_jax_pjrt_cpu")
        if spec is None or not spec.submodule_search_locations:
            raise pytest.UsageError("the second plugin (lammps-jax-pjrt-cpu) is not installed")
        os.environ["TPULAB_PLUGIN"] = str(Path(spec.submodule_search_locations[0]) / "pjrt_c_api_cpu_plugin.so")
