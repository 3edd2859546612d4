"""The canary's evidence: another run's bundle, which must prove exactly the proposed tuple. Never a typed value.

The bundle is of runbook `canary_upgrade`, and holds `after/canary.json` (what ran, on which hardware, until when) and
`after/audit.json` (which digests ran).
Source: GPU supply-chain policy, promotion steps 4 and 5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Bundle, Check, Consumed, Judgement, Recorded, Seen, Table
from gpurunbook.supply import admission, strictjson, times
from gpurunbook.supply.consumed import Wanted
from gpurunbook.supply.qualification import AHEAD
from gpurunbook.supply.tuple import FIELDS, diff

RUNBOOK = "canary_upgrade"
CHECK = "canary"
REPORT, AUDIT = "after/canary.json", "after/audit.json"

RESULTS = ("allocation", "monitoring", "rollback")


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the canary's run says of itself. tuple: field → value; results: each of RESULTS, and of whatever else it
    tried, true when it passed."""

    format: str
    tuple: dict[str, str]
    nodes: list[str]
    hardware: list[str]
    completed_at: str
    results: dict[str, bool]


FORMAT = "gpurunbook.canary/v1"


def read_report(data: bytes) -> Report:
    """Writes nothing. Raises InputError `canary-malformed`."""
    try:
        found = strictjson.typed(strictjson.loads(data), Report)
    except InputError as wrong:
        raise InputError(f"{REPORT} is not the report of a canary: {wrong}", code="canary-malformed") from None
    if found.format != FORMAT or sorted(found.tuple) != sorted(FIELDS):
        message = f"{REPORT} has format {found.format!r:.60} and {len(found.tuple)} fields of a tuple"
        raise InputError(f"{message}, wanted {FORMAT} and {len(FIELDS)}", code="canary-malformed")
    return found


def canary_proven(bundle: str, digest: str, signers: str, nodes: Sequence[str]) -> Check:
    """Writes nothing. Whether an anchored or signed bundle proves the canary of the proposed tuple.

    bundle: its folder; digest: of its manifest, from the change ticket; signers: allowed_signers file; nodes: those
    that are said to be upgraded. Keeps `canary.json` and `canary-audit.json`, with which the audit compares.
    """
    wanted = Wanted(CHECK, "canary", RUNBOOK, Bundle(bundle, digest, signers, (REPORT, AUDIT)))
    needs = {**wanted.needs(), "tuple": Recorded("tuple", "tuple.json")}

    def judge(seen: Seen) -> Judgement:
        return judge_canary(wanted, seen, nodes)

    return Check("Canary evidence", needs, judge)


def judge_canary(wanted: Wanted, seen: Seen, nodes: Sequence[str]) -> Judgement:
    """Writes nothing. seen: `bundle`, `cluster`, and `tuple` with the values that step kept."""
    bundle, findings = wanted.believe(seen)
    if (missing := seen["tuple"].problem) is not None:
        findings.append(
            wanted.found(Status.UNKNOWN, "tuple-unreadable", missing.message, "Run the cell 'tuple' again.")
        )
    if bundle is None or not bundle.files or seen["tuple"].problem is not None:
        if not findings:
            message = f"run {bundle.run if bundle else ''} holds neither {REPORT} nor {AUDIT}"
            findings.append(wanted.found(Status.UNKNOWN, "canary-malformed", message))
        return Judgement(tuple(findings))
    try:
        report = read_report(bundle.files.get(REPORT, b""))
        images = admission.images_of(bundle.files.get(AUDIT, b""))
    except InputError as wrong:
        code = "canary-malformed" if wrong.code == "unreadable" else f"canary-{wrong.code.removeprefix('canary-')}"
        findings.append(wanted.found(Status.UNKNOWN, code, wrong.message))
        return Judgement(tuple(findings))
    proposed: Mapping[str, Any] = json.loads(seen["tuple"].value)
    findings += _compared(wanted, report, proposed, nodes)
    completed, end = times.instant(report.completed_at), times.instant(bundle.end)
    if completed is not None and (end is None or completed > end + AHEAD):
        message = f"it says that it was completed at {report.completed_at}, and its run ended {bundle.end or 'never'}"
        findings.append(wanted.found(Status.FAIL, "canary-after-its-end", message))
    if bundle.run not in proposed["record"]["evidence"]:
        message = f"the record names {proposed['record']['evidence']!r:.120} as its evidence, this is run {bundle.run}"
        findings.append(
            wanted.found(Status.WARN, "record-names-other-evidence", message, "Name the run in the record.")
        )
    if not any(one.status in (Status.FAIL, Status.UNKNOWN) for one in findings):
        findings.append(_good(wanted, bundle, report))
    return Judgement(
        tuple(findings),
        (_table(report, proposed["proposed"]),),
        {"run": bundle.run, "strength": bundle.strength, "manifest": bundle.manifest, "digests": len(images)},
        {"canary.json": _kept(bundle, report), "canary-audit.json": bundle.files[AUDIT]},
    )


