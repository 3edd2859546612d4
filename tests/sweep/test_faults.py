"""A request of a run meets a fault: a conflict, a throttle, an error, a reset before it was read, a lost answer.

Covered: cordon, release and a cordon that was lost, at every mutation; the whole matrix has every request, those of a
dry run too. What the run must come to is in bench.py. Not covered: faults that last (tests/cluster), kills
(test_kills.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from bench import LOST, Bench, met

pytestmark = pytest.mark.sweep

FAULTS: dict[str, dict[str, Any]] = {
    "conflict": {"status": 409},
    "throttled": {"status": 429, "retry_after": 0},
    "error": {"status": 500},
    "reset": {"reset": "before"},
    "lost": {"reset": "after"},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("goal", ["cordon", LOST, "release", "dry-run"])
def test_a_request_meets_a_fault(bench: Bench, point: Any, full: bool, goal: str, fault: str) -> None:
    case = bench.case(goal)
    for request in case.points:
        if not full and not request.changes:
            continue
        with point(request.label):
            place = bench.fresh(case.base)
            place.server.control("POST", "faults", request.fault(FAULTS[fault]))
            code = case.run(place)
            assert met(place) or request.followed
            place.server.control("DELETE", "faults")
            bench.settle(case, place, code)
