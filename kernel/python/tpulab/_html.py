"""Static HTML for notebooks.

Styles stand in the elements and take JupyterLab's colours with fallbacks that do in any theme, so that it looks right
in light and dark, and is a plain readable table where a viewer strips styles. Nothing in it changes from one run to
the next but the facts.
"""

from __future__ import annotations

from html import escape

from ._dashboard import Dashboard, Share, Table

_BOX = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);"
    "color:var(--jp-ui-font-color1,inherit);line-height:1.5;max-width:60em"
)
_QUIET = "color:var(--jp-ui-font-color2,inherit)"
_EDGE = "var(--jp-border-color1,rgba(128,128,128,0.5))"
_ROW = f'<tr style="border-bottom:1px solid {_EDGE}">'
_BAD = "color:var(--jp-error-color1,#d32f2f)"
_COLORS = {
    "ok": "var(--jp-success-color1,#388e3c)",
    "warn": "var(--jp-warn-color1,#f57c00)",
    "bad": "var(--jp-error-color1,#d32f2f)",
    "info": "var(--jp-info-color1,#0288d1)",
}


def dashboard(shown: Dashboard) -> str:
    """The HTML of a dashboard."""
    tone = f"font-weight:600;{_BAD}" if shown.failed else "font-weight:600"
    parts = [f'<div style="{tone}">{escape(shown.headline)}</div>']
    parts += [f'<div style="{_QUIET}">{escape(line)}</div>' for line in shown.lines]
    parts += [_table(table) for table in shown.tables]
    return _box(parts, "tpulab: devices, memory and ops")


def report(checks: list[tuple[str, str, str, str]], verdict: str) -> str:
    """The HTML of the doctor's report: (what, state, found, remedy) each."""
    head = _heads(("", "what", "found"), "lll")
    rows = []
    for name, state, found, remedy in checks:
        cure = f'<div style="{_QUIET}">→ {escape(remedy)}</div>' if remedy else ""
        mark = f'<span style="color:{_COLORS[state]};font-weight:600">{state}</span>'
        label = f'<span style="white-space:nowrap">{escape(name)}</span>'
        cells = (mark, label, escape(found) + cure)
        rows.append(
            _ROW + "".join(f'<td style="{_cell("l")};vertical-align:top">{cell}</td>' for cell in cells) + "</tr>"
        )
    table = f'<table style="{_grid()}">{head}<tbody>{"".join(rows)}</tbody></table>'
    return _box([f'<div style="font-weight:600">{escape(verdict)}</div>', table], "tpulab: doctor")


def _box(parts: list[str], label: str) -> str:
    return f'<div role="group" aria-label="{escape(label)}" style="{_BOX}">{"".join(parts)}</div>'


def _table(table: Table) -> str:
    title = f'<div style="font-weight:600;margin-top:0.8em">{escape(table.title)}</div>'
    note = f'<div style="{_QUIET}">{escape(table.note)}</div>' if table.note else ""
    if not table.rows:
        return title + note
    rows = []
    for row in table.rows:
        cells = [
            f'<td style="{_cell(side)}">{_bar(cell) if isinstance(cell, Share) else escape(cell)}</td>'
            for cell, side in zip(row, table.align, strict=True)
        ]
        rows.append(f"{_ROW}{''.join(cells)}</tr>")
    return (
        f'{title}<table aria-label="{escape(table.title)}" style="{_grid()}">{_heads(table.columns, table.align)}'
        f"<tbody>{''.join(rows)}</tbody></table>{note}"
    )


def _grid() -> str:
    return "border-collapse:collapse;margin:0.3em 0;color:inherit;font-variant-numeric:tabular-nums"


def _heads(columns: tuple[str, ...], align: str) -> str:
    cells = "".join(
        f'<th scope="col" style="{_cell(side)};font-weight:600">{escape(name)}</th>'
        for name, side in zip(columns, align, strict=True)
    )
    return f"<thead>{_ROW}{cells}</tr></thead>"


def _cell(side: str) -> str:
    # Said for each cell, since JupyterLab's own sheet puts all cells right.
    return f"text-align:{'right' if side == 'r' else 'left'};padding:.2em 1em .2em 0"


def _bar(share: Share) -> str:
    # Greys are half transparent, so they show on white and on black; the percentage stands beside the bar. The lighter
    # part with an edge goes up to the peak. Nothing is positioned, since viewers that sanitize take that away.
    block = "display:block;height:100%;box-sizing:border-box"
    color = "var(--jp-brand-color1,#1976d2)"
    peak, inner = share.peak_percent, 100.0 * share.percent / share.peak_percent if share.peak_percent else 0.0
    edge = f";border-right:2px solid {color}" if peak else ""
    return (
        '<span style="display:inline-block;width:8em;height:0.7em;background:rgba(128,128,128,0.25);'
        'vertical-align:middle;margin-right:0.6em">'
        f'<span style="{block};width:{peak:.1f}%;background:rgba(128,128,128,0.35){edge}">'
        f'<span style="{block};width:{inner:.1f}%;background:{color}"></span></span></span>{escape(str(share))}'
    )
