"""`gpurunbook gate collect`: run cosign, syft and trivy for every image that runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from gpurunbook.cli.answer import DOCUMENT, as_findings, give, output_option, whole
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import audited, decisions, relations, times

if TYPE_CHECKING:
    from gpurunbook.sources.collect import Collected, Plan

T = TypeVar("T")

_CHECK = "collect"


@click.command()
@click.option("--images", required=True, metavar="FILE", help="JSON of an audit: the digests that run.")
@click.option("--out", required=True, metavar="DIR", help="Where the evidence goes; what is whole there is kept.")
@click.option(
    "--pins", required=True, metavar="FILE", help="JSON of tool to exact version: cosign, crane, syft, trivy."
)
@click.option("--exceptions", metavar="FILE", help="YAML of what Security decided: who signs which repository.")
@click.option("--key", "keys", metavar="FILE", multiple=True, help="A public key of cosign's; repeated for more.")
@click.option("--platform", "named", metavar="OS/ARCH", multiple=True, help="In use. Default: all that an image has.")
@click.option("--platforms", metavar="FILE", help="JSON of node name to platform, as the audit takes it.")
@click.option("--relations", "related", metavar="FILE", help="JSON of index digest to its manifests with platform.")
@click.option("--registry-map", "mirrors", metavar="FROM=TO", multiple=True, help="Ask a mirror: nvcr.io=mirror/nvcr.")
@click.option("--trivy-cache", metavar="DIR", help="Where trivy's database is. It is never updated here.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Calls at the same time.")
@click.option("--timeout", default="15m", show_default=True, metavar="DURATION", help="Of one call.")
@output_option
def collect(
    images: str,
    out: str,
    pins: str,
    exceptions: str | None,
    keys: tuple[str, ...],
    named: tuple[str, ...],
    platforms: str | None,
    related: str | None,
    mirrors: tuple[str, ...],
    trivy_cache: str | None,
    jobs: int,
    timeout: str,
    output: str | None,
) -> int:
    """Collect signatures, SBOMs and scans of the images that run. Writes under --out.

    Each digest is asked for by itself, on each platform in use, with tools of exact versions; every call is recorded.
    Exits 0 when every call said something about its image, 2 otherwise. Judges nothing: see `gpurunbook gate`.
    """
    from gpurunbook.sources.collect import Plan
    from gpurunbook.sources.keys import fingerprint
    from gpurunbook.sources.pins import read_pins
    from gpurunbook.supply.family import Family
    from gpurunbook.supply.gatecheck import platform

    span = times.duration(timeout)
    if span is None or span <= 0:
        raise click.BadParameter(f"{timeout!r} is no duration such as 15m", param_hint="--timeout")
    try:
        nodes = _read(platforms, relations.read_nodes) if platforms else {}
        plan = Plan(
            out=Path(out),
            images=_read(images, audited.read_audit, audited.LIMIT).images(),
            pins=_read(pins, read_pins),
            decisions=_read(exceptions, decisions.read_decisions) if exceptions else decisions.Decisions(),
            family=Family(_read(related, relations.read_indexes, audited.LIMIT) if related else {}),
            platforms=tuple(sorted({platform(one, "--platform") for one in (*named, *nodes.values())})),
            keys={fingerprint(Path(key)): Path(key) for key in keys},
            mirrors=dict(map(_mirror, mirrors)),
            cache=Path(trivy_cache) if trivy_cache else None,
            jobs=jobs,
            timeout=span / times.SECOND,
        )
        made = _collected(plan)
    except InputError as wrong:
        message = f"{wrong.message} {wrong.remedy}".strip()
        told = [Finding(_CHECK, wrong.subject, Status.UNKNOWN, wrong.code, message)]
        give({"verdict": "error", "findings": as_findings(told)}, told, output)
        return 2
    findings = list(_told(made))
    give(_answer(made, findings), findings, output)
    return 0 if made.whole else 2


def _read(path: str, reader: Callable[[bytes], T], limit: int = DOCUMENT) -> T:
    data = whole(path, limit)
    try:
        return reader(data)
    except InputError as wrong:
        where = f"{path}, {wrong.subject}" if wrong.subject.startswith("line") else path
        raise InputError(wrong.message, subject=where, code=wrong.code) from None


def _mirror(text: str) -> tuple[str, str]:
    start, equals, instead = text.partition("=")
    if not start or not equals or not instead or text.endswith("/") or start.endswith("/"):
        raise click.BadParameter(f"{text!r} is not FROM=TO, such as nvcr.io=mirror/nvcr", param_hint="--registry-map")
    return start, instead


def _collected(plan: Plan) -> Collected:
    from gpurunbook.sources.collect import collect as run

    with _progress() as told:
        return run(plan, told)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done, _all: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("calls"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("calls", total=None)
        yield lambda done, known: bar.update(task, completed=done, total=known)


def _told(made: Collected) -> Iterator[Finding]:
    from gpurunbook.supply.calls import tail

    for digest, why in sorted(made.unverified.items()):
        yield Finding(_CHECK, digest, Status.WARN, "signature-not-asked", why)
    for one in made.done:
        call = one.call
        if not one.answered:
            end = "did not end in time" if call.exit_code is None else f"ended with {call.exit_code}"
            end = f"{end} and wrote no whole JSON" if call.exit_code == 0 else end
            yield Finding(_CHECK, one.job.record, Status.UNKNOWN, "command-failed", f"{call.tool} {end}: {tail(call)}")


def _answer(made: Collected, findings: list[Finding]) -> dict[str, object]:
    kept = sum(one.kept for one in made.done)
    calls = [
        {
            "record": one.job.record,
            "tool": one.call.tool,
            "version": one.call.version,
            "exit_code": one.call.exit_code,
            "seconds": one.call.seconds,
            "kept": one.kept,
        }
        for one in made.done
    ]
    counts = {"ran": len(made.done) - kept, "kept": kept}
    verdict = "collected" if made.whole else "incomplete"
    return {"verdict": verdict, "calls": calls, "findings": as_findings(findings), **counts}
