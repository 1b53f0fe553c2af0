"""The live figure behind `%tpu`: an anywidget that paints what `_dashboard` says, anew after each cell.

A saved notebook keeps next to nothing of it. The static figure stands in an output of its own, before the widget's; the
widget's own state is a loader of a few hundred bytes, and what is shown, like the code that paints it, travels in
messages that nobody stores. So a notebook opened without a kernel shows the static figure, because no message comes and
only a painted widget hides it. There is no thread and no timer: a message goes out when a view opens and after a cell
has run, and none while no view is open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ._dashboard import Dashboard

_STATIC = Path(__file__).parent / "static"

#: The figures that may have views, oldest first.
_figures: list[Figure] = []


class Figure:
    """One widget, its open views, and where it came from."""

    def __init__(self, make: Callable[[], Dashboard], cell: str | None, run: str | None) -> None:
        self.make = make
        #: The notebook cell that shows it, and the run of that cell; None where the front end does not say.
        self.cell, self.run = cell, run
        self.views: set[str] = set()
        self._sent: Any = None
        self.widget = _widget_class()(layout=_layout())
        self.widget.on_msg(self._received)

    def refresh(self, state: dict[str, Any]) -> None:
        """Sends what is shown, if it is not what was sent last."""
        if state != self._sent:
            self._send(state)

    def _send(self, state: dict[str, Any], **more: Any) -> None:
        self._sent = state
        self.widget.send({"state": state, "painter": _painter()[0], **more})

    def _received(self, _widget: Any, content: Any, _buffers: Any) -> None:
        # In ipykernel 7 this may run in another thread than the cells do: every step is a single operation on a set.
        if "closed" in content:
            self.views.discard(content["closed"])
        elif "opened" in content:
            self.views.add(content["opened"])
            digest, source = _painter()
            more = {} if digest in content.get("painters", ()) else {"source": source}
            self._send(self.make().state(), **more)


def show(shell: InteractiveShell | None, make: Callable[[], Dashboard]) -> None:
    """Displays a live figure below the static one; does nothing outside a notebook or without anywidget."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not _possible():
        return
    from IPython.display import display

    cell, run = _origin(kernel)
    for old in [figure for figure in _figures if cell is not None and figure.cell == cell and figure.run != run]:
        _close(old)
    figure = Figure(make, cell, run)
    _figures.append(figure)
    view = {"version_major": 2, "version_minor": 0, "model_id": figure.widget.model_id}
    # The empty text is for front ends that know no widgets: the static figure says it all.
    display({"application/vnd.jupyter.widget-view+json": view, "text/plain": ""}, raw=True)


def refresh(_result: Any = None) -> None:
    """Brings every figure with an open view up to date; IPython calls it after each cell."""
    states: dict[Any, dict[str, Any]] = {}
    for figure in [figure for figure in _figures if figure.views]:
        if figure.make not in states:
            states[figure.make] = figure.make().state()
        figure.refresh(states[figure.make])


def close_all() -> None:
    """Takes every figure away."""
    while _figures:
        _close(_figures[-1])


def _close(figure: Figure) -> None:
    _figures.remove(figure)
    figure.views.clear()
    figure.widget.close()


def _possible() -> bool:
    return find_spec("anywidget") is not None and (_STATIC / "loader.js").exists()


def _origin(kernel: Any) -> tuple[str | None, str | None]:
    """The cell that is running and this run of it, as far as the front end told."""
    parent = kernel.get_parent() or {}
    return parent.get("metadata", {}).get("cellId"), parent.get("header", {}).get("msg_id")


@cache
def _painter() -> tuple[str, str]:
    """The widget's code and a name for it, by which a page knows whether it has it."""
    source = (_STATIC / "widget.js").read_text(encoding="utf-8")
    return sha256(source.encode()).hexdigest()[:16], source


@cache
def _layout() -> Any:
    """One layout for all figures: each would be stored beside each."""
    from ipywidgets import Layout

    return Layout()


@cache
def _widget_class() -> Any:
    from anywidget import AnyWidget
    from traitlets import Unicode

    class TpuFigure(AnyWidget):
        # As a trait, because anywidget takes a plain string of one line for the name of a file.
        _esm = Unicode((_STATIC / "loader.js").read_text(encoding="utf-8")).tag(sync=True)

    return TpuFigure
