"""The manifest step, the proposal, its approval, and the stabilisation window.

Covered: what is reviewed and where the tuple is looked for; what the proposal holds, that it does not depend on time or
pods, and that it depends on everything else; rollback sets; the command that approves; the window, and the answers of
Prometheus. Not covered: the review's own rules (test_manifests.py), the places (test_tuple.py), the evidence gate
(test_gate.py).
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from test_promotion import CANARY, DATA, HOME, NEED, approved_run, bad, codes, kube_system, proven, qualified

from gpurunbook.cli.changes import approve
from gpurunbook.errors import InputError
from gpurunbook.findings import Verdict
from gpurunbook.journal import JOURNAL, Journal, canonical, digest
from gpurunbook.plan import Approval, Approved, Folder, Judgement, Now, Observed, Pages, Problem, Recorded
from gpurunbook.runbook import approval
from gpurunbook.runbook.observe import Observer
from gpurunbook.runbook.site import Site
from gpurunbook.supply import admission, canary
from gpurunbook.supply import proposal as proposals
from gpurunbook.supply.promotion import digest_of
from gpurunbook.supply.reviewed import manifests_kept, still_live
from gpurunbook.supply.stabilisation import judge_stabilised, read_alerts, stabilise
from gpurunbook.supply.tuple import read_tuple

NAMESPACES = ["gpu-operator", "hami-system"]
TUPLE = Observed(Recorded("tuple", "tuple.json"), qualified().files["tuple.json"])

# -- manifests -------------------------------------------------------------------------------------------------------


def folder(name: str, **changes: bytes | Problem) -> dict[str, bytes | Problem]:
    return {path.name: path.read_bytes() for path in sorted((DATA / name).glob("*.yaml"))} | changes


def manifests(declared: Any = None, rendered: Any = None, nodes: Any = ("gpu-0000",), **live: Observed) -> Judgement:
    check = manifests_kept(["declared"], ["rendered"], NAMESPACES, nodes)
    seen: dict[str, Observed] = {}
    for name, need in check.needs.items():
        if isinstance(need, Folder):
            given = declared if name.startswith("declared") else rendered
            value = folder(need.path) if given is None else given
            seen[name] = Observed(need, problem=value) if isinstance(value, Problem) else Observed(need, value)
        else:
            seen[name] = TUPLE if name == "tuple" else live.get(name, Observed(need, cluster_objects(need)))
    return check.judge(seen)


@functools.cache
def rendered_objects() -> list[dict[str, Any]]:
    return [d for name in folder("rendered") for d in yaml.safe_load_all((DATA / "rendered" / name).read_bytes())]


def cluster_objects(need: Any) -> list[dict[str, Any]]:
    """A small live cluster: what is rendered, as it would run on one upgraded node."""
    assert isinstance(need, Pages)
    documents = rendered_objects()
    exporter = read_tuple((HOME / "parameters/tuples/proposed.yaml").read_bytes(), "proposed").values[
        "dcgmExporterDigest"
    ]
    kind = need.path.rpartition("/")[2]
    if kind == "nodes":
        info = {"kernelVersion": "5.15.0-127-generic", "kubeletVersion": "v1.35.4+rke2r1"}
        labels = {"nvidia.com/gpu.present": "true", "nvidia.com/cuda.driver-version.full": "595.91.07"}
        return [{"metadata": {"name": "gpu-0000", "labels": labels}, "status": {"nodeInfo": info}}]
    if kind == "clusterpolicies":
        return [d for d in documents if d["kind"] == "ClusterPolicy"]
    if kind == "pods":
        image = "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless"
        status = {"containerStatuses": [{"name": "e", "imageID": f"nvcr.io/nvidia/k8s/dcgm-exporter@{exporter}"}]}
        return [{"metadata": {"name": "e"}, "spec": {"containers": [{"name": "e", "image": image}]}, "status": status}]
    namespace = need.path.split("/")[-2]
    wanted = {"daemonsets": "DaemonSet", "deployments": "Deployment"}.get(kind)
    return [d for d in documents if d["kind"] == wanted and d["metadata"]["namespace"] == namespace]


def test_manifests_that_keep_to_the_policy_and_stand_everywhere_pass() -> None:
    found = manifests()
    assert codes(found) == ["manifests-kept", "tuple-in-place"]
    assert "nvcr.io/nvidia/gpu-operator:v26.7.0" in json.loads(found.files["manifests.json"])["images"]


def test_a_flaw_is_told_with_file_and_line() -> None:
    range_ = (DATA / "faults" / "chart-range" / "nfd.yaml").read_bytes()
    found = manifests(declared=folder("declared", **{"nfd.yaml": range_}))
    assert bad(found) == ["chart-version-range"]
    assert found.findings[0].subject.startswith("declared/nfd.yaml:10 ")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (Problem("unreadable", "no folder"), "unreadable"),
        ({}, "unreadable"),
        ({"notes.txt": b"x"}, "unreadable"),
        ({"a.yaml": Problem("unreadable", "a symbolic link")}, "unreadable"),
        ({"a.yaml": b"a: b\n", "more": Problem("unreadable", "a symbolic link")}, "unreadable"),
        ({"a.yaml": b"{{ .Values.x }}"}, "unknown-field"),
        ({"a.yaml": b""}, "empty"),
        ({"a.yaml": b"a: b\n", "b.YML": b"kind: Secret\nstringData: {a: hunter2}\n"}, "secret-value"),
        ({"a.yaml": b"a: b\n", "c-1.0.0.tgz": b"\x1f\x8b"}, "not-rendered"),
        ({"Chart.yaml": b"name: c\n", "templates/a.yaml": b"a: '{{ .Values.x }}'\n"}, "not-rendered"),
        ({"a.yaml": b"a: b\n", "prod.env": b"DB_PASSWORD=hunter2\n"}, "secret-value"),
        ({"a.yaml": b"a: b\n", "Kustomization": b"images: [{name: a, newTag: latest}]\n"}, "explicit-latest"),
    ],
)
def test_no_folder_and_no_file_is_passed_over(given: Any, code: str) -> None:
    for place in ("declared", "rendered"):
        found = manifests(**{place: given})
        assert code in bad(found)
        assert "manifests-kept" not in codes(found)


def test_files_of_another_kind_are_named() -> None:
    found = manifests(declared=folder("declared", **{"notes.txt": b"x", "run.sh": b"true"}))
    assert codes(found) == ["manifests-kept", "tuple-in-place"]
    assert "not judged: declared/notes.txt, declared/run.sh" in found.findings[0].message
    assert found.facts["passed_over"] == 2


def test_both_what_is_declared_and_what_is_rendered_must_be_given() -> None:
    check = manifests_kept([], ["rendered"], NAMESPACES, [])
    seen = {name: TUPLE if name == "tuple" else Observed(need, []) for name, need in check.needs.items()}
    seen["rendered rendered"] = Observed(Folder("rendered"), folder("rendered"))
    assert "not-given" in bad(check.judge(seen))


def test_every_image_of_a_pod_spec_is_noted_wherever_it_stands() -> None:
    pod = {
        "containers": [{"image": "a:1"}],
        "initContainers": [{"image": "b:1"}],
        "volumes": [{"image": {"reference": "c:1"}}],
    }
    job = {"kind": "CronJob", "metadata": {"name": "x"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}
    listed = {"kind": "List", "items": [job]}
    found = manifests(rendered=folder("rendered", **{"x.yaml": yaml.safe_dump(listed).encode()}))
    assert {"a:1", "b:1", "c:1"} <= set(json.loads(found.files["manifests.json"])["images"])
    packed = {
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": {"addon.yaml": yaml.safe_dump({"apiVersion": "v1", **job})},
    }
    found = manifests(rendered=folder("rendered", **{"x.yaml": yaml.safe_dump(packed).encode()}))
    assert {"a:1", "b:1", "c:1"} <= set(json.loads(found.files["manifests.json"])["images"])


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.yaml", "kind: Pod\n", ""),
        ("a.yaml", "kind: Pod\nspec: {containers: [{image: 'a:latest'}]}\n", ""),
        ("a.yaml", "kind: Secret\nstringData: {a: hunter2}\n", "secret-value"),
        ("a.yaml", "registry: {password: hunter2}\n", "secret-value"),
        ("a.yaml", "spec:\n  a: |\n    apiVersion: v1\n    kind: Secret\n    data: {a: eA==}\n", "secret-value"),
        ("a.sops.yaml", "a: hunter2\n", "sops-not-encrypted"),
        ("a.YAML", "registry: {password: hunter2}\n", "secret-value"),
        ("Kustomization", "secretGenerator: [{literals: [a=hunter2]}]\n", "secret-value"),
        ("a.yaml", "password: hunter2\nb: [\n", "could not be read"),
        ("a.env", "PASSWORD=hunter2\n", "not judged"),
    ],
)  # fmt: skip
def test_no_copy_of_a_file_with_a_secret_is_kept(name: str, text: str, why: str) -> None:
    check = manifests_kept(["declared"], ["rendered"], NAMESPACES, [])
    for need in check.needs.values():
        if isinstance(need, Folder):
            assert need.withhold is not None
            told = need.withhold(name, text.encode())
            assert (why in told, bool(told)) == (True, bool(why))
            assert "hunter2" not in told


def test_a_secret_that_is_refused_never_reaches_the_run_folder(tmp_path: Path) -> None:
    for place in ("declared", "rendered"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "good.yaml").write_text("kind: Pod\n")
        (tmp_path / place / "bad.yaml").write_text("kind: Secret\nmetadata: {name: s}\nstringData: {a: hunter2}\n")
    needs = manifests_kept(["declared"], ["rendered"], NAMESPACES, []).needs
    look = Observer(tmp_path / "run", tmp_path, lambda: pytest.fail("no"), lambda: pytest.fail("no"), {})
    seen = look({name: need for name, need in needs.items() if isinstance(need, Folder)})
    assert all(b"hunter2" in observed.value["bad.yaml"] for observed in seen.values()), "it is judged"
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert sorted({path.name for path in kept}) == ["bad.yaml", "good.yaml"]
    assert {path.relative_to(tmp_path / "run").parts[1] for path in kept if path.name == "bad.yaml"} == {"withheld"}
    assert not any(b"hunter2" in path.read_bytes() for path in kept)


def test_versions_that_yaml_would_read_as_numbers_stay_text() -> None:
    text = (DATA / "declared" / "gpu-operator.yaml").read_bytes()
    number = text.replace(b'"595.91.07"', b"595.91")
    found = manifests(declared=folder("declared", **{"gpu-operator.yaml": number}))
    assert any(f.code == "declared-differs" and "'595.91'" in f.message for f in found.findings)


@pytest.mark.parametrize(
    "kind", ["Node", "Pod gpu-operator", "DaemonSet hami-system", "ControllerRevision gpu-operator"]
)
def test_what_cannot_be_listed_is_unknown(kind: str) -> None:
    for code in ("forbidden", "not-found"):
        assert "live-unreadable" in bad(manifests(**{kind: Observed(NEED, problem=Problem(code, "x"))}))


def test_a_definition_that_is_not_installed_has_no_objects() -> None:
    gone = Observed(NEED, problem=Problem("not-found", "404"))
    assert bad(manifests(NVIDIADriver=gone, HelmRelease=gone)) == []
    assert bad(manifests(ClusterPolicy=gone)) != []
    forbidden = Observed(NEED, problem=Problem("forbidden", "403"))
    assert "live-unreadable" in bad(manifests(HelmRelease=forbidden))


def test_a_canary_node_that_does_not_exist_is_unknown() -> None:
    assert bad(manifests(nodes=("gpu-0000", "gpu-0009"))) == ["node-unknown"]


def test_admitting_looks_at_the_cluster_alone() -> None:
    check = still_live(NAMESPACES, [])
    assert not [need for need in check.needs.values() if isinstance(need, Folder)]
    seen = {n: TUPLE if n == "tuple" else Observed(need, cluster_objects(need)) for n, need in check.needs.items()}
    assert codes(check.judge(seen)) == ["tuple-in-place"]


def fleet(*more: dict[str, Any], driver: str = "595.91.07") -> dict[str, Observed]:
    (canary_node,) = cluster_objects(Pages("/api/v1/nodes"))
    labels = {"nvidia.com/gpu.present": "true", **({"nvidia.com/cuda.driver-version.full": driver} if driver else {})}
    first = {**canary_node, "metadata": {"name": "gpu-0000", "labels": labels}}
    return {"Node": Observed(Pages("/api/v1/nodes"), [first, *more])}


def other(kernel: str = "5.15.0-119-generic", driver: str = "580.126.20", **labels: str) -> dict[str, Any]:
    info = {"kernelVersion": kernel, "kubeletVersion": "v1.35.3+rke2r3"}
    told = {"nvidia.com/gpu.present": "true", "nvidia.com/cuda.driver-version.full": driver, **labels}
    return {"metadata": {"name": "gpu-0001", "labels": told}, "status": {"nodeInfo": info}}


def test_a_node_runs_one_of_the_two_tuples_also_where_it_is_not_upgraded() -> None:
    assert bad(manifests(**fleet(other()))) == []
    assert bad(manifests(**fleet(other(kernel="5.15.0-127-generic", driver="595.91.07")))) == []
    assert bad(manifests(**fleet(other(driver="590.44.01")))) == ["live-neither"]
    assert bad(manifests(**fleet(other(kernel="6.8.0-1-generic")))) == ["live-neither"]


def test_a_node_that_shows_no_driver_does_not_run_the_tuple() -> None:
    """The chart and the DaemonSet say the version also where its pod is down."""
    assert bad(manifests(**fleet(driver=""))) == ["live-unknown"]
    both = manifests(nodes=("gpu-0000", "gpu-0001"), **fleet(other(driver="")))
    assert bad(both) == ["live-unknown", "live-differs", "live-differs"]
    vm = other(kernel="5.15.0-127-generic", driver="", **{"nvidia.com/gpu.workload.config": "vm-passthrough"})
    vm["status"]["nodeInfo"]["kubeletVersion"] = "v1.35.4+rke2r1"
    assert bad(manifests(nodes=("gpu-0000", "gpu-0001"), **fleet(vm))) == []
    gone = other(kernel="5.15.0-127-generic", driver="595.91.07", **{"nvidia.com/gpu.present": "false"})
    gone["status"]["nodeInfo"]["kubeletVersion"] = "v1.35.4+rke2r1"
    assert bad(manifests(nodes=("gpu-0000", "gpu-0001"), **fleet(gone))) == ["live-unknown"]


# -- proposal --------------------------------------------------------------------------------------------------------

ROLLBACK = (HOME / "parameters" / "provenance_audit" / "data" / "baseline.json").read_bytes()
AUDIT = CANARY.files[canary.AUDIT]
GATE = {
    "images": [
        {
            "digest": "sha256:1",
            "platform": "linux/amd64",
            "exceptions": ["EX-7"],
            "signature": {"state": "verified", "by": "x", "message": "verified 2026-08-22"},
            "sboms": [{"file": "s", "sha256": "sha256:2"}],
            "scans": [{"file": "t", "sha256": "sha256:3"}],
        }
    ],
    "now": "2026-08-22T12:00:00Z",
    "ends": {"EX-7": "2026-10-01T00:00:00Z"},
    "judged": {"decisions": "sha256:4", "relations": ""},
    "max_database_age_seconds": 172_800,
    "platforms": ["linux/amd64"],
}
TERMS = {
    "namespaces": NAMESPACES,
    "gates": ["kube-dc", "cluster-config", "gpu-profiles", "kube-dc-backend"],
    "canary_nodes": ["gpu-0000"],
    "admission": {"enforcement": "warn", "namespace": "kube-system"},
    "stabilisation_hours": 24,
}


MANIFESTS = json.dumps(
    {"images": ["nvcr.io/nvidia/gpu-operator:v26.7.0"], "files": {"rendered": {"0/a": "1"}}}
).encode()


def proposed(terms: dict[str, Any] | None = None, **changes: bytes | Problem) -> Judgement:
    kept = {
        "tuple": TUPLE.value,
        "record": (DATA / "data" / "record.yaml").read_bytes(),
        "manifests": MANIFESTS,
        "canary": proven().files["canary.json"],
        "audit": AUDIT,
        "evidence": json.dumps(GATE).encode(),
        "rollback": ROLLBACK,
        **changes,
    }
    seen = {n: Observed(NEED, problem=v) if isinstance(v, Problem) else Observed(NEED, v) for n, v in kept.items()}
    return proposals.judge_proposal({**seen, "cluster": kube_system()}, "rollback.json", terms or TERMS)


def made(found: Judgement) -> dict[str, Any]:
    return json.loads(found.files["proposal.json"])  # type: ignore[no-any-return]


def test_the_proposal_holds_everything_that_a_review_merges() -> None:
    found = proposed()
    assert bad(found) == []
    assert found.facts["proposal"] == digest_of(made(found)) == digest(canonical(made(found)))
    wanted = read_tuple((HOME / "parameters/tuples/proposed.yaml").read_bytes(), "proposed").values
    assert dict(read_tuple(found.files["released.yaml"], "released").values) == dict(wanted)
    assert found.files["qualification.yaml"] == (DATA / "data" / "record.yaml").read_bytes()
    for name, value in made(found)["files"].items():
        assert digest(found.files[name]) == value
    config, policy, binding = yaml.safe_load_all(found.files["admission.yaml"])
    assert set(config["data"]) == {
        admission.key_of(one) for images in (AUDIT, ROLLBACK) for one in admission.images_of(images)
    }
    assert policy == admission.policy()
    assert binding["spec"]["validationActions"] == ["Warn", "Audit"]


def test_it_does_not_depend_on_pods_or_on_when_it_was_judged() -> None:
    audit = json.loads(AUDIT)
    for record in audit["records"]:
        record["pod"] = record["pod"][::-1]
    later = {**GATE, "now": "2027-01-01T00:00:00Z"}
    again = proposed(audit=json.dumps(audit).encode(), evidence=json.dumps(later).encode())
    assert made(again) == made(proposed())


def altered(data: bytes, change: Callable[[Any], Any]) -> bytes:
    whole = json.loads(data)
    change(whole)
    return json.dumps(whole).encode()


def test_it_depends_on_everything_that_matters() -> None:
    first = digest_of(made(proposed()))
    others = [
        proposed(terms={**TERMS, "stabilisation_hours": 12}),
        proposed(terms={**TERMS, "namespaces": ["gpu-operator"]}),
        proposed(terms={**TERMS, "admission": {"enforcement": "deny", "namespace": "kube-system"}}),
        proposed(record=b"another record"),
        proposed(terms={**TERMS, "gates": ["kube-dc", "other", "gpu-profiles", "kube-dc-backend"]}),
        proposed(terms={**TERMS, "canary_nodes": ["gpu-0000", "gpu-0001"]}),
        proposed(manifests=altered(MANIFESTS, lambda m: m["files"]["rendered"].update({"0/a": "2"}))),
        proposed(evidence=altered(json.dumps(GATE).encode(), lambda g: g["judged"].update(decisions="sha256:5"))),
        proposed(evidence=altered(json.dumps(GATE).encode(), lambda g: g["judged"].update(relations="sha256:5"))),
        proposed(evidence=altered(json.dumps(GATE).encode(), lambda g: g.update(max_database_age_seconds=1))),
        proposed(evidence=altered(json.dumps(GATE).encode(), lambda g: g["platforms"].clear())),
        proposed(tuple=altered(TUPLE.value, lambda t: t["record"].update(counts_until="2027-01-01T00:00:00Z"))),
        proposed(tuple=altered(TUPLE.value, lambda t: t["proposed"].update(hami="2.9.1"))),
        proposed(tuple=altered(TUPLE.value, lambda t: t["record"].update(id="other"))),
        proposed(canary=altered(proven().files["canary.json"], lambda c: c.update(manifest="sha256:9"))),
        proposed(evidence=altered(json.dumps(GATE).encode(), lambda g: g["images"][0].update(exceptions=[]))),
        proposed(evidence=altered(json.dumps(GATE).encode(), lambda g: g["images"][0]["scans"].clear())),
        proposed(audit=altered(AUDIT, lambda a: a["records"][0].update(desired="other:1"))),
        proposed(rollback=altered(ROLLBACK, lambda a: a["records"][0].update(desired="other:1"))),
    ]
    digests = [digest_of(made(one)) for one in others]
    assert len({first, *digests}) == len(others) + 1


def without(data: bytes, name: str) -> bytes:
    return altered(data, lambda a: a.update(records=[r for r in a["records"] if name not in r["desired"]]))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"rollback": AUDIT}, "rollback-not-released"),
        ({"rollback": without(ROLLBACK, "dcgm-exporter")}, "rollback-not-released"),
        ({"audit": without(AUDIT, "dcgm-exporter")}, "current-not-proposed"),
        ({"rollback": b"{}"}, "rollback-malformed-baseline"),
        ({"rollback": altered(ROLLBACK, lambda a: a.update(cluster="another"))}, "rollback-foreign-baseline"),
        (
            {"rollback": altered(ROLLBACK, lambda a: a.update(cluster=None, rehearsal=False))},
            "rollback-foreign-baseline",
        ),
        ({"rollback": altered(ROLLBACK, lambda a: a.update(verdict="fail"))}, "rollback-audit-not-passed"),
        ({"rollback": Problem("unreadable", "gone")}, "unreadable"),
        ({"evidence": Problem("unreadable", "gone")}, "unreadable"),
    ],
)
def test_a_set_that_is_not_of_its_tuple_is_refused(changes: dict[str, Any], code: str) -> None:
    assert code in bad(proposed(**changes))


def test_an_image_that_is_rendered_and_was_never_seen_is_told() -> None:
    images = json.dumps({"images": ["docker.io/jettech/kube-webhook-certgen:v1.5.2"], "files": {}}).encode()
    found = proposed(manifests=images)
    assert bad(found) == [] and "rendered-not-audited" in codes(found)


def test_the_parameters_of_admission_lie_apart_and_fit_into_one_object() -> None:
    for name in ("gpu-operator", "", " ", "kube-system\n"):  # "": that of the pod
        inside = {**TERMS, "admission": {"enforcement": "warn", "namespace": name}}
        assert bad(proposed(terms=inside)) == ["admission-namespace"]

    def grow(audit: Any) -> None:
        record = next(r for r in audit["records"] if r["runtime_class"] == "manifest")
        long = "/".join(["a" * 60] * 3)
        audit["records"] += [{**record, "desired": f"r.example/{long}:{n}"} for n in range(6000)]

    assert bad(proposed(audit=altered(AUDIT, grow))) == ["release-too-large"]


def test_a_set_holds_no_record_that_no_audit_would_pass() -> None:
    """The rollback set is a file that somebody gives; each of its references becomes one that is admitted."""
    for change in (
        {"desired": "nvcr.io/nvidia/driver:1\ncurrent evil.example/x:1"},
        {"desired": "nvcr.io/nvidia/driver:latest"},
        {"desired": ""},
    ):
        found = proposed(rollback=altered(ROLLBACK, lambda a, change=change: a["records"][0].update(change)))  # type: ignore[misc]
        assert bad(found) == ["rollback-unreadable"]
    with pytest.raises(InputError):
        admission.images_of(altered(ROLLBACK, lambda a: a["records"][0].update(resolved="nvcr.io/nvidia/driver:1")))


# -- approval --------------------------------------------------------------------------------------------------------


def judged(value: Approved | Problem) -> Judgement:
    need = Approval("sha256:1")
    answer = Observed(need, problem=value) if isinstance(value, Problem) else Observed(need, value)
    kept = Observed(Recorded("proposal", "proposal.json"), proposed().files["proposal.json"])
    return proposals.judge_approval({"proposal": kept, "approval": answer})


def test_an_approval_is_of_this_proposal_or_blocks() -> None:
    check = proposals.approved_by_another()
    kept = Observed(Recorded("proposal", "proposal.json"), proposed().files["proposal.json"])
    assert check.follow is not None and check.against is Verdict.BLOCKED
    assert check.follow({"proposal": kept}) == {"approval": Approval(digest_of(made(proposed())))}
    assert codes(judged(Approved(demanded=False))) == ["approval-not-demanded"]
    assert codes(judged(Approved(True, "lead", "2026-08-23T00:00:00Z"))) == ["approved"]
    refused = judged(Problem("no-approval", "there is none", "Ask for one."))
    assert bad(refused) == ["no-approval"]
    assert [(f.message, f.remedy) for f in refused.findings] == [("there is none", "Ask for one.")]


@pytest.mark.parametrize("given", ["", "after/proposal.json"])
def test_the_command_signs_the_proposal_of_a_run_and_tells_what_is_signed(tmp_path: Path, given: str) -> None:
    run = tmp_path / "run"
    (run / "after").mkdir(parents=True)
    (run / "after" / "proposal.json").write_bytes(proposed().files["proposal.json"])
    started = {"run": "run", "runbook": "promotion", "parameters": {"change_id": "CHG-2077", "reason": "release"}}
    Journal.open(run / JOURNAL).append("start", started)
    key = tmp_path / "lead"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "signers").write_text(f"lead {public}oncall cert-authority {public}")
    done = CliRunner().invoke(approve, [str(run / given), "--key", str(key), "--change-id", "CHG-2077"])
    assert done.exit_code == 0, done.output
    for line in (
        digest_of(made(proposed())),
        "release kernel 5.15.0-119-generic",
        "canary run run-1, anchored, on gpu-0000",
        "accepted under EX-7",
        "at most 48 h old",
        "counts until 2026-09-20T09:30:00Z",
    ):
        assert line in done.output
    approver, _ = approval.judge(
        run / approval.NAME,
        site=Site(signers="signers", principals={"oncall": "oncall"}),
        home=tmp_path,
        operator="oncall",
        change_id="CHG-2077",
        plan=digest_of(made(proposed())),
        now=datetime.now(UTC),
    )
    assert approver == "lead"


def test_what_is_neither_plan_nor_proposal_is_not_signed(tmp_path: Path) -> None:
    for data in (b"{}", b"[]", b"x", b'{"summary": 3}'):
        (tmp_path / "plan.json").write_bytes(data)
        done = CliRunner().invoke(approve, [str(tmp_path), "--key", "k", "--change-id", "C"])
        assert done.exit_code == 1 and "neither the plan" in str(done.exception)


# -- window ----------------------------------------------------------------------------------------------------------

BEGAN = datetime(2026, 8, 22, 12, tzinfo=UTC)
ENDS = BEGAN + timedelta(hours=24)


def series(name: str, first: datetime = BEGAN, last: datetime = ENDS, step: int = 600, **labels: str) -> dict[str, Any]:
    stamps = range(int(first.timestamp()), int(last.timestamp()) + 1, step)
    metric = {"__name__": "ALERTS", "alertname": name, "alertstate": "firing", **labels}
    return {"metric": metric, "values": [[stamp, "1"] for stamp in stamps]}


def answer(*listed: dict[str, Any], kind: str = "matrix", **more: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": listed}, **more}).encode()


DOG = series("Watchdog")


QUIET = answer(DOG)


def rule(name: str = "KubeDcGPUXidError", now: datetime = ENDS, **more: Any) -> dict[str, Any]:
    evaluated = now.strftime("%Y-%m-%dT%H:%M:%S.123456789Z")
    return {"type": "alerting", "name": name, "health": "ok", "lastEvaluation": evaluated, **more}


def ruled(*listed: dict[str, Any], **more: Any) -> bytes:
    groups = [{"name": "platform", "rules": [rule("Watchdog"), *listed]}]
    return json.dumps({"status": "success", "data": {"groups": groups}, **more}).encode()


def window(
    alerts: bytes | Problem | None = QUIET,
    now: datetime = ENDS + timedelta(minutes=1),
    rules: bytes | Problem | None = b"",
) -> Judgement:
    seen = {"approved": Observed(NEED, approved_run().files["approved-run.json"]), "now": Observed(Now(), now)}
    if alerts is not None:
        broken = isinstance(alerts, Problem)
        seen["alerts"] = Observed(NEED, problem=alerts) if broken else Observed(NEED, alerts)  # type: ignore[arg-type]
    rules = ruled(rule(now=now)) if rules == b"" else rules
    if rules is not None:
        wrong = isinstance(rules, Problem)
        seen["rules"] = Observed(NEED, problem=rules) if wrong else Observed(NEED, rules)  # type: ignore[arg-type]
    return judge_stabilised(seen, NAMESPACES)


def stabilising(now: datetime = BEGAN, **changes: bytes) -> Judgement:
    first = proposed()
    gate = {**GATE, "images": [{**GATE["images"][0], "repositories": ["nvcr.io/nvidia/driver"]}]}  # type: ignore[index]
    kept = {
        "proposal": first.files["proposal.json"],
        "digests": first.files["digests.json"],
        "gate": json.dumps(gate).encode(),
        "audit": AUDIT,
        "tuple": TUPLE.value,
        "manifests": MANIFESTS,
        "canary": proven().files["canary.json"],
        "approver": judged(Approved(True, "lead", "2026-08-23T00:00:00Z")).files["approver.json"],
        **changes,
    }
    seen = {name: Observed(NEED, data) for name, data in kept.items()}
    return stabilise(24, "").judge({**seen, "cluster": kube_system(), "now": Observed(Now(), now)})


def test_what_was_proposed_is_what_was_judged_last() -> None:
    """A cell that is run again after the proposal judges, and keeps, something else."""
    assert bad(stabilising()) == []
    gate = json.dumps({**GATE, "images": []}).encode()
    for name, data in {
        "gate": gate,
        "audit": without(AUDIT, "dcgm-exporter"),
        "tuple": altered(TUPLE.value, lambda t: t["proposed"].update(hami="2.9.1")),
        "manifests": altered(MANIFESTS, lambda m: m["files"].clear()),
        "canary": altered(proven().files["canary.json"], lambda c: c.update(run="another")),
    }.items():
        found = stabilising(**{name: data})
        assert bad(found) == ["judged-anew"] and found.files == {}


def test_what_is_released_is_what_was_approved() -> None:
    """The cell of the proposal was run again, and that of the approval was not."""
    other = json.dumps({"proposal": "sha256:1", "approver": "lead"}).encode()
    found = stabilising(approver=other)
    assert bad(found) == ["approval-other-plan"] and found.files == {}
    assert json.loads(stabilising().files["approved.json"])["approver"] == "lead"


def test_all_that_an_approval_rests_on_outlasts_the_window_as_it_is_now() -> None:
    """The evidence may have been judged hours before somebody approved."""
    end = datetime(2026, 9, 20, 9, 30, tzinfo=UTC)  # the record: 720 h after its canary
    assert bad(stabilising(end - timedelta(hours=24, seconds=1))) == []
    assert bad(stabilising(end - timedelta(hours=24))) == ["ends-in-window"]
    soon = altered(json.dumps(GATE).encode(), lambda g: g["images"][0].update(repositories=["x"]))
    soon = altered(soon, lambda g: g["ends"].update({"EX-7": "2026-08-23T12:00:00Z"}))
    assert bad(stabilising(gate=soon)) == ["ends-in-window"]


def test_an_approval_names_the_end_of_its_window() -> None:
    found = stabilising()
    told = json.loads(found.files["approved.json"])
    assert codes(found) == ["stabilising"]
    assert (told["approved_at"], told["admit_not_before"]) == ("2026-08-22T12:00:00Z", "2026-08-23T12:00:00Z")
    assert (
        told["proposal"] == digest_of(made(proposed())) and found.facts["admit_not_before"] == told["admit_not_before"]
    )
    assert bad(stabilise(0, "").judge({})) == ["no-window"]


def test_a_quiet_window_that_is_over_admits() -> None:
    assert codes(window()) == ["stabilised"]


def test_before_the_end_the_answer_is_approved_not_admitted() -> None:
    early = ENDS - timedelta(microseconds=1)
    for alerts in (answer(DOG), None, b"nonsense", Problem("unreadable", "x")):
        assert bad(window(alerts, early)) == ["approved-not-admitted"]
    assert codes(window(now=ENDS)) == ["stabilised"]


def test_the_answer_reaches_from_the_approval_to_now() -> None:
    """The window is the least that must be quiet; what fired after it, before anybody admits, counts as well."""
    later = ENDS + timedelta(days=3)
    assert bad(window(now=later)) == ["alerts-early"]
    assert codes(window(answer(series("Watchdog", last=later)), later)) == ["stabilised"]
    fired = series("KubeDcGPUXidError", first=ENDS + timedelta(days=1), last=ENDS + timedelta(days=1))
    assert bad(window(answer(series("Watchdog", last=later), fired), later)) == ["alert-firing"]


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"name": "KubeDcGPUXidError"}, ["alert-firing"]),
        ({"name": "GPUOperatorReconciliationFailed"}, ["alert-firing"]),
        ({"name": "KubePodCrashLooping", "namespace": "gpu-operator"}, ["alert-firing"]),
        ({"name": "KubePodCrashLooping", "namespace": "tenant-07"}, []),
        ({"name": "NodeGpuMissing"}, ["alert-firing"]),
        ({"name": "HAMISchedulerDown"}, ["alert-firing"]),
        ({"name": "ShamirShareLost"}, []),
        ({"name": "KubeDcGPUXidError", "alertstate": "pending"}, []),
        ({"name": "KubeDcGPUXidError", "alertstate": "odd"}, ["alert-firing"]),
    ],
)
def test_an_alert_about_the_gpu_stack_anywhere_in_the_window_counts(labels: dict[str, str], wanted: list[str]) -> None:
    for at in (BEGAN, BEGAN + timedelta(hours=7), ENDS):
        found = window(answer(DOG, series(first=at, last=at, **labels)))
        assert bad(found) == wanted
        assert ("stabilised" in codes(found)) == (not wanted)


def test_silence_without_the_alert_that_always_fires_proves_nothing() -> None:
    assert bad(window(answer())) == ["alerts-unproven"]
    assert bad(window(answer({**DOG, "values": []}))) == ["alerts-unproven"]


@pytest.mark.parametrize(
    ("dog", "wanted"),
    [
        (series("Watchdog", last=ENDS - timedelta(minutes=11)), "alerts-early"),
        (series("Watchdog", alertstate="pending"), "alerts-unproven"),
        (series("Watchdog", first=BEGAN + timedelta(minutes=11)), "alerts-partial"),
        (series("Watchdog", step=1200), "alerts-partial"),
        (series("Watchdog", last=ENDS + timedelta(hours=1)), "alerts-malformed"),
    ],
)
def test_an_answer_that_does_not_cover_the_window_is_unknown(dog: dict[str, Any], wanted: str) -> None:
    assert bad(window(answer(dog))) == [wanted]


def test_an_instant_answer_tells_of_one_moment_only() -> None:
    instant = {"metric": DOG["metric"], "value": [ENDS.timestamp(), "1"]}
    assert codes(window(answer(instant, kind="vector"))) == ["alerts-at-the-end-only"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        answer(DOG, status="error"),
        answer(DOG, warnings=["a store did not answer"]),
        answer(DOG, kind="scalar"),
        answer({"metric": {"__name__": "up"}, "values": []}),
        answer({"metric": {"__name__": "ALERTS"}, "values": []}),
        answer({"metric": DOG["metric"]}),
        answer({"metric": DOG["metric"], "values": [["x", "1"]]}),
        answer({"metric": DOG["metric"], "values": [[1e400, "1"]]}),
        answer(DOG, kind="vector"),
    ],
)
def test_what_is_no_answer_to_a_query_of_alerts_is_refused(data: bytes) -> None:
    assert bad(window(data)) == ["alerts-malformed"]


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        (None, "alert-rules-not-given"),
        (Problem("unreadable", "gone"), "alert-rules-not-given"),
        (ruled(), "alert-rules-missing"),
        (ruled(rule(type="recording")), "alert-rules-missing"),
        (ruled(rule("KubePodNotReady")), "alert-rules-missing"),
        (ruled(rule(health="err")), "alert-rules-unhealthy"),
        (ruled(rule(health="unknown")), "alert-rules-unhealthy"),
        (ruled(rule(now=ENDS - timedelta(minutes=10))), "alert-rules-unhealthy"),
        (ruled(rule(), rule("DcgmExporterDown", health="err")), "alert-rules-unhealthy"),
        (ruled(rule(lastEvaluation="0001-01-01T00:00:00Z")), "alert-rules-unhealthy"),
        (ruled(rule(lastEvaluation="")), "alert-rules-malformed"),
        (ruled(rule(), status="error"), "alert-rules-malformed"),
        (b"[]", "alert-rules-malformed"),
        (b'{"status": "success", "data": {"groups": {}}}', "alert-rules-missing"),
    ],
)
def test_nothing_fires_for_which_there_is_no_rule(rules: bytes | Problem | None, wanted: str) -> None:
    assert bad(window(rules=rules)) == [wanted]


def test_without_an_answer_nothing_is_known() -> None:
    assert bad(window(None)) == ["alerts-not-given"]
    assert bad(window(Problem("unreadable", "gone"))) == ["alerts-unreadable"]


def test_the_fixtures_are_answers() -> None:
    for name in ("alerts", "alerts-firing"):
        kind, listed = read_alerts((DATA / "data" / f"{name}.json").read_bytes())
        assert kind == "matrix" and len(listed) >= 2
