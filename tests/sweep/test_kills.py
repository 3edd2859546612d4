"""A run is killed (SIGKILL) at every mutation and in every gap between two records of its journal.

Covered: cordon, release and a cordon that was lost, each mutation lost on the way, carried out with nobody told,
answered and not recorded; afterwards a newcomer with nothing but the cluster, and the run begun again (bench.py has the
rules). By default the gaps are those around mutations; the whole matrix has every gap. A patch that arrives when the
run was begun again long ago, and the creation of a lease, which nothing can refuse then. Not covered: kernels
(test_kernels.py), faults of the server (test_faults.py).
"""

from __future__ import annotations

from typing import Any

import pytest
import world
from bench import GOALS, LOST, RUN, Bench, Case, going_on, killed_at_request, met
from points import Request
from stage import NODE, Place, eventually, kill

pytestmark = pytest.mark.sweep


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "carried-out"])
@pytest.mark.parametrize("goal", ["cordon", LOST, "release"])
def test_killed_while_the_server_has_a_mutation(bench: Bench, point: Any, goal: str, carried_out: bool) -> None:
    case = bench.case(goal)
    for request, _, _ in case.mutations:
        with point(request.label):
            place, code = killed_at_request(bench, case, request, carried_out=carried_out)
            bench.settle(case, place, code)


@pytest.mark.parametrize("goal", ["cordon", LOST, "release"])
def test_killed_between_two_records_of_the_journal(bench: Bench, point: Any, full: bool, goal: str) -> None:
    case = bench.case(goal)
    around = {number for _, intent, result in case.mutations for number in (intent, result, result + 1)}
    every = range(0 if case.loss is None else case.loss + 1, len(case.records))
    for number in every if full else sorted(around & set(every)):
        record = case.records[number]
        with point(f"before {record['event']} {record['data'].get('name', '')}"):
            place = bench.fresh(case.base)
            code = case.run(place, kill=number)
            assert code == -9
            bench.settle(case, place, code)


@pytest.mark.parametrize("goal", ["cordon", "release"])
def test_a_patch_that_arrives_after_the_run_was_begun_again_is_not_carried_out_twice(
    bench: Bench, point: Any, goal: str
) -> None:
    case = bench.case(goal)
    request = next(request for request, _, _ in case.mutations if request.method == "PATCH")
    with point(f"late {request.label}"):
        place = bench.fresh(case.base)
        place.server.control("POST", "faults", request.fault({"delay": 5.0}))
        process = place.begin(RUN, case.values)
        eventually(lambda: met(place), f"{request.label} comes")
        kill(process)
        assert place.run(RUN, case.values) == 0, place.said(RUN)
        eventually(lambda: any("fault" in entry for entry in place.server.log()), f"{request.label} is over")
        assert world.comes_to(place) == case.end
        assert world.turns(place) == case.turns
        assert world.persisted(place).count(("PATCH", NODE)) == 1
        place.stop()


@pytest.mark.parametrize("goal", ["cordon", "release"])
def test_a_lease_that_arrives_when_its_run_is_over_is_found_and_given_back_by_the_next(
    bench: Bench, point: Any, goal: str
) -> None:
    case = bench.case(goal)
    request = next(request for request, _, _ in case.mutations if request.method == "POST")
    with point(f"late {request.label}"):
        place = late(bench, case, request)
        assert world.owner(world.node(place)) == (RUN if goal == "cordon" else "")
        assert place.run("next", place.planned("dry-next", GOALS[goal] | going_on(place, goal))) == 0
        assert world.lease_holder(place) == ""
        assert world.turns(place) == case.turns
        place.stop()


def late(bench: Bench, case: Case, request: Request) -> Place:
    """A place whose run closed well, and then the lease came that it had asked for before it was killed."""
    for delay in (6.0, 30.0):  # the longer one for a machine on which the run takes longer than that
        place = bench.fresh(case.base)
        place.server.control("POST", "faults", request.fault({"delay": delay}))
        process = place.begin(RUN, case.values)
        eventually(lambda place=place: met(place), f"{request.label} comes")
        kill(process)
        assert place.run(RUN, case.values) == 0, place.said(RUN)
        eventually(
            lambda place=place: any("fault" in entry for entry in place.server.log()), f"{request.label} is over"
        )
        if world.lease_holder(place) == RUN:
            return place
        place.stop()
    raise AssertionError(f"{request.label}: the run was not over when it came")
