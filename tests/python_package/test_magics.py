import re
from html.parser import HTMLParser
from typing import Any

import pytest
from conftest import FakeEngine
from IPython.core.error import UsageError
from IPython.testing.globalipapp import get_ipython
from tpulab import _load, _magics, _plugins
from tpulab._errors import BridgeError

VIEWS = [view for view in _magics.VIEWS if view != "doctor"]
VOID = {"br", "hr", "img"}


class Checker(HTMLParser):
    """Collects text, and sees that elements are closed in order and carry nothing that a sanitizer takes away."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.open = [], []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        assert tag not in ("script", "style", "svg", "iframe")
        assert {name for name, _ in attrs} <= {"style", "role", "aria-label", "scope"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def words(html: str) -> str:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    return " ".join(checker.text)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_tells_the_same_in_html_and_text(engine: FakeEngine, view: str) -> None:
    html, text = _magics.render(view)
    for told in (words(html), text):
        assert "2 devices of TPU v6e (virtual, on CPU)" in told
        assert "tpu:0" in told
        assert "32.0 GiB" in told
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("view", VIEWS)
def test_looking_starts_nothing_and_changes_nothing(engine: FakeEngine, view: str) -> None:
    before = dict(engine.settings)
    assert _magics.render(view) == _magics.render(view)
    assert engine.settings == before
    assert not engine.started
    assert "Not started" in _magics.render(view)[1]


def test_memory_and_ops_are_shown(engine: FakeEngine) -> None:
    engine.started = True
    engine.ops = [
        {"op": "mul.Tensor", "device": 0, "enqueue_ns": 10**6},
        {"op": "add.Tensor", "device": 1, "enqueue_ns": 5300},
    ]
    engine.counters["fallbacks"] = {"sinc": 3, "fft": 12}
    html, text = _magics.render("")
    for told in (words(html), text):
        for fact in (
            "1.00 GiB",
            "2.00 GiB",
            "3.1 %",
            "add.Tensor",
            "tpu:1",
            "5.3 µs",
            "1,234 programs run",
        ):
            assert fact in told
        assert told.index("add.Tensor") < told.index("mul.Tensor"), "the newest op stands first"
        assert "Ran on the CPU instead: fft (12), sinc (3)" in told


def test_colours_come_from_the_theme_and_have_fallbacks(engine: FakeEngine) -> None:
    html, _ = _magics.render("")
    for piece in html.split("var(")[1:]:
        assert re.match(r"--jp-[a-z0-9-]+,.", piece)
    assert "background:#" not in html
    assert "color:#" not in html


def test_it_stays_small(engine: FakeEngine) -> None:
    engine.started = True
    engine.settings["devices"] = 256
    engine.ops = [{"op": "x" * 200, "device": 0, "enqueue_ns": 10**9}] * 1000
    for view in VIEWS:
        html, text = _magics.render(view)
        assert len(html.encode()) <= 64 * 1024
        assert "And 192 more." in text


def test_names_are_escaped(engine: FakeEngine) -> None:
    engine.ops = [{"op": "<script>alert(1)</script>", "device": 0, "enqueue_ns": 1}]
    assert "<script>" not in _magics.render("")[0]


def test_an_unknown_view_names_those_there_are(engine: FakeEngine) -> None:
    with pytest.raises(UsageError, match="no view 'hmb'; there are %tpu, %tpu hbm, %tpu devices, %tpu doctor"):
        _magics.render("hmb")


def test_no_device_is_an_answer(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plugins, "find", lambda *_: None)
    html, text = _magics.render("")
    assert "no device: no PJRT plugin is installed: `pip install" in text
    assert "no device" in words(html)


def test_a_missing_bridge_is_an_answer(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_load, "error", BridgeError("torch-version", "built for torch 2.15"))
    assert "no device: built for torch 2.15" in _magics.render("")[1]


def test_the_extension_in_ipython(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    shell = get_ipython()
    shell.run_line_magic("load_ext", "tpulab")
    shell.run_line_magic("tpu", "hbm")
    assert "1.00 GiB" in capsys.readouterr().out
    shell.run_line_magic("unload_ext", "tpulab")
    assert shell.find_line_magic("tpu") is None
