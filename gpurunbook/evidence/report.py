"""The executed notebook as one HTML page for whoever reads the evidence: without scripts, without the network.

Outputs are hostile: HTML goes through the allow-list, figures are drawn anew from their data, text is escaped. The
page forbids itself every script and every request besides (Content-Security-Policy).
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from gpurunbook.evidence import executed
from gpurunbook.shown.figures import figure_from_bundle, svg
from gpurunbook.shown.hostile import coded, escaped, harmless
from gpurunbook.shown.marks import badge, colour
from gpurunbook.shown.sanitise import clean
from gpurunbook.shown.scraps import MIME

FINDINGS = 50
TEXT = 64 * 1024
"""Characters of one output; the whole of it stands in the notebook."""

_HTML = 256 * 1024
_PACKAGE = Path(__file__).parents[1]
_PARTS = (
    "evidence/report.py",
    "evidence/report.html",
    "evidence/executed.py",
    "shown/sanitise.py",
    "shown/figures.py",
    "shown/hostile.py",
    "shown/marks.py",
)
_COLOURED = re.compile(r"\x1b\[[0-9;]*m")
_TAG = re.compile(r"<[^<>]*>")
_IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


@functools.cache
def renderer() -> str:
    """Writes nothing. A digest of what makes the page: pages of equal renderers can be compared byte by byte."""
    total = hashlib.sha256()
    for name in _PARTS:
        total.update((_PACKAGE / name).read_bytes())
    for package in ("jinja2", "markdown-it-py"):
        total.update(f"{package} {metadata.version(package)}\n".encode())
    return "sha256:" + total.hexdigest()


def render(notebook: executed.Notebook, core: Mapping[str, Any], findings: Sequence[Mapping[str, str]]) -> str:
    """Writes nothing. The page. core: what `facts.conclude` says, with `evidence`; the same in gives the same out."""
    from markupsafe import Markup

    told = _plain(core)
    bad = [finding for finding in findings if finding["status"] != "pass"]
    page: str = _template().render(
        core=told,
        ground=colour("rehearsal" if core["rehearsal"] else core["verdict"]),
        badge=Markup(badge(core["verdict"])),  # noqa: S704 - badge escapes
        told=list(_told(core)),
        marked={"evidence"} if core["evidence"] != "sealed" else set(),
        steps=[_step(step) for step in core["steps"]],
        bad=[{**_plain(f), "badge": Markup(badge(f["status"]))} for f in bad[:FINDINGS]],  # noqa: S704
        more=max(0, len(bad) - FINDINGS),
        # What did not run is named once, above them.
        anomalies=[e for e in told["anomalies"] if e["kind"] != "skipped" or e["cell"] not in told["not_run"]],
        places={_plain(cell.key): f"cell-{at}" for at, cell in enumerate(notebook.cells, 1)},
        cells=[_cell(cell, core["anomalies"]) for cell in notebook.cells],
    )
    return page


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = lambda text: Markup(coded(text, 4000, lines=True))  # noqa: S704 - coded escapes
    return environment.from_string((_PACKAGE / "evidence" / "report.html").read_text())


@functools.cache
def _markdown() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("js-default").disable("image")


def _plain(value: Any) -> Any:
    """Texts from the cluster can hold what a browser obeys even when it is escaped: bidirectional overrides."""
    if isinstance(value, str):
        return harmless(value, 2000, lines=True)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _told(core: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cluster, operator = core["cluster"] or {}, core["operator"] or {}
    named = f"{cluster.get('name') or 'current context'}, uid {cluster.get('uid')}, server {cluster.get('version')}"
    told = {
        "run": core["run"],
        "cluster": named if cluster.get("uid") else "none was read",
        "operator": operator.get("name") or "unknown",
        "time": f"{_moment(core['start'])} to {_moment(core['end'])}",
        "evidence": core["evidence"],
        "change": core["change_id"],
        "reason": core["reason"],
        "approved by": core["approver"],
        "overrides": ", ".join(map(str, core["overrides"])),
        "left behind": "; ".join(map(str, core["left_behind"])) or "nothing",
    }
    yield from ((name, harmless(value, 2000)) for name, value in told.items() if value)


def _moment(time: str) -> str:
    return re.sub(r"T([0-9:]{8})(?:\.[0-9]+)?Z", r" \1 UTC", time)


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    from markupsafe import Markup

    counts = ", ".join(f"{count} {status}" for status, count in step["findings"].items() if count)
    return {**_plain(step), "badge": Markup(badge(step["status"])), "counts": counts or "none"}  # noqa: S704


def _cell(cell: executed.Cell, anomalies: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    from markupsafe import Markup

    if cell.kind == "markdown":
        marker = executed.of_papermill(cell)
        shown = f"<p>papermill: {escaped(_TAG.sub('', cell.source))}</p>" if marker else _prose(cell.source)
        return {"key": _plain(cell.key), "silent": False, "prose": Markup(shown)}  # noqa: S704 - escaped or cleaned
    silent = cell.code and cell.ran is None
    words = sorted({entry["kind"] for entry in anomalies if entry["cell"] == cell.key} - {"skipped"})
    return {
        "key": _plain(cell.key),
        "silent": silent,
        "prose": None,
        "label": _label(cell, silent),
        "words": words,
        "source": harmless(_calm(cell.source), TEXT, lines=True),
        "outputs": [made for output in cell.outputs if (made := _output(output))],
    }


def _label(cell: executed.Cell, silent: bool) -> str:
    count = f"[{cell.ran}]" if cell.ran is not None else cell.kind
    given = " parameters as given to papermill" if executed.of_papermill(cell) else ""
    return "did not run" if silent else count + given


def _prose(text: str) -> str:
    return clean(_markdown().render(harmless(_calm(text), TEXT, lines=True)))


def _output(output: Mapping[str, Any]) -> dict[str, Any] | None:
    from markupsafe import Markup

    if output["output_type"] == "error":
        trace = output.get("traceback")
        lines = "\n".join(line for line in trace if isinstance(line, str)) if isinstance(trace, list) else ""
        said = f"<strong>{escaped(output.get('ename', ''))}</strong>: {_text(str(output.get('evalue', '')))}"
        made: dict[str, Any] = {"shown": said, "trace": True, "summary": "traceback", "more": _text(lines)}
    elif output["output_type"] == "stream":
        made = {"shown": _text(str(output.get("text", ""))), "more": ""}
    else:
        data = output.get("data")
        made = _data(data) if isinstance(data, dict) else {"shown": "", "more": ""}
    if not made["shown"]:
        return None
    return {**made, "shown": Markup(made["shown"]), "more": Markup(made["more"])}  # noqa: S704 - escaped or cleaned


def _data(data: Mapping[str, Any]) -> dict[str, Any]:
    html = data.get("text/html")
    html = html if isinstance(html, str) and len(html) <= _HTML else ""
    figure = figure_from_bundle(data)
    if figure is not None:
        table = clean(html) if html else _text(str(data.get("text/plain", "")))
        return {"shown": svg(figure), "summary": "the figure's values", "more": table}
    if html:
        return {"shown": clean(html), "more": ""}
    for kind, magic in _IMAGES.items():
        if image := _image(data.get(kind), magic):
            return {"shown": f'<img alt="" src="data:{kind};base64,{image}">', "more": ""}
    if isinstance(data.get("text/markdown"), str):
        return {"shown": _prose(data["text/markdown"]), "more": ""}
    if isinstance(data.get("text/plain"), str):
        return {"shown": _text(data["text/plain"]), "more": ""}
    others = ", ".join(sorted(map(str, data.keys() - {MIME})))
    return {"shown": f"<p>not shown here: {escaped(others)}</p>" if others else "", "more": ""}


def _text(text: str) -> str:
    return f"<pre>{escaped(_calm(text), TEXT, lines=True)}</pre>" if text.strip() else ""


def _calm(text: str) -> str:
    return _COLOURED.sub("", text).replace("\t", "    ").replace("\r\n", "\n")


def _image(text: Any, magic: bytes) -> str:
    try:
        raw = base64.b64decode(re.sub(r"\s", "", text), validate=True)
    except (binascii.Error, TypeError, ValueError):
        return ""
    return base64.b64encode(raw).decode() if raw.startswith(magic) and len(raw) <= 4 << 20 else ""
