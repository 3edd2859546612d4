"""`gpurunbook qualify`: is this upgrade the one that a record proves and somebody approved, and is it true of here?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gpurunbook.cli.answer import as_findings, cluster, document, give, in_json, output_option, read
from gpurunbook.errors import InputError, RunbookError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Judgement, Observed, Table
from gpurunbook.shown.hostile import harmless
from gpurunbook.shown.tables import columns
from gpurunbook.supply import current, qualification, times

_PREFIX = "GPU upgrade blocked: "
_NAMESPACES = ("gpu-operator", "hami-system")
EXIT = {"pass": 0, "blocked": 1, "unknown": 2, "load-error": 2}


@click.command()
@click.option("--record", required=True, metavar="FILE", help="The qualification record, YAML.")
@click.option("--request", metavar="FILE", help="current, target, hardware, max_age, now as JSON.")
@click.option("--now", metavar="RFC3339", help="The time to judge at. Default: the request's now, else the clock.")
@click.option("--live", is_flag=True, help="Compare current and hardware with what the cluster shows.")
@click.option("--cluster", "name", default="", metavar="NAME", help="With --live: context or embedded:DIR.")
@click.option("--namespace", "namespaces", multiple=True, metavar="NS", help="With --live: of the operands; repeated.")
@click.option("--canary-node", "canaries", multiple=True, metavar="NODE", help="With --live: was upgraded; repeated.")
@click.option("--fill", metavar="FILE", help="With --live and no request: write the request as the cluster shows it.")
@output_option
def qualify(
    record: str,
    request: str | None,
    now: str | None,
    live: bool,
    name: str,
    namespaces: tuple[str, ...],
    canaries: tuple[str, ...],
    fill: str | None,
    output: str | None,
) -> int:
    """Judge an upgrade request by its qualification record.

    Writes nothing, but for --fill: a request whose current tuple and hardware are those of the cluster and whose target
    is the record's; what the cluster does not show, or not as one, stays blank there. Exits 0 when the record proves
    the step, 1 when something is against it, 2 when a file cannot be used or the cluster does not show all of it.
    """
    given = times.instant(now) if now is not None else None
    if now is not None and given is None:
        raise click.BadParameter(f"{now!r} is not RFC 3339 with a T and a zone", param_hint="--now")
    _usage(request, live, bool(name or namespaces or canaries), canaries, fill)
    try:
        proven = qualification.read_record(read(record, qualification.LIMIT, follow=False))
        wanted = document(request, qualification.read_request, "request") if request is not None else None
    except InputError as wrong:
        where, said = (wrong.subject, wrong.message) if wrong.code == "request" else (record, str(wrong))
        return _refused("load-error", where, wrong.code, said, output)
    seen: current.Current | None = None
    answer: dict[str, Any] = {}
    if live:
        try:
            seen, about = _collected(name, namespaces or _NAMESPACES)
        except RunbookError as wrong:
            return _refused("unknown", wrong.subject or "cluster", "cluster-unreadable", str(wrong), output)
        answer |= about
    if wanted is None and seen is not None:
        values, hardware = current.filled(seen)
        wanted = qualification.Request(values, proven.target, hardware)
        if fill is not None:
            _fill(Path(fill), wanted)
    if wanted is None:
        raise click.UsageError("--request is missing")
    moment = given if given is not None else wanted.now
    answer["rehearsal"] = bool(answer.get("rehearsal")) or moment is not None
    if moment is None:
        moment = times.nanoseconds(datetime.now(UTC))
    findings = list(qualification.judge(proven, wanted, moment))
    if seen is not None:
        typed = current.Typed(wanted.current, wanted.target, wanted.hardware, proven.hardware)
        compared = current.judge(typed, seen, canaries or None)
        findings += compared.findings
        answer["live"] = _as_json(seen, compared)
        _show(compared, output)
    bad = [found for found in findings if found.status in (Status.FAIL, Status.UNKNOWN)]
    unknown = any(found.status is Status.UNKNOWN for found in bad)
    answer |= {
        "verdict": "unknown" if unknown else "blocked" if bad else "pass",
        "problems": sorted({found.code for found in bad}),
        "findings": as_findings(findings),
        "record": {
            "id": proven.id,
            "approved_by": proven.approved_by,
            "source_revision": proven.source_revision.lower(),
            "completed_at": proven.canary.completed_at,
        },
    }
    give(answer, findings, output, prefix=_PREFIX)
    return EXIT[answer["verdict"]]


def _usage(request: str | None, live: bool, of_live: bool, canaries: tuple[str, ...], fill: str | None) -> None:
    if not live and (of_live or fill is not None):
        raise click.UsageError("--cluster, --namespace, --canary-node and --fill go with --live")
    if request is None and not live:
        raise click.UsageError("--request is missing; only with --live the cluster may stand for it")
    if request is None and canaries:
        raise click.UsageError(
            "--canary-node goes with --request: in the middle of an upgrade nothing can be filled in"
        )
    if request is not None and fill is not None:
        raise click.UsageError("--fill writes a request, --request gives one: give one of them")


def _refused(verdict: str, where: str, code: str, message: str, output: str | None) -> int:
    seen = Finding("qualification", where, Status.UNKNOWN, code, message, source=qualification.SOURCE)
    give({"verdict": verdict, "problems": [code], "findings": as_findings([seen])}, [seen], output, prefix=_PREFIX)
    return EXIT[verdict]


def _collected(name: str, namespaces: tuple[str, ...]) -> tuple[current.Current, dict[str, Any]]:
    """What the cluster shows, and which one it is."""
    source = cluster(name)
    about = {"cluster": source.uid, "rehearsal": source.rehearsal}
    seen: dict[str, Observed] = {word: source.observe(need) for word, need in current.needs(namespaces).items()}
    return current.collect(seen, namespaces), about


def _fill(path: Path, wanted: qualification.Request) -> None:
    made = {"current": dict(wanted.current), "target": dict(wanted.target), "hardware": list(wanted.hardware)}
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(made, sort_keys=True, indent=1) + "\n")
    except OSError as wrong:
        remedy = "Name a file that is not there yet."
        raise InputError(f"cannot be written: {wrong.strerror}", subject=str(path), remedy=remedy) from None


def _as_json(seen: current.Current, compared: Judgement) -> Mapping[str, Any]:
    values, hardware = current.filled(seen)
    tables = {
        view.title.lower().replace(" ", "_"): [dict(zip(view.columns, row, strict=True)) for row in view.rows]
        for view in compared.views
        if isinstance(view, Table)
    }
    return {"current": values, "hardware": hardware, **tables}


def _show(compared: Judgement, output: str | None) -> None:
    if in_json(output):
        return
    for view in compared.views:
        if isinstance(view, Table):
            rows = [[harmless(cell, 120) for cell in row] for row in (view.columns, *view.rows)]
            click.echo("\n".join(columns(rows)) + "\n")
