"""The check `no_holders` on what a cluster shows: needs, API groups, owners by uid, KubeVirt, and what is unreadable.

Covered: which needs are followed, each need unreadable in turn, operands by the uid of their DaemonSet, machine
instances, permitted host devices, runtime classes by handler, findings, verdict words, facts, the table.
Not covered: paging and HTTP (sources), and the signals inside a pod (test_holders_cases.py).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from holder_samples import FakeCluster, cluster, pod

from gpurunbook.errors import ParameterError
from gpurunbook.findings import Status, Verdict, worst
from gpurunbook.nodes import holders, no_holders, other_hands
from gpurunbook.nodes.discovery import Served
from gpurunbook.nodes.tolerations import daemonsets_return
from gpurunbook.plan import Check, Judgement, Object, Observed, Problem, Table

GPU = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
ALL = ("resource.k8s.io/v1", "kubevirt.io/v1")


def judge(content: dict[str, Any], check: Check | None = None) -> Judgement:
    """What the check concludes of a cluster of this content."""
    check = check or no_holders("n1")
    fake = FakeCluster(content)
    seen = {name: fake.observe(need) for name, need in check.needs.items()}
    assert check.follow is not None
    seen |= {name: fake.observe(need) for name, need in check.follow(seen).items()}
    return check.judge(seen)


def verdict(content: dict[str, Any]) -> str:
    """The verdict word of the facts."""
    return str(judge(content).facts["verdict"])


def daemonset(name: str, uid: str = "u", namespace: str = "gpu-operator", owner: str = "policy") -> dict[str, Any]:
    """A DaemonSet, controlled by the ClusterPolicy of that uid."""
    owners = [{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "p", "uid": owner, "controller": True}]
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid, "ownerReferences": owners}}


def vmi(name: str = "vm", **status: Any) -> dict[str, Any]:
    """A running machine instance with one GPU."""
    devices = {"gpus": [{"name": "g", "deviceName": "nvidia.com/GH100_H100_PCIE"}]}
    return {
        "metadata": {"name": name, "namespace": "t"},
        "spec": {"domain": {"devices": status.pop("devices", devices)}},
        "status": {"phase": "Running", **status},
    }


# -- the check -------------------------------------------------------------------------------------------------------


def test_a_holder_blocks_the_run() -> None:
    assert no_holders("n1").against is Verdict.BLOCKED
    found = judge(cluster(*ALL, pods=[{"name": "a", **GPU}])).findings
    assert worst(found) is Status.FAIL
    assert [(f.subject, f.code) for f in found] == [("t/Pod/a", "gpu-held")]


def test_nobody_is_one_pass() -> None:
    judgement = judge(cluster(*ALL))
    assert [(f.status, f.code, f.subject) for f in judgement.findings] == [(Status.PASS, "no-holders", "Node/n1")]
    assert judgement.facts["verdict"] == "none"


def test_lists_are_scoped_to_the_node_and_to_pods_that_are_not_bound() -> None:
    fake = FakeCluster(cluster(*ALL))
    for need in no_holders("n1").needs.values():
        fake.observe(need)
    pods = [path for path in fake.asked if path.startswith("/api/v1/pods")]
    assert sorted(pods) == ["/api/v1/pods?spec.nodeName=", "/api/v1/pods?spec.nodeName=n1"]


def test_a_pod_that_is_bound_between_two_requests_is_found_whenever_that_is() -> None:
    needs = no_holders("n1").needs
    before = cluster(unbound=[{"name": "a", "phase": "Pending", **GPU}])
    after = cluster(pods=[{"name": "a", "phase": "Pending", **GPU}])
    last = max(i for i, name in enumerate(needs) if name in ("pods", "unbound"))
    for moment in range(last + 1):
        fake, seen = FakeCluster(before), {}
        for i, (name, need) in enumerate(needs.items()):
            fake.content = before if i < moment else after
            seen[name] = fake.observe(need)
        assert holders.report("n1", seen).verdict == "held", f"bound just before request {moment}"


def test_facts_are_json_and_small() -> None:
    facts = judge(cluster(*ALL, pods=[{"name": "a", **GPU}])).facts
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["holders"][0]["reasons"] == ["resource"]


def test_the_table_shows_the_first_rows_and_counts_all() -> None:
    pods = [{"name": f"p{i:03}", **GPU} for i in range(holders.ROWS + 5)]
    judgement = judge(cluster(pods=pods))
    (table,) = judgement.views
    assert isinstance(table, Table)
    assert (len(table.rows), table.total) == (holders.ROWS, holders.ROWS + 5)
    assert len(judgement.findings) == holders.ROWS + 5
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_hami_choice_is_found_among_unbound_pods() -> None:
    content = cluster(unbound=[{"name": "a", "phase": "Pending", "annotations": {"hami.io/vgpu-node": "n1"}}])
    assert judge(content).facts["holders"][0]["reasons"] == ["hami-assigned"]


@pytest.mark.parametrize(
    "name", ["", " ", "n1/..", "N1", "n1?limit=1", "n1\n", "n1,status.phase=Running", "-n", "n" * 254]
)
@pytest.mark.parametrize("make", [no_holders, daemonsets_return, other_hands])
def test_what_cannot_be_a_node_name_is_refused_before_anything_is_read(name: str, make: Any) -> None:
    with pytest.raises(ParameterError):
        make(name)


# -- what is served, and what cannot be read -------------------------------------------------------------------------


def test_groups_that_are_not_served_are_absent() -> None:
    fake = FakeCluster(cluster())
    check = no_holders("n1")
    seen = {name: fake.observe(need) for name, need in check.needs.items()}
    assert check.follow is not None
    assert check.follow(seen) == {}
    assert check.judge(seen).facts["verdict"] == "none"


@pytest.mark.parametrize(
    ("served", "asked"),
    [
        (["v1"], "v1"),
        (["v1beta1", "v1"], "v1"),
        (["v1beta2", "v1beta1"], "v1beta2"),
        (["v1alpha3", "v1beta1"], "v1beta1"),
        (["v2"], "v2"),
    ],
)
def test_the_best_served_version_of_claims_is_read(served: list[str], asked: str) -> None:
    fake = FakeCluster(cluster(*(f"resource.k8s.io/{v}" for v in served)))
    check = no_holders("n1")
    assert check.follow is not None
    followed = check.follow({name: fake.observe(need) for name, need in check.needs.items()})
    assert getattr(followed["claims"], "path") == f"/apis/resource.k8s.io/{asked}/resourceclaims"  # noqa: B009


PATHS = sorted(cluster(*ALL))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("code", ["forbidden", "not-found", "unreachable", "garbled"])
def test_any_need_that_cannot_be_read_is_unknown(path: str, code: str) -> None:
    content = cluster(*ALL)
    content[path] = Problem(code, f"no {path}")
    judgement = judge(content)
    assert judgement.facts["verdict"] == "unknown"
    assert worst(judgement.findings) is Status.UNKNOWN
    assert not any(f.status is Status.PASS for f in judgement.findings)
    assert any(f.code == "holders-unreadable" and code in f.message for f in judgement.findings)


@pytest.mark.parametrize("path", PATHS)
def test_a_sure_holder_decides_whatever_else_cannot_be_read(path: str) -> None:
    content = cluster(*ALL, pods=[{"name": "a", **GPU}], unbound=[])
    if path == "/api/v1/pods?spec.nodeName=n1":
        content["/api/v1/pods?spec.nodeName="] = [
            pod({"name": "a", "nodeName": None, "annotations": {"hami.io/vgpu-node": "n1"}})
        ]
    content[path] = Problem("forbidden", f"no {path}")
    judgement = judge(content)
    assert judgement.facts["verdict"] == "held"
    assert worst(judgement.findings) is Status.FAIL
    assert judgement.facts["problems"]


@pytest.mark.parametrize("answer", [{}, {"groups": None}, {"groups": "x"}, {"groups": [1]}, [], None])
def test_a_list_of_groups_that_is_none_tells_nothing(answer: Any) -> None:
    content = cluster(*ALL)
    content["/apis"] = answer
    assert verdict(content) == "unknown"
    assert not Served(Observed(Object("/apis"), answer)).has("apps")


def test_an_unread_claim_is_unknown_and_named() -> None:
    content = cluster(*ALL, pods=[{"name": "a", "resourceClaims": [{"name": "g", "resourceClaimName": "gone"}]}])
    judgement = judge(content)
    assert judgement.facts["verdict"] == "unknown"
    assert judgement.facts["blocking"] == ["t/a"]
    assert [(f.code, f.status) for f in judgement.findings] == [("gpu-holder-unread", Status.UNKNOWN)]


def test_a_claim_on_a_cluster_that_serves_none_is_unknown() -> None:
    content = cluster(pods=[{"name": "a", "resourceClaims": [{"name": "g", "resourceClaimName": "c"}]}])
    assert verdict(content) == "unknown"


def test_node_labels_place_a_claim() -> None:
    claims = [
        {"name": "c", "results": [{"driver": "x"}], "labels": {"key": "zone", "operator": "In", "values": ["a"]}},
    ]
    assert verdict(cluster(*ALL, claims=claims)) == "held"
    assert verdict(cluster(*ALL, claims=claims, labels={"zone": "b"})) == "none"
    assert verdict(cluster(*ALL, claims=claims, labels={})) == "none"


# -- operands --------------------------------------------------------------------------------------------------------

EXPORTER = {
    "name": "nvidia-dcgm-exporter-x",
    "namespace": "gpu-operator",
    "volumes": [{"hostPath": {"path": "/dev/nvidia0"}}],
}


def test_an_operand_is_told_by_the_uid_of_its_daemonset() -> None:
    mine = {**EXPORTER, "owner": {"kind": "DaemonSet", "name": "nvidia-dcgm-exporter", "uid": "u1"}}
    facts = judge(cluster(pods=[mine], daemonsets=[daemonset("nvidia-dcgm-exporter", "u1")])).facts
    assert (facts["verdict"], facts["operands"]) == ("none", ["gpu-operator/nvidia-dcgm-exporter-x"])


def test_an_operand_that_is_not_bound_is_none_of_this_node() -> None:
    mine = {**EXPORTER, "owner": {"kind": "DaemonSet", "name": "nvidia-dcgm-exporter", "uid": "u1"}}
    facts = judge(cluster(unbound=[mine], daemonsets=[daemonset("nvidia-dcgm-exporter", "u1")])).facts
    assert (facts["verdict"], facts["operands"]) == ("none", [])


@pytest.mark.parametrize(
    ("owner", "there"),
    [
        ({"uid": "forged"}, [daemonset("nvidia-dcgm-exporter", "u1")]),
        ({"uid": ""}, [daemonset("nvidia-dcgm-exporter", "")]),
        ({"uid": "u1"}, []),
        ({"uid": "u1"}, [daemonset("nvidia-dcgm-exporter", "u1", namespace="elsewhere")]),
        ({"uid": "u1", "name": "mine"}, [daemonset("mine", "u1")]),
        ({"uid": "u1", "controller": None}, [daemonset("nvidia-dcgm-exporter", "u1")]),
        ({"uid": "u1", "kind": "Job"}, [daemonset("nvidia-dcgm-exporter", "u1")]),
    ],
)
def test_a_pod_that_only_calls_itself_an_operand_holds(owner: dict[str, Any], there: list[Any]) -> None:
    forged = {**EXPORTER, "owner": {"kind": "DaemonSet", "name": "nvidia-dcgm-exporter", **owner}}
    facts = judge(cluster(pods=[forged], daemonsets=there)).facts
    assert (facts["verdict"], facts["blocking"]) == ("held", ["gpu-operator/nvidia-dcgm-exporter-x"])


def test_the_operator_may_run_in_another_namespace() -> None:
    mine = {**EXPORTER, "namespace": "gpus", "owner": {"kind": "DaemonSet", "name": "nvidia-dcgm-exporter"}}
    content = cluster(pods=[mine], daemonsets=[daemonset("nvidia-dcgm-exporter", namespace="gpus")])
    assert judge(content).facts["verdict"] == "held"
    assert judge(content, no_holders("n1", ("gpus",))).facts["verdict"] == "none"


@pytest.mark.parametrize(("uid", "kind"), [("policy", "operator_owned"), ("another", "blocking")])
def test_validator_pods_belong_to_what_controls_the_operands(uid: str, kind: str) -> None:
    validator = {
        "name": "nvidia-cuda-validator-x",
        "namespace": "gpu-operator",
        "owner": {"kind": "ClusterPolicy", "name": "p", "uid": uid},
        **GPU,
    }
    judgement = judge(cluster(pods=[validator], daemonsets=[daemonset("nvidia-operator-validator")]))
    assert judgement.facts["verdict"] == "held"
    assert judgement.facts[kind] == ["gpu-operator/nvidia-cuda-validator-x"]
    assert judgement.findings[0].code == ("gpu-held-by-operator" if kind == "operator_owned" else "gpu-held")


# -- KubeVirt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"nodeName": "n1"}, "kubevirt-vmi"),
        ({"nodeName": "n2", "activePods": {"uid": "n1", "other": "n2"}}, "kubevirt-vmi"),
        ({"nodeName": "n2", "migrationState": {"targetNode": "n1"}}, "kubevirt-migration-target"),
        ({"nodeName": "n1", "devices": {"gpus": [{"deviceName": "anything/at-all"}]}}, "kubevirt-vmi"),
        ({"nodeName": "n1", "devices": {"gpus": [{"claimName": "c", "requestName": "r"}]}}, "kubevirt-vmi"),
        ({"nodeName": "n1", "devices": {"hostDevices": [{"deviceName": "nvidia.com/x"}]}}, "kubevirt-vmi"),
    ],
)
def test_a_machine_with_a_gpu_holds(status: dict[str, Any], reason: str) -> None:
    judgement = judge(cluster(*ALL, vmis=[vmi(**status)]))
    assert judgement.facts["holders"] == [
        {
            "kind": "vmi",
            "owner": "",
            "pod": "t/vm",
            "reasons": [reason],
            "seen": judgement.facts["holders"][0]["seen"],
        }
    ]
    assert judgement.findings[0].subject == "t/VirtualMachineInstance/vm"


@pytest.mark.parametrize(
    "status",
    [
        {"nodeName": "n2"},
        {"nodeName": "n1", "phase": "Succeeded"},
        {"nodeName": "n1", "phase": "Failed"},
        {"phase": "Scheduling"},
        {"nodeName": "n2", "migrationState": {"targetNode": "n1", "completed": True}},
        {"nodeName": "n2", "migrationState": {"targetNode": "n1", "failed": True}},
        {"nodeName": "n1", "devices": {}},
        {"nodeName": "n1", "devices": {"hostDevices": [{"deviceName": "mellanox.com/cx6"}]}},
    ],
)
def test_a_machine_that_is_elsewhere_or_has_no_gpu_does_not(status: dict[str, Any]) -> None:
    assert verdict(cluster(*ALL, vmis=[vmi(**status)])) == "none"


def test_a_machine_is_reported_with_its_launcher_pod() -> None:
    launcher = {"name": "virt-launcher-vm-x", "owner": {"kind": "VirtualMachineInstance", "name": "vm"}}
    facts = judge(cluster(*ALL, pods=[launcher], vmis=[vmi(nodeName="n1")])).facts
    assert [(h["pod"], h["reasons"]) for h in facts["holders"]] == [("t/virt-launcher-vm-x", ["kubevirt-vmi"])]


def permits(name: str, selector: str, kind: str = "pciHostDevices") -> dict[str, Any]:
    """A KubeVirt object that permits one host device."""
    devices = {kind: [{"resourceName": name, "pciVendorSelector": selector}]}
    return {"metadata": {"name": "kubevirt"}, "spec": {"configuration": {"permittedHostDevices": devices}}}


@pytest.mark.parametrize(
    ("kubevirt", "expected"),
    [
        (permits("example.com/alias", "10DE:2331"), "held"),
        (permits("example.com/alias", ""), "held"),
        (permits("example.com/alias", "", "mediatedDevices"), "held"),
        (permits("example.com/alias", "15B3:1021"), "none"),
        (permits("Example.com/alias", "10DE:2331"), "none"),
        ({"metadata": {"name": "k"}, "spec": {}}, "none"),
    ],
)
def test_aliases_come_from_the_permitted_host_devices(kubevirt: dict[str, Any], expected: str) -> None:
    aliased = {"name": "a", "containers": [{"name": "c", "resources": {"limits": {"example.com/alias": "1"}}}]}
    assert verdict(cluster(*ALL, pods=[aliased], kubevirts=[kubevirt])) == expected


def test_a_permitted_host_device_counts_in_a_machine() -> None:
    machine = vmi(nodeName="n1", devices={"hostDevices": [{"deviceName": "example.com/alias"}]})
    assert verdict(cluster(*ALL, vmis=[machine], kubevirts=[permits("example.com/alias", "10DE:2331")])) == "held"
    assert verdict(cluster(*ALL, vmis=[machine])) == "none"


# -- runtime classes -------------------------------------------------------------------------------------------------


def test_a_runtime_class_is_a_gpu_one_by_its_handler() -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    sample = {"name": "a", "runtimeClassName": "fast", "containers": [{"name": "c", "env": env}]}
    classes = [{"metadata": {"name": "fast"}, "handler": "nvidia-legacy"}]
    assert verdict(cluster(pods=[sample], runtimeclasses=classes)) == "held"
    judgement = judge(cluster(pods=[sample], runtimeclasses=[{"metadata": {"name": "fast"}, "handler": "runc"}]))
    assert judgement.facts["verdict"] == "none"
    assert [f.code for f in judgement.findings if f.status is Status.WARN] == ["gpu-possibly-held"]


@pytest.mark.parametrize(
    "classes", [[], [{"metadata": {"name": "slow"}, "handler": "runc"}], Problem("forbidden", "no")]
)
def test_a_runtime_class_whose_handler_is_not_known_may_be_a_gpu_one(classes: Any) -> None:
    def content(value: str) -> dict[str, Any]:
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]
        gone = {"name": "a", "runtimeClassName": "fast", "containers": [{"name": "c", "env": env}]}
        return cluster(pods=[gone]) | {"/apis/node.k8s.io/v1/runtimeclasses": classes}

    assert verdict(content("all")) == "held"
    assert verdict(content("void")) == ("unknown" if isinstance(classes, Problem) else "none")
