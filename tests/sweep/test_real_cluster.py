"""Kills at every mutation on the real control plane: what the embedded server plays is so there.

Covered: cordon and release, each mutation carried out and its answer not recorded; the run is begun again.
Not covered: requests that are held, lost and refused, which the embedded server can do (test_kills, test_faults).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import world
from bench import GOALS, RUN, Bench
from stage import FIXTURE, NODE, Place, closing

from gpurunbook.embedded.actors.client import Client
from gpurunbook.evidence.seal import seal
from gpurunbook.evidence.verify import verify
from gpurunbook.journal import read
from tests.envtest.controlplane import ControlPlane
from tests.envtest.seed import Seeder, users

pytestmark = [pytest.mark.sweep, pytest.mark.envtest]

NODES = "/api/v1/nodes"


class Real(Place):
    """A home whose cluster is the real control plane, as it shows the fixture."""

    def __init__(self, folder: Path, plane: ControlPlane, seeder: Seeder) -> None:
        super().__init__(folder)
        self._furnish()
        seeder.show(FIXTURE)
        self._plane = plane
        self._operator = users(plane, FIXTURE)["oncall"]
        self._told = 0

    @property
    def kubeconfig(self) -> Path:
        return self._operator

    @property
    def admin(self) -> Client:
        return Client.of_kubeconfig(self._plane.kubeconfig)

    def news(self) -> list[tuple[str, str]]:
        """What runs have written since the last look."""
        events = self._plane.requests(world.OPERATOR)
        fresh, self._told = events[self._told :], len(events)
        return [
            (event["verb"], event["objectRef"]["name"] if event["verb"] != "create" else "")
            for event in fresh
            if event["verb"] in ("create", "patch", "delete")
            and event["responseStatus"]["code"] < 300
            and "dryRun=" not in event["requestURI"]
            and event["objectRef"]["resource"] in ("nodes", "leases")
        ]


def versions(place: Real, after: str, last: str) -> Iterator[dict[str, Any]]:
    """Every version of the node after one of the collection, up to the last."""
    query = {"fieldSelector": f"metadata.name={NODE}", "resourceVersion": after, "timeoutSeconds": 50}
    for event in place.admin.watch(NODES, **query):
        yield event["object"]
        if int(event["object"]["metadata"]["resourceVersion"]) >= int(last):
            return
    raise AssertionError(f"the watch ended before version {last} of the node")


@pytest.mark.parametrize("goal", ["cordon", "release"])
def test_killed_between_a_mutation_and_its_record(
    bench: Bench, point: Any, fixtureplane: tuple[ControlPlane, Seeder], tmp_path: Path, goal: str
) -> None:
    for number, (request, _, result) in enumerate(bench.case(goal).mutations):
        with point(request.label):
            place = Real(tmp_path / str(number), *fixtureplane)
            if goal == "release":
                assert place.run("cordoning", place.planned("before", GOALS["cordon"])) == 0
            values = place.planned("dry", GOALS[goal])
            place.news()
            version = place.admin.call("GET", NODES)["metadata"]["resourceVersion"]
            before = world.node(place)
            assert place.run(RUN, values, kill=result) == -9
            assert read(place.out / RUN / "journal.jsonl")[-1]["event"] == "intent"
            assert place.run(RUN, values) == 0, place.said(RUN)
            assert place.news() == [("create", ""), ("patch", NODE), ("delete", world.LEASE)]
            later = versions(place, version, world.node(place)["metadata"]["resourceVersion"])
            turns = [(False, False), (True, True)]
            assert world.turned([before, *later]) == (turns if goal == "cordon" else turns[::-1])
            assert world.owner(world.node(place)) == (RUN if goal == "cordon" else "")
            assert world.lease_holder(place) == ""
            assert seal(place.out / RUN)["verdict"] == closing(place.out / RUN)["verdict"] == "pass"
            assert verify(place.out / RUN).verdict == "consistent"
