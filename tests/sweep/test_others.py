"""Others at the same node at the same moment, and a clock that jumps.

Covered: another's cordon and a GPU pod that come while a run's own patch is under way or right before, a second tab
with the same plan or the same run, a node that leaves and joins again under a new uid, a wall clock that jumps.
Not covered: a cordon that is taken away after it was made (test_kills.py, test_faults.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import world
from bench import RUN, Bench, Case
from stage import NODE, Place, closing, ended, eventually, let_go, stopped

from gpurunbook.evidence.seal import seal
from gpurunbook.evidence.verify import verify
from gpurunbook.journal import read

pytestmark = pytest.mark.sweep


@pytest.fixture
def case(bench: Bench) -> Case:
    return bench.case("cordon")


@pytest.fixture
def place(bench: Bench, case: Case) -> Iterator[Place]:
    made = bench.fresh(case.base)
    yield made
    made.stop()


def meanwhile(place: Place, case: Case, record: int, deed: Callable[[], object]) -> int:
    """The exit code of a run that stood still before a record of its journal, while others did something."""
    process = place.begin(RUN, case.values, stop=record)
    eventually(lambda: stopped(process), f"record {record} is due")
    try:
        deed()
    finally:
        code = let_go(process)
    return code


def making(case: Case) -> int:
    """The intent of the cordon: all that it depends on was read, and it is about to be sent."""
    (number,) = [intent for request, intent, _ in case.mutations if request.method == "PATCH"]
    return number


def record(case: Case, event: str, step: str) -> int:
    """The first record of its kind."""
    return next(r["seq"] for r in case.records if (r["event"], r["data"].get("step")) == (event, step))


def cordon_of_another(place: Place) -> None:
    path = f"/api/v1/nodes/{NODE}"
    place.admin.call("PATCH", path, {"spec": {"unschedulable": True}}, "application/merge-patch+json")


def holder(place: Place) -> None:
    """A pod that has a GPU of the node lands on it."""
    container = {"name": "c", "image": "registry.example/a:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    body = {"metadata": {"name": "trainer"}, "spec": {"nodeName": NODE, "containers": [container]}}
    place.admin.call("POST", "/api/v1/namespaces/default/pods", body)


def rejoins(place: Place) -> None:
    """The node object is deleted, and its kubelet registers it again."""
    found = world.node(place)
    place.admin.call("DELETE", f"/api/v1/nodes/{NODE}")
    kept = {key: found["metadata"][key] for key in ("name", "labels")}
    place.admin.call("POST", "/api/v1/nodes", {**found, "metadata": kept, "spec": {}})
    assert world.node(place)["metadata"]["uid"] != found["metadata"]["uid"]


def end(place: Place, name: str = RUN) -> tuple[str, str]:
    found = closing(place.out / name)
    return found["verdict"], found["code"]


def findings(place: Place) -> list[dict[str, Any]]:
    """All that the run's steps have concluded."""
    records = read(place.out / RUN / "journal.jsonl")
    return [finding for r in records if r["event"] == "judged" for finding in r["data"]["findings"]]


def warned(place: Place) -> list[str]:
    return [finding["code"] for finding in findings(place) if finding["status"] == "warn"]


def untouched(place: Place) -> bool:
    """No run has left anything: neither a mark on the node nor a lease."""
    return not world.owner(world.node(place)) and not world.lease_holder(place)


def evident(place: Place, name: str = RUN) -> str:
    """The verdict in the evidence of a run."""
    manifest = seal(place.out / name)
    assert verify(place.out / name).verdict == "consistent"
    return str(manifest["verdict"])


def test_another_cordons_the_node_at_the_same_moment(place: Place, case: Case) -> None:
    code = meanwhile(place, case, making(case), lambda: cordon_of_another(place))
    assert (code, end(place)) == (1, ("blocked", "drifted"))
    assert untouched(place)
    assert world.turns(place) == [(True, False)]
    assert place.run(RUN, case.values) == 1
    assert end(place) == ("blocked", "cordon-of-another")
    assert untouched(place)
    assert world.turns(place) == [(True, False)]
    assert evident(place) == "blocked"


