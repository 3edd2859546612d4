"""Cordon ownership: marks, whose they are, patches with their tests, lost cordons, and when one may be lifted.

Covered: every combination of the three marks for ours, another run's, nobody's and a garbled annotation; the patches
applied with the API server's semantics (a test with null passes on an absent field), their inverse, and every judged
field changed in between; release only for ours, none and Ready.
Not covered: sending, resourceVersion and retries (the door), and the real API server (tests/cluster).
"""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest

from gpurunbook.errors import Drifted
from gpurunbook.findings import Status
from gpurunbook.nodes import cordon as rules
from gpurunbook.nodes import cordonable

MINE = rules.ownership(
    run="r1",
    runbook="node_cordon",
    step="cordon",
    change="CHG-1",
    plan="sha256:aa",
    head="sha256:bb",
    time="2026-01-01T00:00:00Z",
)
BARE = MINE.replace('"tainted":true', '"tainted":false')
THEIRS = MINE.replace('"r1"', '"r2"')
FOREIGN_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def node(
    unschedulable: bool | None = None,
    taints: list[Any] | None = None,
    annotation: str | None = None,
    **annotations: str,
) -> dict[str, Any]:
    """A Ready node with the given marks; fields that are not given are absent."""
    metadata: dict[str, Any] = {"name": "n1", "uid": "u1"}
    if annotation is not None:
        annotations[rules.ANNOTATION] = annotation
    if annotations:
        metadata["annotations"] = annotations
    spec: dict[str, Any] = {"podCIDR": "10.0.0.0/24"}
    if unschedulable is not None:
        spec["unschedulable"] = unschedulable
    if taints is not None:
        spec["taints"] = taints
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


class TestFailed(Exception):
    """A `test` operation did not hold, or a path was not there: 422 at the API server."""

    __test__ = False


def apply(target: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """The object after a JSON patch, all or nothing."""
    whole: Any = copy.deepcopy(target)
    for operation in patch:
        *parents, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        place = whole
        for step in parents:
            try:
                place = place[int(step)] if isinstance(place, list) else place[step]
            except (KeyError, IndexError):
                raise TestFailed(operation) from None
        if isinstance(place, list):
            index = len(place) if last == "-" else int(last)
            if operation["op"] == "add":
                place.insert(index, operation["value"])
            elif operation["op"] == "remove" and index < len(place):
                del place[index]
            else:
                raise TestFailed(operation)
        elif operation["op"] == "test":
            if place.get(last) != operation["value"]:
                raise TestFailed(operation)
        elif operation["op"] == "add" or (operation["op"] == "replace" and last in place):
            place[last] = operation["value"]
        elif operation["op"] == "remove" and last in place:
            del place[last]
        else:
            raise TestFailed(operation)
    return dict(whole)


CLEAN = [
    node(),
    node(unschedulable=False),
    node(taints=[]),
    node(taints=[FOREIGN_TAINT]),
    node(note="kept"),
    node(unschedulable=False, taints=[FOREIGN_TAINT, {"key": "nvidia.com/gpu", "effect": "NoSchedule"}], note="kept"),
]


# -- the annotation --------------------------------------------------------------------------------------------------


def test_ownership_is_canonical_and_read_back() -> None:
    assert json.dumps(json.loads(MINE), sort_keys=True, separators=(",", ":")) == MINE
    assert rules.owner(node(annotation=MINE)) == json.loads(MINE)
    assert rules.owner(node()) is None


def test_the_taint_is_valid_and_has_no_value() -> None:
    assert rules.taint() == {"key": "gpurunbook.io/cordon", "effect": "NoSchedule"}
    assert rules.toleration()["operator"] == "Exists"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "r1",
        "[]",
        "null",
        "{}",
        '"r1"',
        MINE[:-1],
        MINE.replace('"run":"r1"', '"run":""'),
        MINE.replace('"run":"r1"', '"run":1'),
        MINE.replace('"tainted":true', '"tainted":"yes"'),
        MINE.replace('"change":"CHG-1",', ""),
        "[" * 100_000,
    ],
)
def test_a_garbled_annotation_is_somebody_elses(text: str) -> None:
    for unschedulable in (None, True):
        now = rules.standing(node(unschedulable=unschedulable, annotation=text), "r1")
        assert now.state == rules.ANOTHER
        assert now.garbled
        assert not now.mine
    assert cordonable.may_begin(node(annotation=text), "r1").code == "cordon-of-another"
    with pytest.raises(Drifted):
        rules.cordon(node(annotation=text), MINE)
    with pytest.raises(Drifted):
        rules.release(node(annotation=text), "r1")


