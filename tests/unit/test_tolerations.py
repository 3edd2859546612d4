"""Which DaemonSets would not come back under our taint: matching, who chooses the node, and the Helm value.

Covered: toleration semantics value by value, node selection with paused operand labels, every chart of the stack, the
value that keeps present tolerations, findings and unreadable needs.
Not covered: the DaemonSet controller itself (tests/cluster).
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from holder_samples import FakeCluster
from hypothesis import given
from hypothesis import strategies as st

from gpurunbook.findings import Status, Verdict, worst
from gpurunbook.nodes.cordon import taint, toleration
from gpurunbook.nodes.selectors import daemon_runs_on, label_selector, node_selector
from gpurunbook.nodes.tolerations import daemonsets_return, intended, missing, tolerates
from gpurunbook.plan import Judgement, Problem

OUR = taint()
VALUED = {"key": "k", "value": "v", "effect": "NoSchedule"}


def daemonset(name: str, namespace: str = "gpu-operator", **more: Any) -> dict[str, Any]:
    """A DaemonSet; `labels` and `owner` go to its metadata, everything else to its pod spec."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": more.pop("labels", {})}
    if owner := more.pop("owner", None):
        metadata["ownerReferences"] = [{"controller": True, **owner}]
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [{"name": "c"}], **more}}}}


# -- matching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "wanted", "expected"),
    [
        ({"operator": "Exists"}, OUR, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, OUR, True),
        ({"operator": "Exists", "effect": "NoExecute"}, OUR, False),
        ({"operator": "Exists", "key": OUR["key"]}, OUR, True),
        ({"operator": "Exists", "key": OUR["key"], "effect": "NoSchedule"}, OUR, True),
        ({"operator": "Exists", "key": "nvidia.com/gpu"}, OUR, False),
        ({"operator": "Exists", "key": ""}, OUR, True),
        ({"key": OUR["key"]}, OUR, True),
        ({"key": OUR["key"], "operator": ""}, OUR, True),
        ({"key": OUR["key"], "operator": "Equal", "value": ""}, OUR, True),
        ({"key": OUR["key"], "operator": "Equal", "value": "x"}, OUR, False),
        ({"key": OUR["key"], "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}, OUR, True),
        ({"key": OUR["key"], "operator": "Gt", "value": "1"}, OUR, False),
        ({"key": OUR["key"], "operator": "Lt", "value": "1"}, OUR, False),
        ({"key": OUR["key"], "operator": "exists"}, OUR, False),
        ({"key": "k", "value": "v"}, VALUED, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, VALUED, True),
        ({"key": "k", "value": "w"}, VALUED, False),
        ({"key": "k"}, VALUED, False),
        ({"key": "K", "value": "v"}, VALUED, False),
        ({}, VALUED, False),
    ],
)
def test_toleration(one: dict[str, Any], wanted: dict[str, Any], expected: bool) -> None:
    assert tolerates([one], wanted) is expected
    assert tolerates([{"operator": "Exists", "effect": "PreferNoSchedule"}, one], wanted) is expected


@pytest.mark.parametrize("none", [None, []])
def test_without_tolerations_nothing_is_tolerated(none: Any) -> None:
    assert not tolerates(none, OUR)


def test_the_toleration_we_ask_for_matches_our_taint() -> None:
    assert tolerates([toleration()], OUR)


WORDS = st.sampled_from(["", "a", "b"])


@given(key=WORDS, effect=WORDS, value=WORDS, taint_key=WORDS, taint_effect=WORDS, taint_value=WORDS)
def test_exists_ignores_the_value_and_equal_does_not(
    key: str, effect: str, value: str, taint_key: str, taint_effect: str, taint_value: str
) -> None:
    wanted = {"key": taint_key, "effect": taint_effect, "value": taint_value}
    reaches = key in ("", taint_key) and effect in ("", taint_effect)
    one = {"key": key, "effect": effect, "value": value}
    assert tolerates([{**one, "operator": "Exists"}], wanted) is reaches
    assert tolerates([{**one, "operator": "Equal"}], wanted) is (reaches and value == taint_value)


# -- who chooses the node --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "labels", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, {"a": "1"}, True),
        ({"key": "a", "operator": "In", "values": ["1"]}, {"a": "2"}, False),
        ({"key": "a", "operator": "In", "values": ["1"]}, {}, False),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {"a": "2"}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {"a": "1"}, False),
        ({"key": "a", "operator": "Exists"}, {"a": ""}, True),
        ({"key": "a", "operator": "Exists"}, {}, False),
        ({"key": "a", "operator": "DoesNotExist"}, {}, True),
        ({"key": "a", "operator": "DoesNotExist"}, {"a": ""}, False),
        ({"key": "a", "operator": "Gt", "values": ["5"]}, {"a": "6"}, True),
        ({"key": "a", "operator": "Gt", "values": ["5"]}, {"a": "5"}, False),
        ({"key": "a", "operator": "Lt", "values": ["5"]}, {"a": "4"}, True),
        ({"key": "a", "operator": "Lt", "values": ["x"]}, {"a": "4"}, False),
        ({"key": "a", "operator": "Gt", "values": ["5"]}, {}, False),
        ({"key": "a", "operator": "Near", "values": ["5"]}, {"a": "5"}, False),
    ],
)
def test_expressions(expression: dict[str, Any], labels: dict[str, str], expected: bool) -> None:
    assert node_selector({"nodeSelectorTerms": [{"matchExpressions": [expression]}]}, "n1", labels) is expected
    assert label_selector({"matchExpressions": [expression]}, labels) is expected


