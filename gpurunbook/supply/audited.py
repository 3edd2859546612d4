"""The answer of an audit, as the evidence gate takes it: which digests run, from where, and whether that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding
from gpurunbook.supply import strictjson
from gpurunbook.supply.gatecodes import found
from gpurunbook.supply.imageids import runtime
from gpurunbook.supply.references import is_digest, parse

LIMIT = 256 << 20


class _Digest(msgspec.Struct):
    digest: str
    repositories: list[str]


class _Record(msgspec.Struct):
    resolved: str
    evidence: bool


class Audited(msgspec.Struct):
    """verdict: pass, fail or error; cluster: uid or None. digests: as the audit lists them."""

    verdict: str
    evidence_ready: bool
    digests: list[_Digest]
    cluster: str | None = None
    rehearsal: bool = False
    records: list[_Record] | None = None

    def images(self) -> Mapping[str, Sequence[str]]:
        """Writes nothing. Digest → its normalised repositories, sorted."""
        return {one.digest: sorted(parse(name).repository for name in one.repositories) for one in self.digests}

    def against(self) -> list[Finding]:
        """Writes nothing. What keeps the audit from being the basis of a gate."""
        if self.verdict == "error":
            return [found("audit-unknown", "audit", "the audit could not say anything (verdict error)")]
        if self.verdict != "pass":
            return [found("audit-failed", "audit", "the audit failed, so nothing of it is a basis for evidence")]
        if not self.evidence_ready:
            message = "not every image that ran has a registry manifest digest (evidence_ready is false)"
            return [found("evidence-not-ready", "audit", message)]
        return []


def read_audit(data: bytes) -> Audited:
    """Writes nothing. Raises InputError (`audit-malformed`) for what is not, or no longer, the answer of an audit."""
    try:
        if len(data) > LIMIT:
            raise InputError(f"more than {LIMIT} bytes")
        audited = strictjson.typed(strictjson.loads(data), Audited)
        _check(audited)
    except InputError as wrong:
        raise InputError(f"not the answer of an audit: {wrong.message}", code="audit-malformed") from None
    return audited


def _check(audited: Audited) -> None:
    if audited.verdict not in ("pass", "fail", "error"):
        raise InputError(f"verdict is {audited.verdict[:40]!r}, wanted pass, fail or error")
    digests = [one.digest for one in audited.digests]
    if bad := next((digest for digest in digests if not is_digest(digest)), None):
        raise InputError(f"{bad[:80]!r} is not sha256: and 64 lower-case hexadecimal digits")
    if len(set(digests)) != len(digests):
        raise InputError("a digest stands twice in digests")
    for one in audited.digests:
        if not one.repositories:
            raise InputError(f"{one.digest} without a repository")
        for name in one.repositories:
            parse(name)
    if audited.evidence_ready and not digests:
        raise InputError("evidence_ready is true, and no digest is named")
    if audited.records is not None:
        ran = {runtime(record.resolved).digest for record in audited.records if record.evidence and record.resolved}
        if ran != set(digests):
            lost = ", ".join(sorted(ran ^ set(digests))[:3])
            raise InputError(f"digests and records do not name the same images ({lost}): it was altered")
