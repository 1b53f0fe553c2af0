"""What `%tpu` shows, decided here once: told as text, painted by `_html` and, live, by the widget (`_widget`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _control, _sizes

#: How much is shown before "and ... more".
MAX_DEVICES, MAX_OPS, MAX_TEXT = 64, 20, 60

#: What the bars of `Share` mean.
LEGEND = "The mark on a bar is the peak."


@dataclass(frozen=True)
class Table:
    """Rows under a heading. A cell is text, or a `Share`; numbers stand right."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str | Share, ...]]
    #: One character a column: "l" or "r".
    align: str
    note: str = ""


@dataclass(frozen=True)
class Share:
    """A part of a whole, drawn as a bar with a mark at `peak`, and told as a percentage."""

    part: int
    whole: int
    peak: int = 0

    @property
    def percent(self) -> float:
        """0 to 100."""
        return self._percent(self.part)

    @property
    def peak_percent(self) -> float:
        """0 to 100, never below `percent`."""
        return max(self._percent(self.peak), self.percent)

    def _percent(self, part: int) -> float:
        return min(100.0 * part / self.whole, 100.0) if self.whole > 0 else 0.0

    def __str__(self) -> str:
        percent = self.percent
        if 0 < percent < 0.1:
            return "<0.1 %"
        return f"{percent:.1f} %"


@dataclass(frozen=True)
class Dashboard:
    """A headline, lines of text, and tables."""

    headline: str
    lines: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    #: True when there is nothing to show but the reason in `headline`.
    failed: bool = False

    def text(self) -> str:
        """For a terminal."""
        parts = [self.headline, *self.lines]
        for table in self.tables:
            parts += ["", table.title, *_columns(table)]
            if table.note:
                parts.append(table.note)
        return "\n".join(parts)

    def state(self) -> dict[str, Any]:
        """For the widget: what JSON can say. Its types stand in `ui/widget/src/state.ts`."""
        tables = [
            {
                "title": table.title,
                "columns": table.columns,
                "align": table.align,
                "rows": [[_plain(cell) for cell in row] for row in table.rows],
                "note": table.note,
            }
            for table in self.tables
        ]
        return {"headline": self.headline, "lines": self.lines, "tables": tables, "failed": self.failed}


def _plain(cell: str | Share) -> Any:
    if not isinstance(cell, Share):
        return cell
    return {"text": str(cell), "percent": round(cell.percent, 2), "peak": round(cell.peak_percent, 2)}


def overview() -> Dashboard:
    """`%tpu`: devices, memory, the last ops."""
    return _guarded(lambda: _head([_devices(), _ops()]))


def devices() -> Dashboard:
    """`%tpu devices`: what each device is."""
    return _guarded(lambda: _head([_kinds()]))


def hbm() -> Dashboard:
    """`%tpu hbm`: memory of each device."""
    return _guarded(lambda: _head([_hbm()]))


#: The views that are tables, by what follows `%tpu`.
VIEWS = {"": overview, "hbm": hbm, "devices": devices}


def _guarded(make: Any) -> Dashboard:
    from . import _load, _plugins, _settings

    if _load.error is not None:
        return Dashboard(f"no device: {_load.error}", ["`%tpu doctor` says more."], failed=True)
    if _settings.environment_error is not None:
        return Dashboard(f"no device: {_settings.environment_error}", failed=True)
    try:
        if not (_control.call("status").get("started") or _plugin_path()):
            return Dashboard(f"no device: {_plugins.missing_text()}", failed=True)
        return make()
    except Exception as error:
        return Dashboard(f"no device: {error}", ["`%tpu doctor` says more."], failed=True)


def _plugin_path() -> str | None:
    from . import _plugins

    told = _control.call("settings").get("plugin")
    found = _plugins.find()
    return told or (found.path if found else None)


def _head(tables: list[Table]) -> Dashboard:
    status, settings = _control.call("status"), _control.call("settings")
    found = _control.call("devices")
    virtual = any(device.get("virtual") for device in found)
    chips = sorted({str(device.get("chip", "?")) for device in found})
    count = f"{len(found)} device" + ("s" if len(found) != 1 else "")
    headline = f"{count} of TPU {' and '.join(chips)}" + (" (virtual, on CPU)" if virtual else "")
    lines = [f"Plugin: {_plugin_line(status)}", f"Eager mode: {settings.get('mode', 'strict')}"]
    if status.get("started"):
        lines.append(_counts(_control.call("counters")))
    else:
        lines.append("Not started: the first tensor starts the devices.")
    lines += _fallbacks()
    return Dashboard(headline, [line for line in lines if line], tables)


