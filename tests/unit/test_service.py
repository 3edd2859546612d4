"""The steps of node_cordon as pure rules: who may, the budget, holders per action, the change, what stands, the wait.

Covered: each row of those tables, the plan's digest that depends on nothing of the moment, names that are no node's.
Not covered: the cordon's own marks and patches (test_cordon_rules.py), holders (test_holders_*.py), whole runs
(tests/cluster/test_runs.py).
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gpurunbook.errors import ParameterError
from gpurunbook.findings import Status, Verdict, worst
from gpurunbook.journal import canonical
from gpurunbook.nodes import cordon, service
from gpurunbook.plan import Check, Observed, Planned, Problem, Progress, Stood
from gpurunbook.pointers import differences, fill

GPU = {"nvidia.com/gpu.present": "true"}
TIME = "2026-01-31T12:00:00.500000Z"
WORDS = {
    "run": "r1",
    "runbook": "node_cordon",
    "step": "mark",
    "change_id": "CHG-1",
    "plan": "sha256:aa",
    "head": "sha256:bb",
    "time": TIME,
    "reason": "fan",
}


def owned(run: str = "r1", tainted: bool = True) -> str:
    return cordon.ownership(
        run=run,
        runbook="node_cordon",
        step="mark",
        change="CHG-1",
        plan="sha256:aa",
        head="sha256:bb",
        time=TIME,
        tainted=tainted,
    )


def node(
    name: str = "gpu-a",
    *,
    unschedulable: bool = False,
    tainted: bool = False,
    annotation: str | None = None,
    ready: str = "True",
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": GPU | (labels or {}), "annotations": {"a": "b"}},
        "spec": {"taints": [{"key": "other", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    if unschedulable:
        found["spec"]["unschedulable"] = True
    if tainted:
        found["spec"]["taints"].append(cordon.taint())
    if annotation is not None:
        found["metadata"]["annotations"][cordon.ANNOTATION] = annotation
    return found


def whole(run: str = "r1", **more: Any) -> dict[str, Any]:
    return node(unschedulable=True, tainted=True, annotation=owned(run), **more)


def pod(name: str, uid: str, *, bound: str = "", created: str = "2026-01-01T00:00:00Z", kind: str = "") -> Any:
    owners = [{"kind": kind, "name": "o", "uid": "x"}] if kind else []
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
    return {
        "metadata": {
            "name": name,
            "namespace": "t",
            "uid": uid,
            "creationTimestamp": created,
            "ownerReferences": owners,
        },
        "status": {"conditions": [condition]} if bound else {},
    }


def observed(needs: dict[str, Any], **values: Any) -> dict[str, Observed]:
    return {
        name: Observed(need, problem=values[name])
        if isinstance(values.get(name), Problem)
        else Observed(need, values.get(name, []))
        for name, need in needs.items()
    }


APIS = {"kind": "APIGroupList", "groups": []}
HIDDEN = Problem("forbidden", "no")


def holding(found: Any, pods: list[Any] | None = None) -> dict[str, Any]:
    """What the needs of holders came to: raw pods become the typed ones of a page."""
    import msgspec

    from gpurunbook.nodes.shapes import Pod

    return {"node": found, "groups": APIS, "pods": [msgspec.convert(p, Pod) for p in pods or []]}


TRAINER = {
    "metadata": {"name": "trainer", "namespace": "t", "uid": "u9"},
    "spec": {
        "nodeName": "gpu-a",
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
    "status": {"phase": "Running"},
}


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "..", "a/b", "GPU-A", "-a", "a ", "ä", "a?x=1", "a" * 254, "gpu-a/status"])
def test_what_is_no_name_of_a_node_is_refused_before_anything_is_read(name: str) -> None:
    # An empty name would read the list of all nodes.
    for build in (
        lambda: service.whose(name, "cordon", "r1", 2),
        lambda: service.held(name, "cordon", "nobody"),
        lambda: service.returns(name, "cordon", True),
        lambda: service.mark(name, "cordon", True, "nobody"),
        lambda: service.keep(name, "cordon", True, "r1", None),
        lambda: service.settled(name, "cordon", "r1"),
    ):
        with pytest.raises(ParameterError, match="node"):
            build()


# -- who may ---------------------------------------------------------------------------------------------------------

STATES = {
    "nobody": node(),
    "ours": whole(),
    "ours-lost": node(annotation=owned()),
    "another-run": whole("r2"),
    "person": node(unschedulable=True),
    "ownerless-taint": node(tainted=True),
    "garbled": node(unschedulable=True, tainted=True, annotation="{"),
}


@pytest.mark.parametrize(
    ("action", "state", "status", "code"),
    [
        ("cordon", "nobody", Status.PASS, "node-schedulable"),
        ("cordon", "ours", Status.PASS, "cordon-ours"),
        ("cordon", "ours-lost", Status.WARN, "cordon-lost"),
        ("cordon", "another-run", Status.FAIL, "cordon-of-another"),
        ("cordon", "person", Status.FAIL, "cordon-of-another"),
        ("cordon", "ownerless-taint", Status.FAIL, "taint-without-owner"),
        ("cordon", "garbled", Status.FAIL, "cordon-of-another"),
        ("release", "nobody", Status.PASS, "cordon-released"),
        ("release", "ours", Status.PASS, "cordon-owned"),
        ("release", "ours-lost", Status.PASS, "cordon-owned"),
        ("release", "another-run", Status.PASS, "cordon-owned"),
        ("release", "person", Status.FAIL, "cordon-of-another"),
        ("release", "ownerless-taint", Status.FAIL, "taint-without-owner"),
        ("release", "garbled", Status.FAIL, "cordon-of-another"),
        ("adopt", "nobody", Status.FAIL, "nothing-to-adopt"),
        ("adopt", "ours", Status.PASS, "cordon-owned"),
        ("adopt", "another-run", Status.PASS, "cordon-owned"),
        ("adopt", "person", Status.FAIL, "cordon-of-another"),
        ("adopt", "ownerless-taint", Status.FAIL, "taint-without-owner"),
        ("adopt", "garbled", Status.FAIL, "cordon-of-another"),
    ],
)
def test_whose_cordon_it_is_decides_who_may(action: str, state: str, status: Status, code: str) -> None:
    check = service.whose("gpu-a", action, "r1", 9)
    found = check.judge(observed(dict(check.needs), node=STATES[state], nodes=[STATES[state]]))
    assert (found.findings[0].status, found.findings[0].code) == (status, code)
    assert check.against is Verdict.BLOCKED
    assert len(found.views) == 1


@pytest.mark.parametrize("hidden", ["node", "nodes"])
def test_a_node_or_list_that_cannot_be_read_is_unknown(hidden: str) -> None:
    check = service.whose("gpu-a", "cordon", "r1", 9)
    values: dict[str, Any] = {"node": node(), "nodes": [node()], hidden: HIDDEN}
    found = check.judge(observed(dict(check.needs), **values))
    assert [(f.status, f.code) for f in found.findings] == [(Status.UNKNOWN, f"{hidden}-unreadable")]


def budget(max_out: int, *others: dict[str, Any], action: str = "cordon") -> list[str]:
    check = service.whose("gpu-a", action, "r1", max_out)
    found = check.judge(observed(dict(check.needs), node=node(), nodes=[node(), *others]))
    return [f"{f.status} {f.code}" for f in found.findings if "budget" in f.code]


def test_the_budget_counts_gpu_nodes_that_are_out_and_this_one() -> None:
    out = [node(f"gpu-{n}", unschedulable=True) for n in range(3)]
    plain = node("plain", unschedulable=True)
    plain["metadata"]["labels"] = {}
    assert budget(1, plain, node("gpu-x")) == ["pass within-budget"]
    assert budget(4, *out) == ["pass within-budget"]
    assert budget(3, *out) == ["fail budget-exceeded"]
    assert budget(0) == ["fail budget-exceeded"]
    assert budget(1, node(unschedulable=True)) == ["pass within-budget"]  # this very node does not count twice
    assert budget(0, *out, action="release") == []
    assert budget(0, *out, action="adopt") == []


REGISTERED = {"hami.io/node-nvidia-register": "GPU-1,10,81920,100,NVIDIA,0,true:"}


@pytest.mark.parametrize(
    ("labels", "annotations", "capacity", "counts"),
    [
        (GPU, {}, {}, True),
        ({"feature.node.kubernetes.io/pci-10de.present": "true"}, {}, {}, True),
        ({"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, {}, {}, True),
        ({"feature.node.kubernetes.io/pci-0302_10de_10de_16c1.present": "true"}, {}, {}, True),
        ({"feature.node.kubernetes.io/pci-1200_1002.present": "true"}, {}, {}, True),
        ({}, REGISTERED, {}, True),
        ({}, {}, {"nvidia.com/gpu": "8"}, True),
        ({}, {}, {"nvidia.com/gpu": "0"}, True),
        ({}, {}, {"amd.com/gpu": "8"}, True),
        ({}, {}, {"vendor.example/gpu": "8"}, True),
        ({"nvidia.com/gpu.present": "false"}, {}, {}, False),
        ({"feature.node.kubernetes.io/pci-0300_1a03.present": "true"}, {}, {}, False),
        ({"feature.node.kubernetes.io/pci-0200_15b3.present": "true"}, {}, {"rdma/hca": "8"}, False),
        ({}, {"hami.io/node-nvidia-register": ""}, {"cpu": "64"}, False),
    ],
)
def test_the_budget_knows_a_gpu_node_by_whoever_names_it(
    labels: dict[str, str], annotations: dict[str, str], capacity: dict[str, str], counts: bool
) -> None:
    other = node("other", unschedulable=True)
    other["metadata"] |= {"labels": labels, "annotations": annotations}
    for which in ("capacity", "allocatable"):
        other["status"] = {**node()["status"], which: capacity}
        assert budget(1, other) == ["fail budget-exceeded" if counts else "pass within-budget"]


# -- holders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "policy", "marked", "status"),
    [
        ("cordon", "nobody", False, Status.FAIL),
        ("cordon", "may-stay", False, Status.WARN),
        ("release", "nobody", True, Status.FAIL),
        ("release", "may-stay", True, Status.FAIL),
        ("release", "nobody", False, Status.WARN),
        ("adopt", "nobody", True, Status.WARN),
    ],
)
def test_a_holder_blocks_or_is_shown_by_action(action: str, policy: str, marked: bool, status: Status) -> None:
    check = service.held("gpu-a", action, policy)
    values = holding(whole() if marked else node(), [TRAINER])
    found = check.judge(observed(dict(check.needs), **values))
    assert worst(found.findings) is status
    assert found.facts["verdict"] == "held"


@pytest.mark.parametrize("action", ["cordon", "release", "adopt"])
@pytest.mark.parametrize("policy", ["nobody", "may-stay"])
@pytest.mark.parametrize("hidden", ["node", "pods", "unbound", "daemonsets", "runtimeclasses", "groups"])
def test_holders_that_cannot_be_read_block_every_action(action: str, policy: str, hidden: str) -> None:
    check = service.held("gpu-a", action, policy)
    found = check.judge(observed(dict(check.needs), **{**holding(whole()), hidden: HIDDEN}))
    assert worst(found.findings) is Status.UNKNOWN


def codes(check: Check) -> list[str]:
    return [f"{f.status} {f.code}" for f in check.judge({}).findings]


def test_a_taint_that_is_not_set_needs_no_toleration_and_is_told_as_weaker() -> None:
    assert codes(service.returns("gpu-a", "cordon", False)) == ["warn taint-off"]
    assert codes(service.returns("gpu-a", "release", True)) == ["pass taint-not-asked"]
    assert codes(service.returns("gpu-a", "adopt", False)) == ["pass taint-not-asked"]
    assert set(service.returns("gpu-a", "cordon", True).needs) == {"node", "daemonsets"}


# -- the change ------------------------------------------------------------------------------------------------------


def planned(
    action: str, found: Any, *, taint: bool = True, policy: str = "nobody", pods: Any = None, **more: Any
) -> Any:
    change = service.mark("gpu-a", action, taint, policy)
    values = {**holding(found if isinstance(found, dict) else node(), pods), "node": found, **more}
    return change.plan(observed(dict(change.needs), **values))


@pytest.mark.parametrize(
    ("action", "found", "taint", "name"),
    [
        ("cordon", node(), True, "cordon"),
        ("cordon", node(), False, "cordon"),
        ("release", whole("r2"), True, "release"),
        ("release", node(unschedulable=True, annotation=owned("r2", tainted=False)), True, "release"),
        ("adopt", whole("r2"), True, "adopt"),
        ("adopt", node(tainted=True, annotation=owned("r2")), True, "adopt"),
    ],
)
def test_an_action_is_one_patch_of_the_node_with_its_judged_fields_and_goal(
    action: str, found: dict[str, Any], taint: bool, name: str
) -> None:
    plan: Planned = planned(action, found, taint=taint)
    assert worst(plan.findings) in (Status.PASS, Status.WARN)
    (mutation,) = plan.mutations
    assert (mutation.name, mutation.verb, mutation.patch) == (name, "patch", "json")
    assert (mutation.target.path, mutation.target.uid) == ("/api/v1/nodes/gpu-a", "uid-gpu-a")
    assert differences(found, mutation.judged) == []
    after = patched(found, fill(mutation.body, WORDS))
    assert differences(after, fill(dict(mutation.goal), WORDS)) == []
    assert cordon.standing(after, "r1").state == (cordon.NOBODY if action == "release" else cordon.OURS)
    if mutation.inverse is not None:
        back = patched(after, fill(mutation.inverse.body, WORDS))
        assert cordon.standing(back, "").state == cordon.NOBODY
        assert back["spec"].get("taints") == node()["spec"]["taints"]
    assert (mutation.inverse is None) == (action == "release")


def patched(found: dict[str, Any], body: list[dict[str, Any]]) -> dict[str, Any]:
    """The node after the JSON patch; every test in it must hold."""
    after: dict[str, Any] = json.loads(json.dumps(found))
    for operation in body:
        *way, last = [t.replace("~1", "/").replace("~0", "~") for t in operation["path"].split("/")[1:]]
        place: Any = after
        for token in way:
            place = place[int(token)] if isinstance(place, list) else place[token]
        if operation["op"] == "test":
            there = place[int(last)] if isinstance(place, list) else place.get(last)
            assert there == operation["value"], operation
        elif operation["op"] == "remove":
            del place[int(last) if isinstance(place, list) else last]
        elif isinstance(place, list):
            place.append(operation["value"])
        else:
            place[last] = operation["value"]
    return after


def test_the_plan_holds_nothing_of_the_moment_or_the_run() -> None:
    first = planned("cordon", node()).mutations[0].as_json()
    beaten = node()
    beaten["metadata"]["resourceVersion"] = "77"
    beaten["status"]["conditions"].append({"type": "DiskPressure", "status": "False"})
    second = planned("cordon", beaten).mutations[0].as_json()
    assert canonical(first) == canonical(second)
    assert "${run}" in json.dumps(first)
    assert "r1" not in json.dumps(first)


def test_a_holder_that_came_since_the_check_refuses_a_cordon_for_nobody_only() -> None:
    assert planned("cordon", node(), pods=[TRAINER]).mutations == ()
    assert worst(planned("cordon", node(), pods=[TRAINER]).findings) is Status.FAIL
    assert len(planned("cordon", node(), pods=[TRAINER], policy="may-stay").mutations) == 1
    assert planned("cordon", node(), unbound=HIDDEN).mutations == ()
    assert worst(planned("cordon", node(), unbound=HIDDEN).findings) is Status.UNKNOWN


@pytest.mark.parametrize(
    ("found", "pods", "status", "code"),
    [
        (whole(ready="False"), [], Status.FAIL, "node-not-ready"),
        (whole(ready="Unknown"), [], Status.UNKNOWN, "node-not-ready"),
        (whole(), [TRAINER], Status.FAIL, "node-held"),
        (node(unschedulable=True), [], Status.FAIL, "cordon-of-another"),
        (node(tainted=True), [], Status.FAIL, "cordon-of-another"),
        (node(tainted=True, annotation="{"), [], Status.FAIL, "cordon-of-another"),
    ],
)
def test_a_release_is_refused_unless_it_is_ours_ready_and_free(
    found: dict[str, Any], pods: list[Any], status: Status, code: str
) -> None:
    plan = planned("release", found, pods=pods)
    assert plan.mutations == ()
    assert (status, code) in [(f.status, f.code) for f in plan.findings]
    assert worst(plan.findings) is status


@pytest.mark.parametrize("found", [node(), node(ready="False")])
def test_a_node_in_service_needs_no_release_whoever_runs_there(found: dict[str, Any]) -> None:
    plan = planned("release", found, pods=[TRAINER])
    assert plan.mutations == ()
    assert [(f.status, f.code) for f in plan.findings] == [(Status.PASS, "cordon-released")]


@pytest.mark.parametrize("action", ["cordon", "release", "adopt"])
def test_a_node_that_cannot_be_read_is_changed_by_nothing(action: str) -> None:
    plan = planned(action, HIDDEN)
    assert plan.mutations == ()
    assert worst(plan.findings) is Status.UNKNOWN


@pytest.mark.parametrize("state", ["another-run", "person", "ownerless-taint", "garbled", "ours"])
def test_another_cordon_is_never_planned_over(state: str) -> None:
    plan = planned("cordon", STATES[state])
    assert plan.mutations == ()
    assert worst(plan.findings) is Status.FAIL


# -- what must stand -------------------------------------------------------------------------------------------------


def kept(found: Any, pods: Any = (), stood: Stood | None = None, action: str = "cordon", taint: bool = True) -> Planned:
    change = service.keep("gpu-a", action, taint, "r1", stood)
    values = {"node": found, "pods": pods if isinstance(pods, Problem) else list(pods)}
    return change.plan(observed(dict(change.needs), **values))


LOST = {
    "cordon": node(tainted=True, annotation=owned()),
    "taint": node(unschedulable=True, annotation=owned()),
    "both": node(annotation=owned()),
    "all": node(),
}


@pytest.mark.parametrize("gone", LOST)
def test_each_lost_mark_is_made_again_and_the_goal_says_so(gone: str) -> None:
    plan = kept(LOST[gone])
    (mutation,) = plan.mutations
    assert differences(LOST[gone], mutation.judged) == []
    goal = fill(dict(mutation.goal), WORDS)
    assert differences(LOST[gone], goal) != []  # what is missing shows in the goal
    after = patched(LOST[gone], fill(mutation.body, WORDS))
    assert differences(after, goal) == []
    assert cordon.standing(after, "r1").state == cordon.OURS
    assert [f.code for f in plan.findings] == ["cordon-lost"]


def test_the_owner_is_written_as_it_was() -> None:
    (mutation,) = kept(LOST["all"]).mutations
    after = patched(LOST["all"], fill(mutation.body, WORDS))
    assert after["metadata"]["annotations"][cordon.ANNOTATION] == owned()


def test_while_it_stands_or_after_a_release_there_is_nothing_to_do() -> None:
    for found, action, taint in (
        (whole(), "cordon", True),
        (whole(), "adopt", True),
        (node(unschedulable=True, annotation=owned(tainted=False)), "cordon", False),
        (node(), "release", True),
    ):
        plan = kept(found, action=action, taint=taint)
        assert plan.mutations == ()
        assert [(f.status, f.code) for f in plan.findings] == [(Status.PASS, "cordon-stands")]


@pytest.mark.parametrize("state", ["another-run", "person", "garbled"])
def test_anothers_cordon_is_not_made_ours_again(state: str) -> None:
    plan = kept(STATES[state])
    assert plan.mutations == ()
    assert worst(plan.findings) is Status.FAIL


@pytest.mark.parametrize("value", ["paused-for-cc-mode-change", "true_paused-for-driver-upgrade", "x_paused-for-y"])
@pytest.mark.parametrize(("gone", "waits"), [("cordon", True), ("taint", True), ("both", False), ("all", False)])
def test_a_busy_manager_is_waited_for_while_one_guard_stands(value: str, gone: str, waits: bool) -> None:
    found = json.loads(json.dumps(LOST[gone]))
    found["metadata"]["labels"]["nvidia.com/gpu.deploy.device-plugin"] = value
    plan = kept(found)
    assert (plan.mutations == ()) == waits
    assert worst(plan.findings) is Status.WARN
    assert ("settled" in plan.findings[0].remedy) == waits


def test_labels_of_others_are_no_busy_manager() -> None:
    found = node(tainted=True, annotation=owned(), labels={"x": "paused-for-y", "nvidia.com/gpu.deploy.a": "true"})
    assert len(kept(found).mutations) == 1


@pytest.mark.parametrize("hidden", ["node", "pods"])
def test_what_cannot_be_read_is_not_taken_for_standing(hidden: str) -> None:
    plan = kept(HIDDEN if hidden == "node" else whole(), HIDDEN if hidden == "pods" else ())
    assert plan.mutations == ()
    assert worst(plan.findings) is Status.UNKNOWN


def stood(*pods: Any, seconds: float | None = 3.2) -> Stood:
    change = service.keep("gpu-a", "cordon", True, "r1", None)
    seen = observed(dict(change.needs), node=whole(), pods=list(pods)) if seconds is not None else {}
    return Stood("2026-01-31T12:10:00.000000Z", seconds, seen)


def test_pods_that_were_not_there_before_are_told_whatever_their_clock_says() -> None:
    old = pod("old", "u1", bound="2030-01-01T00:00:00Z")
    new = pod("new", "u2", bound="2001-01-01T00:00:00Z")
    daemon = pod("daemon", "u3", kind="DaemonSet")
    mirror = pod("mirror", "u4", kind="Node")
    text = kept(LOST["both"], [old, new, daemon, mirror], stood(old)).findings[0].message
    assert text.endswith("last seen whole 3 s ago; 1 pod came to the node: t/new")


@pytest.mark.parametrize(
    ("last", "since"), [(None, "the cordon's own time"), (stood(seconds=None), "when it last stood")]
)
def test_without_an_earlier_look_the_time_of_binding_counts(last: Stood | None, since: str) -> None:
    noon, later = "2026-01-31T12:00:01Z", "2026-01-31T12:11:00Z"
    waited = pod("waited", "u1", bound=later, created="2026-01-01T00:00:00Z")
    between = pod("between", "u2", bound=noon)
    before = pod("before", "u3", bound="2026-01-31T11:59:59Z")
    unbound = pod("no-condition", "u4", created=later)
    text = kept(LOST["both"], [waited, between, before, unbound], last).findings[0].message
    assert "last seen whole" not in text  # nobody measured
    assert "t/waited" in text
    assert "t/no-condition" in text
    assert ("t/between" in text) == (last is None)
    assert "t/before" not in text


def test_a_cordon_lost_with_its_owner_takes_the_time_from_the_run() -> None:
    old = pod("old", "u1", bound="2026-01-31T12:00:01Z")
    assert "no pod came" in kept(LOST["all"], [old], stood(seconds=None)).findings[0].message


# -- the wait --------------------------------------------------------------------------------------------------------


def waited(action: str, found: Any) -> Progress:
    wait = service.settled("gpu-a", action, "r1", 9)
    return wait.progress(observed(dict(wait.needs), node=found))


@pytest.mark.parametrize(
    ("action", "found", "done"),
    [
        ("cordon", whole(), True),
        ("cordon", LOST["cordon"], False),
        ("cordon", LOST["taint"], False),
        ("cordon", LOST["all"], False),
        ("cordon", whole("r2"), False),
        ("adopt", whole(), True),
        ("adopt", whole("r2"), False),
        ("release", node(), True),
        ("release", whole(), False),
        ("release", node(unschedulable=True), False),
        ("release", node(tainted=True), False),
        ("release", node(annotation=owned()), False),
    ],
)
def test_the_wait_is_done_when_the_node_shows_it(action: str, found: dict[str, Any], done: bool) -> None:
    progress = waited(action, found)
    assert progress.state == ("done" if done else "waiting")
    assert bool(progress.missing) == (not done)
    assert bool(progress.findings) == done


@pytest.mark.parametrize(
    ("busy", "settles"),
    [
        ({}, ""),
        (
            {"nvidia.com/gpu.deploy.driver": "paused-for-driver-upgrade"},
            "; a manager is changing the node, and the cordon is made again when it has settled",
        ),
    ],
)
def test_the_wait_says_what_is_missing_and_for_whom_it_waits(busy: dict[str, str], settles: str) -> None:
    found = copy.deepcopy(LOST["cordon"])
    found["metadata"].setdefault("labels", {}).update(busy)
    gone = "all marks of this run: spec.unschedulable is gone, our taint still stands"
    assert waited("cordon", found).missing == (gone + settles,)


def test_the_wait_says_who_took_the_node() -> None:
    (said,) = waited("cordon", whole("r2")).missing
    assert said.startswith("all marks of this run: run r2 of node_cordon owns the cordon")


def test_a_node_that_cannot_be_read_is_waited_for_and_named() -> None:
    progress = waited("cordon", Problem("not-found", "gone"))
    assert (progress.state, progress.missing) == ("waiting", ("node gpu-a to be readable: not-found",))
    assert service.settled("gpu-a", "cordon", "r1", 9).seconds == 9
