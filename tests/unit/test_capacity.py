"""What the pool loses with a node, and who else cordons nodes.

Covered: products, usable nodes, resources of all vendors, HAMi cards and shares in both notations, numbers that are
none; System Upgrade Controller, NVSentinel and autoscalers found, absent and unknown, each state of each.
Not covered: the controllers themselves.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from holder_samples import FakeCluster, groups

from gpurunbook.findings import Status, worst
from gpurunbook.nodes.capacity import HAMI_REGISTER, PRODUCT, capacity_lost, hami_cards, losses
from gpurunbook.nodes.controllers import (
    KARPENTER_LABELS,
    LEAVING,
    MANAGED,
    NO_DISRUPTION,
    NO_SCALE_DOWN,
    QUARANTINE,
    SENTINEL_GROUPS,
    SENTINEL_STATE,
    cordoning_plans,
    other_hands,
)
from gpurunbook.nodes.resources import whole
from gpurunbook.plan import Judgement, Problem

# -- capacity --------------------------------------------------------------------------------------------------------


def node(name: str, product: str | None = "H100", ready: str = "True", **more: Any) -> dict[str, Any]:
    """A node that offers eight GPUs unless `gpus` says otherwise."""
    return {
        "metadata": {
            "name": name,
            "labels": {PRODUCT: product} if product else {},
            "annotations": {HAMI_REGISTER: more["hami"]} if "hami" in more else {},
        },
        "spec": {"unschedulable": True} if more.get("cordoned") else {},
        "status": {
            "allocatable": {"cpu": "96", "memory": "1Ti", **more.get("gpus", {"nvidia.com/gpu": "8"})},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def shares(cards: int, split: int = 10) -> str:
    """HAMi's register annotation."""
    return "".join(f"GPU-{i},{split},81920,100,NVIDIA-H100,0,true,{i},hami-core:" for i in range(cards))


def judge(nodes: Any, name: str = "n1") -> Judgement:
    """What the check says."""
    check, fake = capacity_lost(name), FakeCluster({"/api/v1/nodes": nodes})
    return check.judge({n: fake.observe(need) for n, need in check.needs.items()})


def test_the_pool_is_of_the_same_product_and_usable() -> None:
    nodes = [
        node("n1"),
        node("n2"),
        node("n3", product="A100"),
        node("n4", ready="False"),
        node("n5", ready="Unknown"),
        node("n6", cordoned=True),
        node("n7", product=None),
    ]
    (loss,) = losses(nodes, "n1")
    assert (loss.product, loss.resource, loss.lost, loss.pool, loss.percent) == ("H100", "nvidia.com/gpu", 8, 16, 50.0)


def test_a_node_that_is_cordoned_already_still_counts_itself() -> None:
    (loss,) = losses([node("n1", cordoned=True), node("n2")], "n1")
    assert (loss.lost, loss.pool) == (8, 16)


def test_each_resource_is_counted_by_itself() -> None:
    mixed = {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/GH100_H100_PCIE": "1", "example.com/nic": "4"}
    found = losses([node("n1", gpus=mixed), node("n2")], "n1")
    assert [(f.resource, f.lost, f.pool) for f in found] == [
        ("nvidia.com/GH100_H100_PCIE", 1, 1),
        ("nvidia.com/mig-1g.10gb", 7, 7),
    ]


def test_shares_of_hami_are_told_from_cards() -> None:
    nodes = [
        node("n1", gpus={"nvidia.com/gpu": "20"}, hami=shares(2)),
        node("n2", gpus={"nvidia.com/gpu": "20"}, hami=shares(2)),
        node("n3"),
    ]
    (loss,) = losses(nodes, "n1")
    assert (loss.lost, loss.pool, loss.splits) == (20, 40, (10, 10))
    judgement = judge(nodes)
    assert "2 cards × 10" in judgement.findings[0].message
    assert judgement.facts["lost"]["nvidia.com/gpu"]["cards"] == 2
    assert losses(nodes, "n3")[0].pool == 8


@pytest.mark.parametrize(
    ("gpus", "register", "note"),
    [
        ("20", shares(1, 10) + shares(1, 5), "2 cards, 15 shares, but 20 are allocatable"),
        ("1k", shares(10, 100), "× 100"),
    ],
)
def test_shares_that_do_not_add_up_are_said(gpus: str, register: str, note: str) -> None:
    nodes = [node("n1", gpus={"nvidia.com/gpu": gpus}, hami=register)]
    assert judge(nodes).findings[0].message.endswith(note)


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("", []),
        ("GPU-1,10,32768,100,NVIDIA-V100,0,true:", [10]),
        (shares(3, 4), [4, 4, 4]),
        (json.dumps([{"id": "GPU-1", "count": 10, "devmem": 1}]), [10]),
        ("[]", []),
    ],
)
def test_both_notations_of_hami(text: str, cards: list[int]) -> None:
    assert hami_cards(node("n1", hami=text)) == cards


