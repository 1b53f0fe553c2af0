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
    """Gives `shell` the magic `%tpu`."""
    shell.register_magic_function(tpu, magic_kind="line", magic_name="tpu")


def unregister(shell: InteractiveShell) -> None:
    """Takes the magic `%tpu` from `shell`."""
    shell.magics_manager.magics["line"].pop("tpu", None)


def tpu(line: str = "") -> None:
    """Shows what device "tpu" is doing.

    %tpu            devices, memory and the last ops
    %tpu hbm        memory of each device
    %tpu devices    what each device is
    %tpu doctor     what was found on this machine and what is wrong
    """
    html, text = render(line)
    from IPython.display import display

    display({"text/html": html, "text/plain": text}, raw=True)


def render(line: str) -> tuple[str, str]:
    """HTML and text of a view.

    Raises:
        UsageError: no view goes by that name; IPython shows it as one line.
    """
    from . import _dashboard, _html

    view = " ".join(line.split())
    if view == "doctor":
        from . import _doctor

        report = _doctor.examine()
        return report.html(), report.text()
    makers = {"": _dashboard.overview, "hbm": _dashboard.hbm, "devices": _dashboard.devices}
    if view not in makers:
        from IPython.core.error import UsageError

        choices = ", ".join(f"%tpu {name}".strip() for name in VIEWS)
        raise UsageError(f"%tpu has no view {view!r}; there are {choices}")
    shown = makers[view]()
    return _html.dashboard(shown), shown.text()
