"""`gpurunbook gate`: does the evidence clear the images that run?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from gpurunbook.cli.answer import as_findings, document, give, in_json, output_option, read, whole
from gpurunbook.cli.collect import collect
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Problem
from gpurunbook.sources import files
from gpurunbook.supply import audited, decisions, evidence, evidence_files, gatecodes, relations, times

if TYPE_CHECKING:
    from gpurunbook.supply.gatereport import Report

_RELATIONS = 16 << 20
_EXIT = {"pass": 0, "fail": 1, "error": 2}

FILES, BYTES = 20_000, 4 << 30
"""How many files and bytes a folder of evidence may hold."""


def moment(now: str | None) -> int:
    """Writes nothing. `--now`, or the clock, in nanoseconds since 1970."""
    found = times.instant(now) if now is not None else times.nanoseconds(datetime.now(UTC))
    if found is None:
        raise click.BadParameter(f"{now!r} is not RFC 3339 with a T and a zone", param_hint="--now")
    return found


def span(text: str, option: str) -> int:
    """Writes nothing. A duration of more than nothing, in nanoseconds."""
    found = times.duration(text)
    if found is None or found <= 0:
        raise click.BadParameter(f"{text!r} is no duration such as 48h", param_hint=option)
    return found


@click.group(invoke_without_command=True)
@click.option("--images", metavar="FILE", help="JSON of an audit: the digests that run.")
@click.option("--evidence", "folder", metavar="DIR", help="What cosign, syft and trivy wrote, in files of any name.")
@click.option("--exceptions", metavar="FILE", help="YAML of what Security decided: exceptions, dispositions, signers.")
@click.option("--platform", "named", metavar="OS/ARCH", multiple=True, help="A platform in use; repeated for more.")
@click.option("--platforms", metavar="FILE", help="JSON of node name to platform, as the audit takes it.")
@click.option("--relations", "related", metavar="FILE", help="JSON of index digest to its manifests with platform.")
@click.option("--now", metavar="RFC3339", help="The time to judge at. Default: the clock.")
@click.option("--max-database-age", default="48h", show_default=True, metavar="DURATION", help="Of the scan's data.")
@click.option("--stabilisation", default="24h", show_default=True, metavar="DURATION", help="What must outlast it.")
@output_option
@click.pass_context
def gate(
    ctx: click.Context,
    images: str | None,
    folder: str | None,
    exceptions: str | None,
    named: tuple[str, ...],
    platforms: str | None,
    related: str | None,
    now: str | None,
    max_database_age: str,
    stabilisation: str,
    output: str | None,
) -> int:
    """Judge signatures, SBOMs, scans and dispositions of the images that run. Writes nothing.

    Exits 0 when every digest has all that the policy asks for on each platform in use, 1 when one lacks something, 2
    when a file cannot be judged.
    """
    if ctx.invoked_subcommand is not None:
        if images or folder:
            raise click.UsageError(f"--images and --evidence stand after {ctx.invoked_subcommand}, or without it")
        return 0
    if not images or not folder:
        raise click.UsageError("give --images FILE and --evidence DIR")
    from gpurunbook.supply.gate import Terms
    from gpurunbook.supply.gatereport import Given, decide

    problems: list[Finding] = []
    report = decide(
        Given(
            images=_content(images, audited.LIMIT),
            files=_files(folder),
            exceptions=_content(exceptions, decisions.LIMIT) if exceptions is not None else None,
            relations=_json(related, relations.read_indexes, problems) if related else {},
            terms=Terms(
                moment(now),
                span(max_database_age, "--max-database-age"),
                span(stabilisation, "--stabilisation"),
                _used(named, platforms, problems),
            ),
            names=(images, exceptions or "", folder),
            problems=tuple(problems),
        )
    )
    answer = report.as_json()
    answer["rehearsal"] = answer["rehearsal"] or now is not None
    give(answer, report.findings, output)
    if not in_json(output):
        _table(report)
    return _EXIT[report.verdict]


gate.add_command(collect)


def _content(path: str, limit: int) -> bytes | Problem:
    try:
        return whole(path, limit)
    except InputError as wrong:
        return Problem(wrong.code, wrong.message)


def _files(path: str) -> Iterator[tuple[str, bytes | Problem]] | Problem:
    if not os.path.isdir(path):  # noqa: PTH112 (a NUL in the name is no crash here)
        return Problem("unreadable", "is not a folder")
    return _each(path)


def _each(path: str) -> Iterator[tuple[str, bytes | Problem]]:
    """One file after another, so that a folder may be larger than the memory; a refusal stands for the rest."""
    try:
        yield from files.folder(path, FILES, BYTES)
    except InputError as wrong:
        yield path, Problem("unreadable", wrong.message)


def _json(path: str, reader: Any, problems: list[Finding]) -> Any:
    try:
        return reader(whole(path, _RELATIONS))
    except InputError as wrong:
        problems.append(gatecodes.found(wrong.code, path, wrong.message))
        return {}


def _used(named: Iterable[str], path: str | None, problems: list[Finding]) -> tuple[str, ...]:
    from gpurunbook.supply.gatecheck import platform

    nodes = _json(path, relations.read_nodes, problems) if path else {}
    return tuple(sorted({platform(text, "--platform") for text in (*named, *nodes.values())}))


def _table(report: Report) -> None:
    from gpurunbook.shown.hostile import harmless
    from gpurunbook.shown.tables import columns
    from gpurunbook.supply.gatecheck import table

    shown = table(report)
    rows = [["-" if cell in (None, "") else harmless(cell) for cell in row] for row in shown.rows]
    click.echo("\n".join(columns([shown.columns, *rows])))


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
    at, age = moment(now), span(max_database_age, "--max-database-age")
    try:
        about = document(subject, evidence.read_subject, "subject") if subject is not None else None
        data = read(file, evidence_files.LIMIT)
    except InputError as wrong:
        said = Finding(evidence.CHECK, wrong.subject, Status.UNKNOWN, wrong.code, wrong.message, source=evidence.SOURCE)
        findings: tuple[Finding, ...] = (said,)
    else:
        findings = evidence_files.check(kind, data, about, now=at, max_database_age=age)
    verdict = evidence_files.verdict(findings)
    reasons = sorted({found.code for found in findings})
    answer = {"verdict": verdict, "reasons": reasons, "findings": as_findings(findings), "rehearsal": now is not None}
    give(answer, findings, output)
    return _EXIT[verdict]
