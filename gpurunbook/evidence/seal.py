"""The seal: makes the evidence of a run from its journal and its saved notebook.

It may lower a verdict, never raise it, and rewrites nothing that was there before: neither the journal (but for the
record of a death, and a last line that a crash has cut) nor a notebook that may be open in JupyterLab.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from gpurunbook.errors import EvidenceError, InputError, JournalError, ParameterError, RunInUse
from gpurunbook.evidence import bundle, detached, executed, facts, report, signing
from gpurunbook.folder import keep, workspace
from gpurunbook.journal import JOURNAL, Journal, Record, digest, read, replay
from gpurunbook.leaks import scan
from gpurunbook.shown.redact import redact
from gpurunbook.shown.scraps import CLOSING

DYING_SECONDS = 3.0
"""How long a kernel that is ending may keep the lock of a run that did not close."""

_PACKAGES = ("gpurunbook", "ipykernel", "jupyterlab", "kubernetes", "nbclient", "papermill")
_NOTEBOOK = 256 << 20
_MANIFEST = 64 << 20
# What a live kernel or JupyterLab may have open stays where it is when it is withheld.
_LIVE = frozenset({JOURNAL, workspace.RECORD})


@dataclass(frozen=True)
class _Saved:
    """A notebook as it was saved. moved: whether it comes from elsewhere and is copied into the run folder."""

    name: str
    path: Path
    raw: bytes
    moved: bool


def seal(
    run_dir: Path, notebook: Path | None = None, sign_key: Path | str | None = None, source: Path | None = None
) -> dict[str, Any]:
    """Writes the report, findings.json, verdict.json and last manifest.json into the run folder. The manifest.

    A run that died gets the record `died` first. notebook: where the executed notebook was saved, when that is not
    the run folder; source: the source notebook, by default that of the run's home; sign_key: signs the manifest, an ssh
    key or one of cosign's. With a leak the manifest says `evidence: withheld`: there is no report and no
    signature, what leaks is readable by the owner only, and the verdict stays. Sealing again after no change changes
    nothing.

    Raises EvidenceError for a notebook that is not of this run as it closed, RunInUse while a kernel works on a run
    that has not closed, JournalError for a broken journal, InputError for what cannot be read.
    """
    run_dir = run_dir.resolve()
    home = Path(workspace.record(run_dir)["home"])
    records = _ended(run_dir)
    runbook = replay(records).runbook
    saved = _saved(run_dir, runbook, notebook)
    shown = executed.read(saved.raw, saved.path.name)
    origin = _source(source or home / "runbooks" / f"{runbook}.ipynb")
    facts.closed(records, shown)
    bundle.sweep(run_dir)
    kept = _look(run_dir, {saved.name, f"{runbook}.html", bundle.VERDICT, bundle.FINDINGS})
    if saved.moved:
        _may_replace(run_dir, saved, records)
    leaks = {**kept.leaks, **_leaks_of(saved.name, shown, saved.raw)}
    core = facts.conclude(records, shown, origin, kept.digests)
    core["evidence"] = "withheld" if leaks else "sealed"
    core["withheld"] = {name: sorted(told) for name, told in sorted(leaks.items())}
    found = facts.findings(records)
    files: dict[str, bytes] = {saved.name: saved.raw}
    if leaks:
        core, found = redact(core), redact(found)
    else:
        files[f"{runbook}.html"] = report.render(shown, core, found["findings"]).encode()
    files[bundle.FINDINGS] = bundle.dump(found)
    made = {"source": origin, "versions": _versions(), "renderer": report.renderer()}
    files[bundle.VERDICT] = bundle.dump({"format": "gpurunbook.verdict/v1", **core, "bound": facts.bound(made)})
    where = _quarantine(run_dir, leaks, saved.name) if leaks else {}
    digests = {where.get(name, name): value for name, value in kept.digests.items()}
    manifest = {
        "format": bundle.FORMAT,
        **core,
        "files": dict(sorted((digests | {name: digest(data) for name, data in files.items()}).items())),
        "package": replay(records).start["package"],
        **made,
        "notebook": {"path": saved.name, **facts.shown(shown)},
        "journal": [record["hash"] for record in records],
    }
    files[bundle.MANIFEST] = bundle.dump(manifest)
    signatures = {} if leaks else _signed(files[bundle.MANIFEST], sign_key)
    _write(run_dir, saved, records, files, signatures, [f"{runbook}.html"] if leaks else [])
    return manifest


def manifest_digest(run_dir: Path) -> str:
    """Writes nothing. The digest of the manifest as it stands, for the change ticket. Raises InputError."""
    return bundle.file_digest(run_dir / bundle.MANIFEST)


def current(run_dir: Path) -> bool:
    """Writes nothing. Whether the folder's seal is of the run as it stands: its journal has not gone on since.

    False for a folder that has no seal. What cannot be read counts as current: evidence is left as it is.
    """
    if not (run_dir / bundle.MANIFEST).exists():
        return False
    try:
        sealed = json.loads(bundle.read(run_dir / bundle.MANIFEST, _MANIFEST))["journal"]
        return bool(sealed == [record["hash"] for record in read(run_dir / JOURNAL)])
    except (InputError, JournalError, OSError, ValueError, KeyError, TypeError):
        return True


def _ended(run_dir: Path) -> list[Record]:
    """The records of a run that has an end; a run that died gets its record here."""
    path = run_dir / JOURNAL
    records = _uncut(run_dir, path)
    if not records:
        raise EvidenceError(
            "the run never started: its journal is empty",
            subject=run_dir.name,
            remedy=_run_elsewhere(run_dir) or "Run the notebook, then seal.",
            code="not-started",
        )
    if replay(records).closing is not None:
        return records
    waited = time.monotonic() + DYING_SECONDS
    while workspace.kernel_alive(run_dir):
        if time.monotonic() > waited:
            raise RunInUse(
                f"the run is not closed and a kernel works on it: {_holder(run_dir, records)}",
                subject=run_dir.name,
                remedy="Run the notebook to its end, or shut its kernel down; then seal.",
            )
        time.sleep(0.05)
    journal = Journal.open(path)
    state = replay(journal.records)
    if state.closing is None:
        reason = "it ended without closing, and no process holds it"
        journal.append("died", {"reason": reason, "step": state.open_step})
    return journal.records


def _run_elsewhere(run_dir: Path) -> str:
    """What to do with a working copy that plain papermill ran: its kernel does not know the copy's folder, and begins a
    run of its own."""
    with contextlib.suppress(InputError, TypeError, KeyError, ParameterError):
        path = workspace.notebook(run_dir)
        for _, told in executed.read(bundle.read(path, _NOTEBOOK), path.name).scraps(CLOSING):
            run = workspace.checked_run_id(told["run"])
            if run != run_dir.name:
                return (
                    f"Its notebook is of run {run}: plain papermill begins a run of its own. "
                    f"`gpurunbook seal {run} --notebook {path}` seals that; `--engine gpurunbook` keeps to the folder."
                )
    return ""


def _uncut(run_dir: Path, path: Path) -> list[Record]:
    """The records; a last line that a crash has cut is taken off, unless the journal was sealed or is in use."""
    try:
        return read(path)
    except JournalError as wrong:
        if wrong.code != "journal-cut" or (run_dir / bundle.MANIFEST).exists() or workspace.kernel_alive(run_dir):
            raise
    return Journal.open(path).records


def _holder(run_dir: Path, records: list[Record]) -> str:
    if told := keep.holder(run_dir / workspace.KERNEL_LOCK):
        return told
    process = [record["data"]["process"] for record in records if "process" in record["data"]][-1]
    return f"process {process['pid']} on {process['host']}"


def _saved(run_dir: Path, runbook: str, notebook: Path | None) -> _Saved:
    own = run_dir / f"{runbook}.ipynb"
    path = notebook or own
    moved = path.resolve() != own
    try:
        raw = bundle.read(path.resolve() if moved else own, _NOTEBOOK)
    except InputError as wrong:
        raise EvidenceError(
            f"no executed notebook: {wrong.message}",
            subject=str(path),
            remedy="Save it, or name the place where it was saved with `--notebook FILE`.",
            code="no-notebook",
        ) from None
    return _Saved(own.name, path, raw, moved)


def _may_replace(run_dir: Path, saved: _Saved, records: list[Record]) -> None:
    """Only an untouched working copy, or what the last seal put there, gives way to a notebook from elsewhere."""
    own = run_dir / saved.name
    if not own.exists() or bundle.file_digest(own) in {digest(saved.raw), replay(records).start["source"]}:
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if bundle.file_digest(own) == json.loads((run_dir / bundle.MANIFEST).read_bytes())["files"][saved.name]:
            return
    raise EvidenceError(
        "the run folder holds another executed notebook of this run, perhaps open in JupyterLab",
        subject=str(own),
        remedy="Seal that one (without --notebook), or move it away.",
        code="two-notebooks",
    )


def _source(path: Path) -> dict[str, Any]:
    try:
        raw = bundle.read(path, _NOTEBOOK)
        return {"sha256": digest(raw), "cells": executed.outline(executed.read(raw, path.name))}
    except InputError:
        return {"sha256": None, "cells": None}


@dataclass(frozen=True)
class _Kept:
    """digests by name, and by name what leaks, told without the secret."""

    digests: dict[str, str]
    leaks: dict[str, set[str]]


def _look(run_dir: Path, made: set[str]) -> _Kept:
    """Digests of the bundle's files, and leaks of everything in the folder, but for what the seal makes itself."""
    folder = bundle.walk(run_dir)
    if folder.odd:
        name, what = min(folder.odd.items())
        raise EvidenceError(
            f"is {what}, which cannot be evidence", subject=name, remedy="Put the file itself there.", code="odd-file"
        )
    digests: dict[str, str] = {}
    leaks: dict[str, set[str]] = {}
    for name, path in [*folder.files.items(), *folder.outside.items()]:
        if name in made or name == bundle.MANIFEST:
            continue
        total, lines = hashlib.sha256(), 0
        for before, piece in bundle.chunks(path):
            total.update(piece)
            start = lines - before.count(b"\n")
            for leak in scan(before + piece):
                leaks.setdefault(name, set()).add(str(replace(leak, line=leak.line + start)))
            lines += piece.count(b"\n")
        if name in folder.files:
            digests[name] = "sha256:" + total.hexdigest()
    return _Kept(digests, leaks)


