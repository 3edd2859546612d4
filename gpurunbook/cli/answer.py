"""What commands share: reading a file, opening a cluster, and giving the answer to people or to machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.shown.hostile import harmless
from gpurunbook.sources.files import regular
from gpurunbook.supply import strictjson

if TYPE_CHECKING:
    from gpurunbook.sources.cluster import Cluster

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DOCUMENT = 1 << 20
"""Bytes of a file that a person writes."""

_COLOURS = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "red", Status.UNKNOWN: "magenta"}


def output_option(command: F) -> F:
    """Adds `-o table|json`: a table on a terminal and JSON elsewhere, unless it is given."""
    option = click.option("-o", "--output", type=click.Choice(["table", "json"]), help="Default: table on a terminal.")
    return option(command)


def in_json(output: str | None) -> bool:
    """Writes nothing. Whether the answer is to be JSON. output: what `-o` was given, None without it."""
    return (output or ("table" if sys.stdout.isatty() else "json")) == "json"


def read(path: str, limit: int, *, follow: bool = True) -> bytes:
    """Writes nothing. At most `limit` + 1 bytes of a regular file, so that a longer one shows by its length.

    follow: whether the file may be a symbolic link; what comes from a checkout may not. Raises InputError
    (`unreadable`).
    """
    try:
        with regular(path, follow=follow) as file:
            if file is None:
                raise InputError("not a regular file", subject=path, code="unreadable")
            return file.read(limit + 1)
    except OSError as wrong:
        why = "a symbolic link" if not follow and Path(path).is_symlink() else wrong.strerror
        raise InputError(f"cannot be read: {why}", subject=path, code="unreadable") from None
    except ValueError as wrong:  # a NUL in the name
        raise InputError(f"cannot be read: {wrong}", subject=path, code="unreadable") from None


def whole(path: str, limit: int = DOCUMENT) -> bytes:
    """Writes nothing. A regular file of at most `limit` bytes. Raises InputError (`unreadable`)."""
    data = read(path, limit)
    if len(data) > limit:
        raise InputError(f"more than {limit} bytes", subject=path, code="unreadable")
    return data


def document(path: str, reader: Callable[[Any], T], code: str) -> T:
    """Writes nothing. What the reader makes of the JSON in a file. Raises InputError with the code, of the file."""
    try:
        return reader(strictjson.loads(whole(path)))
    except InputError as wrong:
        raise InputError(wrong.message, subject=path, code=code) from None


def cluster(name: str, out: Path | None = None) -> Cluster:
    """Writes nothing to the cluster. As `connect`; `embedded:DIR` is of the home, and shared with the runs there.

    out: the folder of these runs, by default where runs are kept.
    """
    from gpurunbook.folder import workspace
    from gpurunbook.sources.cluster import connect

    if not name.startswith("embedded:"):
        return connect(name)
    home = workspace.find_home()
    return connect(name, home=home, clusters=workspace.clusters((out or workspace.runs_folder(home)) / "any"))


def as_findings(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Writes nothing. Findings for the JSON answer, sorted by code, subject and message."""
    return [found.as_json() for found in sorted(findings, key=lambda f: (f.code, f.subject, f.message))]


def with_next(said: str, remedy: str) -> str:
    """Writes nothing. What was seen, and what to do next, as two sentences on one line."""
    end = "" if said.endswith((".", "!", "?", ":")) else "."
    return f"{said}{end} Next: {remedy}" if remedy else said


def give(answer: Mapping[str, Any], findings: Iterable[Finding], output: str | None, *, prefix: str = "") -> None:
    """Prints the answer: JSON with sorted keys, or the verdict and one line per finding for people.

    prefix: stands before each line that is not a pass, and before the messages on stderr beside JSON.
    """
    machine = in_json(output)
    if machine:
        click.echo(json.dumps(answer, sort_keys=True, indent=1, allow_nan=False))
    else:
        click.echo(harmless(answer["verdict"]))
    for found in findings:
        head = prefix if found.status is not Status.PASS else ""
        said = ": ".join(filter(None, (found.code, harmless(found.subject), harmless(found.message, 900))))
        line = with_next(f"{head}{said}", harmless(found.remedy, 900))
        click.secho(line, err=machine, fg=_COLOURS[found.status])