# -- whose -----------------------------------------------------------------------------------------------------------

STATES = {
    # (unschedulable, tainted, annotation) → state seen by r1
    (False, False, None): "none",
    (False, True, None): "taint-only",
    (True, False, None): "another",
    (True, True, None): "another",
    (False, False, MINE): "lost",
    (False, True, MINE): "taint-only",
    (True, False, MINE): "cordon-only",
    (True, True, MINE): "ours",
    (False, False, BARE): "lost",
    (False, True, BARE): "taint-only",
    (True, False, BARE): "ours",
    (True, True, BARE): "ours",
    **{(u, t, THEIRS): "another" for u, t in itertools.product((False, True), repeat=2)},
}


def marked(unschedulable: bool, tainted: bool, annotation: str | None) -> dict[str, Any]:
    """A node with these marks beside a foreign taint."""
    return node(unschedulable or None, [FOREIGN_TAINT, *([rules.taint()] if tainted else [])], annotation)


@pytest.mark.parametrize("marks", STATES, ids=lambda m: f"{m[0]}-{m[1]}-{m[2] and json.loads(m[2])['run']}")
def test_standing(marks: tuple[bool, bool, str | None]) -> None:
    now = rules.standing(marked(*marks), "r1")
    assert now.state == STATES[marks]
    assert (now.unschedulable, now.tainted) == marks[:2]
    assert now.mine is (marks[2] in (MINE, BARE))


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "gpurunbook.io/cordon", "effect": "NoExecute"},
        {"key": "gpurunbook.io/other", "effect": "NoSchedule"},
        {"effect": "NoSchedule"},
        "gpurunbook.io/cordon",
    ],
)
def test_only_our_taint_is_our_taint(taint: Any) -> None:
    assert rules.standing(node(True, [taint], MINE), "r1").state == "cordon-only"


def test_our_taint_counts_with_any_value() -> None:
    assert rules.standing(node(True, [{**rules.taint(), "value": "x"}], MINE), "r1").state == "ours"


@pytest.mark.parametrize(
    ("marks", "code", "status"),
    [
        ((False, False, None), "node-schedulable", Status.PASS),
        ((True, True, MINE), "cordon-ours", Status.PASS),
        ((True, False, BARE), "cordon-ours", Status.PASS),
        ((False, True, MINE), "cordon-lost", Status.WARN),
        ((True, False, MINE), "cordon-lost", Status.WARN),
        ((False, False, MINE), "cordon-lost", Status.WARN),
        ((True, False, None), "cordon-of-another", Status.FAIL),
        ((True, True, None), "cordon-of-another", Status.FAIL),
        ((True, True, THEIRS), "cordon-of-another", Status.FAIL),
        ((False, False, THEIRS), "cordon-of-another", Status.FAIL),
        ((False, True, None), "taint-without-owner", Status.FAIL),
    ],
)
def test_may_begin(marks: tuple[bool, bool, str | None], code: str, status: Status) -> None:
    found = cordonable.may_begin(marked(*marks), "r1")
    assert (found.code, found.status, found.subject) == (code, status, "Node/n1")
    if status is Status.FAIL:
        assert found.remedy


def test_another_runs_cordon_names_the_run_and_the_way_on() -> None:
    found = cordonable.may_begin(node(True, [rules.taint()], THEIRS), "r1")
    assert "r2" in found.message
    assert "a release gives n1 back" in found.remedy
    assert "resume it, or go on in its place by an adoption: `gpurunbook leftovers`" in found.remedy


