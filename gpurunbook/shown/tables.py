"""A table as HTML without scripts and as plain text.

JupyterLab's sanitiser (ui-components or apputils `Sanitizer`, by version) keeps `class`, `title` and most of
`style`; it drops SVG, scripts, style sheets and `data-*`, and turns `id` into `data-jupyter-id`. Only what it keeps
is used here, so that a trusted, an untrusted and an exported notebook read alike. Values are found by class:
`rb-table`, `rb-row`, `rb-col-<column>`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpurunbook.plan import Table
from gpurunbook.shown.hostile import coded, escaped, harmless
from gpurunbook.shown.marks import PALETTE, badge, plain, slug

ROWS = 50
"""Rows shown; the whole table is a file of the run."""

PERCENT = "percent"
"""A column whose bars are of a hundred, and not of its largest value."""

_OURS = frozenset({"message", "remedy", "next"})
"""Columns with our own words, in which backticks mean code."""

_WORD = 50

Cell = str | int | float | bool | None


def amount(value: Cell) -> float:
    """Writes nothing. A cell as the length of a bar: 0 for what is no number, not finite, or negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return max(0.0, float(value))


def spoken(value: Cell) -> str | float:
    """Writes nothing. A cell as people read it: – for none, yes and no, the digits that count."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else value


def bar(share: float, colour: str = PALETTE[0], title: str = "") -> str:
    """Writes nothing. A bar of CSS; share is 0 to 1 of the room it has."""
    note = f' title="{escaped(title)}"' if title else ""
    return f'<div class="rb-bar"{note} style="background-color:{colour};height:8px;width:{share * 100:.1f}%"></div>'


def remainder(shown: int, total: int, file: str) -> str:
    """Writes nothing. What a cut table says below it; empty when nothing was cut."""
    if shown >= total:
        return ""
    return f"first {shown} of {total}, all in {harmless(file)}" if file else f"first {shown} of {total}"


def table_html(table: Table, *, rows: int = ROWS, chars: int = 300, file: str = "") -> str:
    """Writes nothing. The first rows as one HTML table, everything in it escaped."""
    shown = table.rows[:rows]
    tops = {
        i: 100.0 if table.columns[i] == PERCENT else max((amount(r[i]) for r in shown), default=0.0)
        for i in _places(table)
    }
    head = "".join(f'<th class="rb-head" style="text-align:left">{escaped(name, chars)}</th>' for name in table.columns)
    body = "".join(_row(table, row, tops, chars) for row in shown)
    notes = _notes_html(_notes(table, len(shown), file))
    if not shown:
        return f'<div class="rb-table"><b class="rb-title">{escaped(table.title)}</b>{notes}</div>'
    return (
        f'<div class="rb-table"><table><caption style="text-align:left;caption-side:top">'
        f'<b class="rb-title">{escaped(table.title)}</b></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{notes}</div>"
    )


def table_text(table: Table, *, rows: int = ROWS, chars: int = 60, file: str = "") -> str:
    """Writes nothing. The first rows in columns, for a reader without HTML."""
    lines = [[harmless(name, chars) for name in table.columns]]
    for row in table.rows[:rows]:
        cells = [harmless(spoken(value), chars) for value in row]
        if table.status in table.columns:
            at = list(table.columns).index(table.status)
            cells[at] = plain(row[at])
        lines.append(cells)
    notes = _notes(table, len(lines) - 1, file)
    return "\n".join([harmless(table.title), *columns(lines), *notes])


def columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Writes nothing. Rows of cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def _places(table: Table) -> list[int]:
    return [i for i, name in enumerate(table.columns) if name in table.bars]


def _row(table: Table, row: Sequence[Cell], tops: dict[int, float], chars: int) -> str:
    cells = []
    for i, (name, value) in enumerate(zip(table.columns, row, strict=True)):
        if name == table.status:
            inner = badge(harmless(spoken(value), chars))
        else:
            shown = coded if name in _OURS else escaped
            inner = f'<span class="rb-value">{shown(spoken(value), chars)}</span>'
        if isinstance(value, str) and len(value) > _WORD:
            # A name without blanks would push the columns behind it out of sight.
            inner = f'<div class="rb-long" style="max-width:420px;word-wrap:break-word">{inner}</div>'
        if i in tops:
            inner += f'<div style="width:120px">{bar(min(1.0, amount(value) / tops[i]) if tops[i] else 0.0)}</div>'
        cells.append(f'<td class="rb-col-{slug(name)}" style="text-align:left">{inner}</td>')
    return f'<tr class="rb-row">{"".join(cells)}</tr>'


def _notes(table: Table, shown: int, file: str) -> list[str]:
    total = max(len(table.rows), table.total or 0)
    notes = [remainder(shown, total, file), harmless(table.note, 600), "" if total else "no rows"]
    return [note for note in notes if note]


def _notes_html(notes: Sequence[str]) -> str:
    return "".join(f'<div class="rb-note"><i>{escaped(note, 900)}</i></div>' for note in notes)
