"""One file of a tool, judged by itself: is it about the image, is it whole, and what does it say against it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import strictjson, times
from gpurunbook.supply.evidence import CHECK, SOURCE, Subject, failing, join
from gpurunbook.supply.ignores import judge_ignores, read_ignores
from gpurunbook.supply.members import member, text, whole
from gpurunbook.supply.sboms import Sbom, read_sbom
from gpurunbook.supply.scans import Scan, Vulnerability, read_scan
from gpurunbook.supply.vex import judge_vex, read_vex

LIMIT = 256 << 20
"""Bytes of one file."""

AHEAD = 5 * times.MINUTE
"""How far a database's date may lie in the future: clocks differ."""

SUBJECTLESS = frozenset({"trivy-version", "trivyignore"})
"""Kinds that are not about one image."""

_GO_ZERO = times.instant("0001-01-01T00:00:00Z") or 0
"""What Go writes for a time that was never set."""

_OPEN = {
    "CRITICAL": ("critical", "Update the image, or obtain a named, time-bounded exception from Security."),
    "HIGH": ("high-undispositioned", "Have it dispositioned: exploitability, privileges, mitigation, owner, expiry."),
    "UNKNOWN": ("unknown-severity", "Not rated yet is not low: have Security rate it."),
}
_SUPPRESSED = {"CRITICAL": "suppressed-critical", "HIGH": "suppressed-high", "UNKNOWN": "suppressed-unknown"}


def check(kind: str, data: bytes, subject: Subject | None, *, now: int, max_database_age: int) -> tuple[Finding, ...]:
    """Writes nothing. What is to be said about one file; nothing at all means that it passes.

    kind: a key of KINDS; subject: may be None for SUBJECTLESS; now: nanoseconds since 1970; max_database_age:
    nanoseconds. A file that cannot be judged gives one finding of status unknown, alone; notes have status pass.
    """
    try:
        if len(data) > LIMIT:
            raise InputError(f"more than {LIMIT} bytes", code="unreadable")
        if subject is None and kind not in SUBJECTLESS:
            raise InputError(f"the kind {kind} is judged for a subject; none was given", code="subject")
        found = KINDS[kind](data, _Asked(subject or Subject("", ""), now, max_database_age))
    except InputError as wrong:
        remedy = f"Collect the {kind} file again; nothing in this one counts."
        return (Finding(CHECK, wrong.subject or kind, Status.UNKNOWN, wrong.code, wrong.message, remedy, SOURCE),)
    return tuple(sorted(found, key=lambda one: (one.code, one.subject, one.message)))


def verdict(findings: tuple[Finding, ...]) -> str:
    """Writes nothing. `error` before `fail` before `pass`."""
    statuses = {found.status for found in findings}
    if Status.UNKNOWN in statuses:
        return "error"
    return "fail" if Status.FAIL in statuses else "pass"


@dataclass(frozen=True)
class _Asked:
    subject: Subject
    now: int
    max_age: int


def judge_scan(scan: Scan, subject: Subject) -> list[Finding]:
    """Writes nothing. Is a report about the subject, and did it see anything? Its vulnerabilities are not judged."""
    found = join(subject, scan.named)
    if not scan.results:
        message = "no Results: no package database was recognised in the image"
        found.append(failing("nothing-scanned", subject.digest, message, "Find out why; an SBOM may tell more."))
    if scan.end_of_life:
        message = "the distribution gets no more security fixes (EOSL)"
        found.append(failing("end-of-life-os", subject.digest, message, "Move to a release that is supported."))
    return found


def judge_vulnerabilities(scan: Scan) -> list[Finding]:
    """Writes nothing. One finding per vulnerability and package that counts as open, or that was suppressed."""
    charges = ((seen, charge(seen)) for seen in scan.vulnerabilities)
    return list(dict.fromkeys(failing(said[0], seen.id, where(seen), said[1]) for seen, said in charges if said))