# -- the patches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", CLEAN)
def test_cordon_makes_all_marks_and_keeps_what_was_there(before: dict[str, Any]) -> None:
    after = apply(before, rules.cordon(before, MINE))
    assert rules.standing(after, "r1").state == "ours"
    kept = [t for t in after["spec"]["taints"] if t["key"] != rules.TAINT]
    assert kept == (before["spec"].get("taints") or [])
    assert {k: v for k, v in after["metadata"]["annotations"].items() if k != rules.ANNOTATION} == (
        before["metadata"].get("annotations") or {}
    )
    assert after["spec"]["podCIDR"] == before["spec"]["podCIDR"]


@pytest.mark.parametrize("before", CLEAN)
def test_release_is_the_inverse(before: dict[str, Any]) -> None:
    cordoned = apply(before, rules.cordon(before, MINE))
    after = apply(cordoned, rules.release(cordoned, "r1"))
    assert rules.standing(after, "r1").state == "none"
    assert (after["spec"].get("taints") or []) == (before["spec"].get("taints") or [])
    assert (after["metadata"].get("annotations") or {}) == (before["metadata"].get("annotations") or {})


def test_cordon_without_taint() -> None:
    after = apply(node(), rules.cordon(node(), BARE))
    assert "taints" not in after["spec"]
    assert rules.standing(after, "r1").state == "ours"
    assert rules.standing(apply(after, rules.release(after, "r1")), "r1").state == "none"


@pytest.mark.parametrize("make", ["cordon", "release"])
def test_tests_stand_before_all_writes_and_start_with_the_uid(make: str) -> None:
    cordoned = node(True, [FOREIGN_TAINT, rules.taint()], MINE)
    patch = rules.cordon(node(), MINE) if make == "cordon" else rules.release(cordoned, "r1")
    kinds = [o["op"] == "test" for o in patch]
    assert kinds == sorted(kinds, reverse=True)
    assert patch[0] == {"op": "test", "path": "/metadata/uid", "value": "u1"}
    assert any(not k for k in kinds)
    assert not any("resourceVersion" in o["path"] for o in patch)


def test_the_taint_list_is_never_replaced() -> None:
    patch = rules.cordon(node(taints=[FOREIGN_TAINT]), MINE)
    assert {"op": "add", "path": "/spec/taints/-", "value": rules.taint()} in patch
    assert not any(o["path"] == "/spec/taints" and o["op"] != "test" for o in patch)


CHANGED = {
    "another node of that name": {"uid": "u2"},
    "cordoned by somebody": {"unschedulable": True},
    "owned by another run": {"annotation": THEIRS},
}


@pytest.mark.parametrize("what", CHANGED)
@pytest.mark.parametrize("before", CLEAN)
def test_a_cordon_does_not_apply_to_a_node_that_changed(before: dict[str, Any], what: str) -> None:
    patch, now, change = rules.cordon(before, MINE), copy.deepcopy(before), CHANGED[what]
    now["metadata"]["uid"] = change.get("uid", "u1")
    if "unschedulable" in change:
        now["spec"]["unschedulable"] = True
    if "annotation" in change:
        now["metadata"].setdefault("annotations", {})[rules.ANNOTATION] = change["annotation"]
    with pytest.raises(TestFailed):
        apply(now, patch)


def test_a_taint_list_that_appears_or_goes_is_no_silent_loss() -> None:
    with pytest.raises(TestFailed):
        apply(node(taints=[FOREIGN_TAINT]), rules.cordon(node(), MINE))
    with pytest.raises(TestFailed):
        apply(node(), rules.cordon(node(taints=[FOREIGN_TAINT]), MINE))


def test_annotations_that_appear_are_not_overwritten() -> None:
    with pytest.raises(TestFailed):
        apply(node(note="new"), rules.cordon(node(), MINE))


