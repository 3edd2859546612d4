"""The released and proposed tuple, and the table of the places where it stands.

Covered: the file's form, differences and indivisibility, a proposal against its qualification record, where each
value is sighted (declared, rendered, live), OnDelete-pending, rolling and stale pods, and what is not known.
Not covered: how the objects are read.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.errors import InputError
from gpurunbook.findings import Status, worst
from gpurunbook.supply import tuple as tuples
from gpurunbook.supply.places import compare
from gpurunbook.supply.qualification import read_record
from gpurunbook.supply.sightings import Sighting, chart_of, declared, live, rendered
from gpurunbook.supply.tuple import FIELDS, Tuple, as_yaml, diff, judge_proposal, read_tuple

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "d5" * 32
VALUES = {
    "kernel": "6.8.0-134-generic",
    "rke2": "v1.35.3+rke2r3",
    "gpuOperator": "v26.3.3",
    "driver": "580.126.20",
    "kernelModuleType": "proprietary",
    "toolkit": "v1.19.1",
    "hami": "2.9.0",
    "hamiScheduler": "v1.35.3",
    "dcgmExporter": "4.4.1-4.6.0-ubuntu22.04",
    "dcgmExporterDigest": DIGEST,
}
RELEASED = Tuple("released", VALUES)
NEW = {
    "kernel": "6.8.0-136-generic",
    "rke2": "v1.36.2+rke2r1",
    "gpuOperator": "v26.7.0",
    "driver": "595.91.07",
    "dcgmExporter": "4.6.0-4.8.3-distroless",
}
PROPOSED = Tuple("proposed", {**VALUES, **NEW, "dcgmExporterDigest": "sha256:" + "5c" * 32})


def codes(findings: Any, status: Status | None = None) -> list[str]:
    return sorted({one.code for one in findings if status is None or one.status is status})


def test_a_tuple_file_is_read_back_as_it_was_written() -> None:
    for it in (RELEASED, PROPOSED):
        assert read_tuple(as_yaml(it), it.state) == it


GOOD = as_yaml(RELEASED).decode()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("state: released", "state: proposed", "tuple"),
        ("kind: GPUTuple", "kind: Tuple", "tuple"),
        ("v1alpha1", "v1", "tuple"),
        ('driver: "580.126.20"', 'driver: "580"', "tuple"),
        ('driver: "580.126.20"', 'driver: "latest"', "tuple"),
        ('driver: "580.126.20"', "driver:", "tuple"),
        ('driver: "580.126.20"', "driver: [580]", "type"),
        ('driver: "580.126.20"\n', "\n", "tuple"),
        ('gpuOperator: "v26.3.3"', 'gpuOperator: "v26.3"', "tuple"),
        ('gpuOperator: "v26.3.3"', 'gpuOperator: ">=26.3.3"', "tuple"),
        ('gpuOperator: "v26.3.3"', 'gpuOperator: "v26.x.x"', "tuple"),
        ('"proprietary"', '"auto"', "tuple"),
        ('hami: "2.9.0"', 'hami: "v2.9.0"', "tuple"),
        ('hamiScheduler: "v1.35.3"', 'hamiScheduler: ""', "tuple"),
        ('"4.4.1-4.6.0-ubuntu22.04"', '"latest"', "tuple"),
        ('"4.4.1-4.6.0-ubuntu22.04"', '"4.4.1-latest"', "tuple"),
        (DIGEST, DIGEST.upper(), "tuple"),
        (DIGEST, "sha512:" + "a" * 128, "tuple"),
        ("components:", "components:\n  cuda: 1", "unknown-field"),
        ("components:", "author: me\ncomponents:", "unknown-field"),
        ("components:", "components: &c", "alias"),
        ("state: released", "state: released\nstate: proposed", "duplicate-key"),
    ],
)
def test_a_tuple_file_of_another_form_is_refused(old: str, new: str, code: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(InputError) as caught:
        read_tuple(GOOD.replace(old, new).encode(), "released")
    assert caught.value.code == code


@pytest.mark.parametrize("data", [b"", b"[]", b"- a", b"a\n---\n", b"\xff"])
def test_what_is_no_tuple_file_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_tuple(data, "released")


def test_versions_that_look_like_numbers_stay_text() -> None:
    text = GOOD.replace('"580.126.20"', "580.90")
    assert read_tuple(text.encode(), "released").values["driver"] == "580.90"


def test_the_difference_of_two_tuples_is_by_field_in_order() -> None:
    changes = diff(RELEASED.values, PROPOSED.values)
    assert [change.field for change in changes] == [field for field in FIELDS if field in {*NEW, "dcgmExporterDigest"}]
    assert (changes[0].one, changes[0].other) == ("6.8.0-134-generic", "6.8.0-136-generic")


RECORD = (ROOT / "tests/cases/qualification/01-good.yaml").read_text()


def test_a_proposal_that_the_record_proves_passes() -> None:
    found = judge_proposal(PROPOSED, RELEASED, read_record(RECORD.encode()))
    assert codes(found) == ["proposal-qualified"]


def test_a_record_may_pin_the_exporter_by_the_proposed_digest() -> None:
    record = RECORD.replace("4.6.0-4.8.3-distroless", PROPOSED.values["dcgmExporterDigest"])
    assert codes(judge_proposal(PROPOSED, RELEASED, read_record(record.encode()))) == ["proposal-qualified"]


@pytest.mark.parametrize("field", NEW)
def test_a_proposal_is_refused_when_the_record_has_another_value(field: str) -> None:
    record = RECORD.replace(f"{field}: {NEW[field]}", f"{field}: 0")
    found = judge_proposal(PROPOSED, RELEASED, read_record(record.encode()))
    assert [(one.code, one.subject) for one in found] == [("record-differs", field)]


def test_a_proposal_of_the_released_tuple_is_none() -> None:
    same = Tuple("proposed", VALUES)
    assert "no-change" in codes(judge_proposal(same, RELEASED, read_record(RECORD.encode())), Status.FAIL)


def test_a_change_that_no_record_can_prove_is_told() -> None:
    more = Tuple("proposed", {**PROPOSED.values, "toolkit": "v1.20.0"})
    found = judge_proposal(more, RELEASED, read_record(RECORD.encode()))
    assert [(one.code, one.subject) for one in found if one.status is Status.WARN] == [("not-in-record", "toolkit")]


OPERATOR_VALUES = {
    "driver": {"version": "580.126.20", "kernelModuleType": "proprietary"},
    "toolkit": {"version": "v1.19.1"},
    "dcgmExporter": {"version": "4.4.1-4.6.0-ubuntu22.04"},
}
HAMI_VALUES = {"global": {"imageTag": "v2.9.0"}, "scheduler": {"kubeScheduler": {"image": {"tag": "v1.35.3"}}}}


def release(name: str, version: str, values: Any) -> dict[str, Any]:
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": name, "namespace": name},
        "spec": {"chart": {"spec": {"chart": name, "version": version}}, "values": values},
        "status": {"history": [{"chartName": name, "chartVersion": version}, {"chartVersion": "0.0.1"}]},
    }


GIT = [release("gpu-operator", "v26.3.3", OPERATOR_VALUES), release("hami", "2.9.0", HAMI_VALUES)]
POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy", "labels": {"helm.sh/chart": "gpu-operator-v26.3.3"}},
    "spec": OPERATOR_VALUES,
}


def containers(**images: str) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": image} for name, image in images.items()]}


def workload(kind: str, name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "gpu-operator", "uid": f"uid-{name}", "generation": 1}
    return {"kind": kind, "metadata": metadata, "spec": {"template": {"spec": spec}, **more}}


def pod(name: str, spec: dict[str, Any], owner: str = "", revision: str = "", node: str = "a", **more: Any) -> Any:
    owners = [{"kind": "DaemonSet", "name": owner, "uid": f"uid-{owner}"}] if owner else []
    labels = {"controller-revision-hash": revision} if revision else {}
    metadata = {"name": name, "namespace": "gpu-operator", "labels": labels, "ownerReferences": owners, **more}
    return {"kind": "Pod", "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": {"phase": "Running"}}


DRIVER = containers(ctr="nvcr.io/nvidia/driver:580.126.20-ubuntu22.04")
OLD_DRIVER = containers(ctr="nvcr.io/nvidia/driver:570.1.2-ubuntu22.04")
HAMI = containers(scheduler="registry.k8s.io/kube-scheduler:v1.35.3", extender="docker.io/projecthami/hami:v2.9.0")
EXPORTER = containers(exporter="nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1-4.6.0-ubuntu22.04")


def exporter_pod(digest: str = DIGEST) -> Any:
    made = pod("exporter", EXPORTER)
    image_id = f"nvcr.io/nvidia/k8s/dcgm-exporter@{digest}"
    made["status"]["containerStatuses"] = [{"name": "exporter", "imageID": image_id}]
    return made


def node(name: str, **more: str) -> dict[str, Any]:
    info = {"kernelVersion": "6.8.0-134-generic", "kubeletVersion": "v1.35.3+rke2r3", **more}
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/cuda.driver-version.full": "580.126.20"}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"nodeInfo": info}}


def cluster() -> list[dict[str, Any]]:
    on_delete = {"updateStrategy": {"type": "OnDelete"}}
    return copy.deepcopy(
        [
            *GIT,
            POLICY,
            workload("Deployment", "gpu-operator", containers(main="nvcr.io/nvidia/gpu-operator:v26.3.3")),
            workload("DaemonSet", "driver", DRIVER, **on_delete),
            workload("DaemonSet", "toolkit", containers(ctr="nvcr.io/nvidia/k8s/container-toolkit:v1.19.1")),
            workload("Deployment", "hami-scheduler", HAMI),
            pod("driver-x", DRIVER, "driver", "r1"),
            exporter_pod(),
            pod("hami-scheduler-x", HAMI),
            node("a"),
            node("b"),
        ]
    )


def all_places(objects: list[dict[str, Any]] | None = None) -> dict[str, list[Sighting]]:
    objects = objects if objects is not None else cluster()
    manifests = [raw for raw in objects if raw["kind"] in {"ClusterPolicy", "Deployment", "DaemonSet"}]
    return {"declared": declared(GIT), "rendered": rendered(manifests), "live": live(objects)}


def test_a_tuple_that_stands_everywhere_passes_with_a_row_per_field() -> None:
    judgement = compare(RELEASED, None, all_places())
    assert codes(judgement.findings) == ["tuple-in-place"]
    (table,) = judgement.views
    rows = {row[0]: row[1:] for row in table.rows}  # type: ignore[union-attr]
    assert tuple(rows) == FIELDS
    assert rows["kernel"] == ["–", "–", "6.8.0-134-generic ×2", "6.8.0-134-generic", None, "pass"]
    assert rows["driver"][0] == "580.126.20"


def test_against_a_proposed_tuple_every_old_value_in_every_place_is_told() -> None:
    findings = compare(RELEASED, PROPOSED, all_places()).findings
    assert {(one.code, one.message.split()[0]) for one in findings} == {
        *(("live-differs", field) for field in (*NEW, "dcgmExporterDigest")),
        *(("declared-differs", field) for field in ("gpuOperator", "driver", "dcgmExporter")),
        *(("rendered-differs", field) for field in ("gpuOperator", "driver", "dcgmExporter")),
    }


def test_in_a_canary_only_the_canarys_nodes_are_judged() -> None:
    objects = [raw for raw in cluster() if raw["kind"] == "Node"]
    objects[0]["status"]["nodeInfo"] = {"kernelVersion": NEW["kernel"], "kubeletVersion": NEW["rke2"]}
    seen = {"live": [one for one in live(objects) if one.field in {"kernel", "rke2"}]}
    found = compare(RELEASED, PROPOSED, seen, nodes={"a"}).findings
    assert codes(found) == ["live-unknown"]
    found = compare(RELEASED, PROPOSED, seen, nodes={"b"}).findings
    assert codes(found) == ["live-differs", "live-unknown"]


@pytest.mark.parametrize("kind", ["Node", "ClusterPolicy", "Pod"])
def test_what_was_not_seen_live_is_unknown_and_never_good(kind: str) -> None:
    seen = all_places([raw for raw in cluster() if raw["kind"] != kind])
    findings = compare(RELEASED, None, seen).findings
    assert worst(findings) is Status.UNKNOWN and codes(findings, Status.UNKNOWN) == ["live-unknown"]


def test_nothing_read_is_unknown() -> None:
    assert worst(compare(RELEASED, None, {}).findings) is Status.UNKNOWN


def test_a_place_that_was_not_read_is_shown_so() -> None:
    judgement = compare(RELEASED, None, {"live": live(cluster())})
    assert codes(judgement.findings) == ["tuple-in-place"]
    assert judgement.views[0].rows[0][1:3] == ["not read", "not read"]  # type: ignore[union-attr]


def driver_states(*pods: Any, objects: list[dict[str, Any]] | None = None) -> list[tuple[str, str]]:
    base = objects or [workload("DaemonSet", "driver", DRIVER, updateStrategy={"type": "OnDelete"})]
    found = [one for one in live([*base, *pods]) if one.where.startswith("Pod/")]
    return [(one.value, one.state) for one in found]


def test_an_old_driver_pod_of_an_ondelete_set_is_pending() -> None:
    assert driver_states(pod("x", OLD_DRIVER, "driver")) == [("570.1.2", "pending")]
    assert driver_states(pod("x", DRIVER, "driver")) == [("580.126.20", "")]


def revision(owner: str, number: int, label: str) -> dict[str, Any]:
    metadata = {
        "name": label,
        "labels": {"controller-revision-hash": label},
        "ownerReferences": [{"uid": f"uid-{owner}"}],
    }
    return {"kind": "ControllerRevision", "metadata": metadata, "revision": number}


def test_a_revision_tells_a_pending_pod_whose_images_are_the_same() -> None:
    sets = [workload("DaemonSet", "driver", DRIVER, updateStrategy={"type": "OnDelete"})]
    objects = [*sets, revision("driver", 2, "r2"), revision("driver", 1, "r1")]
    assert driver_states(pod("x", DRIVER, "driver", "r1"), objects=objects) == [("580.126.20", "pending")]
    assert driver_states(pod("x", DRIVER, "driver", "r2"), objects=objects) == [("580.126.20", "")]


def test_a_pod_of_a_set_that_was_made_anew_is_stale() -> None:
    old = pod("x", DRIVER, "driver")
    old["metadata"]["ownerReferences"][0]["uid"] = "former"
    assert driver_states(old) == [("580.126.20", "stale")]


def test_a_deleted_pod_that_is_still_there_is_stale_and_not_pending() -> None:
    gone = pod("x", OLD_DRIVER, "driver", deletionTimestamp="2026-08-20T12:00:00Z")
    assert driver_states(gone) == [("570.1.2", "stale")]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"observedGeneration": 1, "updatedNumberScheduled": 1, "desiredNumberScheduled": 2}, "rolling"),
        ({"observedGeneration": 0, "updatedNumberScheduled": 2, "desiredNumberScheduled": 2}, "rolling"),
        ({"observedGeneration": 1, "updatedNumberScheduled": 2, "desiredNumberScheduled": 2}, "stale"),
    ],
)
def test_an_old_pod_of_a_rolling_update_is_rolling_until_its_set_says_that_it_is_done(
    status: dict[str, int], state: str
) -> None:
    rolling = {**workload("DaemonSet", "driver", DRIVER, updateStrategy={"type": "RollingUpdate"}), "status": status}
    assert driver_states(pod("x", OLD_DRIVER, "driver"), objects=[rolling]) == [("570.1.2", state)]


def test_pods_that_have_ended_say_nothing() -> None:
    ended = pod("x", OLD_DRIVER, "driver")
    ended["status"]["phase"] = "Failed"
    assert driver_states(ended) == []


def test_pending_and_stale_pods_have_findings_of_their_own() -> None:
    pending = pod("p", OLD_DRIVER, "driver", node="b")
    gone = pod("g", OLD_DRIVER, "driver", deletionTimestamp="2026-08-20T12:00:00Z")
    findings = compare(RELEASED, None, all_places([*cluster(), pending, gone])).findings
    assert [(one.code, one.subject) for one in findings] == [
        ("ondelete-pending", "Pod/gpu-operator/p container ctr"),
        ("stale-pod", "Pod/gpu-operator/g container ctr"),
    ]
    assert all(one.remedy for one in findings)


def test_a_pending_pod_with_the_right_version_is_a_warning() -> None:
    sets = [revision("driver", 2, "r2"), revision("driver", 1, "r1")]
    findings = compare(RELEASED, None, all_places([*cluster(), *sets])).findings
    assert [(one.code, one.status) for one in findings] == [("ondelete-pending", Status.WARN)]


def test_the_running_digest_of_the_exporter_counts_not_its_tag() -> None:
    objects = [raw for raw in cluster() if raw["metadata"]["name"] != "exporter"]
    other = "sha256:" + "0" * 64
    findings = compare(RELEASED, None, all_places([*objects, exporter_pod(other)])).findings
    assert [(one.code, one.message.split()[0]) for one in findings] == [("live-differs", "dcgmExporterDigest")]


@pytest.mark.parametrize("value", ["${DRIVER_VERSION}", "v${X}", "{{ .Values.x }}"])
def test_a_variable_in_git_is_not_judged_but_must_be_seen_elsewhere(value: str) -> None:
    values = {**OPERATOR_VALUES, "driver": {"version": value, "kernelModuleType": "proprietary"}}
    seen = {"declared": declared([release("gpu-operator", "v26.3.3", values), GIT[1]])}
    assert ("declared-unresolved", Status.UNKNOWN) in [
        (one.code, one.status) for one in compare(RELEASED, None, seen).findings
    ]
    seen["rendered"] = rendered([POLICY, *cluster()])
    assert [(one.code, one.status) for one in compare(RELEASED, None, seen).findings] == [
        ("declared-unresolved", Status.WARN)
    ]


def test_a_digest_that_is_all_there_is_live_leaves_the_version_unknown() -> None:
    policy = {"kind": "ClusterPolicy", "spec": {"driver": {"version": DIGEST}}}
    seen = {"rendered": rendered([POLICY]), "live": live([policy])}
    found = [one for one in compare(RELEASED, None, seen).findings if one.subject == "driver"]
    assert [(one.code, one.status) for one in found] == [("live-unknown", Status.UNKNOWN)]


@pytest.mark.parametrize(
    ("field", "values", "status"),
    [
        ("kernelModuleType", {**OPERATOR_VALUES, "driver": {"version": "580.126.20"}}, Status.FAIL),
        ("driver", {**OPERATOR_VALUES, "driver": {"kernelModuleType": "proprietary"}}, Status.WARN),
        ("toolkit", {key: OPERATOR_VALUES[key] for key in ("driver", "dcgmExporter")}, Status.WARN),
    ],
)
def test_what_git_leaves_to_the_chart_is_told(field: str, values: Any, status: Status) -> None:
    seen = {**all_places(), "declared": declared([release("gpu-operator", "v26.3.3", values), GIT[1]])}
    findings = compare(RELEASED, None, seen).findings
    assert [(one.code, one.subject, one.status) for one in findings] == [("declared-missing", field, status)]


def test_an_empty_scheduler_tag_is_refused() -> None:
    values = {
        "global": {"imageTag": "v2.9.0"},
        "scheduler": {"kubeScheduler": {"image": {"tag": ""}, "imageTag": "v1.35.3"}},
    }
    seen = {**all_places(), "declared": declared([GIT[0], release("hami", "2.9.0", values)])}
    findings = compare(RELEASED, None, seen).findings
    assert [(one.code, one.subject, one.status) for one in findings] == [
        ("declared-missing", "hamiScheduler", Status.FAIL)
    ]


TEXT = "driver: {version: 580.126.20}\ntoolkit: {version: v1.19.1}\n"


def fields(sightings: list[Sighting]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in sightings:
        found.setdefault(one.field, set()).add(f"{one.value}{f' ({one.state})' if one.state else ''}")
    return found


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (
            [{"helm": {"chart": "gpu-operator", "version": "v26.3.3", "values": OPERATOR_VALUES}}],
            {"gpuOperator": {"v26.3.3"}, "driver": {"580.126.20"}, "kernelModuleType": {"proprietary"},
             "toolkit": {"v1.19.1"}, "dcgmExporter": {"4.4.1-4.6.0-ubuntu22.04"}},
        ),
        (
            [{"helm": {"chart": "oci://r.example/hami", "version": "2.9.0"},
              "targetCustomizations": [{"helm": {"version": "2.9.1", "values": HAMI_VALUES}}, {"name": "x"}]}],
            {"hami": {"2.9.0", "2.9.1"}, "hamiScheduler": {"v1.35.3"}},
        ),
        ([{"kind": "HelmChart", "spec": {"chart": "hami", "version": "2.9.0"}}], {"hami": {"2.9.0"}}),
        ([{"kind": "Plan", "spec": {"version": "v1.35.3+rke2r3"}}], {"rke2": {"v1.35.3+rke2r3"}}),
        ([{"driver": {"version": "sha256:" + "a" * 64}}], {"driver": {f"sha256:{'a' * 64} (unresolved)"}}),
        ([{"driver": {"version": "580", "usePrecompiled": True}}], {"driver": {"580 (unresolved)"}}),
        ([{"driver": {"version": "580", "usePrecompiled": "true"}}], {"driver": {"580 (unresolved)"}}),
        ([{"dcgmExporter": {"version": DIGEST}}], {"dcgmExporterDigest": {DIGEST}}),
        (
            [{"devicePlugin": {"image": {"tag": "v2.8.0"}}, "global": {"imageTag": "v2.9.0"}}],
            {"hami": {"2.8.0", "2.9.0"}},
        ),
        (
            [
                {"kind": "HelmRelease", "metadata": {"name": "x", "namespace": "n"},
                 "spec": {"chartRef": {"kind": "OCIRepository", "name": "r"}}},
                {"kind": "OCIRepository", "metadata": {"name": "r", "namespace": "n"},
                 "spec": {"url": "oci://h.example/charts/gpu-operator", "ref": {"tag": "v26.3.3"}}},
            ],
            {"gpuOperator": {"v26.3.3"}},
        ),
        (
            [
                {"kind": "HelmRelease", "metadata": {"name": "x", "namespace": "n"},
                 "spec": {"chartRef": {"kind": "OCIRepository", "name": "r", "namespace": "other"}}},
                {"kind": "OCIRepository", "metadata": {"name": "r", "namespace": "other"},
                 "spec": {"url": "oci://h.example/charts/gpu-operator", "ref": {"digest": DIGEST}}},
            ],
            {"gpuOperator": {f"{DIGEST} (unresolved)"}},
        ),
        ([{"kind": "HelmRelease", "spec": None}, {"helm": "x"}, {"a": 1}, {}, {"driver": []}], {}),
        (
            [{"kind": "HelmChart", "spec": {"chart": "gpu-operator", "version": "v26.3.3", "valuesContent": TEXT,
                                            "set": {"toolkit.version": "v1.19.0"}}}],
            {"gpuOperator": {"v26.3.3"}, "driver": {"580.126.20"}, "toolkit": {"v1.19.1", "v1.19.0"}},
        ),
        (
            [{"kind": "HelmChartConfig", "spec": {"valuesContent": TEXT}}],
            {"driver": {"580.126.20"}, "toolkit": {"v1.19.1"}},
        ),
        (
            [{"kind": "HelmChartProxy", "spec": {"chartName": "gpu-operator", "version": "v26.3.3",
                                                 "valuesTemplate": "driver: {version: '{{ .Cluster.v }}'}"}}],
            {"gpuOperator": {"v26.3.3"}, "driver": {"{{ .Cluster.v }} (unresolved)"}},
        ),
        (
            [{"kind": "Application", "spec": {"source": {
                "chart": "gpu-operator", "targetRevision": "v26.3.3",
                "helm": {"values": TEXT, "parameters": [{"name": "driver.version", "value": "580.1"}]}}}}],
            {"gpuOperator": {"v26.3.3"}, "driver": {"580.126.20", "580.1"}, "toolkit": {"v1.19.1"}},
        ),
        (
            [{"kind": "ApplicationSet", "spec": {"template": {"spec": {"sources": [
                {"chart": "hami", "targetRevision": "2.9.0", "helm": {"valuesObject": HAMI_VALUES}}]}}}}],
            {"hami": {"2.9.0"}, "hamiScheduler": {"v1.35.3"}},
        ),
        (
            [{"kind": "Bundle", "spec": {"helm": {"chart": "gpu-operator", "version": "v26.3.3"},
                                         "targets": [{"helm": {"values": {"driver": {"version": "580.1"}}}}]}}],
            {"gpuOperator": {"v26.3.3"}, "driver": {"580.1"}},
        ),
        (
            [{"kind": "ConfigMap", "data": {"values.yaml": TEXT, "other": "driver: {version: x}"}}],
            {"driver": {"580.126.20"}, "toolkit": {"v1.19.1"}},
        ),
        (
            [{"kind": "HelmRelease", "metadata": {"name": "x", "namespace": "n"},
              "spec": {"valuesFrom": [{"kind": "ConfigMap", "name": "c", "valuesKey": "gpu"}]}},
             {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"gpu": TEXT}}],
            {"driver": {"580.126.20"}, "toolkit": {"v1.19.1"}},
        ),
        ([{"gpu-operator": {"driver": {"version": "580.1"}}}], {"driver": {"580.1"}}),
        ([{"kind": "HelmChart", "spec": {"valuesContent": "driver: [", "set": 1}}, {"kind": "Bundle", "spec": 1}], {}),
    ],
)  # fmt: skip
def test_what_git_declares_is_read_from_each_kind_of_source(documents: Any, expected: dict[str, set[str]]) -> None:
    assert fields(declared(documents)) == expected


def test_of_many_releases_each_finds_its_own_chart_and_values() -> None:
    many = 3000
    place = [{"namespace": "n", "name": f"x{number}"} for number in range(many)]
    spec = {"chartRef": {"kind": "OCIRepository"}, "valuesFrom": [{"kind": "ConfigMap", "valuesKey": "v"}]}
    releases = [copy.deepcopy({"kind": "HelmRelease", "metadata": one, "spec": spec}) for one in place]
    for one in releases:
        one["spec"]["chartRef"]["name"] = one["spec"]["valuesFrom"][0]["name"] = one["metadata"]["name"]
    charts = [
        {"kind": "OCIRepository", "metadata": one, "spec": {"url": "oci://h.example/hami", "ref": {"tag": one["name"]}}}
        for one in place
    ]
    values = [
        {"kind": "ConfigMap", "metadata": one, "data": {"v": f"driver: {{version: {one['name']}}}"}} for one in place
    ]
    other = [{**one, "metadata": {**one["metadata"], "namespace": "other"}} for one in (*charts, *values)]
    names = {one["name"] for one in place}
    assert fields(declared([*other, *releases, *charts, *values])) == {"hami": names, "driver": names}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([{"kind": "NVIDIADriver", "spec": {"version": "580.126.20", "kernelModuleType": "open"}}],
         {"driver": {"580.126.20"}, "kernelModuleType": {"open"}}),
        ([{"kind": "ClusterPolicy", "spec": {"driver": {"useNvidiaDriverCRD": True, "version": "1.2.3"}}}], {}),
        ([workload("Deployment", "kube-system", containers(kube="registry.k8s.io/kube-scheduler:v1.2.3"))], {}),
        ([workload("DaemonSet", "d", containers(x="nvcr.io/nvidia/driver:580-5.15.0-1-generic-ubuntu22.04"))], {}),
        ([workload("DaemonSet", "d", containers(x="nvcr.io/nvidia/driver:not a tag"))], {}),
        ([{"kind": "DaemonSet", "metadata": {"labels": {"helm.sh/chart": "hami-2.9.0_1"}}}], {"hami": {"2.9.0+1"}}),
        ([{"kind": "DaemonSet", "metadata": {"labels": {"helm.sh/chart": "hami-webui-1.0.0"}}}], {}),
        ([{"kind": "Deployment", "spec": {"template": None}}, {"kind": "DaemonSet"}], {}),
    ],
)  # fmt: skip
def test_what_is_rendered_is_read_from_operands(objects: Any, expected: dict[str, set[str]]) -> None:
    assert fields(rendered(objects)) == expected


@pytest.mark.parametrize(
    ("name", "chart"),
    [
        ("gpu-operator", "gpu-operator"),
        ("oci://h.example/a/gpu-operator:v26.3.3", "gpu-operator"),
        ("https://h.example/charts/gpu-operator-v26.3.3.tgz", "gpu-operator"),
        ("nvidia/gpu-operator/", "gpu-operator"),
        (None, ""),
    ],
)
def test_a_chart_is_told_by_its_name(name: Any, chart: str) -> None:
    assert chart_of(name) == chart


def test_odd_live_objects_do_not_crash() -> None:
    odd = [{}, {"kind": "Pod"}, {"kind": "Pod", "spec": {"containers": [1, {"image": None}]}, "status": []},
           {"kind": "Node", "status": None}, {"kind": "HelmRelease", "status": {"history": {}}},
           {"kind": "ControllerRevision", "metadata": {"ownerReferences": [None]}, "revision": "1"}]  # fmt: skip
    assert live(odd) == []


def test_every_code_is_documented() -> None:
    section = (ROOT / "docs/codes.md").read_text().split("## Tuple\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"(?m)^\| `([a-z-]+)` \|", section))
    source = Path(tuples.__file__).read_text() + (ROOT / "gpurunbook/supply/places.py").read_text()
    used = set(re.findall(r'(?:_fail\(|Status\.[A-Z]+,|else)\s*"([a-z-]+)"', source))
    used |= {"tuple", "tuple-in-place", "ondelete-pending", "rolling", "stale-pod", "live-unknown", "live-differs"}
    used |= {f"{place}-{word}" for place in ("declared", "rendered") for word in ("differs", "missing", "unresolved")}
    assert documented == used