@pytest.mark.parametrize("text", ["GPU-1:", "GPU-1,x,1:", "[{}]", "[1]", '[{"count": "10"}]', "[", "[null]"])
def test_a_garbled_register_is_unknown(text: str) -> None:
    judgement = judge([node("n1", hami=text)])
    assert worst(judgement.findings) is Status.UNKNOWN


@pytest.mark.parametrize(
    ("quantity", "number"), [("8", 8), (8, 8), ("1k", 1000), ("2Ki", 2048), ("0", 0), ("1M", 10**6)]
)
def test_whole_numbers(quantity: Any, number: int) -> None:
    assert whole(quantity) == number


@pytest.mark.parametrize("quantity", ["", "x", "1.5", "-1", "100m", "1kk", None, "1\n", "٣"])
def test_what_is_no_whole_number_is_unknown(quantity: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        whole(quantity)
    assert worst(judge([node("n1", gpus={"nvidia.com/gpu": quantity})]).findings) is Status.UNKNOWN


def test_taking_the_last_of_a_product_warns() -> None:
    assert [f.code for f in judge([node("n1")]).findings] == ["capacity-last-of-pool"]
    assert [f.code for f in judge([node("n1"), node("n2")]).findings] == ["capacity-lost"]
    assert worst(judge([node("n1"), node("n2")]).findings) is Status.PASS


def test_a_node_without_gpus_warns() -> None:
    assert [f.code for f in judge([node("n1", gpus={})]).findings] == ["capacity-none"]


@pytest.mark.parametrize("nodes", [[], [node("n2")], Problem("forbidden", "no")])
def test_a_node_that_is_not_listed_is_unknown(nodes: Any) -> None:
    findings = judge(nodes).findings
    assert [f.code for f in findings] == ["capacity-unreadable"]
    assert worst(findings) is Status.UNKNOWN


# -- other hands -----------------------------------------------------------------------------------------------------

BREAKER = "/api/v1/namespaces/nvsentinel/configmaps/circuit-breaker"
AUTOSCALER = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
PLANS = "/apis/upgrade.cattle.io/v1/plans"


def hands(*served: str, labels: Any = None, annotations: Any = None, taint: str = "", **content: Any) -> Judgement:
    """What the check says of a node with these labels and this taint on a cluster with this content."""
    metadata = {"name": "n1", "labels": labels or {}, "annotations": annotations or {}}
    spec = {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}
    node = {"metadata": metadata, "spec": spec}
    whole_content = {"/apis": groups(*served), "/api/v1/nodes/n1": node, **content}
    check, fake = other_hands("n1"), FakeCluster(whole_content)
    seen = {n: fake.observe(need) for n, need in check.needs.items()}
    assert check.follow is not None
    seen |= {n: fake.observe(need) for n, need in check.follow(seen).items()}
    return check.judge(seen)


def told(judgement: Judgement) -> dict[str, str]:
    """Presence per controller."""
    return {name: fact["presence"] for name, fact in judgement.facts.items()}


def codes(judgement: Judgement) -> set[str]:
    """The codes of all findings."""
    return {f.code for f in judgement.findings}


def plan(name: str = "upgrade", **spec: Any) -> dict[str, Any]:
    """A Plan for every node unless it says otherwise."""
    return {"metadata": {"name": name}, "spec": {"nodeSelector": {}, **spec}, "status": spec.pop("status", {})}


def test_nobody_else_is_absent_and_passes() -> None:
    judgement = hands()
    assert told(judgement) == {"system-upgrade-controller": "absent", "nvsentinel": "absent", "autoscaler": "absent"}
    assert worst(judgement.findings) is Status.PASS


@pytest.mark.parametrize(
    ("spec", "cordons"),
    [
        ({"cordon": True}, True),
        ({"drain": {}}, True),
        ({"drain": {"force": True}}, True),
        ({"cordon": True, "nodeSelector": {"matchLabels": {"gpu": "on"}}}, True),
        ({}, False),
        ({"cordon": False, "drain": None}, False),
        ({"cordon": True, "nodeSelector": None}, False),
        ({"cordon": True, "nodeSelector": {"matchLabels": {"gpu": "off"}}}, False),
        ({"drain": {}, "nodeSelector": {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}}, False),
    ],
)
def test_plans_that_cordon_the_node_are_found(spec: dict[str, Any], cordons: bool) -> None:
    judgement = hands("upgrade.cattle.io/v1", labels={"gpu": "on"}, **{PLANS: [plan(**spec)]})
    assert told(judgement)["system-upgrade-controller"] == "found"
    assert ("upgrade-plan-uncordons" in codes(judgement)) is cordons
    assert ("upgrade-plans-harmless" in codes(judgement)) is not cordons


@pytest.mark.parametrize(
    ("labels", "status", "state"),
    [
        ({}, {}, "waiting"),
        ({}, {"applying": ["n1"], "latestHash": "h"}, "being applied now"),
        ({"plan.upgrade.cattle.io/upgrade": "h"}, {"latestHash": "h"}, "applied"),
        ({"plan.upgrade.cattle.io/upgrade": "old"}, {"latestHash": "h"}, "waiting"),
    ],
)
def test_a_plan_says_how_far_it_is(labels: dict[str, str], status: dict[str, Any], state: str) -> None:
    (text,) = cordoning_plans([plan(cordon=True, status=status)], {"metadata": {"name": "n1", "labels": labels}})
    assert state in text


@pytest.mark.parametrize("code", ["forbidden", "not-found", "garbled"])
def test_plans_that_cannot_be_read_are_unknown(code: str) -> None:
    judgement = hands("upgrade.cattle.io/v1", **{PLANS: Problem(code, "no")})
    assert told(judgement)["system-upgrade-controller"] == "unknown"
    assert worst(judgement.findings) is Status.UNKNOWN


@pytest.mark.parametrize(
    ("status", "labels", "annotations", "code", "gravity"),
    [
        ("CLOSED", {}, {}, "nvsentinel-manages", Status.WARN),
        ("CLOSED", {MANAGED: "true"}, {}, "nvsentinel-manages", Status.WARN),
        ("CLOSED", {MANAGED: "false"}, {}, "nvsentinel-off", Status.PASS),
        ("TRIPPED", {MANAGED: "false"}, {}, "nvsentinel-tripped", Status.WARN),
        ("CLOSED", {}, {QUARANTINE: "{}"}, "nvsentinel-quarantine", Status.WARN),
        ("CLOSED", {MANAGED: "false", SENTINEL_STATE: "draining"}, {}, "nvsentinel-quarantine", Status.WARN),
        (
            "CLOSED",
            {MANAGED: "false", f"{SENTINEL_GROUPS[1]}/driver.installed": "true"},
            {},
            "nvsentinel-off",
            Status.PASS,
        ),
        ("closed", {}, {}, "other-hands-unreadable", Status.UNKNOWN),
        ("", {}, {}, "other-hands-unreadable", Status.UNKNOWN),
    ],
)
def test_nvsentinel(status: str, labels: Any, annotations: Any, code: str, gravity: Status) -> None:
    judgement = hands(labels=labels, annotations=annotations, **{BREAKER: {"data": {"status": status}}})
    assert code in codes(judgement)
    assert worst(judgement.findings) is gravity
    assert told(judgement)["nvsentinel"] == ("unknown" if gravity is Status.UNKNOWN else "found")
    if gravity is not Status.UNKNOWN:
        assert status in str(judgement.facts["nvsentinel"]["state"])


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({MANAGED: "false"}, {}),
        ({MANAGED: "true"}, {}),
        ({}, {QUARANTINE: "{}"}),
        ({SENTINEL_STATE: "quarantined"}, {}),
    ],
)
def test_nvsentinel_with_traces_but_no_breaker_is_unknown(labels: Any, annotations: Any) -> None:
    assert told(hands(labels=labels, annotations=annotations))["nvsentinel"] == "unknown"


