"""What runs have left in a cluster, judged from raw lists.

Covered: cordons in every combination of marks, leases, what could not be listed, names that would be commands.
Not covered: the command around it (tests/cluster/test_changes_cli.py).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gpurunbook.nodes import cordon, leftovers
from gpurunbook.plan import Observed, Problem

MORE = " --set change_id=… --set reason=…"
OWNER = cordon.ownership(
    run="r1", runbook="node_cordon", step="mark", change="CHG-1", plan="p", head="h", time="2026-01-31T12:00:00Z"
)


def node(
    name: str = "gpu-a", unschedulable: bool = False, tainted: bool = False, annotation: str | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {"name": name}, "spec": {}}
    if unschedulable:
        found["spec"]["unschedulable"] = True
    if tainted:
        found["spec"]["taints"] = [{"key": "other", "effect": "NoSchedule"}, cordon.taint()]
    if annotation is not None:
        found["metadata"]["annotations"] = {cordon.ANNOTATION: annotation}
    return found


def lease(name: str = "gpurunbook-node-gpu-a", run: str | None = "r1", target: str | None = "node/gpu-a") -> Any:
    annotations = {leftovers.TARGET: target} if target is not None else None
    spec = {"holderIdentity": run, "acquireTime": "2026-01-31T11:59:00.000000Z"} if run is not None else None
    return {"metadata": {"name": name, "namespace": "gpu-operator", "annotations": annotations}, "spec": spec}


def found(nodes: Any = (), leases: Any = ()) -> list[leftovers.Leftover]:
    needs = leftovers.needs()
    seen = {"nodes": Observed(needs["nodes"], list(nodes)), "leases": Observed(needs["leases"], list(leases))}
    all_, problems = leftovers.leftovers(seen)
    assert problems == []
    return all_


def test_a_whole_cordon_has_its_owner_and_the_ways_on() -> None:
    (left,) = found([node(unschedulable=True, tainted=True, annotation=OWNER)])
    assert left.as_json() == {
        "kind": "cordon",
        "name": "gpu-a",
        "target": "node/gpu-a",
        "run": "r1",
        "since": "2026-01-31T12:00:00Z",
        "state": "unschedulable and taint",
        "next": f"gpurunbook release gpu-a{MORE}, or gpurunbook adopt gpu-a{MORE}",
    }


@pytest.mark.parametrize(
    ("unschedulable", "tainted", "annotation"),
    list(itertools.product([False, True], [False, True], [None, OWNER, "{", "7"])),
)
def test_every_mark_of_ours_is_found_and_nothing_of_others(
    unschedulable: bool, tainted: bool, annotation: str | None
) -> None:
    listed = found([node(unschedulable=unschedulable, tainted=tainted, annotation=annotation)])
    assert len(listed) == bool(tainted or annotation is not None)
    for left in listed:
        assert ("unschedulable" in left.state, "taint" in left.state) == (unschedulable, tainted)
        assert ("no guard left" in left.state) == (not unschedulable and not tainted)
        assert left.run == ("r1" if annotation == OWNER else "")
        assert ("no readable owner" in left.state) == (annotation != OWNER)
        assert ("by hand" in left.next) == (annotation != OWNER)


def test_a_lease_names_its_run_target_and_abort() -> None:
    (left,) = found(leases=[lease()])
    assert (left.kind, left.name, left.target) == ("lease", "gpu-operator/gpurunbook-node-gpu-a", "node/gpu-a")
    assert (left.run, left.since, left.next) == ("r1", "2026-01-31T11:59:00.000000Z", f"gpurunbook abort r1{MORE}")


@pytest.mark.parametrize(
    ("holder", "lease_next", "cordon_next"),
    [
        (
            "r1",
            f"gpurunbook abort r1{MORE}, or gpurunbook adopt gpu-a --set take_over=r1{MORE}, which keeps the cordon",
            f"gpurunbook release gpu-a --set take_over=r1{MORE}, or gpurunbook adopt gpu-a --set take_over=r1{MORE}",
        ),
        (
            # To abort r2 must not lift the cordon of r1.
            "r2",
            f"gpurunbook adopt gpu-a --set take_over=r2{MORE}, which keeps the cordon",
            f"gpurunbook release gpu-a --set take_over=r2{MORE}, or gpurunbook adopt gpu-a --set take_over=r2{MORE}",
        ),
    ],
)
def test_a_lease_beside_a_cordon_is_named_in_what_goes_on(holder: str, lease_next: str, cordon_next: str) -> None:
    marks, held = found([node("gpu-a", True, True, OWNER)], [lease(run=holder)])
    assert (held.next, marks.next) == (lease_next, cordon_next)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("", ""),
        ("prod", " --cluster prod"),
        ("a;b", " --cluster 'a;b'"),
        ("embedded:clusters/x", " --cluster embedded:clusters/x"),
    ],
)
def test_every_command_names_the_cluster_that_was_listed(cluster: str, said: str) -> None:
    needs = leftovers.needs()
    seen = {
        "nodes": Observed(needs["nodes"], [node(tainted=True, annotation=OWNER)]),
        "leases": Observed(needs["leases"], [lease(), lease("z", target="node/gpu-z")]),
    }
    listed, _ = leftovers.leftovers(seen, cluster)
    commands = [part for left in listed for part in left.next.split(", ") if "gpurunbook " in part]
    assert len(commands) == 5
    assert all(f"{said}{MORE}" in part for part in commands)


def test_a_lease_without_a_holder_or_target_is_no_crash_and_no_command() -> None:
    for one in (lease(run=None), lease(run=""), lease(target=None, run="")):
        (left,) = found(leases=[one])
        assert (left.run, left.next) == ("", "look at the lease by hand")


@pytest.mark.parametrize("run", ["$(reboot)", "r1; reboot", "`id`", "-rf", "r1\n", "r 1", "", "x" * 300, "r1|sh", "ä"])
def test_a_name_that_would_be_more_than_a_name_in_a_shell_is_in_no_command(run: str) -> None:
    annotation = OWNER.replace('"r1"', f'"{run}"') if run != "r1\n" else OWNER.replace('"r1"', '"r1\\n"')
    for left in found([node(tainted=True, annotation=annotation)], [lease(run=run)]):
        assert "gpurunbook" not in left.next


def test_all_are_sorted_by_kind_and_name() -> None:
    nodes = [node(name, tainted=True, annotation=OWNER) for name in ("gpu-c", "gpu-a", "gpu-b")]
    leases = [lease("z"), lease("a")]
    assert [(left.kind, left.name) for left in found(nodes, leases)] == [
        ("cordon", "gpu-a"),
        ("cordon", "gpu-b"),
        ("cordon", "gpu-c"),
        ("lease", "gpu-operator/a"),
        ("lease", "gpu-operator/z"),
    ]


@pytest.mark.parametrize("hidden", ["nodes", "leases"])
def test_what_could_not_be_listed_is_told_beside_what_could(hidden: str) -> None:
    needs = leftovers.needs()
    values: dict[str, list[Any]] = {"nodes": [node(tainted=True, annotation=OWNER)], "leases": [lease()]}
    seen = {
        name: Observed(need, problem=Problem("forbidden", name)) if name == hidden else Observed(need, values[name])
        for name, need in needs.items()
    }
    listed, problems = leftovers.leftovers(seen)
    assert [p.message for p in problems] == [hidden]
    assert [left.kind for left in listed] == (["lease"] if hidden == "nodes" else ["cordon"])
