"""The evidence gate as a check of a runbook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gpurunbook.errors import InputError, ParameterError
from gpurunbook.findings import Finding
from gpurunbook.plan import (
    Check,
    Document,
    Folder,
    Judgement,
    Need,
    Now,
    Object,
    Observed,
    Pages,
    Problem,
    Recorded,
    Seen,
    Table,
)
from gpurunbook.supply import audited, decisions, times
from gpurunbook.supply.audit import identity
from gpurunbook.supply.consumed import not_given
from gpurunbook.supply.evidence import same_platform
from gpurunbook.supply.gate import Terms
from gpurunbook.supply.gatecodes import CHECK, CODES, found
from gpurunbook.supply.gatereport import Given, Report, counts, decide
from gpurunbook.supply.members import at
from gpurunbook.supply.relations import read_indexes

ROWS = 200
"""Images that the notebook's table shows."""

FINDINGS = 500
"""Findings that the notebook shows one by one."""


def evidence_gate(
    evidence: str,
    *,
    exceptions: str = "",
    audit: str = "",
    relations: str = "",
    platforms: Sequence[str] = (),
    max_database_age: str = "48h",
    stabilisation: str = "24h",
) -> Check:
    """Writes nothing. Whether every digest that runs, on each platform in use, has all that the policy asks for.

    evidence: a folder; exceptions: what Security decided; audit: JSON of an audit, "" for that of the step `audit`;
    relations: JSON of index → manifests; platforms: in use, such as `linux/amd64`, more than those of the cluster's
    nodes and never fewer. Keeps the answer of `gpurunbook gate` as `gate.json`. Raises ParameterError for what has not
    its form.
    Source: GPU supply-chain and image policy, SBOM, signature, and vulnerability gate.
    """
    age, window = _span("max_database_age", max_database_age), _span("stabilisation", stabilisation)
    used = tuple(platform(text, "platforms") for text in platforms)
    needs: dict[str, Need] = {
        "now": Now(),
        "cluster": Object("/api/v1/namespaces/kube-system"),
        "evidence": Folder(evidence),
        "audit": Document(audit, audited.LIMIT) if audit else Recorded("audit", "audit.json"),
    }
    if exceptions:
        needs["exceptions"] = Document(exceptions, decisions.LIMIT)
    if relations:
        needs["relations"] = Document(relations)
    needs["nodes"] = Pages("/api/v1/nodes")

    def judged(seen: Seen) -> Judgement:
        return judgement(decide(_given(seen, age, window, used, bool(audit))))

    return Check("Evidence of every image that runs", needs, judged)


def platform(text: str, name: str) -> str:
    """Writes nothing. A platform that somebody named. Raises ParameterError."""
    parts = text.split("/") if isinstance(text, str) else []
    if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.replace("_", "").isalnum() for part in parts):
        raise ParameterError(f"{str(text)[:80]!r} is no platform", subject=name, remedy="Give such as linux/amd64.")
    return text


def _span(name: str, text: str) -> int:
    span = times.duration(text) if isinstance(text, str) else None
    if span is None or span <= 0:
        raise ParameterError(f"{str(text)[:80]!r} is no duration", subject=name, remedy="Give such as 48h.")
    return span


def _given(seen: Seen, age: int, stabilisation: int, used: tuple[str, ...], foreign: bool) -> Given:
    problems: list[Finding] = []
    related: Any = {}
    if "relations" in seen:
        try:
            related = read_indexes(_bytes(seen["relations"]))
        except InputError as wrong:
            problems.append(found(wrong.code, "relations", wrong.message))
    running = _used(seen["nodes"], problems)
    for one in running if used else ():
        if not any(same_platform(one, other) for other in used):
            problems.append(found("platform-left-out", one, f"nodes are of it; named are {', '.join(used)}"))
    used = used or running
    evidence = seen["evidence"]
    path, missing = evidence.need.path if isinstance(evidence.need, Folder) else "", evidence.problem
    if missing is not None and not path:
        path, text, _ = not_given("evidence", "folder")
        missing = Problem(missing.code, text)
    images = seen["audit"].problem or seen["audit"].value
    if foreign:
        problems += _foreign(seen, images)
    said = seen.get("exceptions")
    return Given(
        images=images,
        files=missing or evidence.value.items(),
        exceptions=None if said is None else said.problem or said.value,
        relations=related,
        terms=Terms(times.nanoseconds(seen["now"].value), age, stabilisation, used),
        names=("images", "exceptions", path),
        problems=tuple(problems),
    )