def test_terms_are_alternatives_and_expressions_of_a_term_are_not() -> None:
    yes = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    no = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    zone = {"key": "zone", "operator": "Exists"}
    assert node_selector({"nodeSelectorTerms": [{"matchFields": [no]}, {"matchFields": [yes]}]}, "n1", {}) is True
    assert node_selector({"nodeSelectorTerms": [{"matchFields": [yes, no]}]}, "n1", {}) is False
    assert node_selector({"nodeSelectorTerms": [{"matchFields": [yes], "matchExpressions": [zone]}]}, "n1", {}) is False
    assert node_selector({"nodeSelectorTerms": [{}]}, "n1", {}) is False
    assert node_selector({"nodeSelectorTerms": []}, "n1", {}) is False
    assert node_selector({"nodeSelectorTerms": [{"matchExpressions": [zone]}]}, "n1", None) is None
    assert node_selector({"nodeSelectorTerms": [{"matchFields": [yes]}]}, "n1", None) is True
    assert (
        node_selector({"nodeSelectorTerms": [{"matchFields": [no], "matchExpressions": [zone]}]}, "n1", None) is False
    )


def test_no_label_selector_chooses_nothing_and_an_empty_one_all() -> None:
    assert not label_selector(None, {"a": "b"})
    assert label_selector({}, {})
    assert label_selector({"matchLabels": {"a": "b"}}, {"a": "b"})
    assert not label_selector({"matchLabels": {"a": "b"}}, {})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"nodeSelector": {"gpu": "on"}}, True),
        ({"nodeSelector": {"gpu": "off"}}, False),
        ({"nodeSelector": {"absent": ""}}, False),
        ({"nodeName": "n1"}, True),
        ({"nodeName": "n2"}, False),
        ({"affinity": {"nodeAffinity": {}}}, True),
    ],
)
def test_daemon_runs_on(spec: dict[str, Any], expected: bool) -> None:
    assert daemon_runs_on(spec, "n1", {"gpu": "on"}) is expected