@pytest.mark.parametrize(
    "now",
    [
        node(True, [rules.taint(), FOREIGN_TAINT], THEIRS),
        node(True, [FOREIGN_TAINT], MINE),
        node(True, [rules.taint()], MINE),
        node(None, [FOREIGN_TAINT, rules.taint()], MINE),
        {**node(True, [FOREIGN_TAINT, rules.taint()], MINE), "metadata": {"uid": "u2"}},
    ],
)
def test_a_release_does_not_apply_to_a_node_that_changed(now: dict[str, Any]) -> None:
    patch = rules.release(node(True, [FOREIGN_TAINT, rules.taint()], MINE), "r1")
    with pytest.raises(TestFailed):
        apply(now, patch)


@pytest.mark.parametrize("marks", [m for m in STATES if m[2] == MINE])
def test_what_is_lost_is_made_again_and_nothing_else(marks: tuple[bool, bool, str | None]) -> None:
    before = marked(*marks)
    patch = rules.cordon(before, MINE)
    assert rules.standing(apply(before, patch), "r1").state == "ours"
    writes = {o["path"] for o in patch if o["op"] != "test"}
    wanted = set()
    if not marks[0]:
        wanted.add("/spec/unschedulable")
    if not marks[1]:
        wanted.add("/spec/taints/-")
    assert writes == wanted


@pytest.mark.parametrize("marks", [m for m in STATES if m[2] in (MINE, BARE)])
def test_whatever_is_left_of_ours_can_be_released(marks: tuple[bool, bool, str | None]) -> None:
    before = marked(*marks)
    after = apply(before, rules.release(before, "r1"))
    assert rules.standing(after, "r1").state == "none"
    assert after["spec"]["taints"] == [FOREIGN_TAINT]


def test_what_is_so_already_is_not_written_again() -> None:
    assert rules.cordon(node(True, [rules.taint()], MINE), MINE) == []
    assert rules.release(node(), "r1") == []


@pytest.mark.parametrize("marks", [m for m, state in STATES.items() if m[2] not in (MINE, BARE) and state != "none"])
@pytest.mark.parametrize("run", ["r1", ""])
def test_what_is_not_ours_is_never_touched(marks: tuple[bool, bool, str | None], run: str) -> None:
    with pytest.raises(Drifted) as raised:
        rules.cordon(marked(*marks), MINE)
    assert raised.value.code == "cordon-of-another"
    assert raised.value.remedy
    with pytest.raises(Drifted):
        rules.release(marked(*marks), run)
    assert Status.FAIL in {f.status for f in cordonable.may_release(marked(*marks), run, "none")}


def test_drift_looks_at_our_marks_and_the_uid_only() -> None:
    one = rules.judged(node(True, [rules.taint()], MINE))
    assert rules.judged(node(True, [FOREIGN_TAINT, rules.taint()], MINE, note="x")) == one
    for other in (
        node(None, [rules.taint()], MINE),
        node(True, [], MINE),
        node(True, [rules.taint()], THEIRS),
        {**node(True, [rules.taint()], MINE), "metadata": {"uid": "u2", "annotations": {rules.ANNOTATION: MINE}}},
    ):
        assert rules.judged(other) != one


ADOPTED = MINE.replace('"r1"', '"r3"')


@pytest.mark.parametrize("marks", [m for m in STATES if m[2] in (MINE, THEIRS)])
def test_adopting_makes_another_run_the_owner_and_the_cordon_whole(marks: tuple[bool, bool, str | None]) -> None:
    before = marked(*marks)
    after = apply(before, rules.adopt(before, ADOPTED))
    assert rules.standing(after, "r3").state == "ours"
    assert FOREIGN_TAINT in after["spec"]["taints"]
    stolen = marked(*marks[:2], MINE.replace('"r1"', '"r4"'))
    with pytest.raises(TestFailed):
        apply(stolen, rules.adopt(before, ADOPTED))


