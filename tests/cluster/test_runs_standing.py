"""What must stand while a run works: its lease, and the cordon that other hands take away.

Covered: leases held, taken over, lost, given back; a cordon lost between cells and in a wait, each mark alone and all
together, pods and holders that came meanwhile, a manager that is busy, somebody who fights, another who took the node,
a node that joins again, clocks that jump; old notebooks of closed runs. Not covered: crashes (test_runs_resume.py).
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import runs
from runs import Lab, closing, finish, marks, owner, records, rest, step, verdict

from gpurunbook import errors
from gpurunbook.embedded import actors
from gpurunbook.findings import Finding, Status
from gpurunbook.folder import workspace
from gpurunbook.nodes.cordon import ANNOTATION, TAINT
from gpurunbook.plan import Object, Progress, Seen, Wait
from gpurunbook.pointers import fill
from gpurunbook.runbook import guard, lease, left
from gpurunbook.runbook.run import Run
from tests.eventually import eventually

WHOLE, NONE = (True, True, True), (False, False, False)


pytestmark = pytest.mark.usefixtures("entered")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with runs.lab(tmp_path_factory.mktemp("standing"), nodes=80) as made:
        yield made


def marked(lab: Lab, node: str, **values: Any) -> Run:
    """An apply that has made its cordon and goes on."""
    run = lab.cordon(node, **lab.planned(node, **values))
    finish(run, until="mark")
    return run


def told(run: Run) -> list[dict[str, Any]]:
    """What the run told of lost cordons, in its journal."""
    return [r["data"] for r in records(run) if r["event"] == "lost"]


def findings(run: Run, name: str) -> list[dict[str, str]]:
    return list(runs.state(run).steps[name]["findings"])


def taints(lab: Lab, node: str, *, without: str = "") -> list[dict[str, Any]] | None:
    found = [t for t in lab.seen(node)["spec"].get("taints") or [] if t["key"] != without]
    return found or None


def lose(lab: Lab, node: str, what: str) -> None:
    """Other hands take marks away."""
    bare = taints(lab, node, without=TAINT)
    lab.change(
        node,
        {
            "cordon": {"spec": {"unschedulable": None}},
            "uncordon": {"spec": {"unschedulable": False}},  # as kubectl and the driver manager send it
            "taint": {"spec": {"taints": bare}},
            "both": {"spec": {"unschedulable": None, "taints": bare}},
            "all": {"spec": {"unschedulable": None, "taints": bare}, "metadata": {"annotations": {ANNOTATION: None}}},
        }[what],
    )


# -- leases ----------------------------------------------------------------------------------------------------------


def blocked(lab: Lab, run: Run, code: str) -> None:
    finish(run, until="hands")
    before = lab.seen(run.parameters.node)
    with pytest.raises(errors.GateError) as refused:
        step(run, "mark")
    assert refused.value.code == code
    assert verdict(run) == ("blocked", code)
    assert closing(run)["left_behind"] == []
    assert lab.seen(run.parameters.node) == before


def test_a_second_run_on_the_node_is_kept_out_and_steals_nothing(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    first = lab.cordon(node, **values)
    finish(first, until="hands")
    second = lab.cordon(node, **values)  # a second tab applies the same plan
    finish(second, until="hands")
    step(first, "mark")
    held = lab.lease(node)
    with pytest.raises(errors.GateError, match=f"run {first.id} holds it since 20") as refused:
        step(second, "mark")
    assert refused.value.code == "lease-held"
    assert f"--set take_over={first.id}" in refused.value.remedy
    assert lab.lease(node) == held
    rest(first, after="mark")
    assert verdict(first) == ("pass", "all-steps-passed")
    # and afterwards the node is not this run's to cordon
    with pytest.raises(errors.GateError):
        step(second, "mark")
    assert owner(lab.seen(node)) == first.id
    assert lab.lease(node) is None


@pytest.mark.parametrize("named", ["", "another-run"])
def test_a_lease_is_taken_over_from_no_other_run_than_the_one_that_is_named(lab: Lab, named: str) -> None:
    node = lab.node()
    dead = marked(lab, node)
    held = lab.lease(node)
    blocked(lab, lab.cordon(node, action="adopt", take_over=named), "lease-held")  # by the dry run already
    assert lab.lease(node) == held
    assert owner(lab.seen(node)) == dead.id


def test_the_lease_of_a_named_run_is_taken_over_and_given_back(lab: Lab) -> None:
    node = lab.node()
    dead = marked(lab, node)
    values = lab.planned(node, action="adopt", take_over=dead.id)
    run = lab.cordon(node, **values)
    finish(run, until="mark")
    held = lab.lease(node)
    assert held is not None
    assert held["spec"]["holderIdentity"] == run.id
    assert held["metadata"]["annotations"]["gpurunbook.io/taken-from"] == dead.id
    rest(run, after="mark")
    assert (lab.lease(node), owner(lab.seen(node))) == (None, run.id)
    # The run that was taken for dead does nothing more to the node.
    before = lab.seen(node)
    with pytest.raises(errors.GateError):
        step(dead, "settled")
    assert lab.seen(node) == before
    assert closing(dead)["left_behind"] == []  # it is another run's now, whatever the journal of the dead one says


def test_what_is_left_stands_as_the_journal_says_where_it_cannot_be_read_anew(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    lab.change(node, {"metadata": {"annotations": {ANNOTATION: "{"}}})
    lab.arm({"method": "GET", "path": f"{runs.LEASES}/.*"}, {"status": 500}, times=0)
    with pytest.raises(errors.RunbookError):
        step(run, "settled")
    told = closing(run)["left_behind"]
    assert [line.split(" by run ")[0] for line in told] == [
        f"Lease gpurunbook-node-{node}: lease",
        f"Node {node}: cordon",
    ]
    assert all("(by the journal; it could not be read anew)" in line for line in told)


def test_what_is_left_is_not_judged_by_another_cluster(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    run = marked(lab, lab.node())
    there = left.behind(run)
    monkeypatch.setattr(type(run.cluster), "uid", "another")
    for line, as_before in zip(left.behind(run), there, strict=True):
        assert line == as_before.replace("; ", " (by the journal; it could not be read anew); ", 1)


def test_a_command_that_undoes_names_the_cluster_unless_it_is_the_current_one(lab: Lab) -> None:
    for named, said in (
        ("prod eu", " --cluster 'prod eu'"),
        ("arn:aws:eks:x/y", " --cluster arn:aws:eks:x/y"),
        ("", ""),
    ):
        ledger = SimpleNamespace(parameters=SimpleNamespace(cluster=named))
        assert left.at(ledger) == said


def test_a_run_of_a_scenario_names_no_command_that_would_go_to_another_cluster(lab: Lab) -> None:
    run = marked(lab, lab.node())
    record = {"run": run.id, "runbook": "node_cordon", "home": str(lab.home), "scenario": "cordon"}
    (run.folder / workspace.RECORD).write_text(json.dumps(record))
    assert [line.split("; ")[1] for line in left.behind(run)] == [
        "the cluster is this scenario's own, so that there is nothing to undo"
    ] * 2


def test_a_lease_is_kept_after_a_failure_and_found_again_by_the_same_run(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    lab.change(node, {"metadata": {"annotations": {ANNOTATION: "{"}}})
    with pytest.raises(errors.GateError):
        step(run, "settled")
    assert verdict(run)[0] == "failed"
    held = lab.lease(node)
    assert held is not None
    assert held["spec"]["holderIdentity"] == run.id
    left = closing(run)["left_behind"]
    assert [line.split(":")[0] for line in left] == [f"Lease gpurunbook-node-{node}", f"Node {node}"]
    needed = "--set change_id=CHG-7 --set reason=…"
    assert f"`gpurunbook abort {run.id} {needed}` undoes it" in left[0]
    taken = f"--set take_over={run.id}"  # else the lease keeps it out
    assert f"`gpurunbook release {node} {taken} {needed}` undoes it" in left[1]
    assert f"--run-id {run.id}" in closing(run)["next"]


def arrives_late(lab: Lab, node: str, run: Run) -> None:
    """The request for the lease whose answer was lost, when its run is over: nothing refuses it."""
    mutation = lease.acquire("gpu-operator", f"node/{node}")
    body = fill(mutation.body, {"run": run.id, "reason": "x", "time": "2026-01-31T12:00:00.000000Z"})
    lab.admin.call("POST", mutation.target.path, body)


@pytest.mark.parametrize("action", ["release", "adopt"])
def test_a_lease_that_arrives_when_its_run_is_over_keeps_the_next_out_until_that_one_names_it(
    lab: Lab, action: str
) -> None:
    node = lab.node()
    first = lab.applied(node)
    arrives_late(lab, node, first)
    run = lab.cordon(node, action=action)
    finish(run, until="hands")
    with pytest.raises(errors.GateError, match=f"run {first.id} holds it") as refused:
        step(run, "mark")
    assert f"or is over, begin a new dry run with --set take_over={first.id}" in refused.value.remedy
    second = lab.applied(node, action=action, take_over=first.id)
    assert verdict(second) == ("pass", "all-steps-passed")
    assert (lab.lease(node), owner(lab.seen(node))) == (None, second.id if action == "adopt" else "")


def test_a_lease_that_arrives_for_a_node_in_service_is_given_back(lab: Lab) -> None:
    node = lab.node()
    first = lab.applied(node, action="release")
    before = lab.seen(node)
    arrives_late(lab, node, first)
    assert verdict(lab.applied(node, action="release", take_over=first.id)) == ("pass", "all-steps-passed")
    assert (lab.lease(node), lab.seen(node)) == (None, before)


def test_a_run_that_is_run_again_gives_back_its_lease_that_arrived_late(lab: Lab) -> None:
    node = lab.node()
    run = lab.applied(node)
    arrives_late(lab, node, run)
    before = lab.seen(node)
    finish(run)
    assert verdict(run) == ("pass", "all-steps-passed")
    assert (lab.lease(node), lab.seen(node)) == (None, before)


def test_a_lease_namespace_that_is_not_there_is_named(lab: Lab) -> None:
    (lab.home / "parameters" / "nowhere.yaml").write_text("lease_namespace: nowhere\n")
    node = lab.node()
    blocked(lab, lab.cordon(node, site="parameters/nowhere.yaml"), "lease-namespace-missing")


@pytest.mark.parametrize("status", [403, 400])
def test_a_dry_run_whose_lease_the_server_cannot_validate_is_unknown(lab: Lab, status: int) -> None:
    run = lab.cordon(lab.node())
    finish(run, until="hands")
    refusal = {"status": status, "message": "admission webhook has side effects: it does not support dry run"}
    lab.arm({"method": "POST", "path": runs.LEASES, "query": ".*dryRun=All.*"}, refusal)
    with pytest.raises(errors.RunbookError, match="did not validate"):
        step(run, "mark")
    assert verdict(run) == ("unknown", "dry-run-not-validated")


def test_a_lease_of_nobody_is_in_no_command(lab: Lab) -> None:
    node = lab.node()
    mutation = lease.acquire("gpu-operator", f"node/{node}")
    words = {"run": "r; reboot", "reason": "x", "time": "2026-01-31T12:00:00.000000Z"}
    lab.admin.call("POST", mutation.target.path, fill(mutation.body, words))
    run = lab.cordon(node)
    finish(run, until="hands")
    with pytest.raises(errors.GateError, match="holds it since") as refused:
        step(run, "mark")
    assert refused.value.remedy == "Look at the lease by hand: it names no run that could give it back."
    lab.admin.call("DELETE", f"{mutation.target.path}/{mutation.target.name}")


@pytest.mark.parametrize("action", [{"reset": "after"}, {"reset": "before"}, {"status": 500}, {"garble": True}])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_an_answer_about_the_lease_that_is_lost_is_settled(lab: Lab, method: str, action: dict[str, Any]) -> None:
    node = lab.node()
    run = lab.cordon(node, **lab.planned(node))
    finish(run, until="hands")
    lab.arm({"method": method, "path": f"{runs.LEASES}.*"}, action)
    with lab.requests() as seen:
        rest(run, after="hands")
    assert verdict(run) == ("pass", "all-steps-passed")
    assert [m for m, path in runs.changed(seen) if "leases" in path] == ["POST", "DELETE"]
    assert lab.lease(node) is None


def test_a_lease_that_cannot_be_given_back_does_not_close_well(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    rest(run, after="mark", close=False)
    lab.arm({"method": "DELETE"}, {"status": 403}, times=0)
    with pytest.raises(errors.Denied):
        step(run, "close")
    assert verdict(run) == ("failed", "forbidden")
    assert any("Lease" in line for line in closing(run)["left_behind"])
    lab.disarm()
    step(run, "close")
    assert verdict(run) == ("pass", "all-steps-passed")
    assert not any("Lease" in line for line in closing(run)["left_behind"])


# -- between cells ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["cordon", "uncordon", "taint", "both", "all"])
@pytest.mark.parametrize("at", ["settled", "close"])
def test_what_is_lost_between_cells_is_made_again_at_the_next(lab: Lab, what: str, at: str) -> None:
    node = lab.node()
    run = marked(lab, node)
    first = lab.seen(node)["metadata"]["annotations"][ANNOTATION]
    if at == "close":
        rest(run, after="mark", close=False)
    lose(lab, node, what)
    with lab.requests() as seen:
        step(run, at)
    assert marks(lab.seen(node)) == WHOLE
    assert [c for c in runs.changed(seen) if "nodes" in c[1]] == [("PATCH", f"/api/v1/nodes/{node}")]
    assert lab.seen(node)["metadata"]["annotations"][ANNOTATION] == first  # the owner is written as it was
    assert [f["code"] for record in told(run) for f in record["findings"]] == ["cordon-lost"]
    if at == "settled":
        assert {"cordon-lost": "warn", "no-holders": "pass"}.items() <= {
            f["code"]: f["status"] for f in findings(run, "settled")
        }.items()
        rest(run, after="settled")
    else:
        assert "no pod came to the node" in closing(run)["message"]
    assert verdict(run) == ("pass", "all-steps-passed")
    assert closing(run)["message"].startswith("The cordon was lost once and was made again: gone for at most ")
    assert "nothing landed meanwhile. Every step passed." in closing(run)["message"]
    assert len(closing(run)["left_behind"]) == 1


def test_a_cordon_that_stands_is_left_alone(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    before = lab.seen(node)
    step(run, "settled")
    step(run, "mark")
    step(run, "settled")
    assert lab.seen(node) == before
    assert told(run) == []
    rest(run, after="settled")
    assert closing(run)["message"] == "Every step passed."


def test_a_lost_cordon_is_told_with_the_time_at_which_it_stood_and_what_landed(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    step(run, "settled")
    lose(lab, node, "cordon")
    lab.land(node, f"landed-{node}")
    step(run, "settled")
    (record,) = told(run)
    result = next(r["time"] for r in records(run) if r["event"] == "result" and r["data"]["name"] == "cordon")
    assert result < record["stood"] < record["missed"]
    assert f"1 pod came to the node: default/landed-{node}" in record["findings"][0]["message"]
    assert "last seen whole" in record["findings"][0]["message"]


def test_the_end_says_how_often_it_was_lost_and_who_came(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    run = lab.cordon(node, **values)
    finish(run, until="mark")
    for number, what in enumerate(["uncordon", "all"]):
        lose(lab, node, what)
        lab.land(node, f"landed-{number}-{node}")
        step(run, "settled")
    lose(lab, node, "taint")
    later = lab.cordon(node, **values, run_id=run.id)
    rest(later, after="mark")
    said = closing(run)["message"]
    assert said.startswith("The cordon was lost 3 times and was made again: gone for at most ")
    pods = f"default/landed-0-{node}, default/landed-1-{node}"
    assert said.endswith(f" s; meanwhile landed {pods}. Every step passed.")


def test_a_pod_that_lands_while_the_cordon_is_made_again_is_told(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    lose(lab, node, "uncordon")
    lab.arm({"method": "PATCH", "path": f"/api/v1/nodes/{node}"}, {"delay": 3.0})

    def deed() -> None:
        faults = eventually(lambda: [f for f in lab.server.control("GET", "faults") if f["hits"]])
        assert faults
        lab.land(node, f"late-{node}")

    with meanwhile(deed):
        step(run, "settled")
    rest(run, after="settled")
    assert f"meanwhile landed default/late-{node}" in closing(run)["message"]


def test_after_a_kernel_restart_it_stood_when_the_journal_last_proves_it(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    run = lab.cordon(node, **values)
    finish(run, until="mark")
    result = next(r["time"] for r in records(run) if r["event"] == "result" and r["data"]["name"] == "cordon")
    lose(lab, node, "cordon")
    later = lab.cordon(node, **values, run_id=run.id)
    step(later, "settled")
    (record,) = told(run)
    assert record["stood"] == result
    assert f"stood at {result}" in record["findings"][0]["message"]
    assert "no pod came" in record["findings"][0]["message"]
    assert marks(lab.seen(node)) == WHOLE


def test_a_holder_that_came_meanwhile_fails_the_run_with_the_node_cordoned_again(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    lose(lab, node, "both")
    lab.holder(node)
    with pytest.raises(errors.GateError, match="found when cordon-lost of Node/") as refused:
        step(run, "settled")
    assert refused.value.code == "gpu-held"
    assert verdict(run) == ("failed", "gpu-held")
    assert marks(lab.seen(node)) == WHOLE
    lab.admin.call("DELETE", f"/api/v1/namespaces/default/pods/trainer-{node}", None, gracePeriodSeconds=0)
    rest(run, after="mark")
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_holder_that_may_stay_is_told_and_stays(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node, holders="may-stay")
    lose(lab, node, "both")
    lab.holder(node)
    step(run, "settled")
    assert {"cordon-lost", "gpu-held"} <= {f["code"] for f in findings(run, "settled") if f["status"] == "warn"}


@pytest.mark.parametrize(
    "annotation", ["{", '{"run":"r9"}', None], ids=["garbled", "another run's", "a person's cordon"]
)
def test_a_node_that_somebody_else_took_is_left_to_him(lab: Lab, annotation: str | None) -> None:
    node = lab.node()
    run = marked(lab, node)
    lab.change(node, {"metadata": {"annotations": {ANNOTATION: annotation}}})
    before = lab.seen(node)
    for name in ("settled", "mark"):
        with pytest.raises(errors.GateError, match="Node/"):
            step(run, name)
        assert verdict(run)[0] == "failed"
    assert lab.seen(node) == before


def test_without_its_lease_a_run_makes_nothing_again(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    lab.admin.call("DELETE", f"{runs.LEASES}/gpurunbook-node-{node}")
    lose(lab, node, "all")
    with pytest.raises(errors.GateError) as refused:
        step(run, "settled")
    assert refused.value.code == "lease-lost"
    assert marks(lab.seen(node)) == NONE


def test_an_old_notebook_does_not_cordon_a_node_that_another_run_released(lab: Lab) -> None:
    node = lab.node()
    old = lab.applied(node)
    lab.applied(node, action="release")
    before = lab.seen(node)
    with lab.requests() as seen:
        step(old, "close")  # shows the end again
        assert verdict(old) == ("pass", "all-steps-passed")
        for name in ("whose", "settled", "mark", "close"):
            with pytest.raises(errors.GateError) as refused:
                step(old, name)
            # `whose` has not passed now, so that there is nothing to close
            assert refused.value.code == ("out-of-order" if name == "close" else "lease-lost")
    assert runs.changed(seen) == []
    assert lab.seen(node) == before
    assert verdict(old)[0] == "failed"


def test_a_change_that_somebody_undid_is_not_done_again(lab: Lab) -> None:
    node = lab.node()
    lab.applied(node)
    run = lab.cordon(node, **lab.planned(node, action="release"))
    finish(run, until="mark")
    lab.change(node, {"spec": {"unschedulable": True}})
    with pytest.raises(errors.Drifted) as refused:
        step(run, "mark")
    assert refused.value.code == "undone"
    assert lab.seen(node)["spec"]["unschedulable"] is True


def test_a_node_that_joined_again_is_cordoned_again(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    found = lab.seen(node)
    lab.admin.call("DELETE", f"/api/v1/nodes/{node}")
    body = {"metadata": {"name": node, "labels": found["metadata"]["labels"]}, "status": found["status"]}
    lab.admin.call("POST", "/api/v1/nodes", body)
    rest(run, after="mark", close=False)
    assert marks(lab.seen(node)) == WHOLE
    fresh = lab.seen(node)["metadata"]["uid"]
    assert fresh != found["metadata"]["uid"]
    lose(lab, node, "uncordon")  # from the new node: that is no new one then
    step(run, "close")
    record, later = told(run)
    assert "joined again" not in later["findings"][0]["message"]
    assert (
        f"the node was deleted and joined again (its uid is {fresh}, {found['metadata']['uid']} was cordoned): "
        "spec.unschedulable, our taint and our annotation are gone"
    ) in record["findings"][0]["message"]


def test_a_wall_clock_that_jumps_makes_no_cordon_lost_and_no_pod_landed(lab: Lab) -> None:
    node = lab.node()
    lab.land(node, f"old-{node}")
    run = marked(lab, node)
    step(run, "settled")
    jumps = itertools.cycle([timedelta(days=4000), timedelta(days=-4000)])
    run.clock = lambda: datetime.now(UTC) + next(jumps)
    step(run, "settled")
    assert told(run) == []
    lose(lab, node, "cordon")
    step(run, "settled")
    (record,) = told(run)
    assert "no pod came to the node" in record["findings"][0]["message"]
    ago = record["findings"][0]["message"].split("last seen whole ")[1].split(" s ago")[0]
    assert float(ago.removeprefix("less than ")) < 60


def test_a_dry_run_looks_after_nothing(lab: Lab) -> None:
    node = lab.node()
    run = lab.cordon(node)
    finish(run, until="mark")
    lab.change(node, {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    with lab.requests() as seen:
        rest(run, after="mark")
    assert verdict(run) == ("planned", "planned")
    assert runs.changed(seen) == []


# -- a manager that is busy ------------------------------------------------------------------------------------------

PAUSED = "nvidia.com/gpu.deploy.device-plugin"


@pytest.mark.parametrize("what", ["cordon", "taint"])
def test_a_busy_manager_is_waited_for_and_no_run_closes_well_meanwhile(lab: Lab, what: str) -> None:
    node = lab.node()
    run = marked(lab, node)
    lab.change(node, {"metadata": {"labels": {PAUSED: "true_paused-for-driver-upgrade"}}})
    lose(lab, node, what)
    before = lab.seen(node)
    custom(run, lambda _: Progress("done", (), OVER))  # a wait that needs nothing of the cordon
    rest(run, after="settled", close=False)
    with pytest.raises(errors.GateError, match="Node/") as refused:
        step(run, "close")
    assert "when it has settled" in refused.value.remedy
    assert verdict(run) == ("failed", "cordon-lost")
    assert lab.seen(node) == before
    assert len(told(run)) == 1  # told once, not at each look
    lab.change(node, {"metadata": {"labels": {PAUSED: "true"}}})
    step(run, "close")
    assert verdict(run) == ("pass", "all-steps-passed")
    assert marks(lab.seen(node)) == WHOLE


def test_after_a_kernel_restart_a_step_in_which_it_was_missed_is_no_proof_that_it_stood(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    run = lab.cordon(node, **values)
    finish(run, until="mark")
    made = next(r["time"] for r in records(run) if r["event"] == "result" and r["data"]["name"] == "cordon")
    lab.change(node, {"metadata": {"labels": {PAUSED: "true_paused-for-driver-upgrade"}}})
    lose(lab, node, "cordon")
    lab.land(node, f"landed-{node}")
    custom(run, lambda _: Progress("done", (), OVER))
    rest(run, after="settled", close=False)
    lab.change(node, {"metadata": {"labels": {PAUSED: "true"}}})
    later = lab.cordon(node, **values, run_id=run.id)
    step(later, "again")
    assert [record["stood"] for record in told(run)] == [told(run)[0]["stood"], made]
    assert "1 pod came" in told(run)[1]["findings"][0]["message"]
    step(later, "close")
    said = closing(run)["message"]
    assert said.startswith("The cordon was lost once and was made again")
    assert f"meanwhile landed default/landed-{node}." in said


def test_a_cordon_that_others_made_whole_again_is_told_too(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    lab.change(node, {"metadata": {"labels": {PAUSED: "true_paused-for-driver-upgrade"}}})
    lose(lab, node, "cordon")
    custom(run, lambda _: Progress("done", (), OVER))
    lab.change(node, {"spec": {"unschedulable": True}})  # the manager writes back what it found
    rest(run, after="settled")
    assert closing(run)["message"].startswith("The cordon was lost once and stands again: gone for at most ")


@pytest.mark.parametrize("what", ["both", "all"])
def test_with_no_guard_left_a_busy_manager_is_not_waited_for(lab: Lab, what: str) -> None:
    node = lab.node()
    run = marked(lab, node)
    lab.change(node, {"metadata": {"labels": {PAUSED: "paused-for-cc-mode-change"}}})
    lose(lab, node, what)
    rest(run, after="mark")
    assert marks(lab.seen(node)) == WHOLE
    assert verdict(run) == ("pass", "all-steps-passed")


# -- in a wait -------------------------------------------------------------------------------------------------------


def custom(run: Run, progress: Callable[[Seen], Progress], seconds: float = 180.0) -> None:
    """The waiting cell with another wait in it."""
    node = Object(f"/api/v1/nodes/{run.parameters.node}")
    run.wait("settled", Wait("something long", {"node": node}, progress, seconds))


OVER = (Finding("c", "s", Status.PASS, "over", "it is over"),)


class Good:
    """Done when somebody has put the label on the node. asked: whether it was judged at all; node: what was seen."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.node: dict[str, Any] | None = None

    def __call__(self, seen: Seen) -> Progress:
        self.node = seen["node"].value
        self.asked.set()
        if self.node and "over" in self.node["metadata"]["labels"]:
            return Progress("done", (), OVER)
        return Progress("waiting", ("the label over",))