@pytest.mark.parametrize(("operator", "expected"), [("In", True), ("NotIn", False)])
def test_required_affinity_chooses_nodes(operator: str, expected: bool) -> None:
    terms = [{"matchExpressions": [{"key": "gpu", "operator": operator, "values": ["on"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert daemon_runs_on({"affinity": {"nodeAffinity": required}}, "n1", {"gpu": "on"}) is expected


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("true", "true"),
        ("false", "false"),
        ("", ""),
        ("paused-for-cc-mode-change", "true"),
        ("paused-for-driver-upgrade", "true"),
        ("custom_paused-for-cc-mode-change", "custom"),
    ],
)
def test_paused_operands_count_as_running(value: str, meant: str) -> None:
    key = "nvidia.com/gpu.deploy.vfio-manager"
    assert intended({key: value, "other": "paused-for-x"}) == {key: meant, "other": "paused-for-x"}
    there = daemonset("nvidia-vfio-manager", nodeSelector={key: "true"})
    assert bool(missing([there], "n1", {key: value})) is (meant == "true")


# -- the Helm value --------------------------------------------------------------------------------------------------

POLICY = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy"}
DRIVER = {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "name": "h100"}
CNI = [{"name": "x", "hostPath": {"path": "/etc/cni/net.d"}}]
FIXES = [
    (daemonset("nvidia-dcgm-exporter"), "daemonsets.tolerations of chart gpu-operator"),
    (
        daemonset("nvidia-driver-daemonset-5.15-u22", "gpus", owner=POLICY),
        "daemonsets.tolerations of chart gpu-operator",
    ),
    (daemonset("nvidia-gpu-driver-u22-x", owner=DRIVER), "spec.tolerations of NVIDIADriver h100"),
    (
        daemonset("gpu-operator-node-feature-discovery-worker"),
        "node-feature-discovery.worker.tolerations of chart gpu-operator",
    ),
    (
        daemonset("x-node-feature-discovery-worker", labels={"helm.sh/chart": "node-feature-discovery-0.18.3"}),
        "node-feature-discovery.worker.tolerations of chart gpu-operator",
    ),
    (daemonset("node-feature-discovery-worker", "nfd"), "worker.tolerations of chart node-feature-discovery"),
    (
        daemonset("nfd-worker", "nfd", labels={"helm.sh/chart": "node-feature-discovery-chart-0.18.3"}),
        "worker.tolerations of chart node-feature-discovery",
    ),
    (
        daemonset("node-feature-discovery-topology-updater", "nfd"),
        "topologyUpdater.tolerations of chart node-feature-discovery",
    ),
    (
        daemonset("kata-deploy-node-feature-discovery-worker", "kube-system"),
        "node-feature-discovery.worker.tolerations of chart kata-deploy",
    ),
    (daemonset("hami-device-plugin", "hami-system"), "devicePlugin.tolerations of chart hami"),
    (
        daemonset("vgpu", "ml", labels={"app.kubernetes.io/component": "hami-device-plugin"}),
        "devicePlugin.tolerations of chart hami",
    ),
    (daemonset("vgpu", "ml", labels={"helm.sh/chart": "hami-2.9.0"}), "devicePlugin.tolerations of chart hami"),
    (daemonset("kata-deploy", "kube-system"), "tolerations of chart kata-deploy"),
    (daemonset("kata-deploy-blue", "kata-system"), "tolerations of chart kata-deploy"),
    (
        daemonset("nvidia-dra-driver-gpu-kubelet-plugin", "nvidia-dra-driver-gpu"),
        "kubeletPlugin.tolerations of chart nvidia-dra-driver-gpu",
    ),
    (
        daemonset("hami-dra-driver-kubelet-plugin", "hami-system"),
        "spec.template.spec.tolerations of DaemonSet hami-system/hami-dra-driver-kubelet-plugin",
    ),
    (
        daemonset("rke2-canal", "kube-system", volumes=CNI),
        "spec.template.spec.tolerations of DaemonSet kube-system/rke2-canal",
    ),
    (
        daemonset("csi-node", "storage", containers=[{"name": "node-driver-registrar"}]),
        "spec.template.spec.tolerations of DaemonSet storage/csi-node",
    ),
    (
        daemonset("kube-proxy", "kube-system", priorityClassName="system-node-critical"),
        "spec.template.spec.tolerations of DaemonSet kube-system/kube-proxy",
    ),
    (daemonset("fluent-bit", "logging"), None),
    (daemonset("nvidia-dcgm-exporter", "tenant"), None),
]


@pytest.mark.parametrize(
    ("there", "expected"), FIXES, ids=lambda v: v["metadata"]["name"] if isinstance(v, dict) else ""
)
def test_each_chart_has_its_value(there: dict[str, Any], expected: str | None) -> None:
    (found,) = missing([there], "n1", {})
    assert (found.fix.spelled if found.fix else None) == expected


def test_the_value_keeps_what_is_there_of_all_daemonsets_of_the_chart() -> None:
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ours, pool = toleration(), {"key": "pool", "value": "a"}
    there = [
        daemonset("nvidia-dcgm-exporter", tolerations=[gpu]),
        daemonset("nvidia-cc-manager", tolerations=[gpu, pool]),
        daemonset("nvidia-mig-manager", tolerations=[gpu, ours]),
    ]
    found = missing(there, "n1", {})
    assert [m.name for m in found] == ["gpu-operator/nvidia-cc-manager", "gpu-operator/nvidia-dcgm-exporter"]
    for one in found:
        assert one.tolerations.count(ours) == 1
        assert all(t in one.tolerations for t in (gpu, pool))


def test_what_tolerates_everything_is_not_missing() -> None:
    assert missing([daemonset("x", tolerations=[{"operator": "Exists"}])], "n1", {}) == []
    assert missing([daemonset("x", tolerations=[toleration()])], "n1", {}) == []


# -- the check -------------------------------------------------------------------------------------------------------


def judge(*daemonsets: dict[str, Any], **problems: Problem) -> Judgement:
    """What the check says of these DaemonSets on node n1."""
    content: dict[str, Any] = {
        "/api/v1/nodes/n1": problems.get("node", {"metadata": {"name": "n1", "labels": {}}}),
        "/apis/apps/v1/daemonsets": problems.get("daemonsets", list(daemonsets)),
    }
    check, fake = daemonsets_return("n1"), FakeCluster(content)
    assert check.against is Verdict.BLOCKED
    return check.judge({name: fake.observe(need) for name, need in check.needs.items()})


def test_one_that_must_run_blocks_with_the_exact_value() -> None:
    judgement = judge(daemonset("nvidia-dcgm-exporter"), daemonset("fluent-bit", "logging"))
    (failed,) = (f for f in judgement.findings if f.status is Status.FAIL)
    assert (failed.subject, failed.code) == ("gpu-operator/DaemonSet/nvidia-dcgm-exporter", "taint-not-tolerated")
    assert (
        f"daemonsets.tolerations of chart gpu-operator to {json.dumps([toleration()], sort_keys=True)}" in failed.remedy
    )
    assert judgement.facts["fixes"] == {"daemonsets.tolerations of chart gpu-operator": [toleration()]}
    assert judgement.facts["others"] == ["logging/fluent-bit"]


def test_others_only_warn() -> None:
    findings = judge(daemonset("fluent-bit", "logging")).findings
    assert worst(findings) is Status.WARN
    assert {f.code for f in findings} == {"taint-tolerated", "taint-not-tolerated-other"}


def test_all_tolerating_passes() -> None:
    assert worst(judge(daemonset("nvidia-dcgm-exporter", tolerations=[toleration()])).findings) is Status.PASS


@pytest.mark.parametrize(
    ("need", "code"), list(itertools.product(["node", "daemonsets"], ["forbidden", "not-found", "garbled"]))
)
def test_what_cannot_be_read_is_unknown(need: str, code: str) -> None:
    findings = judge(**{need: Problem(code, "no")}).findings
    assert worst(findings) is Status.UNKNOWN
    assert [f.code for f in findings] == ["tolerations-unreadable"]
