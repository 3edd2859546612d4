"""What cells show: tables and figures as MIME bundles, the head and the end of a run, and how errors look.

A bundle reads alike in JupyterLab trusted and untrusted, in exported HTML and as text. Everything in it is redacted
and escaped, and a cell stays within 64 KB.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gpurunbook
from gpurunbook.declared.book import Runbook
from gpurunbook.errors import GateError, RunbookError
from gpurunbook.findings import EXIT, Finding, Status
from gpurunbook.journal import State
from gpurunbook.plan import Figure, Judgement, Table, View
from gpurunbook.shown import cards
from gpurunbook.shown.cards import banner, card, error_card
from gpurunbook.shown.figures import PLOTLY, figure_from_bundle, figure_html, figure_text, plotly, svg, trimmed
from gpurunbook.shown.hostile import coded, escaped, harmless
from gpurunbook.shown.mime import CELL_BUDGET, VIEW_BUDGET, Bundle, put, size
from gpurunbook.shown.redact import redact
from gpurunbook.shown.tables import ROWS, table_html, table_text

__all__ = [
    "CELL_BUDGET",
    "VIEW_BUDGET",
    "Bundle",
    "banner",
    "bundle",
    "card",
    "closed",
    "error_card",
    "figure_from_bundle",
    "install_error_card",
    "judged",
    "paste",
    "put",
    "size",
    "start",
    "state_line",
    "svg",
]

_PACKAGE = Path(gpurunbook.__file__).parent

_REACH = 1 << 16
"""Characters of one text that are looked at: a secret is taken out before the text is cut to what is shown."""


def bundle(view: View, *, file: str = "", budget: int = VIEW_BUDGET) -> Bundle:
    """Writes nothing. A table or figure as a MIME bundle of at most `budget` bytes.

    A table is `text/html` and `text/plain`, a figure also `application/vnd.plotly.v1+json`. At most 50 rows are
    shown; `file` is named as the place where all are. Cells are cut to 300 characters; where the budget demands it
    to fewer, then rows are left out. Raises ValueError when a row has not one cell per column.
    """
    clean = _clean_figure(view) if isinstance(view, Figure) else _clean_table(view)
    for rows, chars in _sizes():
        made = _figure(clean, rows, chars) if isinstance(clean, Figure) else _table(clean, rows, chars, file)
        if size(made) <= budget:
            return made
    text = f"{harmless(clean.title, 120)}: too large to show" + (f", all in {harmless(file, 120)}" if file else "")
    return {"text/html": f'<div class="rb-note">{escaped(text)}</div>', "text/plain": text}


def start(state: State, book: Runbook, *, resumed: bool) -> None:
    """Displays the head of a run: which run, cluster and operator, whether it is a rehearsal, and what comes next."""
    told = state.start
    cluster = told.get("cluster") or {}
    passed = [step.id for step in book.steps if state.passed(step.id)]
    values = {
        "run": state.run,
        "cluster": cluster.get("name") or "current context",
        "cluster uid": cluster.get("uid") or "none: no cluster was read",
        "server": cluster.get("version") or "unknown",
        "operator": (told.get("operator") or {}).get("name") or "unknown",
    }
    if resumed:
        values["resumed"] = f"passed already: {', '.join(passed)}" if passed else "no step has passed yet"
    _banner(book.title, values, told, next_action=_next(state, book))


def unshown(steps: Sequence[str]) -> None:
    """Displays one line: steps that passed, and whose cells show an error since they were run before the start."""
    detail = "passed before; run before the start cell, so the cell shows an error now"
    put(cards.state_line(", ".join(steps), "warn", detail=detail, next_action=f"run the cell {steps[0]} again"))


def judged(title: str, judgement: Judgement, record: Mapping[str, Any]) -> None:
    """Displays what a step concluded: status, facts, the findings that are not good, then the rule's views.

    record: the journal's `judged` data of the step.
    """
    bad = [finding for finding in judgement.findings if finding.status is not Status.PASS]
    put(
        cards.state_line(
            title, str(record["status"]), detail=f"findings: {len(judgement.findings)}, not good: {len(bad)}"
        )
    )
    if facts := {k: v for k, v in record.get("facts", {}).items() if isinstance(v, str | int | float)}:
        put(cards.facts_line(facts))
    kept = [name for name in record.get("files", {}) if name.startswith("after/")]
    file = kept[0] if len(kept) == 1 else "after/ of the run folder" if kept else ""
    _show([(_findings(bad), "findings.json")] * bool(bad) + [(view, file) for view in judgement.views])


def state_line(state: State, book: Runbook) -> None:
    """Displays one line after a gate that let the run go on: how far the run is, and the next action."""
    passed = sum(state.passed(step.id) for step in book.steps)
    detail = f"{passed} of {len(book.steps)} steps passed"
    put(cards.state_line(state.run, "pass", detail=detail, next_action=_next(state, book)))


def closed(state: State) -> None:
    """Displays the end of a run: the verdict in large type, and what was left behind.

    Of a run that closed well also why and what comes next; of another one the card of its error says both.
    """
    closing = state.closing["data"] if state.closing else {}
    left = closing.get("left_behind") or []
    values = {"run": state.run, "step": closing.get("step", ""), "code": closing.get("code", "")}
    well = EXIT[state.verdict] == 0
    if well:
        values["message"] = closing.get("message", "")
    values["left behind"] = "; ".join(map(str, left)) if left else "nothing"
    next_action = str(closing.get("next", "")) if well else ""
    _banner(state.runbook, values, state.start, verdict=str(state.verdict), next_action=next_action)


def paste(title: str, text: str) -> None:
    """Displays a block of text to copy, such as the parameter lines of an apply."""
    clean = redact(text)
    shown = f'<pre class="rb-value-paste">{escaped(clean, 4000, lines=True)}</pre>'
    html = f'<div class="rb-paste"><b>{coded(title)}</b>{shown}</div>'
    put({"text/html": html, "text/plain": f"{harmless(title)}:\n{harmless(clean, 4000, lines=True)}"})


def install_error_card(shell: Any) -> None:
    """Changes how this kernel tells errors; the cell fails as before. Calling it again replaces the earlier call.

    An error of ours becomes a card with its traceback folded, and so does an interrupt or a defect of this package. The
    `error` output that papermill and nbclient look for stays. Of it they and JupyterLab show the traceback: for a log
    that is the whole message, or the frames of a defect; in JupyterLab, beside the card, one short line.
    SystemExit becomes an error output named GateError: papermill takes a cell that ended with `sys.exit(0)` for a
    success and exits 0 with the later cells not run (papermill/execute.py, raise_for_execution_errors).
    """
    plain = type(shell)._showtraceback
    # A Jupyter server names its session to a kernel (jupyter_server/services/sessions/sessionmanager.py).
    page = "JPY_SESSION_NAME" in os.environ

    def tell(kind: type[BaseException], error: BaseException, lines: list[str]) -> None:
        if isinstance(error, SystemExit):
            error = _left(error)
        if isinstance(error, RunbookError | KeyboardInterrupt) or _passed_here(error):
            put(error_card(error, redact=redact))
            kind, said = type(error), harmless(redact(str(error)), 600)
            if page:
                lines = [harmless(redact(_short(error)), 200)]
            elif isinstance(error, RunbookError):
                lines = [f"{kind.__name__}: {said}"]
            plain(shell, kind, said, lines)
        else:
            plain(shell, kind, error, lines)

    # The one place through which IPython tells every error of a cell; SystemExit never reaches set_custom_exc
    # (IPython/core/interactiveshell.py, run_code).
    shell._showtraceback = tell


def _show(views: Sequence[tuple[View, str]]) -> None:
    left = VIEW_BUDGET
    for at, (view, file) in enumerate(views):
        made = bundle(view, file=file, budget=left // (len(views) - at))
        left -= size(made)
        put(made)


def _passed_here(error: BaseException) -> bool:
    """Whether a function of this package let it through: then it is a defect, and not one of the reader's own cell."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).is_relative_to(_PACKAGE) for frame in frames)


