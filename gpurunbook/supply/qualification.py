"""The qualification record: which upgrade, on which hardware, has been proven by a canary and approved.

Source: the upgrade gate of the GPU supply-chain policy. All checks run; all problems are told together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import strictyaml, times
from gpurunbook.supply.shape import Shape

LIMIT = 65_536
"""Bytes of a record."""

MAX_AGE = 720 * times.HOUR
AHEAD = 5 * times.MINUTE
"""How far completedAt may lie in the future: clocks differ."""

COMPONENTS = ("kernel", "rke2", "driver", "gpuOperator", "dcgmExporter")

API_VERSION = "kube-dc.io/v1alpha1"
KIND = "GPUUpgradeQualification"
SOURCE = "GPU supply-chain policy, promotion step 2"

_ID = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_REVISION = re.compile(r"[0-9a-fA-F]{40}")
_HARDWARE = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}/[0-9a-f]{4}:[0-9a-f]{4}")
_RKE2 = re.compile(r"v?1\.([0-9]{1,9})\.([0-9]{1,9})\+rke2r([0-9]{1,9})")

Tuple = Mapping[str, str]
"""The five components, each as text; absent is empty."""


@dataclass(frozen=True)
class Canary:
    """What the canary run is said to have shown."""

    completed_at: str
    allocation_passed: bool
    monitoring_passed: bool
    rollback_passed: bool
    evidence: str


@dataclass(frozen=True)
class Record:
    """A record as written. from_ and rollback are None where the record does not name them."""

    api_version: str
    kind: str
    id: str
    state: str
    approved_by: str
    source_revision: str
    hardware: Sequence[str]
    target: Tuple
    canary: Canary
    from_: Tuple | None = None
    rollback: Tuple | None = None


@dataclass(frozen=True)
class Request:
    """What somebody wants to upgrade. now: nanoseconds since 1970, None where the caller's clock counts."""

    current: Tuple
    target: Tuple
    hardware: Sequence[str]
    max_age: int = MAX_AGE
    now: int | None = None


def read_record(data: bytes) -> Record:
    """Writes nothing. The record in a file's bytes; read `LIMIT` + 1 of them so that a longer file shows.

    Raises InputError with a code of `strictyaml.ORDER`; no check has then run.
    """
    node = strictyaml.document(data, limit=LIMIT)
    if not isinstance(node, strictyaml.Map):
        raise strictyaml.fault("type", node.line, f"the top level is not a mapping; a {KIND} was expected")
    shape = Shape()
    known = ("apiVersion", "kind", "id", "state", "approvedBy", "sourceRevision", "hardware", "target", "canary")
    top = shape.fields(node, (*known, "from", "rollback"), "the record")
    flags = ("allocationPassed", "monitoringPassed", "rollbackPassed")
    canary = shape.fields(top.get("canary"), ("completedAt", "evidence", *flags), "canary")

    def given(name: str) -> bool:
        value = top.get(name)
        return value is not None and not (isinstance(value, strictyaml.Text) and value.null)

    def components(name: str) -> Tuple:
        parts = shape.fields(top.get(name), COMPONENTS, name)
        return {part: shape.text(parts.get(part), f"{name}.{part}") for part in COMPONENTS}

    found = Record(
        api_version=shape.text(top.get("apiVersion"), "apiVersion"),
        kind=shape.text(top.get("kind"), "kind"),
        id=shape.text(top.get("id"), "id"),
        state=shape.text(top.get("state"), "state"),
        approved_by=shape.text(top.get("approvedBy"), "approvedBy"),
        source_revision=shape.text(top.get("sourceRevision"), "sourceRevision"),
        hardware=shape.texts(top.get("hardware"), "hardware"),
        target=components("target"),
        canary=Canary(
            shape.text(canary.get("completedAt"), "canary.completedAt"),
            shape.flag(canary.get("allocationPassed"), "canary.allocationPassed"),
            shape.flag(canary.get("monitoringPassed"), "canary.monitoringPassed"),
            shape.flag(canary.get("rollbackPassed"), "canary.rollbackPassed"),
            shape.text(canary.get("evidence"), "canary.evidence"),
        ),
        from_=components("from") if given("from") else None,
        rollback=components("rollback") if given("rollback") else None,
    )
    shape.done()
    return found


