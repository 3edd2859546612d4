"""The plan of a dry run: what its digest covers and what not, and which plans an apply finds.

Covered: each field of a mutation changes the digest, nothing of the moment does, finding a plan among runs of every
kind, altered and odd files. Not covered: a plan that a whole run makes (tests/cluster/test_runs.py).
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.errors import GateError, JournalError
from gpurunbook.journal import Journal, canonical, digest
from gpurunbook.plan import Mutation, Target
from gpurunbook.runbook import changing, plans

INVERSE = Mutation("release", "patch", Target("Node", "gpu-a", "/api/v1/nodes/gpu-a", uid="u1"), [{"op": "remove"}])
MUTATION = Mutation(
    name="cordon",
    verb="patch",
    target=Target("Node", "gpu-a", "/api/v1/nodes/gpu-a", "", "u1"),
    body=[{"op": "add", "path": "/spec/unschedulable", "value": True}],
    patch="json",
    judged={"/spec/unschedulable": None},
    goal={"/spec/unschedulable": True},
    inverse=INVERSE,
)


def judged(step: str, *mutations: Mutation) -> tuple[str, dict[str, Any]]:
    return "judged", {"step": step, "passed": True, "mutations": [m.as_json() for m in mutations]}


def journal(folder: Path, *events: tuple[str, dict[str, Any]], noon: int = 0) -> Journal:
    folder.mkdir(parents=True, exist_ok=True)
    clock = datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(hours=noon)
    made = Journal.open(folder / "journal.jsonl", lambda: clock)
    start = {"run": folder.name, "runbook": "node_cordon"}
    for event, data in (("start", start), *events):
        made.append(event, data)
    return made


def document(folder: Path, *mutations: Mutation, cluster: str = "c1", **more: Any) -> dict[str, Any]:
    made = journal(folder, ("judged", {"step": "whose", "passed": True}), judged("mark", *mutations), **more)
    return plans.document("node_cordon", cluster, made.records, ["whose", "mark"])


def digest_of(plan: dict[str, Any]) -> str:
    return digest(canonical(plan))


def test_a_plan_holds_the_mutations_by_step_in_the_declared_order(tmp_path: Path) -> None:
    made = journal(tmp_path / "r", judged("late", MUTATION), judged("early", INVERSE), ("judged", {"step": "check"}))
    plan = plans.document("node_cordon", "c1", made.records, ["early", "check", "late"])
    assert [(s["step"], [m["name"] for m in s["mutations"]]) for s in plan["steps"]] == [
        ("early", ["release"]),
        ("late", ["cordon"]),
    ]
    assert (plan["runbook"], plan["cluster"], plan["format"]) == ("node_cordon", "c1", 1)


def test_the_last_judgement_of_a_step_counts(tmp_path: Path) -> None:
    made = journal(tmp_path / "r", judged("mark", MUTATION), judged("mark"))
    assert plans.document("node_cordon", "c1", made.records, ["mark"])["steps"] == [{"step": "mark", "mutations": []}]


def test_the_digest_is_the_same_for_another_run_at_another_time(tmp_path: Path) -> None:
    one = document(tmp_path / "20260131t120000z-node_cordon-aaaa", MUTATION)
    two = document(tmp_path / "20261231t120000z-node_cordon-bbbb", MUTATION, noon=9)
    assert digest_of(one) == digest_of(two)


CHANGES = {
    "name": {"name": "other"},
    "verb": {"verb": "create"},
    "patch": {"patch": "merge"},
    "body-value": {"body": [{"op": "add", "path": "/spec/unschedulable", "value": False}]},
    "body-field": {"body": [{"op": "add", "path": "/spec/other", "value": True}]},
    "body-order": {"body": [{"op": "x"}, {"op": "y"}]},
    "judged": {"judged": {"/spec/unschedulable": False}},
    "judged-none": {"judged": {}},
    "goal": {"goal": {"/spec/unschedulable": False}},
    "inverse": {"inverse": None},
    "inverse-body": {"inverse": dataclasses.replace(INVERSE, body=[])},
    "kind": {"target": dataclasses.replace(MUTATION.target, kind="Pod")},
    "target-name": {"target": dataclasses.replace(MUTATION.target, name="gpu-b")},
    "namespace": {"target": dataclasses.replace(MUTATION.target, namespace="a")},
    "uid": {"target": dataclasses.replace(MUTATION.target, uid="u2")},
    "path": {"target": dataclasses.replace(MUTATION.target, path="/api/v1/nodes/gpu-b")},
}


@pytest.mark.parametrize("field", CHANGES)
def test_each_covered_field_changes_the_digest(tmp_path: Path, field: str) -> None:
    changed = dataclasses.replace(MUTATION, **CHANGES[field])
    one, two = document(tmp_path / "a", MUTATION), document(tmp_path / "b", changed)
    assert digest_of(one) != digest_of(two)


def test_the_cluster_another_mutation_their_order_and_step_change_the_digest(tmp_path: Path) -> None:
    other = dataclasses.replace(MUTATION, name="second")
    plain = document(tmp_path / "a", MUTATION, other)
    different = [
        document(tmp_path / "b", MUTATION, other, cluster="c2"),
        document(tmp_path / "c", MUTATION),
        document(tmp_path / "d", other, MUTATION),
        {**plain, "runbook": "another"},
        {**plain, "steps": [{**s, "step": "else"} for s in plain["steps"]]},
    ]
    assert len({digest_of(plan) for plan in (plain, *different)}) == 6


def test_a_mutation_comes_back_from_its_json_as_it_was() -> None:
    for mutation in (MUTATION, INVERSE, dataclasses.replace(MUTATION, inverse=None, body=None)):
        assert plans.mutation(json.loads(canonical(mutation.as_json()))) == mutation


# -- finding ---------------------------------------------------------------------------------------------------------


def dry_run(out: Path, run: str = "dry", *, closed: str = "planned", **more: Any) -> str:
    """A dry run's folder with its plan. The digest."""
    folder = out / run
    plan = document(folder, MUTATION, **more)
    made = plans.write(folder, plan)
    book = Journal.open(folder / "journal.jsonl")
    if closed == "planned":
        book.append("close", {"verdict": "planned", "code": "planned", "step": "close", "plan": made})
    elif closed == "reopened":
        book.append("close", {"verdict": "planned", "code": "planned", "step": "close", "plan": made})
        book.append("reopen", {"step": "mark"})
    elif closed == "died":
        book.append("died", {"reason": "killed"})
    elif closed:
        book.append("close", {"verdict": closed, "code": "x", "step": "mark"})
    return made


