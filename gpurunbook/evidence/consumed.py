"""The bundle of another run as an input of this one: verified, and read only as it was sealed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.evidence import bundle
from gpurunbook.journal import JOURNAL, digest, parse, replay
from gpurunbook.plan import Bundle, Consumed

_MANIFEST = 32 << 20
_FILE = 256 << 20
_TOLD = 20
"""Differences that are told; `gpurunbook verify` names them all."""


def consume(need: Bundle, home: Path) -> tuple[Consumed, dict[str, bytes]]:
    """Writes nothing. The bundle as it verifies, and what was read of it, by a name for `inputs/`.

    Raises InputError for a folder, digest or file of signers that cannot be used, FileNotFoundError without the folder.
    """
    from gpurunbook.evidence import cosign
    from gpurunbook.evidence.verify import verify  # renders the report again: only runs that take a bundle need it
    from gpurunbook.supply import strictjson

    folder = next((p for p in (Path(need.path), home / need.path) if p.is_dir()), None) if need.path else None
    if folder is None:
        raise FileNotFoundError(2, f"no folder {need.path!r}")
    signers = next((p for p in (Path(need.signers), home / need.signers) if p.is_file()), Path(need.signers))
    by = ("cosign_key" if cosign.is_key(signers) else "signers") if need.signers else ""
    answer = verify(folder, manifest_digest=need.digest or None, **({by: signers} if by else {}))
    told = tuple(f"{d.kind} {d.name}: {d.message}" for d in answer.differences[:_TOLD])
    if answer.verdict in ("altered", "unsealed"):
        return Consumed(answer.verdict, told, answer.manifest_digest or ""), {}
    raw = bundle.read(folder / bundle.MANIFEST, _MANIFEST)
    manifest: dict[str, Any] = strictjson.loads(raw)
    files: dict[str, bytes] = {}
    kept = recorded(folder, manifest)
    for name in need.files:
        if name in kept:
            files[name] = bundle.read(folder / name, _FILE)
    changed = [name for name, data in files.items() if digest(data) != manifest["files"][name]]
    if digest(raw) != answer.manifest_digest or changed:
        raise InputError("it changed while it was read", subject=str(folder), remedy="Find out who writes there.")
    found = Consumed(
        strength=answer.verdict,
        told=told,
        manifest=digest(raw),
        run=manifest["run"],
        runbook=manifest["runbook"],
        verdict=manifest["verdict"],
        rehearsal=manifest["rehearsal"],
        cluster=str((manifest["cluster"] or {}).get("uid") or ""),
        signer=answer.signer or "",
        end=manifest["end"],
        steps=tuple(step["id"] for step in manifest["steps"] if step["passed"]),
        files=files,
        weaker=(*(["break_glass"] if manifest["break_glass"] else []), *map(str, manifest["overrides"])),
    )
    inputs = {f"{manifest['run']}-{Path(name).name}": data for name, data in files.items()}
    return found, {f"{manifest['run']}-{bundle.MANIFEST}": raw, **inputs}


def recorded(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Writes nothing. The files of a verified bundle that a step of its run kept which passed, with their digests.

    Whatever lies in the folder of a run is sealed with it, also what somebody put there. Raises InputError when the
    journal is not the one that was sealed.
    """
    raw = bundle.read(folder / JOURNAL, _FILE)
    if digest(raw) != manifest["files"].get(JOURNAL):
        raise InputError("it changed while it was read", subject=str(folder), remedy="Find out who writes there.")
    steps = replay(parse(raw)).steps.values()
    kept = {name: wanted for data in steps if data["passed"] for name, wanted in data["files"].items()}
    return {name: wanted for name, wanted in kept.items() if manifest["files"].get(name) == wanted}
