"""`gpurunbook qualify`: is this upgrade the one that a record proves and somebody approved?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from gpurunbook.cli.answer import as_findings, give, output_option, read
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import qualification, strictjson, times

_REQUEST_LIMIT = 1 << 20
_PREFIX = "GPU upgrade blocked: "


@click.command()
@click.option("--record", required=True, metavar="FILE", help="The qualification record, YAML.")
@click.option("--request", required=True, metavar="FILE", help="current, target, hardware, max_age, now as JSON.")
@click.option("--now", metavar="RFC3339", help="The time to judge at. Default: the request's now, else the clock.")
@output_option
def qualify(record: str, request: str, now: str | None, output: str | None) -> int:
    """Judge an upgrade request by its qualification record. Writes nothing."""
    given = times.instant(now) if now is not None else None
    if now is not None and given is None:
        raise click.BadParameter(f"{now!r} is not RFC 3339 with a T and a zone", param_hint="--now")
    try:
        proven = qualification.read_record(read(record, qualification.LIMIT, follow=False))
        wanted = _request(request)
    except InputError as wrong:
        where = record if wrong.code != "request" else request
        seen = Finding("qualification", where, Status.UNKNOWN, wrong.code, str(wrong), source=qualification.SOURCE)
        refused = {"verdict": "load-error", "problems": [wrong.code], "findings": as_findings([seen])}
        give(refused, [seen], output, prefix=_PREFIX)
        return 2
    moment = given if given is not None else wanted.now
    rehearsal = moment is not None
    if moment is None:
        moment = times.nanoseconds(datetime.now(UTC))
    findings = qualification.judge(proven, wanted, moment)
    problems = sorted({found.code for found in findings if found.status is not Status.PASS})
    answer: dict[str, Any] = {
        "verdict": "blocked" if problems else "pass",
        "problems": problems,
        "findings": as_findings(findings),
        "rehearsal": rehearsal,
        "record": {
            "id": proven.id,
            "approved_by": proven.approved_by,
            "source_revision": proven.source_revision.lower(),
            "completed_at": proven.canary.completed_at,
        },
    }
    give(answer, findings, output, prefix=_PREFIX)
    return 1 if problems else 0


def _request(path: str) -> qualification.Request:
    try:
        raw = read(path, _REQUEST_LIMIT)
        if len(raw) > _REQUEST_LIMIT:
            raise InputError(f"more than {_REQUEST_LIMIT} bytes")
        return qualification.read_request(strictjson.loads(raw))
    except InputError as wrong:
        raise InputError(str(wrong), code="request") from None
