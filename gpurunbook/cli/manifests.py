"""`gpurunbook review-manifests`: is what would be applied pinned, explicit and free of secrets?"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import click

from gpurunbook.cli.answer import give, output_option, read
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding
from gpurunbook.sources import files
from gpurunbook.supply.manifests import LIMIT, Review, is_reviewed

_EXIT = {"pass": 0, "fail": 1, "error": 2}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@output_option
def review_manifests(paths: tuple[str, ...], output: str | None) -> int:
    """Review files, folders (.yaml, .yml, .json, Kustomization) or standard input (-). Writes nothing.

    Rendered manifests, Helm values, Flux HelmRelease, fleet.yaml and their like.
    """
    made = Review()
    collecting = gc.isenabled()
    gc.disable()  # nodes make no cycles, and walking millions of them costs as much as reading them
    try:
        for path in paths or ("-",):
            _add(made, path)
        answered = made.finish()
    finally:
        if collecting:
            gc.enable()
    answer = {
        "verdict": answered.verdict,
        "findings": [found.as_json() for found in answered.found],
        "files": answered.files,
        "documents": answered.documents,
    }
    give(answer, [_placed(found.finding, found.file, found.line) for found in answered.found], output)
    return _EXIT[answered.verdict]


def _add(made: Review, path: str) -> None:
    if path == "-":
        _take(made, "-")
    elif os.path.isdir(path) and not Path(path).is_symlink():  # noqa: PTH112 (a NUL in a name is no crash here)
        for one in _inside(made, path):
            _take(made, one)
    else:
        _take(made, path)


def _inside(made: Review, folder: str) -> Iterator[str]:
    """The files of a folder and below, without hidden ones. A link to a folder is not followed and not passed over."""

    def refused(wrong: OSError) -> None:
        made.refuse(str(wrong.filename), InputError(f"cannot be read: {wrong.strerror}", code="unreadable"))

    for top, folders, names in os.walk(folder, onerror=refused):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (link := Path(top, name)).is_symlink():
                made.refuse(str(link), InputError("a symbolic link to a folder", code="unreadable"))
        for name in sorted(names):
            if is_reviewed(name) and not name.startswith("."):
                yield os.path.join(top, name)  # noqa: PTH118 (as the user wrote it: Path would drop a ./)


def _take(made: Review, path: str) -> None:
    try:
        made.add(path, files.read("-") if path == "-" else read(path, LIMIT, follow=False))
    except InputError as wrong:
        made.refuse(path, wrong)


def _placed(finding: Finding, file: str, line: int) -> Finding:
    subject = finding.subject if finding.subject != file else ""
    return Finding(
        finding.check, f"{file}:{line} {subject}".strip(), finding.status, finding.code, finding.message, finding.remedy
    )
