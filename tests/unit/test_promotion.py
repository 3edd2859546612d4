"""The rules of the promotion that stand on files and on other runs' bundles.

Covered: record, request and tuple as one; how far a bundle counts and what it must prove; the approved run and what is
carried from it; which digests may run; that every code is documented. Not covered: verification of bundles
(test_verify.py), qualification and tuples themselves (test_qualification.py, test_tuple.py), whole runs (scenarios).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.findings import Finding, Status, worst
from gpurunbook.journal import canonical, digest
from gpurunbook.plan import Bundle, Consumed, Judgement, Now, Object, Observed, Problem, Recorded
from gpurunbook.supply import canary, current, promotion, relations
from gpurunbook.supply.consumed import Wanted
from gpurunbook.supply.inventory import same_digests
from gpurunbook.supply.promotion import digest_of
from gpurunbook.supply.sightings import Sighting
from gpurunbook.supply.tuple import FIELDS, read_tuple

HOME = Path(__file__).parents[2]
DATA = HOME / "parameters" / "promotion"
UID = "f610a66b-3d57-4e4c-8351-8da382aca09f"
PATHS = {
    "released": "parameters/tuples/released.yaml",
    "proposed": "parameters/tuples/proposed.yaml",
    "record": "parameters/promotion/data/record.yaml",
    "request": "parameters/promotion/data/request.json",
}
NOON = datetime(2026, 8, 22, 12, tzinfo=UTC)
NEED = Object("/x")


def bad(judged: Judgement) -> list[str]:
    return [f.code for f in judged.findings if f.status not in (Status.PASS, Status.WARN)]


def codes(judged: Judgement) -> list[str]:
    return [f.code for f in judged.findings]


def kube_system(*, rehearsal: bool = True, uid: str = UID) -> Observed:
    marks = {"annotations": {"gpurunbook.io/rehearsal": "fixture"}} if rehearsal else {}
    return Observed(NEED, {"metadata": {"uid": uid, **marks}})


# -- record and tuple ------------------------------------------------------------------------------------------------


def fleet(hardware: str = "10de:2330/10de:16c1", kernel: str = "5.15.0-119-generic") -> current.Current:
    """A cluster in the middle of the promotion: gpu-0000 is upgraded, gpu-0001 waits."""
    before, after = (read_tuple((HOME / PATHS[s]).read_bytes(), s).values for s in ("released", "proposed"))
    seen = {f: [Sighting(f, after[f], "Pod/x")] for f in ("driver", "gpuOperator", "dcgmExporter")}
    for name in ("kernel", "rke2", "driver"):
        here = {**before, "kernel": kernel}[name]
        pair = (Sighting(name, after[name], "a", "gpu-0000"), Sighting(name, here, "b", "gpu-0001"))
        seen.setdefault(name, []).extend(pair)
    nodes = {n: current.GpuNode(n, "H100", False, {hardware}) for n in ("gpu-0000", "gpu-0001")}
    return current.Current({**seen, "dcgmExporterDigest": []}, nodes, ["control-0000"], {})


def qualified(live: current.Current | None = None, **changes: Callable[[bytes], bytes] | Problem) -> Judgement:
    seen = {"now": Observed(Now(), NOON)}
    for name, path in PATHS.items():
        change, data = changes.get(name), (HOME / path).read_bytes()
        if isinstance(change, Problem):
            seen[name] = Observed(NEED, problem=change)
        else:
            seen[name] = Observed(NEED, change(data) if change else data)
    return promotion.judge_qualified(seen, PATHS, live or fleet(), ["gpu-0000"])


def swap(old: str, new: str) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        assert old.encode() in data
        return data.replace(old.encode(), new.encode())

    return changed


def test_record_request_and_tuple_agree() -> None:
    found = qualified()
    assert bad(found) == []
    assert {"proposal-qualified", "qualified", "not-in-record", "current-as-typed"} == set(codes(found))
    kept = json.loads(found.files["tuple.json"])
    assert set(kept["released"]) == set(kept["proposed"]) == set(FIELDS)
    assert found.files["record.yaml"] == (HOME / PATHS["record"]).read_bytes()
    assert kept["record"]["sha256"] == digest(found.files["record.yaml"])


@pytest.mark.parametrize("name", sorted(PATHS))
def test_what_cannot_be_read_is_unknown_and_names_its_file(name: str) -> None:
    for change in (Problem("unreadable", "gone"), lambda _: b"\xff", lambda _: b"", lambda _: b"[]"):
        found = qualified(**{name: change})  # type: ignore[arg-type]
        assert [f.subject for f in found.findings] == [PATHS[name]]
        assert worst(found.findings) is Status.UNKNOWN
        assert found.files == {}


def test_all_that_cannot_be_read_is_told_at_once() -> None:
    gone = Problem("unreadable", "gone")
    assert codes(qualified(record=gone, proposed=gone, request=gone)) == ["unreadable"] * 3


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("proposed", "595.91.07", "595.91.08", "record-differs"),
        ("proposed", "v1.35.4+rke2r1", "v1.35.4+rke2r2", "record-differs"),
        ("request", "580.126.20", "580.126.09", "request-current-differs"),
        ("request", "595.91.07", "595.91.08", "request-target-differs"),
        ("record", "595.91.07", "595.91.08", "record-differs"),
        ("record", "10de:2330/10de:16c1", "10de:2330/10de:16c2", "hardware-mismatch"),
        ("record", "rollbackPassed: true", "rollbackPassed: false", "canary-incomplete"),
        ("record", "2026-08-21T09:30:00Z", "2026-07-23T11:59:59Z", "completed-at-stale"),
        ("record", "state: qualified", "state: draft", "state"),
    ],
)
def test_one_thing_off_is_refused(name: str, old: str, new: str, code: str) -> None:
    assert code in bad(qualified(**{name: swap(old, new)}))


def test_what_was_typed_is_compared_with_the_cluster() -> None:
    assert bad(qualified(fleet(kernel="5.15.0-105-generic"))) == ["current-differs"]
    assert bad(qualified(fleet(hardware="10de:2331/10de:1626"))) == ["canary-node-hardware"] * 2 + [
        "hardware-differs",
        "hardware-not-live",
    ]


def test_there_must_be_something_to_promote() -> None:
    def same(data: bytes) -> bytes:
        return (HOME / PATHS["released"]).read_bytes().replace(b"state: released", b"state: proposed")

    assert "no-change" in bad(qualified(proposed=same))


def test_the_request_cannot_bring_its_own_clock_and_a_longer_age_is_told() -> None:
    found = qualified(request=swap('"hardware"', '"now": "2026-12-01T00:00:00Z", "max_age": "721h", "hardware"'))
    assert bad(found) == []
    assert {"request-now-ignored", "max-age-raised"} <= set(codes(found))


# -- bundles ---------------------------------------------------------------------------------------------------------


def report(**changes: Any) -> bytes:
    whole = json.loads((DATA / "canary" / "after" / "canary.json").read_bytes())
    return json.dumps({**whole, **changes}).encode()


CANARY = Consumed(
    strength="anchored",
    told=(),
    manifest="sha256:1",
    run="run-1",
    runbook="canary_upgrade",
    verdict="pass",
    rehearsal=True,
    cluster=UID,
    end="2026-08-21T10:00:00Z",
    files={canary.REPORT: report(), canary.AUDIT: (DATA / "canary" / "after" / "audit.json").read_bytes()},
)


def proven(
    bundle: Consumed | Problem = CANARY, cluster: Observed | None = None, nodes: tuple[str, ...] = ("gpu-0000",)
) -> Judgement:
    wanted = Wanted("canary", "canary", "canary_upgrade", Bundle("canary"))
    seen = {
        "bundle": Observed(NEED, problem=bundle) if isinstance(bundle, Problem) else Observed(NEED, bundle),
        "cluster": cluster or kube_system(),
        "tuple": Observed(Recorded("tuple", "tuple.json"), qualified().files["tuple.json"]),
    }
    return canary.judge_canary(wanted, seen, nodes)


def with_report(**changes: Any) -> Consumed:
    return replace(CANARY, files={**CANARY.files, canary.REPORT: report(**changes)})


@pytest.mark.parametrize("strength", ["anchored", "signed"])
def test_an_anchored_or_signed_canary_of_the_proposed_tuple_is_proof(strength: str) -> None:
    found = proven(replace(CANARY, strength=strength, signer="evidence"))
    assert codes(found) == ["record-names-other-evidence", "canary-proven"]
    named = proven(replace(CANARY, strength=strength, run="20260821t081500z-canary_upgrade-c0de"))
    assert codes(named) == ["canary-proven"]
    assert found.files["canary-audit.json"] == CANARY.files[canary.AUDIT]
    assert json.loads(found.files["canary.json"])["strength"] == strength


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"strength": "consistent"}, ["bundle-only-consistent"]),
        ({"strength": "altered", "files": {}, "told": ("file x: was altered",)}, ["bundle-altered"]),
        ({"strength": "unsealed", "files": {}}, ["bundle-unsealed"]),
        ({"runbook": "provenance_audit"}, ["canary-other-runbook"]),
        ({"verdict": "planned"}, ["canary-not-passed"]),
        ({"verdict": "unknown"}, ["canary-not-passed"]),
        ({"end": "2026-08-21T09:24:59Z"}, ["canary-after-its-end"]),
        ({"end": ""}, ["canary-after-its-end"]),
        ({"weaker": ("break_glass",)}, ["canary-gate-overridden"]),
        ({"cluster": "another"}, ["canary-other-cluster"]),
        ({"cluster": ""}, ["canary-other-cluster"]),
        ({"files": {}}, ["canary-malformed"]),
        ({"files": {canary.REPORT: report()}}, ["canary-malformed"]),
        ({"files": {canary.AUDIT: CANARY.files[canary.AUDIT]}}, ["canary-malformed"]),
        ({"files": {**CANARY.files, canary.AUDIT: b'{"verdict":"fail","records":[]}'}}, ["canary-audit-not-passed"]),
    ],
)
def test_any_other_bundle_is_refused_for_its_own_reason(change: dict[str, Any], wanted: list[str]) -> None:
    found = proven(replace(CANARY, **change))
    assert bad(found) == wanted
    assert "canary-proven" not in codes(found)


def test_a_rehearsal_is_no_proof_for_a_live_cluster() -> None:
    assert bad(proven(cluster=kube_system(rehearsal=False))) == ["canary-rehearsal"]
    live = replace(CANARY, rehearsal=False)
    assert bad(proven(live, kube_system(rehearsal=False))) == bad(proven(live)) == []


def test_every_field_of_the_canarys_tuple_must_be_the_proposed_one() -> None:
    ran = json.loads(CANARY.files[canary.REPORT])["tuple"]
    for field in FIELDS:
        found = proven(with_report(tuple={**ran, field: "1.2.3"}))
        assert bad(found) == ["canary-other-tuple"]
        assert field in found.findings[0].message
    assert len(bad(proven(with_report(tuple=dict.fromkeys(FIELDS, ""))))) == len(FIELDS)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"results": {}}, "canary-incomplete"),
        ({"results": {"allocation": True, "monitoring": True, "rollback": False}}, "canary-incomplete"),
        ({"results": {"allocation": True, "monitoring": True, "rollback": True, "alerts": False}}, "canary-incomplete"),
        ({"nodes": []}, "canary-incomplete"),
        ({"hardware": []}, "canary-other-hardware"),
        ({"hardware": ["10de:2330/10de:16c1", "10de:1db4/10de:1214"]}, "canary-other-hardware"),
        ({"completed_at": "2026-08-21T09:30:01Z"}, "canary-other-record"),
        ({"completed_at": "yesterday"}, "canary-other-record"),
        ({"tuple": {}}, "canary-malformed"),
        ({"format": "gpurunbook.canary/v2"}, "canary-malformed"),
        ({"passed": True}, "canary-malformed"),
        ({"results": {"allocation": "true", "monitoring": True, "rollback": True}}, "canary-malformed"),
    ],
)
def test_what_the_canary_says_of_itself_must_be_whole(change: dict[str, Any], wanted: str) -> None:
    assert bad(proven(with_report(**change))) == [wanted]


def test_it_must_have_run_on_nodes_that_are_named_as_upgraded() -> None:
    assert bad(proven(nodes=())) == bad(proven(nodes=("gpu-0001",))) == ["canary-other-nodes"]
    assert bad(proven(nodes=("gpu-0000", "gpu-0001"))) == []


def test_the_same_time_in_another_zone_and_hardware_in_other_case_are_the_same() -> None:
    said = with_report(completed_at="2026-08-21T11:30:00+02:00", hardware=[" 10DE:2330/10DE:16C1"])
    assert bad(proven(said)) == []


def test_a_bundle_or_cluster_that_cannot_be_read_is_unknown() -> None:
    assert bad(proven(Problem("unreadable", "no folder"))) == ["bundle-unreadable"]
    assert bad(proven(cluster=Observed(NEED, problem=Problem("forbidden", "403")))) == ["cluster-unreadable"]


# -- the approved run ------------------------------------------------------------------------------------------------


def approved_files(**changes: Any) -> dict[str, bytes]:
    files = {name: (DATA / "approved" / name).read_bytes() for name in ("after/approved.json", "after/proposal.json")}
    for name in ("after/audit.json", "after/digests.json"):
        files[name] = (DATA / "approved" / name).read_bytes()
    return files | changes


STEPS = ("eligibility", "tuple", "manifests", "canary", "audit", "evidence", "proposal", "approval")
APPROVED = replace(CANARY, runbook="promotion", steps=STEPS, files=approved_files())


LOOKED = {
    "namespaces": ["gpu-operator", "hami-system"],
    "gates": ["kube-dc", "cluster-config", "gpu-profiles", "kube-dc-backend"],
    "canary_nodes": ["gpu-0000"],
}


def approved_run(bundle: Consumed = APPROVED, now: datetime = NOON, **looked: list[str]) -> Judgement:
    wanted = Wanted("promotion", "approved", "promotion", Bundle("approved"))
    seen = {"bundle": Observed(NEED, bundle), "cluster": kube_system(), "now": Observed(Now(), now)}
    return promotion.judge_approved_run(wanted, seen, {**LOOKED, **looked})


def test_the_approved_run_hands_on_its_tuple_its_digests_and_its_window() -> None:
    found = approved_run()
    assert codes(found) == ["approved-by-nobody", "approved-run"]
    told = json.loads(APPROVED.files["after/approved.json"]) | {"approver": "lead"}
    by_lead = approved_run(
        replace(APPROVED, files=approved_files(**{"after/approved.json": json.dumps(told).encode()}))
    )
    assert codes(by_lead) == ["approved-run"] and "by lead" in by_lead.findings[0].message
    told = json.loads(found.files["approved-run.json"])
    assert told["admit_not_before"] == "2026-08-23T12:00:00Z"
    assert set(json.loads(found.files["tuple.json"])["proposed"]) == set(FIELDS)
    assert found.files["approved-audit.json"] == APPROVED.files["after/audit.json"]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"strength": "consistent"}, "bundle-only-consistent"),
        ({"runbook": "canary_upgrade"}, "approved-other-runbook"),
        ({"verdict": "blocked"}, "approved-not-passed"),
        ({"cluster": "another"}, "approved-other-cluster"),
        ({"files": {}}, "approved-malformed"),
        ({"files": approved_files(**{"after/approved.json": b"{}"})}, "approved-malformed"),
        ({"files": approved_files(**{"after/proposal.json": b'{"released": {}}'})}, "approved-malformed"),
    ],
)
def test_another_run_approves_nothing(change: dict[str, Any], wanted: str) -> None:
    assert wanted in bad(approved_run(replace(APPROVED, **change)))


def test_what_was_approved_is_what_is_looked_at_again() -> None:
    """Else a namespace, a gate or the canary itself would be passed over in silence."""
    assert bad(approved_run(namespaces=["gpu-operator"])) == ["approved-other-scope"]
    assert bad(approved_run(gates=["kube-dc", "other-config", "gpu-profiles", "kube-dc-backend"])) == [
        "approved-other-scope"
    ]
    assert (
        bad(approved_run(canary_nodes=[])) == bad(approved_run(canary_nodes=["gpu-0001"])) == ["approved-other-scope"]
    )
    assert bad(approved_run(canary_nodes=["gpu-0000", "gpu-0001"])) == []


def test_an_approval_holds_as_long_as_what_it_rests_on() -> None:
    told = json.loads(APPROVED.files["after/approved.json"])
    assert told["admit_not_after"] == min(told["ends"].values()) and "the record" in told["ends"]
    end = datetime.fromisoformat(told["admit_not_after"])
    assert bad(approved_run(now=end - timedelta(seconds=1))) == []
    found = approved_run(now=end)
    assert bad(found) == ["approved-expired"]
    assert any(name in found.findings[0].message for name in told["ends"])


def test_the_audit_of_an_approved_run_is_the_one_that_was_proposed() -> None:
    """A step that is run again after the proposal keeps another file of the same name."""
    audit = json.loads(APPROVED.files["after/audit.json"])
    record = next(r for r in audit["records"] if r["runtime_class"] == "manifest")
    record["resolved"] = record["resolved"].rpartition("@")[0] + "@sha256:" + "e" * 64
    files = approved_files(**{"after/audit.json": json.dumps(audit).encode()})
    assert bad(approved_run(replace(APPROVED, files=files))) == ["approved-malformed"]
    digests = json.dumps({"current": {}, "rollback": {}}).encode()
    files = approved_files(**{"after/digests.json": digests})
    assert bad(approved_run(replace(APPROVED, files=files))) == ["approved-malformed"]
    told = json.loads(APPROVED.files["after/approved.json"])
    for name in ("approved_at", "admit_not_before", "admit_not_after"):
        files = approved_files(**{"after/approved.json": json.dumps({**told, name: ""}).encode()})
        assert bad(approved_run(replace(APPROVED, files=files))) == ["approved-malformed"]


def test_an_approval_counts_for_its_own_proposal_only() -> None:
    other = json.loads(APPROVED.files["after/proposal.json"]) | {"stabilisation_hours": 1}
    files = approved_files(**{"after/proposal.json": json.dumps(other).encode()})
    assert bad(approved_run(replace(APPROVED, files=files))) == ["approved-malformed"]


def carried(step: str, observed: Observed) -> Judgement:
    return promotion.carried(step, "x").judge({"approved": observed})


def test_a_step_is_carried_only_when_it_passed_in_the_approved_run() -> None:
    run = Observed(NEED, approved_run().files["approved-run.json"])
    assert codes(carried("evidence", run)) == ["carried"]
    assert codes(carried("still-closed", run)) == ["not-carried"]
    assert bad(carried("evidence", Observed(NEED, problem=Problem("unreadable", "x")))) == ["unreadable"]


# -- digests ---------------------------------------------------------------------------------------------------------


def test_digests_of_json_are_those_of_plans_and_approvals() -> None:
    for value in ({"b": [1, "ü", None], "a": {"z": 1.5}}, [], "x"):
        assert digest_of(value) == digest(canonical(value))


def test_an_image_that_the_canary_did_not_have_is_refused() -> None:
    audit = json.loads(CANARY.files[canary.AUDIT])
    gone = audit["digests"][0]["digest"]
    check = same_digests("canary", ["gpu-operator"])
    assert isinstance(check.needs["baseline"], Recorded)
    pod = {
        "metadata": {"name": "p", "namespace": "gpu-operator"},
        "spec": {"containers": [{"name": "c", "image": "nvcr.io/nvidia/other:v1"}]},
        "status": {"phase": "Running", "containerStatuses": [status("c", "nvcr.io/nvidia/other@sha256:" + "c" * 64)]},
    }
    found = check.judge(seen_pods(pod))
    assert bad(found) == ["digest-not-canary"]
    assert any(f.code == "digest-gone" and f.subject == gone for f in found.findings)


def test_an_imported_image_can_be_compared_with_nothing_and_is_refused() -> None:
    """It passes the audit, and no step after it looks at it again when a release is admitted."""
    image = "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04"
    for runs in ("sha256:" + "c" * 64, "docker.io/library/import-2026-08-22@sha256:" + "c" * 64):
        pod = {
            "metadata": {"name": "p", "namespace": "gpu-operator"},
            "spec": {"containers": [{"name": "c", "image": image}]},
            "status": {"phase": "Running", "containerStatuses": [status("c", runs)]},
        }
        audit = json.loads(CANARY.files[canary.AUDIT])
        proven = next(r for r in audit["records"] if r["runtime_class"] == "manifest" and r["kind"] == "container")
        other = {
            "metadata": {"name": "q", "namespace": "gpu-operator"},
            "spec": {"containers": [{"name": "c", "image": proven["desired"]}]},
            "status": {"phase": "Running", "containerStatuses": [status("c", proven["resolved"])]},
        }
        for against in ("canary", "approved"):
            found = same_digests(against, ["gpu-operator"]).judge(seen_pods(pod, other))
            assert bad(found) == ["digest-unproven"]


def test_the_relations_of_an_approved_run_are_those_that_it_was_judged_with() -> None:
    check = same_digests("approved", ["gpu-operator"], relations="relations.json")
    assert check.needs["run"] == Recorded("tuple", "approved-run.json")
    assert "run" not in same_digests("canary", ["gpu-operator"], relations="relations.json").needs
    audit = json.loads(CANARY.files[canary.AUDIT])
    proven = next(r for r in audit["records"] if (r["runtime_class"], r["desired_class"]) == ("manifest", "tag"))
    evil = "sha256:" + "e" * 64
    lie = {proven["resolved"].rpartition("@")[2]: [{"digest": evil, "platform": "linux/amd64"}]}
    pod = {
        "metadata": {"name": "q", "namespace": "gpu-operator"},
        "spec": {"containers": [{"name": "c", "image": proven["desired"]}]},
        "status": {"phase": "Running", "containerStatuses": [status("c", f"nvcr.io/x/y@{evil}")]},
    }
    seen = seen_pods(pod) | {"relations": Observed(NEED, json.dumps(lie).encode())}
    run = json.loads(approved_run().files["approved-run.json"])
    same = relations.digest(relations.read_indexes(json.dumps(lie).encode()))
    for said, wanted in (("", ["relations-not-approved"]), (same, [])):
        kept = Observed(NEED, json.dumps({**run, "relations": said}).encode())
        assert bad(check.judge(seen | {"run": kept})) == wanted


def status(name: str, image_id: str) -> dict[str, Any]:
    return {"name": name, "imageID": image_id, "containerID": "containerd://1", "state": {"running": {}}}


def seen_pods(*pods: dict[str, Any]) -> dict[str, Observed]:
    import msgspec

    from gpurunbook.supply import records
    from gpurunbook.supply.pods import PodList

    listed = msgspec.json.decode(json.dumps({"kind": "PodList", "items": pods}).encode(), type=PodList)
    return {
        "pods gpu-operator": Observed(NEED, records.page(listed.items)),
        "baseline": Observed(Recorded("canary", "canary-audit.json"), CANARY.files[canary.AUDIT]),
        "cluster": kube_system(),
    }


# -- words -----------------------------------------------------------------------------------------------------------


def test_every_code_of_the_promotion_is_documented() -> None:
    text = (HOME / "docs" / "codes.md").read_text()
    rooms = (
        "current",
        "eligibility",
        "consumed",
        "canary",
        "promotion",
        "reviewed",
        "inventory",
        "proposal",
        "stabilisation",
    )
    sources = "".join((HOME / "gpurunbook" / "supply" / f"{name}.py").read_text() for name in rooms)
    used = set(re.findall(r'Status\.[A-Z]+, "([a-z-]+)"|_(?:fail|unknown)\("([a-z-]+)"', sources))
    found = {code for pair in used for code in pair if code}
    assert len(found) > 25
    assert {code for code in found if f"`{code}`" not in text} == set()


def test_findings_name_what_to_do_next() -> None:
    every: list[Finding] = [*proven(replace(CANARY, strength="consistent", verdict="failed")).findings]
    every += [*approved_run(replace(APPROVED, files={})).findings, *proven(Problem("unreadable", "x")).findings]
    assert all(f.remedy and f.source for f in every)


def test_an_input_that_was_not_given_is_named_by_its_parameter() -> None:
    gone = Observed(NEED, problem=Problem("unreadable", "cannot be read: no file "))
    seen = dict.fromkeys(PATHS, gone)
    found = promotion.judge_qualified(seen, dict.fromkeys(PATHS, ""), fleet(), [])
    assert [f.subject for f in found.findings] == [f"parameter {name!r}" for name in PATHS]
    assert all(
        f.message == "no file was given" and f"`{n}`" in f.remedy for f, n in zip(found.findings, PATHS, strict=True)
    )