def _short(error: BaseException) -> str:
    """The name of an error, its code and its object. The card beside it says the rest."""
    told = [error.code, error.subject] if isinstance(error, RunbookError) else []
    return ": ".join([type(error).__name__, *filter(None, told)])


def _left(error: SystemExit) -> GateError:
    return GateError(
        f"the cell ended itself with SystemExit({error.code!r:.80})",
        code="exit-in-cell",
        remedy="Nothing after it ran, and the run is not closed. Take the exit out of the cell.",
    ).with_traceback(error.__traceback__)


def _banner(title: str, values: Mapping[str, object], told: Mapping[str, Any], **more: str) -> None:
    # A run whose cluster was not identified is no evidence either.
    rehearsal = bool(told.get("rehearsal", True))
    reasons = list(map(str, told.get("rehearsal_reasons", ["the cluster was not identified"])))
    put(cards.banner(title, values=values, rehearsal=rehearsal, reasons=reasons, **more))


def _next(state: State, book: Runbook) -> str:
    for step in book.steps:
        if not state.passed(step.id):
            return f"run the cell {step.id}: {step.title}"
    return "run the last cell, run.close()"


def _findings(bad: list[Finding]) -> Table:
    rows = [(f.status, f.code, f.subject, f.message, f.remedy) for f in bad[:ROWS]]
    columns = ("status", "code", "subject", "message", "remedy")
    return Table("Findings that are not good", columns, rows, total=len(bad), status="status")


def _sizes() -> Iterator[tuple[int, int]]:
    yield from ((ROWS, chars) for chars in (300, 120, 60))
    yield from ((rows, 60) for rows in (25, 12, 6, 3, 1, 0))


def _table(table: Table, rows: int, chars: int, file: str) -> Bundle:
    return {
        "text/html": table_html(table, rows=rows, chars=chars, file=file),
        "text/plain": table_text(table, rows=rows, chars=min(chars, 60), file=file),
    }


def _figure(figure: Figure, labels: int, chars: int) -> Bundle:
    short = trimmed(figure, labels, min(chars, 80))
    return {PLOTLY: plotly(short), "text/html": figure_html(short), "text/plain": figure_text(short)}


def _clean(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # Blanks in place of the rest keep its length for the note on the cut.
    return redact(str(value)[:_REACH]) + " " * (len(value) - _REACH)


def _clean_table(table: Table) -> Table:
    if any(len(row) != len(table.columns) for row in table.rows[:ROWS]):
        raise ValueError(f"table {table.title!r:.80}: a row has not one cell per column")
    return Table(
        title=_clean(table.title),
        columns=table.columns,
        rows=[[_clean(cell) for cell in row] for row in table.rows[:ROWS]],
        total=max(len(table.rows), table.total or 0),
        bars=table.bars,
        status=table.status,
        note=_clean(table.note),
    )


def _clean_figure(figure: Figure) -> Figure:
    return Figure(_clean(figure.title), [_clean(label) for label in figure.labels], figure.series, figure.unit)
