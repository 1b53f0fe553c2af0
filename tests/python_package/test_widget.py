"""The live figure's messages; what a browser makes of them is tested in `tests/browser`."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import comm
import pytest
from conftest import FakeEngine
from IPython.core.interactiveshell import InteractiveShell
from tpulab import _dashboard, _magics, _widget


class FakeComm(comm.base_comm.BaseComm):
    """Writes down what is published."""

    sent: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def publish_msg(self, msg_type: str, data: Any = None, **_: Any) -> None:
        self.sent.append((msg_type, data or {}))

    def messages(self) -> list[dict[str, Any]]:
        return [data["content"] for kind, data in self.sent if kind == "comm_msg" and data["method"] == "custom"]


class FakeKernel:
    def __init__(self) -> None:
        self.run, self.cell = 0, "a"

    def get_parent(self) -> Any:
        self.run += 1
        return {"metadata": {"cellId": self.cell}, "header": {"msg_id": str(self.run)}}


@pytest.fixture
def shell(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("anywidget")
    monkeypatch.setattr(FakeComm, "sent", [])
    monkeypatch.setattr(comm, "create_comm", FakeComm)
    shell = InteractiveShell()
    shell.kernel = FakeKernel()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", lambda data, raw: None)
    _magics.register(shell)
    yield shell
    _magics.unregister(shell)
    assert _widget._figures == []


def opened(figure: _widget.Figure, view: str = "1", *painters: str) -> list[dict[str, Any]]:
    figure.widget._handle_custom_msg({"opened": view, "painters": painters}, [])
    return figure.widget.comm.messages()


def test_a_view_gets_the_painter_once_and_the_state(shell: Any) -> None:
    _magics.tpu()
    (figure,) = _widget._figures
    (first,) = opened(figure)
    assert first["state"] == _dashboard.overview().state()
    assert first["source"].startswith(("var ", "function ", "const "))
    second = opened(figure, "2", first["painter"])[-1]
    assert "source" not in second


def test_nothing_is_asked_or_sent_while_no_view_is_open(shell: Any, engine: FakeEngine) -> None:
    _magics.tpu()
    (figure,) = _widget._figures
    engine.asked.clear()
    shell.run_cell("1")
    assert engine.asked == []
    opened(figure)
    figure.widget._handle_custom_msg({"closed": "1"}, [])
    engine.asked.clear()
    engine.allocated[0] *= 2
    shell.run_cell("1")
    assert engine.asked == []
    assert len(figure.widget.comm.messages()) == 1


def test_after_a_cell_the_state_goes_out_if_it_changed(shell: Any, engine: FakeEngine) -> None:
    _magics.tpu()
    (figure,) = _widget._figures
    opened(figure)
    shell.run_cell("1")
    assert len(figure.widget.comm.messages()) == 1
    engine.allocated[1] = 2**31
    shell.run_cell("1")
    last = figure.widget.comm.messages()[-1]
    assert "source" not in last
    assert last["state"]["tables"][0]["rows"][1] == (
        ["tpu:1", "v6e", "2.00 GiB", "4.00 GiB", "32.0 GiB", {"text": "6.2 %", "percent": 6.25, "peak": 12.5}]
    )
    assert len(json.dumps(last)) < 4096


def test_what_a_saved_notebook_could_keep_is_small(shell: Any) -> None:
    _magics.tpu()
    _magics.tpu("hbm")
    states = [data["state"] for kind, data in FakeComm.sent if kind == "comm_open"]
    names = [state["_model_name"] for state in states]
    assert names.count("AnyModel") == 2
    assert names.count("LayoutModel") <= 1
    assert all(len(json.dumps(state)) < 2048 for state in states)


def test_a_cell_run_again_replaces_its_figures(shell: Any) -> None:
    for _ in range(5):
        _magics.tpu()
    assert len(_widget._figures) == 1
    shell.kernel.cell = "b"
    _magics.tpu()
    assert len(_widget._figures) == 2


def test_a_front_end_that_names_no_cells_keeps_all(shell: Any) -> None:
    shell.kernel.cell = None
    for _ in range(2):
        _magics.tpu()
    assert len(_widget._figures) == 2


@pytest.mark.parametrize("missing", ["anywidget", "kernel"])
def test_without_a_notebook_or_anywidget_only_the_static_figure(
    shell: Any, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "anywidget":
        monkeypatch.setattr(_widget, "find_spec", lambda _: None)
    else:
        del shell.kernel
    _magics.tpu()
    assert _widget._figures == []


def test_the_doctor_has_no_live_figure(shell: Any) -> None:
    _magics.tpu("doctor")
    assert _widget._figures == []