def _plugin_line(status: Mapping[str, Any]) -> str:
    from . import _plugins

    path = status.get("plugin") or _plugin_path() or ""
    parts = [_plugins.describe(path)]
    if status.get("platform"):
        parts.append(f"platform {status['platform']}")
    version = status.get("api_version")
    if version:
        parts.append("PJRT API " + (".".join(map(str, version)) if isinstance(version, list | tuple) else str(version)))
    return ", ".join(parts)


def _counts(counters: Mapping[str, Any]) -> str:
    parts = []
    for key, words in (("programs_compiled", "programs compiled"), ("program_executions", "programs run")):
        if key in counters:
            parts.append(f"{int(counters[key]):,} {words}")
    if "compile_seconds" in counters:
        parts.append(f"{float(counters['compile_seconds']):.1f} s spent compiling")
    return ", ".join(parts)


def _fallbacks() -> list[str]:
    counts = _control.call("counters").get("fallbacks") or {}
    if not counts:
        return []
    named = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{op} ({count:,})" for op, count in named[:8])
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    return [f"Ran on the CPU instead: {shown}{more}"]


def _devices() -> Table:
    rows = []
    found = _control.call("devices")
    for device in found[:MAX_DEVICES]:
        allocated, total = int(device.get("allocated", 0)), int(device.get("hbm_bytes", 0))
        peak = int(device.get("peak", 0))
        rows.append(
            (
                f"tpu:{device['index']}",
                str(device.get("chip", "")),
                _sizes.text(allocated),
                _sizes.text(peak),
                _sizes.text(total),
                Share(allocated, total, peak),
            )
        )
    columns = ("device", "chip", "allocated", "peak", "HBM", "used")
    return Table("Memory", columns, rows, "llrrrl", f"{_more(found, MAX_DEVICES)} {LEGEND}".strip())


def _hbm() -> Table:
    rows = []
    found = _control.call("devices")
    for device in found[:MAX_DEVICES]:
        memory = _control.call("memory", device=device["index"])
        allocated, total = int(memory.get("allocated", 0)), int(device.get("hbm_bytes", 0))
        peak = int(memory.get("peak", 0))
        made, freed = memory.get("allocations"), memory.get("frees")
        alive = "" if made is None or freed is None else f"{int(made) - int(freed):,}"
        rows.append(
            (
                f"tpu:{device['index']}",
                _sizes.text(allocated),
                _sizes.text(peak),
                _sizes.text(max(total - allocated, 0)),
                _sizes.text(total),
                alive,
                Share(allocated, total, peak),
            )
        )
    note = f"{LEGEND} Totals a device. What each tensor holds is not shown."
    more = _more(found, MAX_DEVICES)
    columns = ("device", "allocated", "peak", "free", "HBM", "storages", "used")
    return Table("HBM", columns, rows, "lrrrrrl", f"{more} {note}".strip())


def _kinds() -> Table:
    found = _control.call("devices")
    rows = [
        (
            f"tpu:{device['index']}",
            str(device.get("chip", "")),
            str(device.get("chip_index", "")),
            "virtual, on CPU" if device.get("virtual") else "TPU",
            _sizes.text(int(device.get("hbm_bytes", 0))),
        )
        for device in found[:MAX_DEVICES]
    ]
    return Table(
        "Devices", ("device", "generation", "chip", "runs as", "HBM"), rows, "llrlr", _more(found, MAX_DEVICES)
    )


def _ops() -> Table:
    rows = []
    for op in reversed((_control.call("last_ops", n=MAX_OPS) or [])[-MAX_OPS:]):
        device = op.get("device", "")
        rows.append(
            (
                _short(str(op.get("op", "?"))),
                f"tpu:{device}" if isinstance(device, int) else str(device),
                _duration(op.get("enqueue_ns")),
            )
        )
    # The program itself may run on after that.
    note = "Host time is what it took to enqueue the op's program." if rows else "No op has run."
    return Table("Last ops, newest first", ("op", "device", "host time"), rows, "llr", note)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _duration(ns: Any) -> str:
    if ns is None:
        return ""
    ns = float(ns)
    if ns < 1e6:
        return f"{ns / 1e3:.1f} µs"
    return f"{ns / 1e6:.1f} ms" if ns < 1e9 else f"{ns / 1e9:.2f} s"


def _more(found: list[Any], shown: int) -> str:
    return f"And {len(found) - shown} more." if len(found) > shown else ""


def _columns(table: Table) -> list[str]:
    cells = [table.columns, *[tuple(map(str, row)) for row in table.rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = []
    for number, row in enumerate(cells):
        parts = [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, table.align, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
        if number == 0:
            lines.append("  ".join("─" * width for width in widths))
    return lines if table.rows else []