def _compared(wanted: Wanted, report: Report, tuples: Mapping[str, Any], nodes: Sequence[str]) -> Iterator[Finding]:
    for change in diff(report.tuple, tuples["proposed"]):
        message = f"the canary ran {change.field} {change.one!r:.80}, proposed is {change.other!r:.80}"
        yield wanted.found(Status.FAIL, "canary-other-tuple", message, "A tuple is proven as a whole: run its canary.")
    lacking = sorted({*RESULTS, *report.results} - {name for name, passed in report.results.items() if passed})
    if lacking:
        message = f"not passed: {', '.join(lacking)}"
        yield wanted.found(Status.FAIL, "canary-incomplete", message, "All of them, in one canary.")
    if not report.nodes:
        yield wanted.found(Status.FAIL, "canary-incomplete", "it names no node that was upgraded", "Run the canary.")
    if other := sorted(set(report.nodes) - set(nodes)):
        message = f"it ran on {', '.join(other)}, and only {', '.join(nodes) or 'no node'} is named as upgraded"
        remedy = "Name in canary_nodes every node that was upgraded, those of the canary first."
        yield wanted.found(Status.FAIL, "canary-other-nodes", message, remedy)
    if _hardware(report.hardware) != _hardware(tuples["hardware"]):
        message = f"it ran on {', '.join(report.hardware) or 'nothing'}, wanted {', '.join(tuples['hardware'])}"
        yield wanted.found(Status.FAIL, "canary-other-hardware", message, "Run the canary on that hardware.")
    completed = tuples["record"]["completed_at"]
    if times.instant(report.completed_at) is None or times.instant(report.completed_at) != times.instant(completed):
        message = f"it was completed at {report.completed_at!r:.40}, the record says {completed!r:.40}"
        yield wanted.found(Status.FAIL, "canary-other-record", message, "The record must be of this canary.")


def _hardware(given: Sequence[str]) -> set[str]:
    return {identity.strip().lower() for identity in given}


def _good(wanted: Wanted, bundle: Consumed, report: Report) -> Finding:
    by = f"signed by {bundle.signer}" if bundle.strength == "signed" else f"anchored by {bundle.manifest}"
    message = f"run {bundle.run}, {by}, ran the proposed tuple on {len(report.nodes)} nodes until {report.completed_at}"
    return wanted.found(Status.PASS, "canary-proven", message, "")


def _kept(bundle: Consumed, report: Report) -> bytes:
    told = {"run": bundle.run, "manifest": bundle.manifest, "strength": bundle.strength, "signer": bundle.signer}
    return json.dumps({**told, "report": msgspec.to_builtins(report)}, sort_keys=True, indent=1).encode() + b"\n"


def _table(report: Report, proposed: Mapping[str, str]) -> Table:
    rows = [(f, report.tuple[f], proposed[f], "pass" if report.tuple[f] == proposed[f] else "fail") for f in FIELDS]
    return Table("The canary's tuple", ("field", "canary", "proposed", "status"), rows, status="status")
