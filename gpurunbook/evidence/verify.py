"""Verifying a bundle: everything is computed again from what lies in the folder, and compared.

`consistent` says that nothing was changed by halves. Who recomputes the whole bundle passes that; `anchored` (the
manifest's digest is known from elsewhere) and `signed` are what he fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gpurunbook.errors import EvidenceError, InputError
from gpurunbook.evidence import bundle, cosign, executed, facts, report, signing
from gpurunbook.evidence.comparison import SHOWN, Comparison, Difference, Manifest
from gpurunbook.journal import JOURNAL, digest, parse
from gpurunbook.leaks import scan
from gpurunbook.shown.hostile import harmless
from gpurunbook.sources.keys import fingerprint
from gpurunbook.supply import strictjson

EXIT = {"consistent": 0, "anchored": 0, "signed": 0, "altered": 1, "unsealed": 2}

_MANIFEST = 32 << 20
_LARGE = 512 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass
class Answer:
    """verdict: consistent, anchored, signed, altered or unsealed. The rest is what the manifest says, when it can be
    read: it can be believed as far as the verdict goes.
    """

    verdict: str
    differences: list[Difference] = field(default_factory=list)
    manifest_digest: str | None = None
    signer: str | None = None
    run: str | None = None
    runbook: str | None = None
    run_verdict: str | None = None
    rehearsal: bool | None = None
    evidence: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. The answer as JSON; names and messages are harmless to show."""
        made = asdict(self)
        made["differences"] = [{k: harmless(v, 600) for k, v in asdict(d).items()} for d in self.differences[:SHOWN]]
        return {key: harmless(value) if isinstance(value, str) else value for key, value in made.items()}


def verify(
    folder: Path, manifest_digest: str | None = None, signers: Path | None = None, cosign_key: Path | None = None
) -> Answer:
    """Writes nothing. How far the bundle in `folder` can be believed. Reads nothing outside of it.

    manifest_digest: known from elsewhere, `sha256:…` or its 64 digits; signers: an allowed_signers file; cosign_key: a
    public key in PEM. What is asked for and not met makes the bundle `altered`. Raises InputError for a folder, digest,
    file of signers or key that cannot be used, and for a program that is missing; DeadlineError when one is too slow.
    """
    wanted = _wanted(manifest_digest) if manifest_digest is not None else None
    if signers is not None and not signers.is_file():
        # As a key that is none: told so, whatever lies in the folder.
        raise InputError("no such file of allowed signers", subject=str(signers))
    if not folder.is_dir():
        raise InputError("no such folder", subject=str(folder))
    path = folder / bundle.MANIFEST
    if not path.is_symlink() and not path.exists():
        return Answer("unsealed", [Difference("manifest", bundle.MANIFEST, "there is none: this run was not sealed")])
    try:
        raw = bundle.read(path, _MANIFEST)
        whole = strictjson.loads(raw)
        manifest = strictjson.typed(whole, Manifest)
    except InputError as wrong:
        return Answer("altered", [Difference("manifest", bundle.MANIFEST, f"cannot be read: {wrong.message}")])
    answer = Answer(
        verdict="altered",
        manifest_digest=digest(raw),
        run=manifest.run,
        runbook=manifest.runbook,
        run_verdict=manifest.verdict,
        rehearsal=manifest.rehearsal,
        evidence=manifest.evidence,
    )
    if manifest.evidence == "withheld":
        answer.verdict = "unsealed"
        answer.differences = [Difference("withheld", n, f"holds {', '.join(w)}") for n, w in manifest.withheld.items()]
        return answer
    answer.differences = Comparison(folder, manifest, whole).run()
    if raw != bundle.dump(whole):
        answer.differences.append(Difference("manifest", bundle.MANIFEST, "its text is not as the seal writes it"))
    if wanted is not None and wanted != answer.manifest_digest:
        message = f"its digest is {answer.manifest_digest}, wanted {wanted}"
        answer.differences.append(Difference("anchor", bundle.MANIFEST, message))
    for name, made in _signatures(folder, raw, signers, cosign_key):
        try:
            answer.signer = made()
        except EvidenceError as wrong:
            answer.differences.append(Difference("signature", name, wrong.message))
        except InputError as wrong:
            if wrong.subject != name:
                raise
            answer.differences.append(Difference("signature", name, f"there is none: {wrong.message}"))
    if not answer.differences:
        signed = signers is not None or cosign_key is not None
        answer.verdict = "signed" if signed else "anchored" if wanted is not None else "consistent"
    return answer


def _signatures(
    folder: Path, manifest: bytes, signers: Path | None, cosign_key: Path | None
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each signature that is asked for: its file, and what gives who made it."""

    def ssh(signers: Path) -> str:
        signature = bundle.read(folder / bundle.SIGNATURE, signing.LIMIT)
        return signing.verify(manifest, signature, signers, signing.MANIFEST)

    def cosigned(key: Path) -> str:
        return cosign.verify(manifest, bundle.read(folder / bundle.COSIGNED, cosign.LIMIT), key)

    if signers is not None:
        yield bundle.SIGNATURE, partial(ssh, signers)
    if cosign_key is not None:
        fingerprint(cosign_key)  # a key that is none is told so, whatever lies in the folder
        yield bundle.COSIGNED, partial(cosigned, cosign_key)


def _wanted(given: str) -> str:
    value = given.strip().lower()
    value = value if value.startswith("sha256:") else f"sha256:{value}"
    if not _DIGEST.fullmatch(value):
        raise InputError(f"{given!r:.100} is no SHA-256 digest", subject="--manifest-digest")
    return value


def page(folder: Path, answer: Answer) -> tuple[str, str]:
    """Writes nothing. A name for the report of a closed run, and the report, which says what `answer` says.

    Raises EvidenceError for a run that has not closed or whose notebook is not of it, and where something in the
    notebook looks like a secret; JournalError and InputError for what cannot be read.
    """
    records = parse(bundle.read(folder / JOURNAL, _LARGE), JOURNAL)
    runbook = answer.runbook or str(records[0]["data"].get("runbook")) if records else "notebook"
    raw = bundle.read(folder / f"{Path(runbook).name}.ipynb", _LARGE)
    if leaks := scan(raw):
        raise EvidenceError(
            f"holds what looks like a secret: {leaks[0]}", subject=f"{runbook}.ipynb", code="evidence-withheld"
        )
    source: dict[str, Any] = {"sha256": None, "cells": None}
    if answer.manifest_digest is not None:
        source = strictjson.loads(bundle.read(folder / bundle.MANIFEST, _MANIFEST))["source"]
    notebook = executed.read(raw, f"{runbook}.ipynb")
    files = {name: bundle.file_digest(path) for name, path in bundle.walk(folder).files.items()}
    core = facts.conclude(records, notebook, source, files)
    core["evidence"] = "sealed" if EXIT[answer.verdict] == 0 else answer.verdict
    return Path(str(core["run"])).name or "run", report.render(notebook, core, facts.findings(records)["findings"])
