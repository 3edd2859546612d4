"""The release proposal: new released tuple, record, digests and admission policy, written down for review.

It is written into the bundle and nowhere else. Its digest is what another person approves; nothing in it depends on
the time or on names of pods, so that judging again gives the same proposal as long as nothing that matters changed.
Source: GPU supply-chain policy, promotion step 7.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpurunbook.digests import digest
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.plan import Approval, Approved, Check, Document, Judgement, Need, Object, Recorded, Seen, Table
from gpurunbook.supply import admission, baseline, strictjson
from gpurunbook.supply.audit import NAMESPACE, identity
from gpurunbook.supply.consumed import not_given, problem
from gpurunbook.supply.promotion import as_file, digest_of
from gpurunbook.supply.tuple import Tuple, as_yaml, diff

FORMAT = "gpurunbook.proposal/v1"
CHECK = "proposal"
SOURCE = "GPU supply-chain policy, promotion step 7"

_KEPT = {
    "tuple": ("tuple", "tuple.json"),
    "record": ("tuple", "record.yaml"),
    "manifests": ("manifests", "manifests.json"),
    "canary": ("canary", "canary.json"),
    "audit": ("audit", "audit.json"),
    "evidence": ("evidence", "gate.json"),
}
"""What earlier steps of this run kept."""


def release_proposal(
    rollback: str,
    namespaces: Sequence[str],
    gates: Sequence[str],
    canaries: Sequence[str],
    enforcement: str,
    config_namespace: str,
    hours: int,
) -> Check:
    """Writes nothing. Makes the release proposal from what this run has judged, with all its files.

    rollback: audit JSON of the released tuple, the set that a rollback leads to; gates: namespace, ConfigMap, profiles
    and Deployment of the gates; canaries: the nodes that were upgraded; enforcement: `warn` or `deny`;
    config_namespace: of the admission parameters. Keeps `proposal.json` and the files that it names.
    """
    needs: dict[str, Need] = {name: Recorded(*place) for name, place in _KEPT.items()}
    needs |= {"rollback": Document(rollback, 256 << 20), "cluster": Object("/api/v1/namespaces/kube-system")}
    terms = {
        "namespaces": sorted(set(namespaces)),
        "gates": list(gates),
        "canary_nodes": sorted(set(canaries)),
        "admission": {"enforcement": enforcement, "namespace": config_namespace},
        "stabilisation_hours": hours,
    }

    def judge(seen: Seen) -> Judgement:
        return judge_proposal(seen, rollback, terms)

    return Check("Release proposal", needs, judge)


def judge_proposal(seen: Seen, rollback: str, terms: Mapping[str, Any]) -> Judgement:
    """Writes nothing. seen: the names of `_KEPT`, `rollback` and `cluster`."""
    missing = [_found(Status.UNKNOWN, "unreadable", name, told) for name, one in seen.items() if (told := problem(one))]
    if not rollback:
        subject, message, remedy = not_given("rollback", "file")
        missing = [Finding(CHECK, subject, Status.UNKNOWN, "unreadable", message, remedy, SOURCE)]
    if missing:
        return Judgement(tuple(missing))
    uid, rehearsal = identity(seen)
    tuples = json.loads(seen["tuple"].value)
    try:
        current = admission.images_of(seen["audit"].value)
        baseline.read(seen["rollback"].value, uid, rehearsal, live=True)
        if (own := strictjson.loads(seen["rollback"].value)["cluster"]) != uid:
            raise InputError(f"it is of cluster {own!r:.80}, this one is {uid!r}", code="foreign-baseline")
        before = admission.images_of(seen["rollback"].value)
    except InputError as wrong:
        return Judgement((_found(Status.UNKNOWN, f"rollback-{wrong.code}", rollback, wrong.message),))
    release = admission.Release(current, before, tuples["proposed"], tuples["released"], terms["namespaces"])
    findings = [
        *_sets(release),
        *_parameters(release, terms),
        *_rendered(release, json.loads(seen["manifests"].value)["images"]),
    ]
    files = _files(seen, release, terms)
    made = _document(seen, uid, release, terms, files)
    if not any(one.status is Status.FAIL for one in findings):
        message = f"{digest_of(made)}: {made['summary'][0]}"
        remedy = "Open the review with these files; nothing commits them by itself."
        findings.append(Finding(CHECK, "proposal", Status.PASS, "proposed", message, remedy, SOURCE))
    rows = [(change.field, change.one, change.other) for change in diff(tuples["released"], tuples["proposed"])]
    views = (Table("What changes", ("field", "released", "proposed"), rows), _images(release))
    facts = {"proposal": digest_of(made), "digests": len(current), "rollback": len(before)}
    return Judgement(tuple(findings), views, facts, {**files, "proposal.json": as_file(made)})


def _sets(release: admission.Release) -> Iterator[Finding]:
    for word, images, values, code in (
        ("audit", release.current, release.current_tuple, "current-not-proposed"),
        ("rollback set", release.rollback, release.rollback_tuple, "rollback-not-released"),
    ):
        exporter = values["dcgmExporterDigest"]
        if exporter not in images:
            message = f"the {word} has no image of the exporter's digest {exporter}"
            yield _found(Status.FAIL, code, word, message)


def _parameters(release: admission.Release, terms: Mapping[str, Any]) -> Iterator[Finding]:
    namespace = terms["admission"]["namespace"]
    # Without a name the API server takes the parameters from the namespace of the pod that it judges.
    if not NAMESPACE.fullmatch(namespace) or namespace in terms["namespaces"]:
        message = (
            f"{namespace!r:.80} is no namespace of its own: whoever writes to a GPU namespace would decide what runs"
        )
        yield _found(Status.FAIL, "admission-namespace", namespace, message)
    size = admission.size(release)
    if size > admission.LIMIT:
        message = f"the ConfigMap would have {size} bytes, the API server takes {admission.LIMIT}"
        yield _found(Status.FAIL, "release-too-large", "admission.yaml", message)


def _rendered(release: admission.Release, images: Sequence[str]) -> Iterator[Finding]:
    for image in images:
        if not admission.admits(release, image):
            message = f"{image!r:.300} is rendered, and no audit saw it: admission would refuse it"
            remedy = "If it runs for a moment only (a hook job), run the audit while it stands there."
            yield Finding(CHECK, "rendered", Status.WARN, "rendered-not-audited", message, remedy, SOURCE)


def _files(seen: Seen, release: admission.Release, terms: Mapping[str, Any]) -> dict[str, bytes]:
    objects = admission.manifests(
        release, enforcement=terms["admission"]["enforcement"], namespace=terms["admission"]["namespace"]
    )
    return {
        "released.yaml": as_yaml(Tuple("released", release.current_tuple)),
        "digests.json": as_file({"current": dict(release.current), "rollback": dict(release.rollback)}),
        "admission.yaml": admission.as_yaml(objects),
        "qualification.yaml": seen["record"].value,
    }


def _document(
    seen: Seen, uid: str | None, release: admission.Release, terms: Mapping[str, Any], files: Mapping[str, bytes]
) -> dict[str, Any]:
    tuples, canary = json.loads(seen["tuple"].value), json.loads(seen["canary"].value)
    gate, manifests = json.loads(seen["evidence"].value), json.loads(seen["manifests"].value)
    changes = diff(tuples["released"], tuples["proposed"])
    what = ", ".join(f"{change.field} {change.one} → {change.other}" for change in changes)
    return {
        "format": FORMAT,
        "runbook": "promotion",
        "cluster": uid,
        "released": tuples["released"],
        "proposed": tuples["proposed"],
        "record": tuples["record"],
        "canary": {name: canary[name] for name in ("run", "manifest", "strength", "signer")},
        "manifests": digest_of(manifests["files"]),
        **judged(gate),
        **terms,
        "files": {name: digest(data) for name, data in sorted(files.items())},
        "summary": [
            f"release {what}",
            f"record {tuples['record']['id']}, approved by {tuples['record']['approved_by']}, counts until "
            f"{tuples['record']['counts_until']}",
            f"canary run {canary['run']}, {canary['strength']}, on {', '.join(terms['canary_nodes'])}",
            f"evidence of {len(gate['images'])} images on {', '.join(gate['platforms'])}, accepted under "
            f"{', '.join(sorted({name for image in gate['images'] for name in image['exceptions']})) or 'nothing'}",
            f"{len(release.current)} digests released, {len(release.rollback)} to roll back to",
            f"admission {terms['admission']['enforcement']} in {', '.join(terms['namespaces'])}",
            f"scans of data at most {gate['max_database_age_seconds'] / 3600:g} h old"
            + (", with relations that were typed" if gate["judged"]["relations"] else ""),
            f"admitted after {terms['stabilisation_hours']} h of stabilisation",
        ],
    }


def judged(gate: Mapping[str, Any]) -> dict[str, Any]:
    """Writes nothing. What a proposal says of the answer of the evidence gate: nothing that depends on the time."""
    return {
        "decisions": gate["judged"]["decisions"],
        "relations": gate["judged"]["relations"],
        "max_database_age_seconds": gate["max_database_age_seconds"],
        "platforms": gate["platforms"],
        "evidence": list(_evidence(gate)),
    }


def _evidence(gate: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the approver stands for: which evidence and which of Security's decisions, without the times of judging."""
    for image in gate["images"]:
        yield {
            **{name: image[name] for name in ("digest", "platform", "exceptions")},
            "signature": image["signature"]["state"],
            "sboms": sorted(one["sha256"] for one in image["sboms"]),
            "scans": sorted(one["sha256"] for one in image["scans"]),
        }