def _leaks_of(name: str, notebook: executed.Notebook, raw: bytes) -> dict[str, set[str]]:
    # As shown first: a token may be cut in two by the list of lines, and a cell is found more easily than a line.
    told: set[str] = set()
    known: set[str] = set()
    for cell in notebook.cells:
        for text in (cell.source, *_texts(cell.outputs)):
            for leak in scan(text):
                told.add(f"cell {cell.key}, {leak}")
                known.add(leak.fingerprint)
    told |= {str(leak) for leak in scan(raw) if leak.fingerprint not in known}
    return {name: told} if told else {}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _quarantine(run_dir: Path, leaks: Iterable[str], notebook: str) -> dict[str, str]:
    """Makes every file that leaks readable by its owner only, and puts it aside where nothing has it open."""
    moved: dict[str, str] = {}
    aside = run_dir / bundle.WITHHELD
    for name in leaks:
        path = run_dir / name
        if not path.exists():
            continue
        path.chmod(0o600)
        if name in _LIVE | bundle.OUTSIDE | {notebook} or name.startswith((f"{bundle.WITHHELD}/", ".")):
            continue
        target = aside / name
        if target.exists():  # of an earlier seal
            target = aside / f"{name}.{bundle.file_digest(path)[7:19]}"
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
        moved[name] = target.relative_to(run_dir).as_posix()
    if aside.exists():
        aside.chmod(0o700)
    return moved


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def _signed(manifest: bytes, key: Path | str | None) -> dict[str, bytes]:
    if key is None:
        return {}
    end, signature = detached.sign(manifest, key, signing.MANIFEST)
    return {bundle.MANIFEST + end: signature}


def _write(
    run_dir: Path,
    saved: _Saved,
    records: list[Record],
    files: dict[str, bytes],
    signatures: dict[str, bytes],
    remove: list[str],
) -> None:
    withheld = bool(remove)
    before = run_dir / bundle.MANIFEST
    same = before.is_file() and bundle.file_digest(before) == digest(files[bundle.MANIFEST])
    files = {**files, **signatures}
    if not same:
        remove = [*remove, *({bundle.SIGNATURE, bundle.COSIGNED} - set(signatures))]
    if not saved.moved:
        files = {name: data for name, data in files.items() if name != saved.name}
    bundle.replace(run_dir, files, remove=remove, mode=0o600 if withheld else 0o644)
    again = bundle.read(run_dir / saved.name, _NOTEBOOK)
    if again != saved.raw or read(run_dir / JOURNAL) != records:
        before.unlink()
        raise EvidenceError(
            "the run went on while it was sealed: its notebook or journal is another one now",
            subject=run_dir.name,
            remedy="Seal again when it has ended.",
            code="moved-on",
        )
