"""Banners, lines of state and error cards: what a cell says around its tables. Writes nothing anywhere.

Named values carry a class of their own (`rb-value-verdict`), which JupyterLab's sanitiser keeps.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence

from gpurunbook.errors import (
    DeadlineError,
    Drifted,
    GateError,
    InputError,
    JournalError,
    NotApproved,
    OutOfOrder,
    ParameterError,
    RunbookError,
    RunBound,
    RunInUse,
    Stopped,
)
from gpurunbook.shown.hostile import coded, escaped, harmless
from gpurunbook.shown.marks import badge, colour, plain, slug
from gpurunbook.shown.mime import CARD_BUDGET, Bundle, size
from gpurunbook.shown.tables import spoken

INTERRUPTED = "The cell was interrupted. What was done stays as it is."
"""What is said of an interrupt, which says nothing itself."""

_KINDS: tuple[tuple[type[BaseException], str, str], ...] = (
    (
        Stopped,
        "Stopped",
        "Put right what the findings name, then run this cell again: the run goes on from here.",
    ),
    (OutOfOrder, "Out of order", "Run the cell that is named first, then this one."),
    (RunInUse, "The run is in use", "Close the other kernel or wait until it ends, then run this cell again."),
    (Drifted, "Something changed meanwhile", "Run the checks before this step again, then this cell."),
    (NotApproved, "Not approved", "Have the plan approved, then run this cell again."),
    (GateError, "The run may not go on", "Do what is named above, then run this cell again."),
    (
        RunBound,
        "The run goes by other parameters",
        "Begin the new run, or put back in the parameters cell what is named; run that cell, then this one.",
    ),
    (ParameterError, "A parameter is wrong", "Change the parameters cell, run it, then run this cell again."),
    (InputError, "An input cannot be read", "Put the input right, then run this cell again."),
    (DeadlineError, "Out of time", "Run this cell again to go on waiting: what was done is not done twice."),
    (JournalError, "The journal does not hold", "Keep the run folder as it is, and begin a new run."),
    (KeyboardInterrupt, "Interrupted", "Run this cell again: what was done is not done twice."),
    (Exception, "Something went wrong", "Run this cell again: what stands in the journal is not done twice."),
)


def card(
    error: BaseException,
    *,
    title: str,
    subject: str,
    what: str,
    remedy: str,
    how_to_go_on: str,
    code: str = "",
    redact: Callable[[str], str] = str,
) -> Bundle:
    """Writes nothing. A short error card; the traceback is folded and without folders of this machine.

    redact: applied to every text before it is escaped.
    """
    facts = {"What": what, "Object": subject, "To do": remedy, "Go on": how_to_go_on, "Code": code}
    facts = {name: redact(text) for name, text in facts.items() if text}
    trace = redact(trace_text(error))
    for chars in (2000, 600, 200):
        made = _card(redact(title), facts, trace, chars)
        if size(made) <= CARD_BUDGET:
            break
    return made


def error_card(error: BaseException, *, redact: Callable[[str], str] = str) -> Bundle:
    """Writes nothing. The card of any error."""
    title, go_on = next((title, go_on) for kind, title, go_on in _KINDS if isinstance(error, kind))
    ours = _ours(error)
    return card(
        error,
        title=title,
        subject=ours.subject,
        what=ours.message,
        remedy=ours.remedy,
        how_to_go_on=go_on,
        code=ours.code,
        redact=redact,
    )


def _ours(error: BaseException) -> RunbookError:
    if isinstance(error, RunbookError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return RunbookError(INTERRUPTED, code="interrupted")
    return RunbookError(f"{type(error).__name__}: {error}", code="crash")


def state_line(step: str, status: str, *, detail: str = "", next_action: str = "") -> Bundle:
    """Writes nothing. One line after a gate: where the run stands, and what to do next."""
    text = [f"{plain(status)} · {harmless(step)}"]
    parts = [f'{badge(status)} <b class="rb-value-step">{escaped(step)}</b>']
    if detail:
        text.append(harmless(detail))
        parts.append(f'<span class="rb-value-detail">{escaped(detail)}</span>')
    if next_action:
        text.append(f"next: {harmless(next_action)}")
        parts.append(f'next: <span class="rb-value-next">{coded(next_action)}</span>')
    return {"text/html": f'<div class="rb-state">{" · ".join(parts)}</div>', "text/plain": " · ".join(text)}


def facts_line(facts: Mapping[str, str | int | float]) -> Bundle:
    """Writes nothing. The first eight facts of a step on one line, each found by its class, `rb-fact-<name>`."""
    shown = {name.replace("_", " "): spoken(value) for name, value in list(facts.items())[:8]}
    if "verdict" in shown:  # of the rule; the verdict of the run stands at its end
        shown = {"answer" if name == "verdict" else name: value for name, value in shown.items()}
    text = [f"{harmless(name, 40)}: {harmless(value, 80)}" for name, value in shown.items()]
    parts = [
        f'<b>{escaped(name, 40)}</b>: <span class="rb-fact-{slug(name)}">{escaped(value, 80)}</span>'
        for name, value in shown.items()
    ]
    return {"text/html": f'<div class="rb-facts">{" · ".join(parts)}</div>', "text/plain": " · ".join(text)}


def banner(
    title: str,
    *,
    verdict: str = "",
    values: Mapping[str, object] | None = None,
    rehearsal: bool = False,
    reasons: Sequence[str] = (),
    next_action: str = "",
) -> Bundle:
    """Writes nothing. The head of a run, or its end with the verdict in large type; a rehearsal is red in both.

    values: named facts shown in order, such as run, cluster, operator. reasons: why this is a rehearsal.
    """
    text, html = [harmless(title)], [f'<div class="rb-banner-title" style="font-weight:bold">{escaped(title)}</div>']
    if verdict:
        text.insert(0, f"verdict: {plain(verdict)}")
        html.insert(0, f'<div class="rb-value-verdict" style="padding:4px 0px">{badge(verdict, size="24px")}</div>')
    if rehearsal:
        why = "; ".join(reasons)
        said = f"not evidence for a live cluster{': ' if why else ''}{why}"
        text.insert(0, f"{plain('rehearsal')}: {harmless(said, 300)}")
        html.insert(0, f'<div class="rb-rehearsal">{badge("rehearsal", size="18px")} {escaped(said, 300)}</div>')
    shown = {**(values or {}), **({"next": next_action} if next_action else {})}
    for name, value in shown.items():
        text.append(f"  {harmless(name)}: {harmless(value, 300)}")
        html.append(f"<div>{_named(name, value)}</div>")
    ground = colour("rehearsal" if rehearsal else verdict)
    return {"text/html": _box("rb-banner", ground, "".join(html)), "text/plain": "\n".join(text)}


def trace_text(error: BaseException) -> str:
    """Writes nothing. The error and its causes with their frames; of files only the last two names are told."""
    told: list[str] = []
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        if seen:
            told.append("caused by")
        seen.append(current)
        frames = [f for f in traceback.extract_tb(current.__traceback__) if "/IPython/" not in f.filename]
        told += [f"{_short(f.filename)}:{f.lineno} in {f.name}: {f.line or ''}" for f in frames[-20:]]
        told.append(f"{type(current).__name__}: {current}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\n".join(told)


def _card(title: str, facts: Mapping[str, str], trace: str, chars: int) -> Bundle:
    lines = "".join(f"<div>{_named(name, text, chars)}</div>" for name, text in facts.items())
    head = f'<div style="font-weight:bold">✗ {escaped(title)}</div>'
    folded = (
        '<details class="rb-traceback"><summary>Traceback, for whoever looks for the cause in the code</summary>'
        f'<pre style="white-space:pre-wrap">{escaped(trace, chars, lines=True)}</pre></details>'
    )
    text = [f"✗ {harmless(title)}", *(f"  {name}: {harmless(value, chars)}" for name, value in facts.items())]
    return {"text/html": _box("rb-card", colour("failed"), head + lines + folded), "text/plain": "\n".join(text)}


def _short(file: str) -> str:
    return "cell" if "ipykernel_" in file or file.startswith("<ipython") else "/".join(file.split("/")[-2:])


def _named(name: str, value: object, chars: int = 300) -> str:
    return (
        f'<b>{escaped(name)}</b>: <span class="rb-value-{slug(name)}" style="white-space:pre-wrap">'
        f"{coded(value, chars, lines=True)}</span>"
    )


def _box(kind: str, ground: str, inner: str) -> str:
    return f'<div class="{kind}" style="border-left:6px solid {ground};padding:4px 12px">{inner}</div>'