def test_adopting_a_lost_cordon_does_not_replace_a_taint_list_that_appears() -> None:
    patch = rules.adopt(node(annotation=MINE), ADOPTED)
    assert rules.standing(apply(node(annotation=MINE), patch), "r3").state == "ours"
    with pytest.raises(TestFailed):
        apply(node(taints=[FOREIGN_TAINT], annotation=MINE), patch)


@pytest.mark.parametrize("marks", [m for m in STATES if m[2] is None])
def test_what_no_run_of_ours_owns_cannot_be_adopted(marks: tuple[bool, bool, str | None]) -> None:
    with pytest.raises(Drifted) as raised:
        rules.adopt(marked(*marks), ADOPTED)
    assert raised.value.code == "nothing-to-adopt"


# -- lost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "idle", "busy"),
    [
        ((True, True, MINE), "keep", "keep"),
        ((False, True, MINE), "now", "after-settled"),
        ((True, False, MINE), "now", "after-settled"),
        ((False, False, MINE), "now", "now"),
        ((False, False, None), "now", "now"),
        ((True, True, THEIRS), "never", "never"),
        ((True, False, None), "never", "never"),
    ],
)
def test_when_a_lost_cordon_is_made_again(marks: tuple[bool, bool, str | None], idle: str, busy: str) -> None:
    now = rules.standing(marked(*marks), "r1")
    assert cordonable.remake(now, manager_busy=False) == idle
    assert cordonable.remake(now, manager_busy=True) == busy


def test_a_lost_cordon_says_how_long_and_who_came() -> None:
    found = cordonable.lost(node(None, [rules.taint()], MINE), "r1", 12.4, ["t/b", "t/a"])
    assert (found.code, found.status) == ("cordon-lost", Status.WARN)
    assert "12 s" in found.message
    assert "t/a, t/b" in found.message
    assert "our taint still stands" in found.message


def test_a_time_that_nobody_measured_is_not_told() -> None:
    for unmeasured in (None, 0):
        assert "ago" not in cordonable.lost(node(annotation=MINE), "r1", unmeasured, []).message


def test_a_cordon_that_was_taken_over_is_no_lost_one() -> None:
    found = cordonable.lost(node(True, [rules.taint()], THEIRS), "r1", 1, [])
    assert found.status is Status.FAIL
    assert "r2" in found.message


def test_pods_that_landed_are_told_by_uid() -> None:
    pods = [{"metadata": {"namespace": "t", "name": n, "uid": u}} for n, u in (("b", "2"), ("a", "1"), ("a", "3"))]
    assert cordonable.landed(["1"], pods) == ["t/a", "t/b"]
    assert cordonable.landed(["1", "2", "3"], pods) == []


# -- release ---------------------------------------------------------------------------------------------------------


def ready(status: str | None) -> dict[str, Any]:
    """Our cordoned node with this Ready condition, or none."""
    found = node(True, [rules.taint()], MINE)
    found["status"] = {"conditions": [{"type": "Ready", "status": status}] if status else []}
    return found


@pytest.mark.parametrize(
    ("target", "holders", "expected"),
    [
        (ready("True"), "none", {Status.PASS}),
        (node(), "none", {Status.PASS}),
        (ready("False"), "none", {Status.PASS, Status.FAIL}),
        (ready("Unknown"), "none", {Status.PASS, Status.UNKNOWN}),
        (ready(None), "none", {Status.PASS, Status.UNKNOWN}),
        (ready("True"), "held", {Status.PASS, Status.FAIL}),
        (ready("True"), "unknown", {Status.PASS, Status.UNKNOWN}),
        (ready("True"), "", {Status.PASS, Status.UNKNOWN}),
        (node(True, [rules.taint()], THEIRS), "none", {Status.PASS, Status.FAIL}),
        (node(True), "none", {Status.PASS, Status.FAIL}),
    ],
)
def test_release_needs_ours_ready_and_no_holder(target: dict[str, Any], holders: str, expected: set[Status]) -> None:
    found = cordonable.may_release(target, "r1", holders)
    assert {f.status for f in found} == expected
    assert all(f.remedy for f in found if f.status is not Status.PASS)