def test_a_second_tab_begins_while_the_first_one_patches(place: Place, case: Case) -> None:
    codes = []
    code = meanwhile(place, case, making(case), lambda: codes.append(place.run("second", case.values)))
    assert (code, codes) == (0, [1])
    assert (end(place), end(place, "second")) == (("pass", "all-steps-passed"), ("blocked", "lease-held"))
    assert closing(place.out / "second")["left_behind"] == []
    assert world.comes_to(place) == case.end
    assert (evident(place), evident(place, "second")) == ("pass", "blocked")


def test_two_tabs_apply_the_same_plan_at_once(place: Place, case: Case) -> None:
    both: dict[str, BaseProcess] = {name: place.begin(name, case.values) for name in ("first", "second")}
    codes = {name: ended(process) for name, process in both.items()}
    assert sorted(codes.values()) == [0, 1]
    (winner,) = [name for name, code in codes.items() if code == 0]
    (loser,) = [name for name, code in codes.items() if code == 1]
    assert end(place, loser)[0] == "blocked"
    assert closing(place.out / loser)["left_behind"] == []
    assert world.owner(world.node(place)) == winner
    assert world.lease_holder(place) == ""
    assert world.persisted(place).count(("PATCH", NODE)) == 1
    assert (evident(place, winner), evident(place, loser)) == ("pass", "blocked")


def test_the_same_run_in_a_second_tab_is_refused_and_writes_nothing(place: Place, case: Case) -> None:
    codes = []

    def second() -> None:
        before = read(place.out / RUN / "journal.jsonl")
        codes.append(place.run(RUN, case.values))
        assert read(place.out / RUN / "journal.jsonl") == before

    assert meanwhile(place, case, making(case), second) == 0
    assert codes == [1]
    assert end(place)[0] == "pass"


def test_a_node_that_joined_again_after_the_dry_run_is_left_alone(place: Place, case: Case) -> None:
    rejoins(place)
    assert place.run(RUN, case.values) == 1
    assert end(place) == ("blocked", "plan-changed")
    assert untouched(place)
    assert world.turns(place) == [(False, False)]


def test_a_node_that_joins_again_while_it_is_patched_is_left_alone(place: Place, case: Case) -> None:
    code = meanwhile(place, case, making(case), lambda: rejoins(place))
    assert (code, end(place)) == (1, ("blocked", "object-replaced"))
    assert untouched(place)
    assert world.turns(place) == [(False, False)]
    assert evident(place) == "blocked"


def test_a_node_that_joins_again_after_the_cordon_is_cordoned_again_and_that_is_told(place: Place, case: Case) -> None:
    code = meanwhile(place, case, record(case, "judged", "settled"), lambda: rejoins(place))
    assert (code, end(place)[0]) == (0, "pass")
    assert world.turns(place) == [(True, True), (False, False), (True, True)]
    assert world.owner(world.node(place)) == RUN
    assert warned(place) == ["cordon-lost"]
    assert evident(place) == "pass"


def test_a_holder_comes_between_the_check_and_the_change(place: Place, case: Case) -> None:
    code = meanwhile(place, case, record(case, "judged", "hands"), lambda: holder(place))
    assert (code, end(place)[0]) == (1, "blocked")
    assert untouched(place)
    assert ("PATCH", NODE) not in world.persisted(place)
    assert evident(place) == "blocked"


def test_a_holder_comes_while_the_cordon_is_made(place: Place, case: Case) -> None:
    code = meanwhile(place, case, making(case), lambda: holder(place))
    assert (code, end(place)[0]) == (1, "failed")
    assert "default/Pod/trainer" in [f["subject"] for f in findings(place) if f["status"] == "fail"]
    assert world.turns(place) == [(True, True)]
    assert evident(place) == "failed"
    place.admin.call("DELETE", "/api/v1/namespaces/default/pods/trainer?gracePeriodSeconds=0")
    assert place.run(RUN, case.values) == 0
    assert world.turns(place) == [(True, True)]
    assert evident(place) == "pass"


@pytest.mark.parametrize("seconds", [-86400.0, 86400.0], ids=["back", "forth"])
def test_the_wall_clock_jumps(place: Place, case: Case, seconds: float) -> None:
    looks = len(case.records)
    code = place.run(RUN, case.values, jumps=[0.0] * (looks // 2) + [seconds])
    assert (code, end(place)[0]) == (0, "pass")
    assert world.comes_to(place) == case.end
    assert world.turns(place) == case.turns
    assert evident(place) == "pass"
