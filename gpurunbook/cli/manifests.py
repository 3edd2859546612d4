"""`gpurunbook review-manifests`: is what would be applied pinned, explicit and free of secrets?"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import click

from gpurunbook.cli.answer import give, in_json, output_option, read
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding
from gpurunbook.shown.hostile import harmless
from gpurunbook.sources import files
from gpurunbook.supply.beside import few, is_reviewed
from gpurunbook.supply.manifests import LIMIT, Review

_OTHER = 8 << 20
"""Bytes of a file of another kind in which secrets are looked for."""

_EXIT = {"pass": 0, "fail": 1, "error": 2}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@output_option
def review_manifests(paths: tuple[str, ...], output: str | None) -> int:
    """Review files, folders (.yaml, .yml, .json, Kustomization) or standard input (-). Writes nothing.

    Rendered manifests, Helm values, Flux HelmRelease, fleet.yaml and their like. Other files of a folder are named and
    not judged; a file that is given by its name is judged, whatever its ending.
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
        "passed_over": list(answered.passed_over),
    }
    give(answer, [_placed(found.finding, found.file, found.line) for found in answered.found], output)
    if answered.passed_over:
        said = f"Of another kind, and not judged ({len(answered.passed_over)}): {few(list(answered.passed_over))}"
        click.echo(harmless(said, 900), err=in_json(output))
    return _EXIT[answered.verdict]


def _add(made: Review, path: str) -> None:
    if path == "-":
        _take(made, "-")
    elif os.path.isdir(path) and not Path(path).is_symlink():  # noqa: PTH112 (a NUL in a name is no crash here)
        for one in _inside(made, path):
            if is_reviewed(one) and not _is_hidden(one):
                _take(made, one)
            else:
                _pass_over(made, one)
    else:
        _take(made, path)


def _inside(made: Review, folder: str) -> Iterator[str]:
    """The files of a folder and below; of a hidden folder its name alone, with a `/`.

    A link to a folder is not followed and not passed over.
    """

    def refused(wrong: OSError) -> None:
        made.refuse(str(wrong.filename), InputError(f"cannot be read: {wrong.strerror}", code="unreadable"))

    for top, folders, names in os.walk(folder, onerror=refused):
        folders.sort()
        for name in folders:
            if name.startswith("."):
                yield f"{os.path.join(top, name)}/"  # noqa: PTH118
            elif (link := Path(top, name)).is_symlink():
                made.refuse(str(link), InputError("a symbolic link to a folder", code="unreadable"))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in sorted(names):
            yield os.path.join(top, name)  # noqa: PTH118 (as the user wrote it: Path would drop a ./)


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(".")  # noqa: PTH119


def _pass_over(made: Review, path: str) -> None:
    """A file that nobody applies is named, even one that cannot be read."""
    data = b""
    if not path.endswith("/") and not _is_hidden(path):
        with contextlib.suppress(InputError):
            data = read(path, _OTHER, follow=False)
    made.pass_over(path, data)


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
