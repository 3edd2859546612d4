"""What every disturbed run must come to: the rules of the sweep.

After a run was killed or met a fault, in this order: its exit code and its end tell the truth, its evidence holds or
says that there is none, a newcomer with nothing but the cluster reaches the goal, and so does the run when it is
begun again.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import world
from points import Request, requests
from stage import NODE, Place, closing, ended, eventually, kill, resume, stopped

from gpurunbook.errors import EvidenceError
from gpurunbook.evidence.seal import seal
from gpurunbook.evidence.verify import verify
from gpurunbook.journal import Record, read
from gpurunbook.nodes import leftovers
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.connection import Connection, load

GOOD = ("pass", "planned")
RUN = "disturbed"

LOST = "lost-cordon"
"""A cordon that others take away right after it was made; disturbed is what comes then."""

GOALS: dict[str, dict[str, Any]] = {
    "cordon": {"action": "cordon"},
    LOST: {"action": "cordon"},
    "release": {"action": "release"},
    "dry-run": {"action": "cordon"},
}


@dataclass(frozen=True)
class Case:
    """A run that nobody disturbs, and the place that it begins at. A newcomer has another plan for the same end.

    loss: the record before which the run stands still while others take its cordon away; points: the requests that
    are disturbed.
    """

    goal: str
    base: Place
    values: Mapping[str, Any]
    requests: list[Request]
    records: list[Record]
    end: dict[str, Any]
    end_of_newcomer: dict[str, Any]
    turns: list[tuple[bool, bool]]
    loss: int | None = None
    points: list[Request] = field(default_factory=list)

    @property
    def mutations(self) -> list[tuple[Request, int, int]]:
        """Each mutation that is disturbed, with the numbers of its two records in the journal."""
        sent = [request for request in self.requests if request.persisted]
        numbers = {event: [r["seq"] for r in self.records if r["event"] == event] for event in ("intent", "result")}
        assert len(sent) == len(numbers["intent"]) == len(numbers["result"])
        every = zip(sent, numbers["intent"], numbers["result"], strict=True)
        return [mutation for mutation in every if mutation[0] in self.points]

    def begin(self, place: Place, **how: Any) -> BaseProcess:
        """A process with the run, once others have done what they do in it; how: as `cells.execute` takes it."""
        process = place.begin(RUN, self.values, stop=self.loss, **how)
        if self.loss is not None:
            eventually(lambda: process.exitcode is not None or stopped(process), "others take the cordon away")
            assert process.exitcode is None, place.said(RUN)
            place.admin.merge(f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": False}})
            resume(process)
        return process

    def run(self, place: Place, **how: Any) -> int:
        """The exit code of such a process."""
        return ended(self.begin(place, **how))


@dataclass
class Bench:
    """All that the points of one worker share."""

    folder: Path
    _cases: dict[str, Case] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)
    _newcomers: set[tuple[str, str]] = field(default_factory=set)

    def close(self) -> None:
        """Ends the servers of points that failed."""
        for state in self.folder.glob("**/server.json"):
            Place(state.parents[1]).stop()

    def case(self, goal: str) -> Case:
        """The undisturbed run of a goal, done once."""
        if goal not in self._cases:
            base, values = self._base(goal)
            base.stop()
            place = self.fresh(base)
            loss = None
            if goal == LOST:
                loss = next(r["seq"] for r in self.case("cordon").records if r["data"].get("step") == "settled")
            unknown = Case(goal, base, values, [], [], {}, {}, [], loss)
            assert unknown.run(place) == 0, place.said(RUN)
            log = place.server.log()
            sent = requests(entry for entry in log if entry["user"] == world.OPERATOR)
            users = [entry["user"] for entry in log]
            before = users[: users.index(world.ADMIN)].count(world.OPERATOR) if loss else 0
            self._cases[goal] = replace(
                unknown,
                requests=sent,
                records=read(place.out / RUN / "journal.jsonl"),
                end=world.comes_to(place),
                end_of_newcomer=world.comes_to(place, "plan"),
                turns=world.turns(place),
                points=sent[before:],
            )
            place.stop()
        return self._cases[goal]

    def _base(self, goal: str) -> tuple[Place, dict[str, Any]]:
        place = Place.made(self.folder / f"base-{goal}-{next(self._numbers)}")
        if goal == "dry-run":
            return place, GOALS[goal]
        if goal == "release":
            assert place.run("cordoning", place.planned("before", GOALS["cordon"])) == 0
        return place, place.planned("dry", GOALS[goal])

    def fresh(self, base: Place) -> Place:
        """A copy of a place, for one point."""
        return base.copy(self.folder / f"point-{next(self._numbers)}")

    def settle(
        self, case: Case, place: Place, code: int, name: str = RUN, again: Callable[[], int] | None = None
    ) -> None:
        """Asserts the rules for a run that ended with `code`. again: begins it again; by default a plain process."""
        folder = place.out / name
        self._truthful(place, folder, code)
        _evidence(folder, place.folder / "evidence")
        self._newcomer(case, place)
        second = again() if again else place.run(name, case.values)
        assert second == 0, f"begun again: {place.said(name)}"
        assert world.comes_to(place) == case.end
        assert world.turns(place) == case.turns
        _once(world.persisted(place), case)
        self._truthful(place, folder, second)
        assert seal(folder)["verdict"] == closing(folder)["verdict"]
        assert verify(folder).verdict == "consistent"
        place.stop()
        shutil.rmtree(place.folder)

    def _truthful(self, place: Place, folder: Path, code: int) -> None:
        """The exit code is 0 for a good end only, and the end names what the run has left in the cluster."""
        end = closing(folder)
        assert (code == 0) == (end.get("verdict") in GOOD), (code, end)
        if not end:
            return
        told = "\n".join(line for line in end["left_behind"] if "not known" not in line)
        unsure = "\n".join(line for line in end["left_behind"] if "not known" in line)
        there = {
            "Node": world.owner(world.node(place)) == folder.name,
            "Lease": world.lease_holder(place) == folder.name,
        }
        for kind, stands in there.items():
            assert stands <= (kind in told + unsure), f"{kind} was left behind, and not told: {end}"
            assert (kind in told) <= stands, f"{kind} is told as left behind, and is not: {end}"

    def _newcomer(self, case: Case, place: Place) -> None:
        """Somebody without the run's folder goes on. Clusters that look alike to him are tried once."""
        found = (case.goal, world.standing(place))
        if case.goal == "dry-run" or found in self._newcomers:
            return
        other = place.copy(place.folder / "newcomer", runs=False)
        try:
            values = GOALS[case.goal] | going_on(other, case.goal)
            applying = other.planned("dry", values)
            assert other.run("apply", applying) == 0, other.said("apply")
            assert world.comes_to(other, "plan") == case.end_of_newcomer
            assert world.turns(other) == case.turns
            assert world.lease_holder(other) == ""
        finally:
            other.stop()
        self._newcomers.add(found)


