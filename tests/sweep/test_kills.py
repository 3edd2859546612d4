"""A run is killed (SIGKILL) at every mutation and in every gap between two records of its journal.

Covered: cordon and release, each mutation lost on the way, carried out with nobody told, answered and not recorded;
afterwards a newcomer with nothing but the cluster, and the run begun again (bench.py has the rules). By default the
gaps are those around mutations; the whole matrix has every gap. Not covered: kernels (test_kernels.py), faults of the
server (test_faults.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from bench import RUN, Bench, killed_at_request

pytestmark = pytest.mark.sweep


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "carried-out"])
@pytest.mark.parametrize("goal", ["cordon", "release"])
def test_killed_while_the_server_has_a_mutation(bench: Bench, point: Any, goal: str, carried_out: bool) -> None:
    case = bench.case(goal)
    for request, _, _ in case.mutations:
        with point(request.label):
            place, code = killed_at_request(bench, case, request, carried_out=carried_out)
            bench.settle(case, place, code)


@pytest.mark.parametrize("goal", ["cordon", "release"])
def test_killed_between_two_records_of_the_journal(bench: Bench, point: Any, full: bool, goal: str) -> None:
    case = bench.case(goal)
    around = {number for _, intent, result in case.mutations for number in (intent, result, result + 1)}
    for number in range(len(case.records)) if full else sorted(around):
        record = case.records[number]
        with point(f"before {record['event']} {record['data'].get('name', '')}"):
            place = bench.fresh(case.base)
            code = place.run(RUN, case.values, kill=number)
            assert code == -9
            bench.settle(case, place, code)
