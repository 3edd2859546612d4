"""`gpurunbook audit`: the runtime image provenance audit of a captured list or of a live cluster."""

from __future__ import annotations

import gc
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpurunbook.errors import RunbookError
from gpurunbook.plan import Document, Need, Observed
from gpurunbook.sources import files
from gpurunbook.supply.audit import DEFAULT_NAMESPACES, Scope
from gpurunbook.supply.auditcodes import RECORD_CODES
from gpurunbook.supply.records import Record
from gpurunbook.supply.report import Report, judge, listed

if TYPE_CHECKING:
    from gpurunbook.sources.cluster import Cluster

EXIT = {"pass": 0, "fail": 1, "error": 2}

COLOURS = {"pass": "green", "fail": "red", "error": "magenta"}

LIMIT = 200
"""Characters of one text that are shown; the JSON has all of it."""

FOLDED = 2000
"""Rows that are fitted to a terminal; more would take many seconds, and are printed as they are."""

_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
"""On a terminal the beginning is enough; the JSON and the CSV have all of it."""

COLUMNS = ("audit", "evidence", "namespace", "pod", "kind", "container", "desired", "resolved", "reasons")


@click.command()
@click.option("--pod-json", metavar="FILE", help="A captured PodList (kubectl get pods -o json), - for standard input.")
@click.option("--cluster", metavar="NAME", help="Kubeconfig context or embedded:DIR; none: the current context.")
@click.option(
    "--namespace",
    "namespaces",
    metavar="NS",
    multiple=True,
    help=f"A namespace that must have a pod; repeated for more. Live without any: {', '.join(DEFAULT_NAMESPACES)}.",
)
@click.option("--baseline", metavar="FILE", default="", help="JSON of an earlier audit: names digests that changed.")
@click.option("--relations", metavar="FILE", default="", help="JSON of index digest to its manifests with platform.")
@click.option("--platforms", metavar="FILE", default="", help="JSON of node name to platform.")
@click.option("--tolerate-never-started", is_flag=True, help="Report ended pods that never started apart.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
def audit(
    pod_json: str | None,
    cluster: str | None,
    namespaces: tuple[str, ...],
    baseline: str,
    relations: str,
    platforms: str,
    tolerate_never_started: bool,
    output: str,
) -> int:
    """Judge the images that run in the GPU namespaces. Writes nothing.

    Exits 0 when all keep to the policy, 1 when one does not, 2 when the list could not be read in full.
    """
    if pod_json is not None and cluster is not None:
        raise click.UsageError("--pod-json reads a file, --cluster a live cluster: give one of them")
    if pod_json == "":
        raise click.UsageError("--pod-json needs the name of a file")
    scope = Scope(namespaces, pod_json or "", baseline, relations, platforms, tolerate_never_started)
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and walking a hundred thousand records for them costs as much as reading
    try:
        report = _report(scope, cluster)
        _show(report, output)
    finally:
        if collecting:
            gc.enable()
    return EXIT[report.verdict]


def _report(scope: Scope, name: str | None) -> Report:
    """Reads what the scope needs, and judges it. The bytes that were read are gone when this returns."""
    if scope.pod_json:
        return scope.report(_observe(scope.needs(), None), None, True)
    from gpurunbook.cli.answer import cluster

    try:
        live = cluster(name or "")
        uid, rehearsal = live.uid, live.rehearsal
    except RunbookError as wrong:
        found = listed("cluster-unreadable", wrong.subject, f"{wrong.code}: {wrong.message}")
        return judge((), problems=[replace(found, remedy=wrong.remedy or found.remedy)])
    return scope.report(_observe(scope.needs(), live), uid, rehearsal)


def _observe(needs: Mapping[str, Need], live: Cluster | None) -> dict[str, Observed]:
    seen = {}
    for name, need in needs.items():
        if isinstance(need, Document):
            seen[name] = files.observe(need)
        elif live is not None:
            seen[name] = live.observe(need)
    return seen


def _show(report: Report, output: str) -> None:
    if output == "json":
        sys.stdout.buffer.write(report.as_json())
        sys.stdout.buffer.flush()
        click.echo(_verdict(report), err=True)
        return
    from gpurunbook.shown.tables import columns

    rows, told, verdict = [COLUMNS, *_cells(report.records)], list(_told(report)), _verdict(report)
    if output == "csv":
        click.echo(_csv(rows), nl=False)
        click.echo("\n".join([*told, verdict]), err=True)
        return
    if sys.stdout.isatty():
        verdict = click.style(verdict, fg=COLOURS[report.verdict])
        rows = [tuple(_DIGEST.sub(r"\1…", cell) for cell in row) for row in rows]
    if sys.stdout.isatty() and len(rows) <= FOLDED:
        _fitted(rows)
        click.echo("\n".join([*told, verdict]))
    else:
        click.echo("\n".join([*columns(rows), "", *told, verdict]))


def _fitted(rows: Sequence[Sequence[str]]) -> None:
    """Prints the rows in the width of the terminal; what is longer goes on in the next line of its column."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    Console().print(table)


def _cells(records: Iterable[Record]) -> Iterator[tuple[str, ...]]:
    from gpurunbook.shown.hostile import harmless

    for r in records:
        named = (r.namespace, r.pod, r.kind, r.container, r.desired or "-", r.resolved or "-")
        reasons = " ".join(r.reasons)
        yield r.audit, "yes" if r.evidence else "no", *(harmless(cell, LIMIT) for cell in named), reasons


def _csv(rows: Iterable[Sequence[str]]) -> str:
    import csv
    import io

    text = io.StringIO()
    # A spreadsheet runs a cell that begins like this as a formula, unless a quote stands before it.
    csv.writer(text, lineterminator="\n").writerows(
        [f"'{cell}" if cell.startswith(("=", "+", "-", "@")) and cell != "-" else cell for cell in row] for row in rows
    )
    return text.getvalue()


def _told(report: Report) -> Iterator[str]:
    """What was found, each with the next action."""
    from gpurunbook.shown.hostile import harmless

    if report.rehearsal:
        yield "rehearsal: not evidence for a live cluster"
    for f in report.findings:
        yield ": ".join(filter(None, (f.code, harmless(f.subject, LIMIT), harmless(f.message, 1000))))
        yield f"    {f.remedy}"
    for code, count in sorted(Counter(code for r in report.records for code in r.reasons).items()):
        known = RECORD_CODES[code]
        yield f"{code} ({known.effect}): {count} records: {known.meaning}"
        if known.remedy:
            yield f"    {known.remedy}"


def _verdict(report: Report) -> str:
    failed = sum(r.audit == "fail" for r in report.records)
    usable = "usable as evidence" if report.evidence_ready else "not usable as evidence"
    return (
        f"{report.verdict}: {len(report.records)} records, {failed} fail; {len(report.digests)} digests; "
        f"{usable}{' of a rehearsal' if report.rehearsal else ''}"
    )
