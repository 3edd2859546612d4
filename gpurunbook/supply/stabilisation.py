"""The stabilisation window: between approval and the first tenant the fleet is watched.

Source: GPU supply-chain policy, promotion step 8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.plan import Check, Document, Judgement, Need, Now, Object, Observed, Problem, Recorded, Seen, Table
from gpurunbook.supply import admission, strictjson, times, vsa
from gpurunbook.supply.audit import identity
from gpurunbook.supply.members import at
from gpurunbook.supply.promotion import as_file, digest_of
from gpurunbook.supply.proposal import judged

CHECK = "stabilisation"
SOURCE = "GPU supply-chain policy, promotion step 8"

ALWAYS = "Watchdog"
"""An alert that always fires: an answer without it proves nothing, since rules were not evaluated or not asked."""

_QUIET = frozenset({ALWAYS, "InfoInhibitor"})
_OURS = re.compile(r"gpu|dcgm|nvidia|^hami|^kubedc", re.IGNORECASE)
"""In the names of alerts about the GPU stack, wherever they fire."""

_GAP = 10 * times.MINUTE
"""Between two samples, and between the last and now, at most."""


def stabilise(hours: int, given: str) -> Check:
    """Writes nothing. Names the time before which nobody is admitted. Keeps `approved.json`, and a verification summary
    of each digest, `vsa/sha256-….json`.

    What was judged must be what was proposed, and all that it rests on for a time must outlast the window as it is now:
    since the evidence was judged, somebody may have taken hours to approve. given: the time that the run judges at, ""
    for the clock: else it is a rehearsal.
    """

    def judge(seen: Seen) -> Judgement:
        observed = seen["proposal"]
        for one in (seen[name] for name in needs):
            if one.problem is not None:
                return Judgement((_found(Status.UNKNOWN, "unreadable", one.problem.message, "Run the cell before."),))
        now: datetime = seen["now"].value
        until = _spelled(now + timedelta(hours=hours))
        proposal, gate = json.loads(observed.value), json.loads(seen["gate"].value)
        ends = {**gate["ends"], "the record": proposal["record"]["counts_until"]}
        wrong = [*_other(seen, proposal, gate), *_ending(ends, now + timedelta(hours=hours))]
        if wrong:
            return Judgement(tuple(wrong))
        told = {
            "format": "gpurunbook.approved/v2",
            "approved_at": _spelled(now),
            "admit_not_before": until,
            "admit_not_after": min(ends.values(), key=lambda end: times.instant(end) or 0),
            "ends": ends,
            "stabilisation_hours": hours,
            "proposal": digest_of(proposal),
            "approver": json.loads(seen["approver"].value)["approver"],
        }
        message = f"approved, not admitted: the window of {hours} h ends {until}"
        remedy = "Watch the alerts until then, and run phase admit with this run's bundle."
        facts = {"admit_not_before": until, "proposal": told["proposal"]}
        rehearsal = bool(given) or identity(seen)[1]
        summaries = vsa.summaries(gate, str(told["proposal"]), str(told["approved_at"]), rehearsal)
        files = {"approved.json": as_file(told), **summaries}
        return Judgement((_found(Status.PASS, "stabilising", message, remedy),), (), facts, files)

    needs: dict[str, Need] = {
        "proposal": Recorded("proposal", "proposal.json"),
        "approver": Recorded("approval", "approver.json"),
        "digests": Recorded("proposal", "digests.json"),
        "gate": Recorded("evidence", "gate.json"),
        "audit": Recorded("audit", "audit.json"),
        "tuple": Recorded("tuple", "tuple.json"),
        "manifests": Recorded("manifests", "manifests.json"),
        "canary": Recorded("canary", "canary.json"),
        "cluster": Object("/api/v1/namespaces/kube-system"),
        "now": Now(),
    }
    if hours < 1:
        return _refused(f"a window of {hours} h observes nothing")
    return Check("Stabilisation window", needs, judge)


def _other(seen: Seen, proposal: Mapping[str, Any], gate: Mapping[str, Any]) -> Iterator[Finding]:
    """A step that was run again after the proposal may have judged something else."""
    tuples, canary, released = (json.loads(seen[name].value) for name in ("tuple", "canary", "digests"))
    same = {
        "tuple": all(tuples[name] == proposal[name] for name in ("released", "proposed", "record")),
        "manifests": digest_of(json.loads(seen["manifests"].value)["files"]) == proposal["manifests"],
        "canary": all(canary[name] == value for name, value in proposal["canary"].items()),
        "audit": admission.images_of(seen["audit"].value) == released["current"],
        "evidence": all(proposal[name] == value for name, value in judged(gate).items()),
    }
    for step in (name for name, is_so in same.items() if not is_so):
        message = f"step {step} was judged anew, and is not what was proposed"
        yield _found(Status.FAIL, "judged-anew", message, "Run the cell 'proposal' again; it needs an approval anew.")
    answered = json.loads(seen["approver"].value)["proposal"]
    if answered != digest_of(proposal):
        message = f"approved is {answered}, the proposal is {digest_of(proposal)}"
        yield _found(Status.FAIL, "approval-other-plan", message, "Run the cell 'approval' again.")


def _ending(ends: Mapping[str, str], until: datetime) -> Iterator[Finding]:
    for name, end in sorted(ends.items()):
        if (times.instant(end) or 0) <= times.nanoseconds(until):
            message = f"{name} ends {end}, and the window {_spelled(until)}"
            yield _found(Status.FAIL, "ends-in-window", message, "Have it renewed, and run the cells from there on.")


def _refused(message: str) -> Check:
    found = _found(Status.FAIL, "no-window", message, "Give the hours that the site has decided on, 24 for example.")
    return Check("Stabilisation window", {}, lambda _: Judgement((found,)))


def stabilised(alerts: str, rules: str, namespaces: Sequence[str]) -> Check:
    """Writes nothing. Whether the window is over, and no alert about the GPU stack fired in what was captured.

    alerts: Prometheus' answer to a query of ALERTS from the approval until now (`query_range`). Before the end the
    answer is `approved-not-admitted`, and the alerts are not judged. rules: Prometheus' answer to `/api/v1/rules`:
    nothing fires for which there is no rule.
    """
    needs: dict[str, Need] = {"approved": Recorded("tuple", "approved-run.json"), "now": Now()}
    if alerts:
        needs["alerts"] = Document(alerts, 64 << 20)
    if rules:
        needs["rules"] = Document(rules, 64 << 20)

    def judge(seen: Seen) -> Judgement:
        return judge_stabilised(seen, namespaces)

    return Check("Stabilisation window", needs, judge, against=Verdict.BLOCKED)


def judge_stabilised(seen: Seen, namespaces: Sequence[str]) -> Judgement:
    """Writes nothing. seen: `approved`, `now`, and `alerts` and `rules` where files were given."""
    observed = seen["approved"]
    if observed.problem is not None:
        return Judgement((_found(Status.UNKNOWN, "unreadable", observed.problem.message, "Run cell 'tuple'."),))
    until = json.loads(observed.value)["admit_not_before"]
    ends, now = times.instant(until), times.nanoseconds(seen["now"].value)
    facts = {"admit_not_before": until}
    if ends is None or now < ends:
        message = f"approved, not admitted: the window ends {until}"
        return Judgement((_found(Status.FAIL, "approved-not-admitted", message, "Come back then."),), facts=facts)
    if "alerts" not in seen:
        message = "no answer of Prometheus was given: nothing is known of the window"
        remedy = "Capture the query ALERTS over the window, and name the file in `alerts`."
        return Judgement((_found(Status.UNKNOWN, "alerts-not-given", message, remedy),), facts=facts)
    if (wrong := seen["alerts"].problem) is not None:
        return Judgement((_found(Status.UNKNOWN, "alerts-unreadable", wrong.message, "Name the file."),), facts=facts)
    try:
        kind, series = read_alerts(seen["alerts"].value)
    except InputError as malformed:
        remedy = "Capture it again with the HTTP API: /api/v1/query_range?query=ALERTS."
        return Judgement((_found(Status.UNKNOWN, malformed.code, malformed.message, remedy),), facts=facts)
    began = times.instant(json.loads(observed.value)["approved_at"]) or 0
    findings = [*_covered(kind, series, began, now), *_ruled(seen.get("rules"), now), *_firing(series, namespaces)]
    if not any(f.status in (Status.FAIL, Status.UNKNOWN) for f in findings):
        message = f"the window ended {until}; no alert about the GPU stack fired in {len(series)} series"
        findings.append(_found(Status.PASS, "stabilised", message, "Entitlement and workloads may be admitted."))
    rows = [
        (_name(s), _word(s, "alertstate"), _word(s, "severity"), _word(s, "namespace"), _ours(s, namespaces))
        for s in series
    ]
    columns = ("alert", "state", "severity", "namespace", "judged")
    return Judgement(tuple(findings), (Table("Alerts", columns, sorted(rows)),), facts)


Series = Mapping[str, Any]
"""labels: name → value; samples: times in nanoseconds, ascending."""


def read_alerts(data: bytes) -> tuple[str, list[Series]]:
    """Writes nothing. `vector` or `matrix`, and the series of ALERTS in an answer of Prometheus' HTTP API.

    Raises InputError `alerts-malformed` for anything else, a failed or partial answer (warnings) among them.
    """
    try:
        answer = strictjson.loads(data)
        if at(answer, "status") != "success" or at(answer, "warnings"):
            raise InputError(
                f"its status is {at(answer, 'status')!r:.40}, with warnings: {at(answer, 'warnings')!r:.200}"
            )
        kind, result = at(answer, "data", "resultType"), at(answer, "data", "result")
        if kind not in ("vector", "matrix") or not isinstance(result, list):
            raise InputError(f"its resultType is {kind!r:.40}, wanted vector or matrix")
        series: list[Series] = []
        for item in result:
            labels = at(item, "metric")
            if not isinstance(labels, dict) or labels.get("__name__") != "ALERTS" or not labels.get("alertname"):
                raise InputError(f"a series that is no ALERTS: {labels!r:.200}")
            samples = item["values"] if kind == "matrix" else [item["value"]]
            stamps = sorted(int(float(stamp) * 1_000) * 1_000_000 for stamp, _ in samples)
            series.append({"labels": labels, "samples": stamps})
    except (InputError, KeyError, TypeError, ValueError, OverflowError) as wrong:
        raise InputError(f"not Prometheus' answer to a query of ALERTS: {wrong}", code="alerts-malformed") from None
    return str(kind), series


def _ruled(observed: Observed | None, now: int) -> Iterator[Finding]:
    """Whether Prometheus has rules about the GPU stack, and evaluates them."""
    remedy = "Capture /api/v1/rules, and name the file in `alert_rules`."
    problem = (
        Problem("", "no answer of Prometheus says which alerts there are") if observed is None else observed.problem
    )
    if observed is None or problem is not None:
        yield _found(Status.UNKNOWN, "alert-rules-not-given", problem.message if problem else "", remedy)
        return
    try:
        rules = list(read_rules(observed.value))
    except InputError as malformed:
        yield _found(Status.UNKNOWN, malformed.code, malformed.message, remedy)
        return
    if not rules:
        message = "no rule is about the GPU stack: that none of its alerts fired says nothing"
        yield _found(Status.UNKNOWN, "alert-rules-missing", message, "Have the rules of the platform restored.")
    for name, health, evaluated in rules:
        if health != "ok" or abs(now - evaluated) > _GAP:
            message = f"{name} has health {health!r:.20}, and was evaluated {times.spelled(evaluated)}"
            yield _found(
                Status.UNKNOWN, "alert-rules-unhealthy", message, "Have the rule put right; then capture again."
            )


def read_rules(data: bytes) -> Iterator[tuple[str, str, int]]:
    """Writes nothing. Name, health and time of evaluation of each alerting rule about the GPU stack.

    Raises InputError `alert-rules-malformed` for what is no answer to `/api/v1/rules`.
    """
    try:
        answer = strictjson.loads(data)
        if at(answer, "status") != "success" or at(answer, "warnings"):
            raise InputError(f"its status is {at(answer, 'status')!r:.40}")
        for group in answer["data"]["groups"]:
            for rule in group["rules"]:
                if rule["type"] == "alerting" and _OURS.search(rule["name"]):
                    moment = times.instant(rule["lastEvaluation"])
                    if moment is None:
                        raise InputError(f"{rule['name']} was evaluated {rule['lastEvaluation']!r:.40}")
                    yield rule["name"], str(rule["health"]), moment
    except (InputError, KeyError, TypeError, ValueError) as wrong:
        message = f"not Prometheus' answer to /api/v1/rules: {wrong}"
        raise InputError(message, code="alert-rules-malformed") from None


def _covered(kind: str, series: Sequence[Series], began: int, now: int) -> Iterator[Finding]:
    """Whether the answer can tell that nothing fired: by the samples of the alert that always fires."""
    always = [one for one in series if _name(one) == ALWAYS and _word(one, "alertstate") == "firing"]
    samples = sorted(stamp for one in always for stamp in one["samples"])
    if not samples:
        message = f"{ALWAYS}, which always fires, is not in it: whether alerts work at all is not known"
        remedy = "Capture ALERTS without a filter, or have the rule restored."
        yield _found(Status.UNKNOWN, "alerts-unproven", message, remedy)
    elif samples[-1] > now + _GAP:
        yield _found(Status.UNKNOWN, "alerts-malformed", "its samples lie in the future", "Capture it again.")
    elif kind == "vector":
        message = "only one moment was looked at: it is the answer to an instant query"
        yield _found(Status.UNKNOWN, "alerts-at-the-end-only", message, "Capture query_range over the window.")
    elif samples[-1] + _GAP < now:
        message = f"its last sample is {(now - samples[-1]) / times.MINUTE:.0f} minutes old"
        yield _found(Status.UNKNOWN, "alerts-early", message, "Capture it again, now.")
    else:
        marks = [began, *samples]
        widest = max(later - earlier for earlier, later in pairwise(marks))
        if widest > _GAP:
            message = f"for {widest / times.MINUTE:.0f} minutes of the window there is no sample of {ALWAYS}"
            remedy = "Capture the whole window, in steps of five minutes at most; a gap means that nobody watched."
            yield _found(Status.UNKNOWN, "alerts-partial", message, remedy)


def _firing(series: Sequence[Series], namespaces: Sequence[str]) -> Iterator[Finding]:
    for one in series:
        if not _ours(one, namespaces):
            continue
        state, where = _word(one, "alertstate"), ", ".join(f"{k}={v}" for k, v in sorted(one["labels"].items()))
        if state == "pending":
            yield _found(Status.WARN, "alert-pending", f"{_name(one)} was pending: {where:.300}", "Look at it.")
        else:
            message = f"{_name(one)} was {state or 'in no state'}: {where:.300}"
            yield _found(Status.FAIL, "alert-firing", message, "Answer the alert; then a new window begins.")


def _ours(one: Series, namespaces: Sequence[str]) -> bool:
    name = _name(one)
    return name not in _QUIET and (_OURS.search(name) is not None or _word(one, "namespace") in namespaces)


def _name(one: Series) -> str:
    return _word(one, "alertname")


def _word(one: Series, label: str) -> str:
    return str(one["labels"].get(label, ""))


def _spelled(moment: datetime) -> str:
    return times.spelled(times.nanoseconds(moment))


def _found(status: Status, code: str, message: str, remedy: str) -> Finding:
    return Finding(CHECK, "promotion", status, code, message, remedy, SOURCE)