def test_a_plan_is_found_with_its_run_and_mutations(tmp_path: Path) -> None:
    wanted = dry_run(tmp_path)
    dry_run(tmp_path, "other", cluster="c2")
    plan = plans.find(tmp_path, wanted)
    assert (plan.run, plan.folder, plan.digest) == ("dry", tmp_path / "dry", wanted)
    assert plan.mutations("mark") == [MUTATION]
    assert plan.mutations("whose") == []


@pytest.mark.parametrize("wanted", ["sha256:" + "0" * 64, "", "sha256:", "../../etc", "*"])
def test_a_digest_that_no_plan_has_is_refused(tmp_path: Path, wanted: str) -> None:
    dry_run(tmp_path)
    with pytest.raises(GateError) as refused:
        plans.find(tmp_path, wanted)
    assert refused.value.code == "plan-not-found"


@pytest.mark.parametrize("closed", ["", "reopened", "died", "blocked", "unknown", "failed"])
def test_a_plan_whose_dry_run_did_not_close_as_planned_is_refused(tmp_path: Path, closed: str) -> None:
    wanted = dry_run(tmp_path, closed=closed)
    with pytest.raises(GateError) as refused:
        plans.find(tmp_path, wanted)
    assert refused.value.code == "plan-not-passed"


def test_an_altered_plan_is_another_plan(tmp_path: Path) -> None:
    wanted = dry_run(tmp_path)
    path = tmp_path / "dry" / plans.NAME
    path.write_bytes(path.read_bytes().replace(b"gpu-a", b"gpu-b"))
    with pytest.raises(GateError) as refused:
        plans.find(tmp_path, wanted)
    assert refused.value.code == "plan-not-found"
    # and the altered one has no dry run that closed with it
    altered = digest_of(json.loads(path.read_bytes()))
    with pytest.raises(GateError) as refused:
        plans.find(tmp_path, altered)
    assert refused.value.code == "plan-not-passed"


def test_a_dry_run_whose_journal_was_altered_gives_no_plan(tmp_path: Path) -> None:
    wanted = dry_run(tmp_path)
    path = tmp_path / "dry" / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"node_cordon", b"node_cordom", 1))
    with pytest.raises(JournalError):
        plans.find(tmp_path, wanted)


@pytest.mark.parametrize("odd", [b"", b"[]", b"7", b"null", b'"x"', b"{", b"[" * 100_000, b"\xff", b"NaN"])
def test_odd_files_of_other_runs_hide_no_plan(tmp_path: Path, odd: bytes) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / plans.NAME).write_bytes(odd)
    (tmp_path / "b" / plans.NAME).mkdir(parents=True)
    wanted = dry_run(tmp_path)
    assert plans.find(tmp_path, wanted).run == "dry"


def test_of_two_equal_plans_the_one_that_closed_counts(tmp_path: Path) -> None:
    dry_run(tmp_path, "a", closed="blocked")
    wanted = dry_run(tmp_path, "b")
    dry_run(tmp_path, "c", closed="died")
    assert plans.find(tmp_path, wanted).run == "b"


def test_of_two_equal_plans_that_closed_the_approved_one_counts_else_the_last(tmp_path: Path) -> None:
    wanted = dry_run(tmp_path, "a")
    assert dry_run(tmp_path, "b") == wanted
    assert plans.find(tmp_path, wanted).run == "b"
    (tmp_path / "a" / "approval.json").write_text("{}")
    assert plans.find(tmp_path, wanted).run == "a"


def test_a_mutation_is_told_as_people_read_it() -> None:
    body = [{"op": "add", "path": "/metadata/annotations/a.io~1owner", "value": '{"run":"r1","n":[1]}'}]
    made = dataclasses.replace(MUTATION, verb="patch", patch="json", body=body)
    assert changing.lines(made) == ['add /metadata/annotations/"a.io/owner" = {"n": [1], "run": "r1"}']
