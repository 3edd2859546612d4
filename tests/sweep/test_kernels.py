"""A real Jupyter kernel is killed (SIGKILL) in the middle of a cordon, and another kernel goes on.

Covered, ten points: each mutation lost on the way, carried out with nobody told, answered and not recorded; and the
wait. What must come of it is in bench.py. And once by the commands that people use: `gpurunbook run`, whose kernel is
killed, then `gpurunbook resume`. Not covered: other ends of the engine (tests/notebooks), JupyterLab (tests/browser).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import kernels
import pytest
import world
from bench import RUN, Bench, Case, met
from points import Request
from stage import BOOK, SECONDS, Place, eventually, parameters

from gpurunbook.evidence.verify import verify
from gpurunbook.journal import read

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


def command(place: Place, *words: str) -> subprocess.Popen[bytes]:
    code = "import sys; from gpurunbook.cli import main; main(sys.argv[1:])"
    line = [sys.executable, "-c", code, *words]
    with open(place.folder / "command.log", "ab") as log:
        return subprocess.Popen(line, cwd=place.home, env={**os.environ, **place.environment}, stdout=log, stderr=log)


def test_the_command_line_tells_that_its_kernel_died_and_resumes(bench: Bench, point: Any) -> None:
    case = bench.case("cordon")
    request = next(request for request, _, _ in case.mutations if request.method == "PATCH")
    with point(request.label):
        place = bench.fresh(case.base)
        file = place.home / "given.json"
        file.write_text(json.dumps(parameters(**case.values)))
        place.server.control("POST", "faults", request.fault({"delay": 1.5}))
        driver = command(place, "run", BOOK, "--parameters", str(file), "--run-id", RUN)
        eventually(lambda: met(place), f"{request.label} comes")
        started = read(place.out / RUN / "journal.jsonl")[0]
        os.kill(started["data"]["process"]["pid"], signal.SIGKILL)
        assert driver.wait(SECONDS) == 2
        answer = verify(place.out / RUN)
        assert (answer.verdict, answer.run_verdict) == ("consistent", "unknown")
        assert command(place, "resume", RUN).wait(SECONDS) == 0
        answer = verify(place.out / RUN)
        assert (answer.verdict, answer.run_verdict) == ("consistent", "pass")
        assert world.comes_to(place) == case.end
        assert world.turns(place) == case.turns
        place.stop()