@contextmanager
def meanwhile(deed: Callable[[], None]) -> Iterator[None]:
    """Another hand in a thread; what goes wrong there fails the test."""
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            deed()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(300)
        assert wrong == []


@pytest.mark.parametrize("what", ["uncordon", "taint", "both", "all"])
def test_what_is_lost_in_a_wait_is_made_again_within_a_second(lab: Lab, what: str) -> None:
    node = lab.node()
    run = marked(lab, node)
    took: list[float] = []
    good = Good()

    def deed() -> None:
        assert good.asked.wait(180)
        for _ in range(5):
            begin = time.monotonic()
            lose(lab, node, what)
            eventually(lambda: marks(lab.seen(node)) == WHOLE)
            took.append(time.monotonic() - begin)
        lab.change(node, {"metadata": {"labels": {"over": ""}}})

    with meanwhile(deed):
        custom(run, good)
    assert min(took) < 1.0  # each of them, but for what else the machine does
    assert len(told(run)) == 5
    rest(run, after="settled")
    assert verdict(run) == ("pass", "all-steps-passed")
    assert [f["code"] for f in findings(run, "settled")].count("cordon-lost") == 5


@pytest.mark.parametrize("what", ["uncordon", "all"])
def test_what_is_lost_while_a_check_takes_long_is_made_again_before_it_is_over(lab: Lab, what: str) -> None:
    node = lab.node()
    run = marked(lab, node)
    step(run, "settled")
    whole: list[bool] = []

    def deed() -> None:
        eventually(lambda: [f for f in lab.server.control("GET", "faults") if f["hits"]])
        lose(lab, node, what)
        eventually(lambda: marks(lab.seen(node)) == WHOLE)
        whole.append(True)

    for delay in (6.0, 40.0):  # the longer one for a machine on which all takes longer
        lab.disarm()
        lab.arm({"method": "GET", "path": "/apis/node.k8s.io/v1/runtimeclasses"}, {"delay": delay})
        whole.clear()
        with meanwhile(deed):
            step(run, "again")
            in_time = bool(whole)
        if in_time:
            break
    assert in_time
    assert findings(run, "again")[0]["code"] == "cordon-lost"
    step(run, "close")
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_holder_that_came_while_a_check_takes_long_ends_it(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    step(run, "settled")
    lab.arm({"method": "GET", "path": "/apis/node.k8s.io/v1/runtimeclasses"}, {"delay": 8.0})

    def deed() -> None:
        eventually(lambda: [f for f in lab.server.control("GET", "faults") if f["hits"]])
        lab.holder(node)
        lose(lab, node, "uncordon")

    with meanwhile(deed), pytest.raises(errors.GateError) as refused:
        step(run, "again")
    assert refused.value.code == "gpu-held"
    assert verdict(run) == ("failed", "gpu-held")
    assert marks(lab.seen(node)) == WHOLE


def test_a_pod_that_lands_in_a_wait_is_named_and_a_holder_ends_it(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)

    good = Good()

    def deed() -> None:
        assert good.asked.wait(180)
        lab.land(node, f"landed-{node}")  # it tolerates everything; the cordon is lost just after
        lab.holder(node)
        lose(lab, node, "uncordon")

    with meanwhile(deed), pytest.raises(errors.GateError) as refused:
        custom(run, good)
    assert refused.value.code == "gpu-held"
    assert marks(lab.seen(node)) == WHOLE
    assert verdict(run) == ("failed", "gpu-held")


def test_one_loss_is_told_once_however_often_the_watch_repeats_it(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)

    good = Good()

    def deed() -> None:
        assert good.asked.wait(180)
        lose(lab, node, "uncordon")
        eventually(lambda: marks(lab.seen(node)) == WHOLE)
        for n in range(5):
            lab.change(node, {"metadata": {"labels": {"beat": str(n)}}})
        lab.change(node, {"metadata": {"labels": {"over": ""}}})

    with lab.requests() as seen, meanwhile(deed):
        custom(run, good)
    assert len(told(run)) == 1
    assert len([c for c in runs.changed(seen) if "nodes" in c[1]]) == 1


def test_somebody_who_fights_is_fought_a_bounded_number_of_times_and_the_node_stays_cordoned(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    ending = threading.Event()

    def deed() -> None:
        while not ending.is_set():
            if lab.seen(node)["spec"].get("unschedulable") is True and len(told(run)) < guard.AGAIN:
                lose(lab, node, "uncordon")
            ending.wait(0.01)

    with meanwhile(deed):
        with pytest.raises(errors.GateError) as refused:
            custom(run, Good())
        ending.set()
    assert refused.value.code == "lost-again"
    assert verdict(run) == ("failed", "lost-again")
    assert len(told(run)) == guard.AGAIN
    assert marks(lab.seen(node)) == WHOLE


def test_a_controller_that_uncordons_and_pods_that_land_at_once_are_told(lab: Lab) -> None:
    # The actors of the embedded server, as a driver manager and a scheduler would work.
    node = lab.node()
    run = marked(lab, node)
    ended = threading.Event()
    actors.start("fights-cordon", {"node": node, "times": 2, "delay": 0.2}, lab.admin.again(), ended.set)
    landing = {"node": node, "name": f"landed-{node}-", "resources": {"cpu": "1"}}
    actors.start("lands-pods", landing, lab.admin.again(), lambda: None)

    def deed() -> None:
        assert ended.wait(180)
        eventually(lambda: marks(lab.seen(node)) == WHOLE)
        lab.change(node, {"metadata": {"labels": {"over": ""}}})

    with meanwhile(deed):
        custom(run, Good())
    assert len(told(run)) == 2
    rest(run, after="settled")
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_node_that_is_gone_in_a_wait_is_cordoned_when_it_joins_again(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    found = lab.seen(node)
    good = Good()

    def deed() -> None:
        assert good.asked.wait(180)
        lab.admin.call("DELETE", f"/api/v1/nodes/{node}")
        eventually(lambda: good.node is None)
        body = {"metadata": {"name": node, "labels": found["metadata"]["labels"]}, "status": found["status"]}
        lab.admin.call("POST", "/api/v1/nodes", body)
        eventually(lambda: marks(lab.seen(node)) == WHOLE)
        lab.change(node, {"metadata": {"labels": {"over": ""}}})

    with meanwhile(deed):
        custom(run, good)
    rest(run, after="settled")
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_deadline_fails_the_run_and_running_the_cell_again_goes_on(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)
    with pytest.raises(errors.DeadlineError):
        custom(run, Good(), seconds=0.3)
    assert verdict(run) == ("failed", "deadline")
    assert re.search(r"the label over \(since [0-9]+ s\)", closing(run)["message"])
    assert marks(lab.seen(node)) == WHOLE
    lab.change(node, {"metadata": {"labels": {"over": ""}}})
    custom(run, Good())
    rest(run, after="settled")
    assert verdict(run) == ("pass", "all-steps-passed")


def test_an_interrupted_wait_is_failed_and_leaves_the_node_cordoned(lab: Lab) -> None:
    node = lab.node()
    run = marked(lab, node)

    def stop(_: Seen) -> Progress:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        custom(run, stop)
    assert verdict(run) == ("failed", "interrupted")
    assert f"--run-id {run.id}" in closing(run)["next"]
    assert marks(lab.seen(node)) == WHOLE
    rest(run, after="mark")
    assert verdict(run) == ("pass", "all-steps-passed")


@pytest.mark.parametrize("progress", [Progress("failed", ("x",)), Progress("failed"), Progress("done")])
def test_a_wait_that_failed_or_says_nothing_never_passes(lab: Lab, progress: Progress) -> None:
    run = marked(lab, lab.node())
    with pytest.raises(errors.Stopped):
        custom(run, lambda _: progress)
    assert verdict(run)[0] == ("unknown" if progress.state == "done" else "failed")
