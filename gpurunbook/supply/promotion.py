"""The promotion of a tuple: the record and the tuple it proves, and what a later phase takes from the approved run.

Two phases of one runbook. `approve` judges everything and ends with a proposal; `admit`, after the stabilisation
window, stands on the bundle of that run, and judges anew what can have changed since: gates, tuple, images, alerts.
Source: GPU supply-chain policy, Promotion procedure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gpurunbook.digests import digest
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Bundle, Check, Document, Judgement, Now, Observed, Recorded, Seen, Table
from gpurunbook.supply import admission, current, qualification, strictjson, times
from gpurunbook.supply.consumed import Wanted, not_given
from gpurunbook.supply.tuple import CHECK, FIELDS, IN_RECORD, SOURCE, Tuple, diff, judge_proposal, read_tuple

RUNBOOK = "promotion"
APPROVE, ADMIT = "approve", "admit"

APPROVED = "after/approved.json"
"""In the bundle of an approved run: until when it must stabilise, and the digest of its proposal."""

PROPOSAL = "after/proposal.json"
AUDIT = "after/audit.json"
DIGESTS = "after/digests.json"

_FILE = 1 << 20
_T = TypeVar("_T")


def qualified(
    released: str, proposed: str, record: str, request: str, namespaces: Sequence[str], canaries: Sequence[str]
) -> Check:
    """Writes nothing. Whether the proposed tuple is the one that the qualification record proves, as a whole.

    The first four are files. The request must come from the released tuple and lead to the proposed one; it is judged
    at the run's clock, and what it calls current is compared with the cluster. canaries: the nodes that were upgraded.
    Keeps `tuple.json` and `record.yaml` for later steps.
    """
    paths = {"released": released, "proposed": proposed, "record": record, "request": request}
    needs = {name: Document(path, _FILE) for name, path in paths.items()}

    def judge(seen: Seen) -> Judgement:
        return judge_qualified(seen, paths, current.collect(seen, namespaces), canaries)

    return Check("Qualification record and tuple", {**needs, "now": Now(), **current.needs(namespaces)}, judge)


def judge_qualified(seen: Seen, paths: Mapping[str, str], live: current.Current, canaries: Sequence[str]) -> Judgement:
    """Writes nothing. seen: `released`, `proposed`, `record`, `request`, `now`; live: what the cluster shows."""
    wrong: list[Finding] = []

    def take(name: str, reader: Callable[[bytes], _T]) -> _T | None:
        try:
            return reader(_bytes(seen[name]))
        except InputError as refused:
            if paths[name]:
                message = f"{refused.subject}: {refused.message}" if refused.subject else refused.message
                remedy = refused.remedy or f"Correct the file that `{name}` names; nothing of it was used."
                subject = paths[name]
            else:
                subject, message, remedy = not_given(name, "file")
            wrong.append(Finding(CHECK, subject, Status.UNKNOWN, refused.code, message, remedy, SOURCE))
            return None

    before = take("released", lambda data: read_tuple(data, "released"))
    after = take("proposed", lambda data: read_tuple(data, "proposed"))
    proven = take("record", qualification.read_record)
    asked = take("request", lambda data: qualification.read_request(strictjson.loads(data)))
    if before is None or after is None or proven is None or asked is None:
        return Judgement(tuple(wrong))
    findings = [*judge_proposal(after, before, proven), *_request(asked, before, after)]
    findings += qualification.judge(proven, asked, times.nanoseconds(seen["now"].value))
    typed = current.Typed(asked.current, asked.target, asked.hardware, proven.hardware)
    compared = current.judge(typed, live, canaries)
    findings += compared.findings
    raw = _bytes(seen["record"])
    kept = {
        "released": dict(before.values),
        "proposed": dict(after.values),
        "hardware": list(asked.hardware),
        "record": {
            "id": proven.id,
            "approved_by": proven.approved_by,
            "source_revision": proven.source_revision.lower(),
            "completed_at": proven.canary.completed_at,
            "counts_until": _until(proven, asked),
            "evidence": proven.canary.evidence,
            "sha256": digest(raw),
        },
    }
    return Judgement(
        tuple(findings),
        (_table(before, after, proven, asked), *compared.views),
        {"changes": [change.field for change in diff(before.values, after.values)], "record": proven.id},
        {"tuple.json": as_file(kept), "record.yaml": raw},
    )


def _until(proven: qualification.Record, asked: qualification.Request) -> str:
    """When the canary is older than was asked for; "" where its time cannot be read, which is refused elsewhere."""
    completed = times.instant(proven.canary.completed_at)
    return "" if completed is None else times.spelled(completed + asked.max_age)


def _bytes(observed: Observed) -> bytes:
    if observed.problem is not None:
        raise InputError(observed.problem.message, code="unreadable")
    raw: bytes = observed.value
    return raw


def _request(asked: qualification.Request, before: Tuple, after: Tuple) -> list[Finding]:
    found: list[Finding] = []
    for word, side, wanted in (("current", asked.current, before), ("target", asked.target, after)):
        for name in IN_RECORD:
            good = {wanted.values[name]} | ({wanted.values["dcgmExporterDigest"]} if name == "dcgmExporter" else set())
            if side[name] not in good:
                message = (
                    f"the request's {word} {name} is {side[name]!r:.80}, {wanted.state} is {wanted.values[name]!r}"
                )
                remedy = "Ask for the step from the released tuple to the proposed one."
                found.append(Finding(CHECK, name, Status.FAIL, f"request-{word}-differs", message, remedy, SOURCE))
    if asked.now is not None:
        message = "the request names a time of its own; it is judged at the run's clock"
        found.append(Finding(CHECK, "request", Status.WARN, "request-now-ignored", message, "", SOURCE))
    if asked.max_age > qualification.MAX_AGE:
        message = f"the request lets a canary be {asked.max_age / times.HOUR:g} h old, the default is 720 h"
        found.append(
            Finding(CHECK, "request", Status.WARN, "max-age-raised", message, "Say why on the ticket.", SOURCE)
        )
    return found


def _table(before: Tuple, after: Tuple, proven: qualification.Record, asked: qualification.Request) -> Table:
    rows = [
        (
            f,
            before.values[f],
            after.values[f],
            proven.target.get(f, "–"),
            asked.current.get(f, "–"),
            asked.target.get(f, "–"),
        )
        for f in FIELDS
    ]
    return Table("The tuple", ("field", "released", "proposed", "record", "asked from", "asked to"), rows)


# -- the second phase ------------------------------------------------------------------------------------------------


def approved_run(
    bundle: str, digest: str, signers: str, namespaces: Sequence[str], gates: Sequence[str], canaries: Sequence[str]
) -> Check:
    """Writes nothing. Whether an anchored or signed bundle is of the run that approved this promotion, on this cluster.

    namespaces, gates (namespace, ConfigMap, profiles, Deployment) and canaries: what this run looks at, which must be
    what was approved; of the canary's nodes there may be more. Refused is also what has come to its end: an approval
    holds as long as all that it rests on for a time (exceptions, dispositions, the record).

    Keeps `approved-run.json`, `tuple.json` and `approved-audit.json` for the steps that stand on it.
    """
    wanted = Wanted(RUNBOOK, "approved", RUNBOOK, Bundle(bundle, digest, signers, (APPROVED, PROPOSAL, AUDIT, DIGESTS)))
    looked = {"namespaces": sorted(set(namespaces)), "gates": list(gates), "canary_nodes": sorted(set(canaries))}

    def judge(seen: Seen) -> Judgement:
        return judge_approved_run(wanted, seen, looked)

    return Check("The approved run", {**wanted.needs(), "now": Now()}, judge)


def judge_approved_run(wanted: Wanted, seen: Seen, looked: Mapping[str, Sequence[str]]) -> Judgement:
    """Writes nothing. seen: `bundle`, `cluster`, `now`; looked: what this run looks at, by its name in the proposal."""
    bundle, findings = wanted.believe(seen)
    if bundle is None or (findings and not bundle.files):
        return Judgement(tuple(findings))
    try:
        approved = strictjson.loads(bundle.files.get(APPROVED, b""))
        proposal = strictjson.loads(bundle.files.get(PROPOSAL, b""))
        ran, digests = admission.images_of(bundle.files.get(AUDIT, b"")), bundle.files.get(DIGESTS, b"")
        stamps = {
            name: times.instant(approved[name]) for name in ("approved_at", "admit_not_before", "admit_not_after")
        }
        for name, stamp in stamps.items():
            if stamp is None:
                raise ValueError(f"{name} is no time")
        if approved["proposal"] != digest_of(proposal):
            raise ValueError("the approval is of another proposal")
        if digest(digests) != proposal["files"]["digests.json"] or strictjson.loads(digests)["current"] != ran:
            raise ValueError("its audit is not the one that was proposed")
        findings += _scope(wanted, proposal, looked)
        approver = str(approved["approver"])
        relations, ends = proposal["relations"], [(times.instant(at), name) for name, at in approved["ends"].items()]
        tuples = {name: {f: str(proposal[name][f]) for f in FIELDS} for name in ("released", "proposed")}
    except (InputError, KeyError, TypeError, ValueError) as wrong:
        message = f"run {bundle.run} is not an approved promotion: {wrong}"
        findings.append(wanted.found(Status.UNKNOWN, "approved-malformed", message))
        return Judgement(tuple(findings))
    if times.nanoseconds(seen["now"].value) >= (stamps["admit_not_after"] or 0):
        over = ", ".join(name for at, name in ends if (at or 0) <= (stamps["admit_not_after"] or 0))
        message = f"what it approved held until {approved['admit_not_after']}, the end of: {over or 'nothing named'}"
        findings.append(wanted.found(Status.FAIL, "approved-expired", message, "Approve the promotion again."))
    if not findings:
        by = f" by {approver}" if approver else ""
        message = f"run {bundle.run}, {bundle.strength}, approved {approved['proposal']}{by}; it ended {bundle.end}"
        if not approver:
            nobody = "nobody but its operator: its site file demanded no approval"
            findings.append(wanted.found(Status.WARN, "approved-by-nobody", nobody, "Look at that site file."))
        findings.append(wanted.found(Status.PASS, "approved-run", message, ""))
    told = {
        "run": bundle.run,
        "manifest": bundle.manifest,
        "strength": bundle.strength,
        "steps": list(bundle.steps),
        "admit_not_before": approved["admit_not_before"],
        "approved_at": approved["approved_at"],
        "proposal": approved["proposal"],
        "relations": relations,
    }
    files = {
        "approved-run.json": as_file(told),
        "tuple.json": as_file(tuples),
        "approved-audit.json": bundle.files[AUDIT],
    }
    return Judgement(tuple(findings), facts={k: v for k, v in told.items() if k != "steps"}, files=files)


def _scope(wanted: Wanted, proposal: Mapping[str, Any], looked: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """What was approved is what is looked at again: else a namespace, a gate or a node is passed over in silence."""
    for name, here in looked.items():
        approved = proposal[name]
        lacking = sorted(set(approved) - set(here)) if name == "canary_nodes" else list(approved) != list(here)
        if lacking:
            message = f"{name} is {', '.join(here) or 'empty'}, approved was {', '.join(approved)}"
            remedy = "Give the same parameters as in the approved run."
            yield wanted.found(Status.FAIL, "approved-other-scope", message, remedy)


def carried(step: str, title: str) -> Check:
    """Writes nothing. Whether a step passed in the approved run, which this phase does not judge anew."""

    def judge(seen: Seen) -> Judgement:
        observed = seen["approved"]
        if observed.problem is not None:
            message, remedy = observed.problem.message, "Run the cell 'tuple' first."
            return Judgement((Finding(RUNBOOK, step, Status.UNKNOWN, "unreadable", message, remedy, SOURCE),))
        run = json.loads(observed.value)
        if step not in run["steps"]:
            message = f"step {step} did not pass in run {run['run']}"
            remedy = "Approve the promotion first: phase approve."
            return Judgement((Finding(RUNBOOK, step, Status.FAIL, "not-carried", message, remedy, SOURCE),))
        message = f"passed in run {run['run']}, whose bundle is {run['strength']}"
        return Judgement(
            (Finding(RUNBOOK, step, Status.PASS, "carried", message, "", SOURCE),), facts={"run": run["run"]}
        )

    return Check(title, {"approved": Recorded("tuple", "approved-run.json")}, judge)


# -- what steps keep -------------------------------------------------------------------------------------------------


def as_file(value: Any) -> bytes:
    """Writes nothing. JSON with sorted keys, as it is kept."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def digest_of(value: Any) -> str:
    """Writes nothing. The digest of a JSON value in canonical form, as plans and approvals have it."""
    return digest(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