def read_request(document: Any) -> Request:
    """Writes nothing. A request from its JSON: current, target, hardware, max_age (Go duration), now (RFC 3339).

    max_age empty, zero or negative is the default of 720 h; a component that is absent is blank.
    Raises InputError (`request`) for another shape.
    """

    def wrong(message: str) -> InputError:
        return InputError(message, subject="request", code="request")

    def text(value: Any, at: str) -> str:
        if not isinstance(value, str):
            raise wrong(f"{at} is not text")
        return value

    def components(name: str) -> Tuple:
        given = document.get(name)
        if not isinstance(given, dict) or set(given) - set(COMPONENTS):
            raise wrong(f"{name} is not an object of {', '.join(COMPONENTS)}")
        return {part: text(given.get(part, ""), f"{name}.{part}") for part in COMPONENTS}

    if not isinstance(document, dict):
        raise wrong("not an object with current, target and hardware")
    unknown = set(document) - {"current", "target", "hardware", "max_age", "now"}
    if unknown:
        raise wrong(f"an unknown field, {min(unknown)!r}")
    hardware = document.get("hardware")
    if not isinstance(hardware, list):
        raise wrong("hardware is not a list of vendor:device/subvendor:subdevice")
    max_age = times.duration(text(document.get("max_age", ""), "max_age") or "0")
    if max_age is None:
        raise wrong(f"max_age {document['max_age']!r} is no duration such as 720h")
    now = times.instant(text(document["now"], "now")) if "now" in document else None
    if "now" in document and now is None:
        raise wrong(f"now {document['now']!r} is not RFC 3339 with a T and a zone")
    return Request(
        current=components("current"),
        target=components("target"),
        hardware=[text(item, "hardware") for item in hardware],
        max_age=max_age if max_age > 0 else MAX_AGE,
        now=now,
    )


@dataclass
class _Problems:
    subject: str
    found: dict[str, Finding] = field(default_factory=dict)

    def add(self, code: str, message: str, remedy: str = "") -> None:
        made = Finding("qualification", self.subject, Status.FAIL, code, message, remedy, SOURCE)
        self.found.setdefault(code, made)


def judge(record: Record, request: Request, now: int) -> tuple[Finding, ...]:
    """Writes nothing. Every check of the upgrade gate, whatever the others said.

    now: nanoseconds since 1970. Returns failing findings by code, each code once, or one finding `qualified`.
    """
    problems = _Problems(f"record/{record.id}")
    _header(record, problems)
    _hardware(record, request, problems)
    _tuples(record, request, problems)
    _rke2(request, problems)
    _canary(record.canary, now, request.max_age, problems)
    if problems.found:
        return tuple(problems.found[code] for code in sorted(problems.found))
    message = (
        f"{record.id}, approved by {record.approved_by}, revision {record.source_revision.lower()}, "
        f"canary completed {record.canary.completed_at}"
    )
    remedy = "Put this answer with the change ticket and go on with the manifest review."
    return (Finding("qualification", problems.subject, Status.PASS, "qualified", message, remedy, SOURCE),)


def _header(record: Record, problems: _Problems) -> None:
    if (record.api_version, record.kind) != (API_VERSION, KIND):
        seen = f"{record.api_version!r} {record.kind!r}"
        problems.add("api-version", f"seen {seen}, wanted {API_VERSION} {KIND}", "Take a record of this kind.")
    if not _ID.fullmatch(record.id):
        problems.add("id", f"the id {record.id!r} is not lower-case letters, digits, inner '.' and '-'")
    if record.state != "qualified":
        problems.add("state", f"the state is {record.state!r}, wanted qualified", "Have the record qualified first.")
    if not record.approved_by.strip():
        problems.add("approved-by", "approvedBy is blank", "A second person approves the record.")
    if not _REVISION.fullmatch(record.source_revision):
        message = f"sourceRevision {record.source_revision!r} is not 40 hexadecimal digits"
        problems.add("source-revision", message, "Name the commit that the canary ran.")


def identity(raw: str) -> str:
    """Writes nothing. vendor:device/subvendor:subdevice in its one spelling; "" for what has not the form."""
    found = raw.strip().lower()
    return found if _HARDWARE.fullmatch(found) else ""


