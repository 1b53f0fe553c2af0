"""Which operators run.

`--op NAME` runs one operator of PyTorch's database with all its dtypes and many more samples; `--every N` runs each
N-th case, for a look at another plugin or mode.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--op", help="an operator by PyTorch's name, such as sinc or nn.functional.gelu")
    parser.addoption("--every", type=int, default=1, help="run each N-th case")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    from . import database

    name = metafunc.config.getoption("--op")
    cases = (
        database.cases_of(name)
        if name
        else database.default_cases(metafunc.function.__name__)[:: metafunc.config.getoption("--every")]
    )
    if not cases:
        raise pytest.UsageError(f"no operator {name!r} in PyTorch's database")
    metafunc.parametrize("case", cases, ids=str)
