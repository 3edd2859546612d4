"""`gpurunbook gate`: does the evidence clear the images that run?"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from gpurunbook.cli.answer import as_findings, give, output_option, read
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import evidence, evidence_files, strictjson, times

_SUBJECT_LIMIT = 1 << 20
_EXIT = {"pass": 0, "fail": 1, "error": 2}


@click.group()
def gate() -> None:
    """Judge signatures, SBOMs, scans and dispositions of images."""


@gate.command("check-file")
@click.argument("file")
@click.option("--kind", required=True, type=click.Choice(sorted(evidence_files.KINDS)), help="What printed the file.")
@click.option("--subject", metavar="FILE", help="digest, platform, children, config of the image as JSON.")
@click.option("--now", metavar="RFC3339", help="The time to judge at. Default: the clock.")
@click.option("--max-database-age", default="48h", show_default=True, metavar="DURATION", help="For trivy-version.")
@output_option
def check_file(
    file: str, kind: str, subject: str | None, now: str | None, max_database_age: str, output: str | None
) -> int:
    """Judge one FILE that a tool wrote. Writes nothing."""
    moment = times.instant(now) if now is not None else times.nanoseconds(datetime.now(UTC))
    if moment is None:
        raise click.BadParameter(f"{now!r} is not RFC 3339 with a T and a zone", param_hint="--now")
    age = times.duration(max_database_age)
    if age is None or age <= 0:
        raise click.BadParameter(f"{max_database_age!r} is no duration such as 48h", param_hint="--max-database-age")
    try:
        about = _subject(subject) if subject is not None else None
        data = read(file, evidence_files.LIMIT, follow=False)
    except InputError as wrong:
        said = Finding(evidence.CHECK, wrong.subject, Status.UNKNOWN, wrong.code, wrong.message, source=evidence.SOURCE)
        findings: tuple[Finding, ...] = (said,)
    else:
        findings = evidence_files.check(kind, data, about, now=moment, max_database_age=age)
    verdict = evidence_files.verdict(findings)
    reasons = sorted({found.code for found in findings})
    answer = {"verdict": verdict, "reasons": reasons, "findings": as_findings(findings), "rehearsal": now is not None}
    give(answer, findings, output)
    return _EXIT[verdict]


def _subject(path: str) -> evidence.Subject:
    try:
        raw = read(path, _SUBJECT_LIMIT)
        if len(raw) > _SUBJECT_LIMIT:
            raise InputError(f"more than {_SUBJECT_LIMIT} bytes")
        return evidence.read_subject(strictjson.loads(raw))
    except InputError as wrong:
        raise InputError(wrong.message, subject=path, code="subject") from None