@pytest.mark.parametrize(
    ("served", "labels"),
    [
        *(((f"{group}/v1",), {}) for group in SENTINEL_GROUPS),
        ((), {f"{SENTINEL_GROUPS[1]}/driver.installed": "true"}),
    ],
)
def test_nvsentinel_that_left_other_signs_is_not_absent(served: tuple[str, ...], labels: dict[str, str]) -> None:
    judgement = hands(*served, labels=labels)
    assert told(judgement)["nvsentinel"] == "found"
    assert "nvsentinel-without-breaker" in codes(judgement)
    assert worst(judgement.findings) is Status.WARN


def test_nvsentinel_that_may_not_be_read_is_unknown() -> None:
    assert told(hands(**{BREAKER: Problem("forbidden", "no")}))["nvsentinel"] == "unknown"


@pytest.mark.parametrize("data", [{}, {"data": None}])
def test_a_breaker_without_state_is_unknown(data: Any) -> None:
    assert told(hands(**{BREAKER: data}))["nvsentinel"] == "unknown"


def test_cluster_autoscaler_is_found() -> None:
    judgement = hands(**{AUTOSCALER: {"data": {}}})
    assert told(judgement)["autoscaler"] == "found"
    assert "autoscaler-found" in codes(judgement)
    kept = hands(annotations={NO_SCALE_DOWN: "true"}, **{AUTOSCALER: {"data": {}}})
    assert "autoscaler-kept-off" in codes(kept)
    assert worst(kept.findings) is Status.PASS


