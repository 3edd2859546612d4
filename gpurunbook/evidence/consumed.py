"""The bundle of another run as an input of this one: verified, and read only as it was sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.evidence import bundle
from gpurunbook.journal import digest
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
    for name in need.files:
        if name in manifest["files"]:
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
    kept = {f"{manifest['run']}-{Path(name).name}": data for name, data in files.items()}
    return found, {f"{manifest['run']}-{bundle.MANIFEST}": raw, **kept}
