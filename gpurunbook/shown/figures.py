"""A bar chart as plotly JSON, as an HTML table with bars, as text, and as SVG for our own HTML report.

JupyterLab draws the plotly JSON, in an untrusted notebook too; GitHub, nbconvert and a browser without scripts show
the table. The JSON is written by hand: plotly.py would add 7 KB of template to each figure.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpurunbook.plan import Figure
from gpurunbook.shown.hostile import escaped, harmless
from gpurunbook.shown.marks import PALETTE, slug
from gpurunbook.shown.tables import amount, bar, columns, spoken

PLOTLY = "application/vnd.plotly.v1+json"
LABELS = 50

_HATCH = ("", "/", "x", ".", "\\", "-", "+", "|")


def trimmed(figure: Figure, labels: int = LABELS, chars: int = 80) -> Figure:
    """Writes nothing. The figure with its first labels, each harmless, short and unlike the others.

    Raises ValueError when a series has not one value per label.
    """
    for name, values in figure.series.items():
        if len(values) != len(figure.labels):
            raise ValueError(f"series {name!r:.80} has {len(values)} values for {len(figure.labels)} labels")
    count = len(figure.labels)
    title = harmless(figure.title)
    return Figure(
        title=title if count <= labels else f"{title} (first {labels} of {count})",
        labels=_apart([harmless(label, chars) for label in figure.labels[:labels]]),
        series=dict(
            zip(
                _apart([harmless(name, chars) for name in figure.series]),
                [list(values[:labels]) for values in figure.series.values()],
                strict=True,
            )
        ),
        unit=harmless(figure.unit, chars),
    )


def plotly(figure: Figure) -> dict[str, Any]:
    """Writes nothing. The figure for plotly.js: stacked horizontal bars with their values, no template."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": _label(name),
            "y": [_label(label) for label in figure.labels],
            "x": [_number(value) for value in values],
            "text": [str(spoken(value)) for value in values],
            "textposition": "auto",
            "textangle": 0,
            "insidetextanchor": "middle",
            "marker": {
                "color": PALETTE[i % len(PALETTE)],
                # Over the colour: a number on a hatch without ground cannot be read.
                "pattern": {"shape": _HATCH[i % len(_HATCH)], "fillmode": "overlay", "fgopacity": 0.25},
            },
        }
        for i, (name, values) in enumerate(figure.series.items())
    ]
    layout = {
        "title": {"text": _label(figure.title)},
        "barmode": "stack",
        "showlegend": len(data) > 1,
        "legend": {"traceorder": "normal"},
        "height": 140 + 32 * len(figure.labels),
        "margin": {"t": 48, "b": 56},
        "xaxis": {"title": {"text": _label(figure.unit or "number")}, "rangemode": "tozero"},
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True},
        "meta": {"gpurunbook": "figure"},
    }
    # Not `responsive`: JupyterLab resizes figures itself, and the two together leave one of height 0.
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def figure_from_bundle(data: Mapping[str, Any]) -> Figure | None:
    """Writes nothing. The figure that `plotly` put into a MIME bundle, or None when it holds none of ours."""
    try:
        stored = data[PLOTLY]
        if stored["layout"]["meta"] != {"gpurunbook": "figure"}:
            return None
        labels = [_read(label) for label in stored["data"][0]["y"]] if stored["data"] else []
        series = {_read(trace["name"]): [_value(x) for x in trace["x"]] for trace in stored["data"]}
        unit = _read(stored["layout"]["xaxis"]["title"]["text"])
        figure = Figure(_read(stored["layout"]["title"]["text"]), labels, series, "" if unit == "number" else unit)
        return trimmed(figure)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None


