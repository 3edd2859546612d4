"""A folder of evidence: what each file is, told by its content and never by its name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gpurunbook.digests import digest
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding
from gpurunbook.plan import Problem
from gpurunbook.supply import strictjson, times
from gpurunbook.supply.calls import FORM, Asked, Call, asked, read_call
from gpurunbook.supply.evidence import Named, digests_of
from gpurunbook.supply.family import Family, platform_of
from gpurunbook.supply.gatecodes import found
from gpurunbook.supply.ignores import Ignored, read_ignores
from gpurunbook.supply.members import member, objects, text, texts, whole
from gpurunbook.supply.sboms import Sbom, read_sbom
from gpurunbook.supply.scans import Scan, read_scan
from gpurunbook.supply.vex import Statement, read_vex

_VERSION_KEYS = frozenset({"Version", "VulnerabilityDB", "JavaDB", "CheckBundle", "PolicyBundle"})
_DATABASE = frozenset({"VulnerabilityDB", "JavaDB", "Version"})


@dataclass(frozen=True)
class File:
    """One file: its path in the folder, its digest, what it is."""

    name: str
    sha256: str
    kind: str


@dataclass(frozen=True)
class Recorded:
    """A call with the file of its record. about: None where the call's argument list was refused."""

    file: File
    call: Call
    about: Asked | None


@dataclass(frozen=True)
class Inventory:
    """Syft's own JSON: what an SBOM was made from."""

    named: Named
    components: int


@dataclass
class Folder:
    """What was read. problems: files that are unreadable, unknown, or records of a call that does not count."""

    files: list[File] = field(default_factory=list)
    calls: list[Recorded] = field(default_factory=list)
    scans: list[tuple[File, Scan]] = field(default_factory=list)
    sboms: list[tuple[File, Sbom]] = field(default_factory=list)
    inventories: list[tuple[File, Inventory]] = field(default_factory=list)
    databases: dict[str, Any] = field(default_factory=dict)
    signatures: dict[str, Any] = field(default_factory=dict)
    vexes: list[tuple[File, str, tuple[Statement, ...]]] = field(default_factory=list)
    ignores: list[tuple[File, tuple[Ignored, ...]]] = field(default_factory=list)
    documents: list[File] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)
    writers: dict[str, Recorded] = field(default_factory=dict)

    def wrote(self, sha256: str) -> Recorded | None:
        """Writes nothing. The last call that wrote these bytes."""
        return self.writers.get(sha256)


def read_folder(files: Iterable[tuple[str, bytes | Problem]], family: Family) -> Folder:
    """Tells `family` what registry documents prove; writes nothing else. No file is passed over."""
    folder = Folder()
    blank: list[File] = []
    for name, data in files:
        if isinstance(data, Problem):
            folder.problems.append(found("unreadable", name, data.message))
            continue
        sha256 = digest(data)
        try:
            kind, document = _kind(name, data)
            file = File(name, sha256, kind)
            if kind == "nothing":
                blank.append(file)
                folder.signatures[sha256] = document
            else:
                _take(folder, family, file, document)
                folder.files.append(file)
        except InputError as wrong:
            code = wrong.code if wrong.code in ("unknown-file", "unknown-schema") else "unreadable"
            where = f"{wrong.subject}: " if wrong.subject else ""
            folder.problems.append(found(code, name, where + wrong.message))
    folder.calls.sort(key=lambda one: times.instant(one.call.started) or 0)
    folder.writers = {sha256: one for one in folder.calls for sha256 in one.call.outputs}
    for file in blank:
        writer = folder.wrote(file.sha256)
        if writer and writer.call.tool == "cosign":
            folder.files.append(File(file.name, file.sha256, "cosign"))
        else:
            message = "nothing stands in it, and no record says that cosign wrote it"
            folder.problems.append(found("unknown-file", file.name, message))
    return folder


def _kind(name: str, data: bytes) -> tuple[str, Any]:
    """What a file is, and what it holds. Raises InputError."""
    if not data.strip():
        return "nothing", None
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"[", b"n") or name.endswith((".yaml", ".yml")):
        if b"vulnerabilities:" in data or name.endswith((".yaml", ".yml")):
            return "trivyignore", read_ignores(data)
        raise InputError(f"neither JSON nor a .trivyignore.yaml; it begins with {data[:40]!r}", code="unknown-file")
    document = strictjson.loads(data)
    if document is None or document == []:
        return "nothing", document
    if isinstance(document, list):
        if all(isinstance(one, dict) and "critical" in one for one in document):
            return "cosign", document
    elif isinstance(document, dict) and (kind := _object(document)):
        return kind, document
    known = ", ".join(sorted(document)[:8]) if isinstance(document, dict) else type(document).__name__
    raise InputError(f"JSON of no known kind ({known})", code="unknown-file")


def _object(document: dict[str, Any]) -> str:
    keys = set(document)
    if document.get("record") == FORM:
        return "call"
    if "SchemaVersion" in keys:
        return "trivy"
    if keys & {"bomFormat", "spdxVersion"}:
        return "sbom"
    if keys <= _VERSION_KEYS and keys & _DATABASE:
        return "trivy-version"
    if str(document.get("@context", "")).startswith("https://openvex.dev/"):
        return "openvex"
    if {"artifacts", "source", "descriptor"} <= keys:
        return "syft"
    return "registry" if document.get("schemaVersion") == 2 or {"architecture", "rootfs"} <= keys else ""


def _take(folder: Folder, family: Family, file: File, document: Any) -> None:
    match file.kind:
        case "call":
            folder.calls.append(_recorded(folder, file, read_call(document)))
        case "trivy":
            folder.scans.append((file, read_scan(document)))
        case "sbom":
            folder.sboms.append((file, read_sbom(document)))
        case "syft":
            folder.inventories.append((file, _inventory(document)))
        case "trivy-version":
            folder.databases[file.sha256] = document
        case "cosign":
            folder.signatures[file.sha256] = document
        case "openvex":
            folder.vexes.append((file, text(whole(document), "@id"), read_vex(document)))
        case "trivyignore":
            folder.ignores.append((file, document))
        case "registry":
            family.add(file.sha256, document)
            folder.documents.append(file)


def _recorded(folder: Folder, file: File, call: Call) -> Recorded:
    try:
        return Recorded(file, call, asked(call))
    except InputError as wrong:
        folder.problems.append(found(wrong.code, file.name, wrong.message))
        return Recorded(file, call, None)


def _inventory(document: dict[str, Any]) -> Inventory:
    image = member(member(document, "source"), "metadata")
    image_id, manifest = text(image, "imageID"), text(image, "manifestDigest")
    platform = platform_of(image)
    return Inventory(
        Named(
            digests_of(texts(image, "repoDigests")) | frozenset([manifest] if manifest else []),
            frozenset([image_id] if image_id else []),
            frozenset([platform] if platform else []),
        ),
        len(objects(document, "artifacts")),
    )