def test_karpenter_is_found_even_when_the_other_cannot_be_read() -> None:
    judgement = hands(
        "karpenter.sh/v1", annotations={NO_SCALE_DOWN: "true"}, **{AUTOSCALER: Problem("forbidden", "no")}
    )
    assert told(judgement)["autoscaler"] == "found"
    assert "autoscaler-found" in codes(judgement)


def remedy(judgement: Judgement) -> str:
    """What to do about the autoscaler."""
    return next(f.remedy for f in judgement.findings if f.code.startswith("autoscaler-"))


def test_the_remedy_names_the_annotation_that_this_autoscaler_reads() -> None:
    one = hands(**{AUTOSCALER: {"data": {}}})
    assert (NO_SCALE_DOWN in remedy(one), NO_DISRUPTION in remedy(one)) == (True, False)
    other = hands("karpenter.sh/v1")
    assert (NO_SCALE_DOWN in remedy(other), NO_DISRUPTION in remedy(other)) == (False, True)
    both = hands("karpenter.sh/v1", **{AUTOSCALER: {"data": {}}})
    assert (NO_SCALE_DOWN in remedy(both), NO_DISRUPTION in remedy(both)) == (True, True)


def test_no_annotation_keeps_karpenter_off_for_good() -> None:
    judgement = hands("karpenter.sh/v1", annotations={NO_SCALE_DOWN: "true", NO_DISRUPTION: "true"})
    assert "autoscaler-found" in codes(judgement)
    assert worst(judgement.findings) is Status.WARN


@pytest.mark.parametrize("mark", LEAVING)
def test_a_node_with_an_autoscalers_taint_is_about_to_be_removed_by_it(mark: str) -> None:
    for kept in ({}, {NO_SCALE_DOWN: "true"}):
        judgement = hands(taint=mark, annotations=kept)
        assert told(judgement)["autoscaler"] == "found"
        (found,) = [f for f in judgement.findings if f.code == "autoscaler-removing"]
        assert found.status is Status.WARN
        assert mark in found.message and LEAVING[mark] in found.message


@pytest.mark.parametrize("label", KARPENTER_LABELS)
def test_a_node_that_karpenter_made_has_it_though_its_api_is_not_listed(label: str) -> None:
    judgement = hands(labels={label: "gpu"})
    assert "autoscaler-found" in codes(judgement)
    assert "Karpenter" in next(f.message for f in judgement.findings if f.code == "autoscaler-found")


def test_a_foreign_taint_is_no_autoscaler() -> None:
    assert "autoscaler-absent" in codes(hands(taint="nvidia.com/gpu"))


def test_to_be_kept_off_by_one_says_nothing_of_the_other_that_cannot_be_looked_for() -> None:
    judgement = hands(
        annotations={NO_SCALE_DOWN: "true"}, **{AUTOSCALER: {"data": {}}, "/apis": Problem("forbidden", "no")}
    )
    assert told(judgement)["autoscaler"] == "unknown"
    assert "autoscaler-kept-off" not in codes(judgement)


def test_an_autoscaler_that_cannot_be_looked_for_is_unknown() -> None:
    assert told(hands(**{AUTOSCALER: Problem("forbidden", "no")}))["autoscaler"] == "unknown"


def test_without_the_list_of_groups_nothing_is_absent() -> None:
    judgement = hands(**{"/apis": Problem("forbidden", "no")})
    assert told(judgement) == {"system-upgrade-controller": "unknown", "nvsentinel": "absent", "autoscaler": "unknown"}


@pytest.mark.parametrize("code", ["forbidden", "not-found"])
def test_a_node_that_cannot_be_read_is_unknown(code: str) -> None:
    judgement = hands(**{"/api/v1/nodes/n1": Problem(code, "no")})
    assert worst(judgement.findings) is Status.UNKNOWN


def test_every_warning_says_what_to_do() -> None:
    judgement = hands(
        "upgrade.cattle.io/v1",
        **{PLANS: [plan(cordon=True)], BREAKER: {"data": {"status": "TRIPPED"}}, AUTOSCALER: {"data": {}}},
    )
    warnings = [f for f in judgement.findings if f.status is Status.WARN]
    assert len(warnings) == 3
    assert all(f.remedy for f in warnings)