def going_on(place: Place, goal: str) -> dict[str, Any]:
    """What `gpurunbook leftovers` tells a person to give to his own run."""
    cluster = Cluster("", Connection(load("", str(place.kubeconfig))))
    found, problems = leftovers.leftovers({n: cluster.observe(need) for n, need in leftovers.needs().items()})
    assert not problems
    values = {}
    for left in found:
        if left.kind == "lease":
            values["take_over"] = left.run
        elif goal != "release":
            values["action"] = "adopt"
    return values


def _evidence(folder: Path, copy: Path) -> None:
    """A seal of what the run has left says the truth, or there is none and that is said."""
    assert verify(folder).verdict == "unsealed"
    shutil.copytree(folder, copy / folder.name)
    sealed = copy / folder.name
    try:
        manifest = seal(sealed)
    except EvidenceError:
        assert verify(sealed).verdict == "unsealed"
        return
    assert verify(sealed).verdict == "consistent"
    assert manifest["verdict"] in (closing(folder).get("verdict"), "unknown")


def _once(written: list[tuple[str, str]], case: Case) -> None:
    """Nothing was done twice: the node was patched as often as without the disturbance, and leases come and go."""
    wanted = [(request.method, request.path.rsplit("/", 1)[-1]) for request in case.requests if request.persisted]
    assert written.count(("PATCH", NODE)) == wanted.count(("PATCH", NODE)), written
    leases = [method for method, name in written if name != NODE]
    assert leases == ["POST", "DELETE"] * (len(leases) // 2), written
    assert bool(leases) == bool(len(wanted)), written


def killed_at_request(bench: Bench, case: Case, request: Request, *, carried_out: bool) -> tuple[Place, int]:
    """A run that got SIGKILL while the server had its request: it is then carried out, or lost on the way."""
    for delay in (0.4, 3.0, 20.0):  # the longer ones for a machine that was too busy to kill in time
        place = bench.fresh(case.base)
        _kill_while_it_waits(place, case, request, {"delay": delay} | ({} if carried_out else {"reset": "before"}))
        if read(place.out / RUN / "journal.jsonl")[-1]["event"] == "intent":
            return place, -9
        place.stop()
    raise AssertionError(f"{request.label}: the run went on before it was killed")


def _kill_while_it_waits(place: Place, case: Case, request: Request, action: dict[str, Any]) -> None:
    place.server.control("POST", "faults", request.fault(action))
    process = case.begin(place)
    eventually(lambda: met(place) or process.exitcode is not None, f"{request.label} comes")
    kill(process)
    eventually(lambda: any("fault" in entry for entry in place.server.log()), f"{request.label} is over")


def met(place: Place) -> bool:
    """Whether a fault has met its request."""
    return any(fault["hits"] for fault in place.server.control("GET", "faults"))