def _identities(given: Sequence[str], side: str, problems: _Problems) -> set[str]:
    good: set[str] = set()
    for raw in given:
        found = identity(raw)
        if not found:
            message = f"{side}: {raw!r} is not vendor:device/subvendor:subdevice in hexadecimal"
            problems.add("hardware-format", message, "Take both pairs from `lspci -nn -v`.")
        elif found in good:
            problems.add("hardware-duplicate", f"{side}: {found} stands there twice")
        else:
            good.add(found)
    if not good:
        problems.add("hardware-empty", f"{side}: no well-formed hardware identity")
    return good


def _hardware(record: Record, request: Request, problems: _Problems) -> None:
    qualified = _identities(record.hardware, "record", problems)
    wanted = _identities(request.hardware, "request", problems)
    if wanted and wanted != qualified:
        message = (
            f"the record is for {', '.join(sorted(qualified)) or 'none'}, the request for {', '.join(sorted(wanted))}"
        )
        problems.add("hardware-mismatch", message, "The two sets must be equal: qualify exactly this hardware.")


def _tuples(record: Record, request: Request, problems: _Problems) -> None:
    for part in COMPONENTS:
        current, target, qualified = request.current[part], request.target[part], record.target[part]
        if not current.strip() or not target.strip():
            problems.add(f"{part}-missing", f"current {current!r}, target {target!r}: neither may be blank")
        if target != qualified:
            message = f"target {target!r} is not the qualified {qualified!r}, byte for byte"
            problems.add(f"{part}-not-qualified", message, "One component off the tuple is a new, unqualified tuple.")
        if record.from_ is not None and current != record.from_[part]:
            message = f"current {current!r} is not {record.from_[part]!r}, from which the record qualifies the step"
            problems.add(f"{part}-from-mismatch", message, "Qualify the step from what is running.")
        if record.rollback is not None:
            _rollback(part, current, target, record.rollback[part], problems)
    if request.current == request.target:
        problems.add("no-change", "current and target are equal in all five components")


def _rollback(part: str, current: str, target: str, back: str, problems: _Problems) -> None:
    # RKE2 cannot be downgraded, so its rollback may be to stay on the target.
    wanted = {current, target} if part == "rke2" else {current}
    if back not in wanted:
        message = f"the record rolls back to {back!r}, the request comes from {current!r}"
        problems.add(f"{part}-rollback-mismatch", message, "Qualify the way back to what is running.")


def _rke2(request: Request, problems: _Problems) -> None:
    parsed = [_RKE2.fullmatch(side["rke2"]) for side in (request.current, request.target)]
    if parsed[0] is None or parsed[1] is None:
        seen = f"current {request.current['rke2']!r}, target {request.target['rke2']!r}"
        problems.add("rke2-format", f"{seen}; the form is v1.MINOR.PATCH+rke2rREV")
        return
    before, after = ([int(number) for number in found.groups()] for found in (parsed[0], parsed[1]))
    step = f"from {request.current['rke2']} to {request.target['rke2']}"
    if after < before:
        problems.add("rke2-downgrade", f"{step} is a downgrade", "RKE2 cannot go back; choose a higher target.")
    elif after[0] - before[0] > 1:
        problems.add("rke2-minor-skip", f"{step} skips a minor version", "Go one minor version at a time.")


def _canary(canary: Canary, now: int, max_age: int, problems: _Problems) -> None:
    completed = times.instant(canary.completed_at)
    if completed is None:
        message = f"completedAt {canary.completed_at!r} is not RFC 3339 with a T and a zone"
        problems.add("completed-at-format", message)
    elif completed - now > AHEAD:
        problems.add("completed-at-future", f"completedAt {canary.completed_at} is more than 5 min ahead of now")
    elif now - completed > max_age:
        message = f"completedAt {canary.completed_at} is older than {max_age / times.HOUR:g} h"
        problems.add("completed-at-stale", message, "Run the canary again.")
    passed = {
        "allocationPassed": canary.allocation_passed,
        "monitoringPassed": canary.monitoring_passed,
        "rollbackPassed": canary.rollback_passed,
    }
    if not all(passed.values()):
        missing = ", ".join(name for name, value in passed.items() if not value)
        problems.add("canary-incomplete", f"not true: {missing}", "All three must have passed in one canary.")
    if not canary.evidence.strip():
        problems.add("evidence-missing", "canary.evidence is blank", "Name the canary's bundle.")
