"""What a run says in the notebook: its head, each judged step, and its end. Displays; writes nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpurunbook.declared.book import Runbook
from gpurunbook.findings import Finding, Status
from gpurunbook.journal import State
from gpurunbook.plan import Table, View
from gpurunbook.runbook import display

SHOWN = 20
"""Findings in the table of a step; all of them stand in the journal and in findings.json."""


def opened(state: State, book: Runbook, *, resumed: bool) -> None:
    """Displays the head of a run: which cluster, as whom, and what to do next."""
    cluster = state.start["cluster"]
    display.put(
        display.banner(
            f"{book.title}{': going on' if resumed else ''}",
            values={
                "run": state.run,
                "cluster": cluster["name"] or "current context" if cluster["uid"] else "captured file",
                "cluster uid": cluster["uid"] or "none",
                "server": cluster["version"] or "none",
                "operator": state.start["operator"]["name"] or "unknown",
            },
            rehearsal=state.start["rehearsal"],
            reasons=state.start["rehearsal_reasons"],
            next_action=next_step(state, book),
        )
    )


def next_step(state: State, book: Runbook) -> str:
    """Writes nothing. The first declared step that has not passed, as an action."""
    for step in book.steps:
        if not state.passed(step.id):
            return f"run the cell {step.id!r}: {step.title}"
    return "run the cell 'close'"


def judged(title: str, findings: Sequence[Finding], views: Sequence[View], status: Status, step: str) -> None:
    """Displays one judged step: the verdict first, then its findings, then what the rule shows."""
    counts = {s: sum(f.status is s for f in findings) for s in Status}
    detail = f"{title}: " + (", ".join(f"{n} {s}" for s, n in counts.items() if n) or "no finding")
    display.put(display.state_line(step, status, detail=detail))
    told = [f for f in findings if f.status is not Status.PASS] or list(findings)
    table = Table(
        title="Findings",
        columns=("status", "code", "subject", "message", "remedy"),
        rows=[(str(f.status), f.code, f.subject, f.message, f.remedy) for f in told[:SHOWN]],
        total=len(told),
        status="status",
    )
    display.show(*([table] if told else []), *views, file="findings.json and after/")


def gate(state: State, book: Runbook, step: str) -> None:
    """Displays one line after a gate that let the run go on."""
    data = state.steps[step]
    display.put(display.state_line(step, data["status"], next_action=next_step(state, book)))


def closed(state: State) -> None:
    """Displays the end of a run: the verdict in large type, what was seen, and the next command."""
    assert state.closing is not None
    data: dict[str, Any] = state.closing["data"]
    display.put(
        display.banner(
            "The run is closed",
            verdict=data["verdict"],
            values={"run": state.run, "code": data["code"], "what": data["message"], "head": state.closing["hash"]},
            rehearsal=bool(state.start.get("rehearsal", False)),
            reasons=state.start.get("rehearsal_reasons", ()),
            next_action=data["next"],
        )
    )
