"""What a rule says: findings, their status, and the verdict of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum


class Status(StrEnum):
    """Of one finding. `unknown` is never treated as good."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """Of one run; the meaning of each is in docs/verdicts.md."""

    PASS = "pass"
    PLANNED = "planned"
    REJECTED = "rejected"
    BLOCKED = "blocked"
    FAILED = "failed"
    UNKNOWN = "unknown"


EXIT = {
    Verdict.PASS: 0,
    Verdict.PLANNED: 0,
    Verdict.REJECTED: 1,
    Verdict.BLOCKED: 1,
    Verdict.FAILED: 1,
    Verdict.UNKNOWN: 2,
}
"""Exit code per verdict. A crash exits 2 as well: it must never look like an answer of the policy."""


@dataclass(frozen=True)
class Finding:
    """One thing that a rule saw.

    check: id of the rule; subject: `namespace/kind/name`; code: stable kebab-case word, in docs/codes.md;
    message: what was seen and what was wanted; remedy: what to do next; source: where the rule comes from.
    """

    check: str
    subject: str
    status: Status
    code: str
    message: str
    remedy: str = ""
    source: str = ""

    def as_json(self) -> dict[str, str]:
        """Writes nothing. The finding as a flat object of strings."""
        return {key: str(value) for key, value in asdict(self).items()}


_ORDER = [Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN]


def worst(findings: Iterable[Finding]) -> Status:
    """Writes nothing. The gravest status: unknown before fail before warn before pass; no finding at all is unknown."""
    return max((f.status for f in findings), key=_ORDER.index, default=Status.UNKNOWN)