def _images(release: admission.Release) -> Table:
    rows = [
        (digest_, ", ".join(references), "yes" if digest_ in release.rollback else "no")
        for digest_, references in sorted(release.current.items())
    ]
    return Table("Released digests", ("digest", "references", "in the rollback set"), rows)


def approved_by_another() -> Check:
    """Writes nothing. Whether another person has approved this proposal, where the site demands it; else blocked.

    Keeps `approver.json`: of which proposal this is the answer, and who signed it, "" for nobody.
    """

    def follow(seen: Seen) -> Mapping[str, Need]:
        observed = seen["proposal"]
        return {} if observed.problem else {"approval": Approval(digest_of(json.loads(observed.value)))}

    needs: dict[str, Need] = {"proposal": Recorded("proposal", "proposal.json")}
    return Check("Approval", needs, judge_approval, against=Verdict.BLOCKED, follow=follow)


def judge_approval(seen: Seen) -> Judgement:
    """Writes nothing. seen: `proposal`, and `approval` of its digest."""
    if told := problem(seen["proposal"]):
        return Judgement((_found(Status.UNKNOWN, "unreadable", "proposal", told),))
    made = digest_of(json.loads(seen["proposal"].value))
    observed = seen["approval"]
    if observed.problem is not None:
        why = observed.problem
        found = Finding(CHECK, made, Status.FAIL, why.code, why.message, why.remedy, SOURCE)
        return Judgement((found,), facts={"proposal": made})
    given: Approved = observed.value
    if not given.demanded:
        message = "the site file demands no approval of promotions"
        found = Finding(CHECK, made, Status.PASS, "approval-not-demanded", message, "", SOURCE)
    else:
        message = f"approved by {given.approver} until {given.expires}"
        found = Finding(CHECK, made, Status.PASS, "approved", message, "", SOURCE)
    answer = {"proposal": made, "approver": given.approver}
    return Judgement((found,), facts=answer, files={"approver.json": as_file(answer)})


def _found(status: Status, code: str, subject: str, message: str) -> Finding:
    return Finding(CHECK, subject, status, code, message, "Put it right.", SOURCE)
