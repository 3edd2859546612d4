"""A real Jupyter kernel is killed (SIGKILL) in the middle of a cordon, and another kernel goes on.

Covered, ten points: each mutation lost on the way, carried out with nobody told, answered and not recorded; and the
wait. What must come of it is in bench.py. Not covered: the engine around a kernel (tests/notebooks), JupyterLab
(tests/browser).
"""

from __future__ import annotations

from typing import Any

import kernels
import pytest
from bench import RUN, Bench, Case, met
from points import Request
from stage import Place, eventually

pytestmark = pytest.mark.sweep


def again(case: Case, place: Place) -> Any:
    return lambda: kernels.run(place, RUN, case.values)


def killed_at(bench: Bench, case: Case, request: Request, action: dict[str, Any]) -> None:
    place = bench.fresh(case.base)
    place.server.control("POST", "faults", request.fault({"delay": 1.5, **action}))
    code = kernels.run(place, RUN, case.values, until=lambda: met(place))
    assert code == kernels.KILLED
    eventually(lambda: any("fault" in entry for entry in place.server.log()), f"{request.label} is over")
    bench.settle(case, place, code, again=again(case, place))


@pytest.mark.parametrize("action", [{"reset": "before"}, {}], ids=["lost", "carried-out"])
def test_a_kernel_is_killed_while_the_server_has_a_mutation(bench: Bench, point: Any, action: dict[str, Any]) -> None:
    case = bench.case("cordon")
    for request, _, _ in case.mutations:
        with point(request.label):
            killed_at(bench, case, request, action)


def test_a_kernel_is_killed_between_the_answer_and_its_record(bench: Bench, point: Any) -> None:
    case = bench.case("cordon")
    for request, _, result in case.mutations:
        with point(request.label):
            place = bench.fresh(case.base)
            code = kernels.run(place, RUN, case.values, record=result)
            assert code == kernels.KILLED
            (place.folder / "ipython" / "profile_default" / "startup" / "end.py").unlink()
            bench.settle(case, place, code, again=again(case, place))


def test_a_kernel_is_killed_in_the_wait(bench: Bench, point: Any) -> None:
    case = bench.case("cordon")
    request = next(request for request in case.requests if request.followed)
    with point(request.label):
        killed_at(bench, case, request, {})