def _bytes(observed: Observed) -> bytes:
    if observed.problem is not None:
        raise InputError(observed.problem.message, code="unreadable")
    data: bytes = observed.value
    return data


def _used(nodes: Observed, problems: list[Finding]) -> tuple[str, ...]:
    """The platforms of all nodes: more than where the images run, and never fewer."""
    if nodes.problem is not None:
        problems.append(found("platforms-unknown", "nodes", f"the nodes cannot be read: {nodes.problem.message}"))
        return ()
    named: set[str] = set()
    for node in nodes.value:
        parts = [at(node, "status", "nodeInfo", word) for word in ("operatingSystem", "architecture")]
        if not all(isinstance(part, str) and part for part in parts):
            subject = f"Node/{at(node, 'metadata', 'name')}"
            problems.append(found("platforms-unknown", subject, "the node does not say its platform"))
            continue
        named.add("/".join(parts))
    return tuple(sorted(named))


def _foreign(seen: Seen, images: bytes | Problem) -> list[Finding]:
    """An audit from a file must be of this cluster, and no rehearsal unless this is one."""
    try:
        audit = audited.read_audit(images) if isinstance(images, bytes) else None
    except InputError:
        return []
    if audit is None:
        return []
    uid, rehearsal = identity(seen)
    if uid is None or audit.cluster != uid:
        message = f"the audit is of cluster {audit.cluster or 'unknown'}, this one is {uid or 'unknown'}"
        return [found("foreign-audit", "audit", message)]
    if audit.rehearsal and not rehearsal:
        return [found("foreign-audit", "audit", "the audit is of a rehearsal, this cluster is live")]
    return []


def _shown(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The gravest findings one by one, the rest counted by code."""
    yield from findings[:FINDINGS]
    for (status, code), count in Counter((f.status, f.code) for f in findings[FINDINGS:]).items():
        yield Finding(CHECK, "", status, code, f"{count} more; all stand in gate.json", CODES.get(code, ("", ""))[1])


def judgement(report: Report) -> Judgement:
    """Writes nothing. A report as findings, a table, facts, and the file `gate.json`."""
    ids = sorted({name for image in report.images for name in image.accepted})
    return Judgement(
        findings=tuple(_shown(report.findings)),
        views=(table(report),),
        facts={
            "verdict": report.verdict,
            "images": len(report.images),
            "digests": sorted({image.subject.digest for image in report.images}),
            "platforms": sorted({image.subject.platform for image in report.images}),
            "exceptions": ids,
        },
        files={"gate.json": report.as_bytes()},
    )


def table(report: Report) -> Table:
    """Writes nothing. One row per digest and platform."""
    columns = ("verdict", "repository", "digest", "platform", "signature", "SBOM", "Critical", "High", "not rated")
    rows = []
    for image in report.images[:ROWS]:
        seen = counts([scan for _, scan, _ in image.scans])
        vulnerabilities = [seen[word] if image.scans else None for word in ("CRITICAL", "HIGH", "UNKNOWN")]
        components = max((sbom.components for _, sbom in image.sboms), default=None)
        where = ", ".join(image.place.repositories)
        subject, signed = image.subject, image.signature.state
        row = (report.of(image), where, subject.digest[:19], subject.platform, signed, components, *vulnerabilities)
        rows.append((*row, ", ".join(sorted(image.accepted))))
    note = "Counts are of findings, accepted ones among them; SBOM counts its components."
    title = "Evidence by digest and platform"
    return Table(title, (*columns, "accepted under"), rows, total=len(report.images), status="verdict", note=note)