def figure_html(figure: Figure) -> str:
    """Writes nothing. One row per label: its values, and one bar in segments. For what `trimmed` returned."""
    top = max(_totals(figure), default=0.0) or 1.0
    heads = ["", *figure.series, ""]
    head = "".join(f'<th class="rb-head" style="text-align:left">{escaped(name)}</th>' for name in heads)
    rows = []
    for at, label in enumerate(figure.labels):
        values = "".join(
            f'<td class="rb-col-{slug(name)}" style="text-align:right">'
            f'<span class="rb-value">{escaped(spoken(series[at]))}</span></td>'
            for name, series in figure.series.items()
        )
        bars = "".join(
            bar(amount(series[at]) / top, PALETTE[i % len(PALETTE)], f"{name}: {spoken(series[at])}")
            for i, (name, series) in enumerate(figure.series.items())
        )
        rows.append(
            f'<tr class="rb-row"><td class="rb-label" style="text-align:left">{escaped(label)}</td>{values}'
            f'<td style="text-align:left"><div style="display:flex;width:240px">{bars}</div></td></tr>'
        )
    unit = f" ({escaped(figure.unit)})" if figure.unit else ""
    return (
        f'<div class="rb-figure"><table><caption style="text-align:left;caption-side:top"><b class="rb-title">'
        f"{escaped(figure.title)}</b>{unit}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def figure_text(figure: Figure) -> str:
    """Writes nothing. The values in columns. For what `trimmed` returned."""
    lines = [["", *figure.series]]
    for at, label in enumerate(figure.labels):
        lines.append([label, *(str(spoken(series[at])) for series in figure.series.values())])
    title = f"{figure.title} ({figure.unit})" if figure.unit else figure.title
    return "\n".join([title, *columns(lines)])


def svg(figure: Figure) -> str:
    """Writes nothing. The figure as one inline SVG without scripts, for the exported HTML."""
    figure = trimmed(figure, chars=48)
    top = max(_totals(figure), default=0.0) or 1.0
    left, room, step = 20 + 7 * max((len(label) for label in figure.labels), default=0), 420, 26
    y = 30
    parts = [_text(10, 18, figure.title + (f" ({figure.unit})" if figure.unit else ""), "font-weight='bold'")]
    if len(figure.series) > 1:
        for i, name in enumerate(figure.series):
            parts.append(f"<rect x='10' y='{y}' width='12' height='12' fill='{PALETTE[i % len(PALETTE)]}'/>")
            parts.append(_text(28, y + 11, name))
            y += 18
        y += 8
    for at, label in enumerate(figure.labels):
        parts.append(_text(left - 8, y + 14, label, "text-anchor='end'"))
        x = float(left)
        for i, (name, series) in enumerate(figure.series.items()):
            wide = amount(series[at]) / top * room
            parts.append(
                f"<rect x='{x:.1f}' y='{y}' width='{wide:.1f}' height='18' stroke='#ffffff' "
                f"fill='{PALETTE[i % len(PALETTE)]}'><title>{escaped(f'{name}: {spoken(series[at])}')}</title></rect>"
            )
            x += wide
        each = [str(spoken(series[at])) for series in figure.series.values()]
        said = " + ".join(each) if set(each) != {"0"} else "0"
        parts.append(_text(x + 6, y + 14, said, "class='rb-value'"))
        y += step
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' class='rb-svg' role='img' width='{left + room + 140}' "
        f"height='{y + 8}' font-family='sans-serif' font-size='12' aria-label='{escaped(figure.title)}'>"
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y}' {more}>{escaped(text)}</text>"


def _totals(figure: Figure) -> list[float]:
    return [sum(amount(series[at]) for series in figure.series.values()) for at in range(len(figure.labels))]


def _label(text: str) -> str:
    # plotly.js reads its own small HTML in every text, and TeX between dollar signs.
    return html.escape(text, quote=False).replace("$", "&#36;")


def _read(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(type(text).__name__)
    return html.unescape(text)


def _number(value: int | float) -> int | float | None:
    return value if math.isfinite(value) else None


def _value(value: Any) -> int | float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(type(value).__name__)
    return value


def _apart(names: Sequence[str]) -> list[str]:
    # Equal labels would be one bar for plotly.js, and one key here.
    apart: dict[str, None] = {}
    for name in names:
        unlike, count = name, 1
        while unlike in apart:
            count += 1
            unlike = f"{name} ({count})"
        apart[unlike] = None
    return list(apart)