def charge(seen: Vulnerability) -> tuple[str, str] | None:
    """Writes nothing. The code and the remedy of a vulnerability that needs an answer; None for MEDIUM and LOW."""
    if not seen.suppressed:
        return _OPEN.get(seen.severity)
    code = _SUPPRESSED.get(seen.severity)
    return (code, "An exception stands in the exceptions file, not in an ignore file.") if code else None


def where(seen: Vulnerability) -> str:
    """Writes nothing. Severity, package, version and target, for people."""
    hidden = ", taken out of the report by an ignore file or VEX" if seen.suppressed else ""
    return f"{seen.severity} in {seen.package or 'no named package'} {seen.installed} ({seen.target}){hidden}"


def judge_database(document: Any, now: int, max_age: int) -> list[Finding]:
    """Writes nothing. Is the database that `trivy version` names known and fresh? Nanoseconds. Raises InputError."""
    answer = whole(document)
    stamp = member(answer, "VulnerabilityDB").get("UpdatedAt")
    updated = times.instant(stamp) if isinstance(stamp, str) else None
    remedy = "Update Trivy's database and scan again."
    version = answer.get("Version")  # a number in the database's own metadata.json, which has no VulnerabilityDB
    tool = f"trivy {version}" if isinstance(version, str) else "trivy"
    if updated is None or updated <= _GO_ZERO or updated - now > AHEAD:
        message = f"VulnerabilityDB.UpdatedAt is {stamp!r}: the age of the data is not known"
        return [failing("database-unknown", tool, message, remedy)]
    if now - updated > max_age:
        message = f"the data are of {stamp}, older than {max_age / times.HOUR:g} h"
        return [failing("database-stale", tool, message, remedy)]
    return []


def judge_sbom(sbom: Sbom, subject: Subject) -> list[Finding]:
    """Writes nothing. Is an SBOM about the subject, and does it name anything?"""
    found = join(subject, sbom.named)
    if not sbom.components:
        message = f"the {sbom.format} names no package"
        found.append(failing("sbom-empty", subject.digest, message, "Collect it again, from the registry."))
    return found


def judge_signatures(answer: Any, digest: str) -> list[Finding]:
    """Writes nothing. Did `cosign verify` print signatures, all over this digest? Raises InputError (`unreadable`)."""
    if answer is not None and not isinstance(answer, list):
        raise InputError("neither a list of signatures nor null", code="unreadable")
    if not answer:
        message = "cosign printed no signature"
        return [failing("no-signature", digest, message, "Ask the publisher, or record that it does not sign.")]
    found = []
    for signature in answer:
        signed = text(member(member(whole(signature), "critical"), "image"), "docker-manifest-digest")
        if not signed:
            raise InputError("a signature without critical.image.docker-manifest-digest", code="unreadable")
        if signed != digest:
            message = f"signed is {signed}, wanted {digest}"
            found.append(failing("subject-mismatch", digest, message, "Verify by this digest."))
    return found


def _trivy(data: bytes, asked: _Asked) -> list[Finding]:
    scan = read_scan(strictjson.loads(data))
    return judge_scan(scan, asked.subject) + judge_vulnerabilities(scan)


def _trivy_version(data: bytes, asked: _Asked) -> list[Finding]:
    return judge_database(strictjson.loads(data), asked.now, asked.max_age)


def _sbom(data: bytes, asked: _Asked) -> list[Finding]:
    return judge_sbom(read_sbom(strictjson.loads(data)), asked.subject)


def _cosign(data: bytes, asked: _Asked) -> list[Finding]:
    return judge_signatures(strictjson.loads(data), asked.subject.digest)


def _openvex(data: bytes, asked: _Asked) -> list[Finding]:
    return judge_vex(read_vex(strictjson.loads(data)), asked.subject)


def _trivyignore(data: bytes, asked: _Asked) -> list[Finding]:
    return judge_ignores(read_ignores(data), asked.now)


KINDS: Mapping[str, Callable[[bytes, _Asked], list[Finding]]] = {
    "cosign": _cosign,
    "openvex": _openvex,
    "sbom": _sbom,
    "trivy": _trivy,
    "trivy-version": _trivy_version,
    "trivyignore": _trivyignore,
}
"""Kind → how its files are judged."""
