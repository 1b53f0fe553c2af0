"""The line magic `%tpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

#: What may follow `%tpu`, and what it shows.
VIEWS = {
    "": "devices, memory and the last ops",
    "hbm": "memory of each device",
    "devices": "what each device is",
    "doctor": "what was found and what is wrong",
}


def register(shell: InteractiveShell) -> None:
    """Gives `shell` the magic `%tpu`, and its figures a look after each cell."""
    from . import _widget

    shell.register_magic_function(tpu, magic_kind="line", magic_name="tpu")
    if _widget.refresh not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _widget.refresh)


def unregister(shell: InteractiveShell) -> None:
    """Takes the magic `%tpu` from `shell`, and its live figures with it."""
    from . import _widget

    shell.magics_manager.magics["line"].pop("tpu", None)
    if _widget.refresh in shell.events.callbacks["post_run_cell"]:
        shell.events.unregister("post_run_cell", _widget.refresh)
    _widget.close_all()


def tpu(line: str = "") -> None:
    """Shows what device "tpu" is doing.

    %tpu            devices, memory and the last ops
    %tpu hbm        memory of each device
    %tpu devices    what each device is
    %tpu doctor     what was found on this machine and what is wrong
    """
    html, text = render(line)
    from IPython import get_ipython
    from IPython.display import display

    from . import _dashboard, _widget

    display({"text/html": html, "text/plain": text}, raw=True)
    if maker := _dashboard.VIEWS.get(_view(line)):
        _widget.show(get_ipython(), maker)


def render(line: str) -> tuple[str, str]:
    """HTML and text of a view.

    Raises:
        UsageError: no view goes by that name; IPython shows it as one line.
    """
    from . import _dashboard, _html

    view = _view(line)
    if view == "doctor":
        from . import _doctor

        report = _doctor.examine()
        return report.html(), report.text()
    maker = _dashboard.VIEWS.get(view)
    if maker is None:
        from IPython.core.error import UsageError

        choices = ", ".join(f"%tpu {name}".strip() for name in VIEWS)
        raise UsageError(f"%tpu has no view {view!r}; there are {choices}")
    shown = maker()
    return _html.dashboard(shown), shown.text()


def _view(line: str) -> str:
    return " ".join(line.split())
