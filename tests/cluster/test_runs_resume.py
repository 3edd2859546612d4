"""Runs that die and are gone on with: after every journal record of an apply, and in every gap around a mutation.

The kernel dies by an exception that nothing in the package catches, in place of a record or right after it; the run is
begun again on its folder, or another goes on from an empty one. Covered: the cluster ends as an undisturbed run
leaves it, no mutation is done twice, the node is never schedulable in between, and what a finished run does when it is
run again. Not covered: real SIGKILL, faults of the server at each request (the sweep).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import runs
from runs import Lab, closing, finish, marks, owner, records, verdict

from gpurunbook.journal import Journal, Record
from gpurunbook.nodes import leftovers
from gpurunbook.nodes.cordon import ANNOTATION
from gpurunbook.runbook.run import Run
from gpurunbook.sources.cluster import connect

WHOLE, NONE = (True, True, True), (False, False, False)

APPLY = (
    "start",
    "cluster",
    *(
        f"{event} {name}"
        for name in ("whose", "holders", "capacity", "daemonsets", "hands")
        for event in ("step", "judged")
    ),
    "step mark",
    "authorised",
    "intent lease",
    "result lease",
    "intent cordon",
    "result cordon",
    "judged mark",
    "step settled",
    "judged settled",
    "step again",
    "judged again",
    "intent lease-back",
    "result lease-back",
    "close",
)
"""Every record of an apply, in order."""


class Killed(BaseException):
    """The kernel is gone."""


class Dying(Journal):
    """A journal whose process dies at one record: in place of it, or once it is written."""

    def __init__(self, run: Run, number: int, written: bool) -> None:
        super().__init__(run.journal.path, run.clock)
        self._number, self._written = number, written

    def append(self, event: str, data: Mapping[str, Any], expect: str | None = None) -> Record:
        if len(self.records) == self._number and not self._written:
            raise Killed
        record = super().append(event, data, expect)
        if record["seq"] == self._number:
            raise Killed
        return record


pytestmark = pytest.mark.usefixtures("entered")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with runs.lab(tmp_path_factory.mktemp("resume"), nodes=80) as made:
        yield made


def spelled(record: Record) -> str:
    data = record["data"]
    what = data.get("name") or (data.get("step") if record["event"] in ("step", "judged") else "")
    return f"{record['event']} {what}".strip()


def dies(lab: Lab, node: str, values: dict[str, Any], number: int, *, written: bool) -> str:
    """An apply that dies at the record of this number. Its run id."""
    if number < 2 and written:
        run = lab.cordon(node, **values)
        lines = run.journal.path.read_bytes().splitlines(keepends=True)
        run.journal.path.write_bytes(b"".join(lines[: number + 1]))
        return run.id
    run = lab.cordon(node, **values)
    run.journal = Dying(run, number, written)
    with pytest.raises(Killed):
        finish(run)
    assert len(records(run)) == number + written
    return run.id


def sent(lab: Lab, node: str, seen: list[dict[str, Any]]) -> list[str]:
    """What was carried out on the node and its lease, in order."""
    return [method for method, _ in runs.changed(seen, node)]


def test_an_undisturbed_apply_writes_these_records(lab: Lab) -> None:
    assert [spelled(r) for r in records(lab.applied(lab.node()))] == list(APPLY)


POINTS = [(number, True) for number in range(len(APPLY))] + [
    (number, False) for number, record in enumerate(APPLY) if record.startswith("result")
]


@pytest.mark.parametrize(
    ("number", "written"), POINTS, ids=[f"{'after' if w else 'before'} {APPLY[n]}" for n, w in POINTS]
)
def test_a_run_that_died_anywhere_is_gone_on_with_and_nothing_is_done_twice(
    lab: Lab, number: int, written: bool
) -> None:
    node = lab.node()
    values = lab.planned(node)
    with lab.requests() as seen:
        run_id = dies(lab, node, values, number, written=written)
        begun = lab.seen(node)["metadata"].get("annotations", {}).get(ANNOTATION)
        later = lab.cordon(node, **values, run_id=run_id)
        finish(later)
    assert verdict(later) == ("pass", "all-steps-passed")
    assert marks(lab.seen(node)) == WHOLE
    assert owner(lab.seen(node)) == run_id
    assert begun in (None, lab.seen(node)["metadata"]["annotations"][ANNOTATION])
    assert lab.lease(node) is None
    assert sent(lab, node, seen) == ["POST", "PATCH", "DELETE"]
    assert [line.split(":")[0] for line in closing(later)["left_behind"]] == [f"Node {node}"]


@pytest.mark.parametrize("action", ["release", "adopt"])
@pytest.mark.parametrize(
    ("record", "written"),
    [("intent", True), ("result", False), ("result", True), ("judged", True)],
    ids=["before it is sent", "before it is noted", "after it is noted", "after the step"],
)
def test_other_actions_that_died_around_their_change_are_gone_on_with(
    lab: Lab, action: str, record: str, written: bool
) -> None:
    node = lab.node()
    lab.applied(node)
    values = lab.planned(node, action=action)
    number = APPLY.index(f"{record} {'mark' if record == 'judged' else 'cordon'}")
    with lab.requests() as seen:
        run_id = dies(lab, node, values, number, written=written)
        later = lab.cordon(node, **values, run_id=run_id)
        finish(later)
    assert verdict(later) == ("pass", "all-steps-passed")
    assert marks(lab.seen(node)) == (NONE if action == "release" else WHOLE)
    assert owner(lab.seen(node)) == ("" if action == "release" else run_id)
    assert sent(lab, node, seen) == ["POST", "PATCH", "DELETE"]


@pytest.mark.parametrize("action", ["cordon", "release", "adopt"])
def test_a_finished_run_that_is_run_again_writes_nothing_to_the_cluster(lab: Lab, action: str) -> None:
    node = lab.node()
    if action != "cordon":
        lab.applied(node)
    values = lab.planned(node, action=action)
    run = lab.cordon(node, **values)
    finish(run)
    before = lab.seen(node)
    with lab.requests() as seen:
        for later in (run, lab.cordon(node, **values, run_id=run.id)):
            finish(later)
            assert verdict(later) == ("pass", "all-steps-passed")
    assert runs.changed(seen) == []
    assert lab.seen(node) == before


def test_a_finished_release_that_is_run_again_bears_whoever_works_there_now(lab: Lab) -> None:
    node = lab.node()
    lab.applied(node)
    run = lab.applied(node, action="release")
    lab.holder(node)
    with lab.requests() as seen:
        finish(run)
    assert verdict(run) == ("pass", "all-steps-passed")
    assert runs.changed(seen) == []


def test_a_run_that_died_twice_is_gone_on_with(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    run_id = dies(lab, node, values, APPLY.index("intent cordon"), written=True)
    again = lab.cordon(node, **values, run_id=run_id)
    again.journal = Dying(again, len(again.journal.records) + 14, written=True)
    with pytest.raises(Killed):
        finish(again)
    later = lab.cordon(node, **values, run_id=run_id)
    finish(later)
    assert verdict(later) == ("pass", "all-steps-passed")
    assert lab.lease(node) is None


# -- without the first laptop ----------------------------------------------------------------------------------------


def found(lab: Lab) -> dict[str, leftovers.Leftover]:
    """What `leftovers` finds on the cluster, by kind and target."""
    source = connect("")
    listed, problems = leftovers.leftovers({name: source.observe(need) for name, need in leftovers.needs().items()})
    assert problems == []
    return {f"{left.kind} {left.target}": left for left in listed}


@pytest.mark.parametrize(
    ("record", "written", "left", "action"),
    [
        ("intent lease", True, [], "cordon"),
        ("result lease", False, ["lease"], "cordon"),
        ("intent cordon", True, ["lease"], "cordon"),
        ("result cordon", False, ["cordon", "lease"], "adopt"),
        ("judged settled", True, ["cordon", "lease"], "adopt"),
        ("result lease-back", False, ["cordon"], "adopt"),
    ],
)
def test_from_an_empty_folder_the_marks_say_what_to_do_and_the_end_is_the_same(
    lab: Lab, record: str, written: bool, left: list[str], action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = lab.node()
    dead = dies(lab, node, lab.planned(node), APPLY.index(record), written=written)
    monkeypatch.setenv("GPURUNBOOK_OUT", str(tmp_path))  # another laptop: nothing of the run is here
    elsewhere = Lab(lab.home, lab.server, lab.numbers)
    marked = found(elsewhere)
    mine = {kind: marked[f"{kind} node/{node}"] for kind in ("cordon", "lease") if f"{kind} node/{node}" in marked}
    assert list(mine) == left
    assert {leftover.run for leftover in mine.values()} <= {dead}
    taken = {"take_over": dead} if "lease" in left else {}
    with lab.requests() as seen:
        run = elsewhere.applied(node, action=action, **taken)
    assert verdict(run) == ("pass", "all-steps-passed")
    assert (marks(lab.seen(node)), owner(lab.seen(node)), lab.lease(node)) == (WHOLE, run.id, None)
    assert [m for m, path in runs.changed(seen, node) if "nodes" in path] == ["PATCH"]
    assert list(found(elsewhere)).count(f"cordon node/{node}") == 1
    assert f"lease node/{node}" not in found(elsewhere)


def test_the_dead_run_does_nothing_more_once_another_went_on(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = lab.node()
    values = lab.planned(node)
    dead = dies(lab, node, values, APPLY.index("judged mark"), written=True)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("GPURUNBOOK_OUT", str(tmp_path))
        run = lab.applied(node, action="adopt", take_over=dead)
    before = lab.seen(node)
    later = lab.cordon(node, **values, run_id=dead)
    with lab.requests() as seen, pytest.raises(Exception, match="Node/"):
        finish(later)
    assert verdict(later)[0] == "failed"
    assert runs.changed(seen) == []
    assert lab.seen(node) == before
    assert json.loads(before["metadata"]["annotations"][ANNOTATION])["run"] == run.id
