"""The answer of the evidence gate, from the bytes that it is given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpurunbook.digests import digest
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Problem
from gpurunbook.supply import audited, relations, times
from gpurunbook.supply.audited import Audited
from gpurunbook.supply.decisions import Decisions, read_decisions
from gpurunbook.supply.evidence_files import verdict
from gpurunbook.supply.family import Family
from gpurunbook.supply.folder import Folder, read_folder
from gpurunbook.supply.gate import Gate, Image, Terms
from gpurunbook.supply.gatecodes import found
from gpurunbook.supply.relations import Child
from gpurunbook.supply.scans import SEVERITIES, Scan

_FOLDER = "Give the folder that `gpurunbook gate collect` has filled."
_FILE = "Correct the path or its permissions."
_GRAVITY = (Status.UNKNOWN, Status.FAIL, Status.WARN, Status.PASS)


@dataclass(frozen=True)
class Given:
    """What the gate is given: bytes, or the problem that hid them.

    images: JSON of an audit; files: path in the folder and content, one after another; exceptions: YAML, None for no
    file; relations: index → manifests; problems: what stands already against further inputs; names: of images,
    exceptions and the folder, for people.
    """

    images: bytes | Problem
    files: Iterable[tuple[str, bytes | Problem]] | Problem
    exceptions: bytes | Problem | None
    relations: Mapping[str, Sequence[Child]]
    terms: Terms
    names: tuple[str, str, str] = ("images", "exceptions", "evidence")
    problems: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Report:
    """The answer. findings: gravest first; images: by digest and platform; rehearsal: of the audit; ends: what it rests
    on for a time only → until when; judged: digests of Security's decisions and of the relations that were taken."""

    findings: tuple[Finding, ...]
    images: tuple[Image, ...]
    folder: Folder
    terms: Terms
    cluster: str | None
    rehearsal: bool
    ends: Mapping[str, int] = field(default_factory=dict)
    judged: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Writes nothing. `error` before `fail` before `pass`."""
        return verdict(self.findings)

    def of(self, image: Image) -> str:
        """Writes nothing. The verdict of one image: of what is said about it and about its digest."""
        return verdict((*image.findings, *(f for f in self.findings if f.subject == image.subject.digest)))

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. The whole answer, as in docs/gate.md."""
        return {
            "verdict": self.verdict,
            "findings": [one.as_json() for one in self.findings],
            "images": [_image(one, self.of(one)) for one in self.images],
            "files": {one.name: {"kind": one.kind, "sha256": one.sha256} for one in self.folder.files},
            "cluster": self.cluster,
            "rehearsal": self.rehearsal,
            "ends": {name: times.spelled(end) for name, end in sorted(self.ends.items())},
            "judged": dict(self.judged),
            "now": times.spelled(self.terms.now),
            "max_database_age_seconds": self.terms.max_database_age // 10**9,
            "stabilisation_seconds": self.terms.stabilisation // 10**9,
            "platforms": list(self.terms.platforms),
        }

    def as_bytes(self) -> bytes:
        """Writes nothing. `as_json` as a file."""
        return json.dumps(self.as_json(), sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def decide(given: Given) -> Report:
    """Writes nothing. Judges; what is malformed is refused unread, and the rest is then not judged."""
    family = Family(given.relations)
    problems: list[Finding] = list(given.problems)
    running = _read_images(given, problems)
    decisions = _read_exceptions(given, problems)
    cluster, rehearsal = (running.cluster, running.rehearsal) if running else (None, False)
    if isinstance(given.files, Problem):
        # Without the folder every image lacks everything: the one cause says more than all that follows from it.
        missing = replace(found("unreadable", given.names[2], given.files.message), remedy=_FOLDER)
        return _report((*problems, missing), (), Folder(), given.terms, cluster, rehearsal)
    folder = read_folder(given.files, family)
    if running is None or decisions is None:
        return _report((*problems, *folder.problems), (), folder, given.terms, cluster, rehearsal)
    gate = Gate(running.images(), folder, family, decisions, given.terms)
    findings = [*problems, *running.against(), *gate.findings]
    if verdict(tuple(findings)) == "pass":
        message = f"{len(gate.images)} images by digest and platform have all that the policy asks for"
        findings.append(found("evidence-complete", "evidence", message))
    said = given.exceptions if isinstance(given.exceptions, bytes) else b""
    judged = {"decisions": digest(said) if said else "", "relations": relations.digest(given.relations)}
    report = _report(findings, tuple(gate.images), folder, given.terms, cluster, rehearsal)
    return replace(report, ends=gate.ends, judged=judged)


def _report(
    findings: Sequence[Finding],
    images: tuple[Image, ...],
    folder: Folder,
    terms: Terms,
    cluster: str | None,
    rehearsal: bool,
) -> Report:
    ordered = sorted(set(findings), key=lambda f: (_GRAVITY.index(f.status), f.code, f.subject, f.message))
    return Report(tuple(ordered), images, folder, terms, cluster, rehearsal)


def _read_images(given: Given, problems: list[Finding]) -> Audited | None:
    name = given.names[0]
    if isinstance(given.images, Problem):
        problems.append(replace(found("unreadable", name, given.images.message), remedy=_FILE))
        return None
    try:
        return audited.read_audit(given.images)
    except InputError as wrong:
        problems.append(found(wrong.code, name, wrong.message))
        return None


def _read_exceptions(given: Given, problems: list[Finding]) -> Decisions | None:
    name = given.names[1]
    if given.exceptions is None:
        return Decisions()
    if isinstance(given.exceptions, Problem):
        problems.append(replace(found("unreadable", name, given.exceptions.message), remedy=_FILE))
        return None
    try:
        return read_decisions(given.exceptions)
    except InputError as wrong:
        problems.append(found(wrong.code, f"{name}, {wrong.subject}", wrong.message))
        return None


def counts(scans: Sequence[Scan]) -> dict[str, int]:
    """Writes nothing. Vulnerabilities by severity, once per id and package, and how many of them are suppressed."""
    once = {(v.id, v.package, v.suppressed): v.severity for scan in scans for v in scan.vulnerabilities}
    counted = Counter(once.values())
    suppressed = sum(hidden for _, _, hidden in once)
    return {**{word: counted[word] for word in SEVERITIES}, "suppressed": suppressed}


def _image(image: Image, said: str) -> dict[str, Any]:
    signature = image.signature
    return {
        "digest": image.subject.digest,
        "platform": image.subject.platform,
        "repositories": list(image.place.repositories),
        "verdict": said,
        "signature": {"state": signature.state, "by": signature.by, "message": signature.message},
        "sboms": [
            {"file": f.name, "sha256": f.sha256, "format": s.format, "components": s.components} for f, s in image.sboms
        ],
        "scans": [
            {"file": f.name, "sha256": f.sha256, "database": stamp, "vulnerabilities": counts([scan])}
            for f, scan, stamp in image.scans
        ],
        "inventories": [{"file": f.name, "sha256": f.sha256} for f in image.inventories],
        "exceptions": sorted(image.accepted),
        "commands": list(_commands(image)),
    }


def _commands(image: Image) -> Iterator[dict[str, Any]]:
    for name, one in sorted(image.calls.items()):
        call = one.call
        yield {
            "record": name,
            "tool": call.tool,
            "version": call.version,
            "argv": call.argv,
            "started": call.started,
            "exit_code": call.exit_code,
            "outputs": call.outputs,
        }
