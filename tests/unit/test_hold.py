"""A wait that must say done for a while before that counts.

Covered: a hold that lasts, one that breaks and begins anew, none at all, a failure during it, and the time that runs
out meanwhile. Not covered: what the wait follows (tests/cluster/test_watch.py), a real cordon that is fought over
(parameters/node_cordon/lost-cordon.yaml).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gpurunbook.errors import DeadlineError
from gpurunbook.findings import Finding, Status
from gpurunbook.nodes.service import settled
from gpurunbook.plan import Progress, Seen, Wait
from gpurunbook.runbook import waiting

NOWHERE: Any = None
DONE = Progress("done", (), (Finding("c", "s", Status.PASS, "code", "text"),))
OPEN = Progress("waiting", ("it",))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.0)


def until(said: list[Progress], *, hold: float, seconds: float = 100.0) -> tuple[Progress, int]:
    """The end of the wait, and after how many looks. The clock goes on by one second with every look."""
    looks = itertools.count()
    seen = 0

    def progress(_: Seen) -> Progress:
        nonlocal seen
        seen += 1
        return said[min(seen, len(said)) - 1]

    ticks = (float(next(looks) // 2) for _ in itertools.repeat(None))
    wait = Wait("it to settle", {}, progress, seconds, hold)
    return waiting.until(NOWHERE, wait, standing=lambda _: None, clock=lambda: next(ticks)), seen


def test_without_a_hold_done_is_done() -> None:
    assert until([OPEN, DONE], hold=0) == (DONE, 2)


def test_a_hold_must_last() -> None:
    assert until([DONE], hold=3) == (DONE, 4)


def test_a_break_begins_the_hold_anew() -> None:
    assert until([DONE, DONE, DONE, OPEN, DONE], hold=3) == (DONE, 8)


def test_a_failure_during_the_hold_ends_the_wait() -> None:
    failed = Progress("failed", ("it",))
    assert until([DONE, failed], hold=9) == (failed, 2)


def test_when_the_time_is_up_the_hold_is_what_is_missing() -> None:
    with pytest.raises(DeadlineError, match=r"it to last for 30 s \(since"):
        until([DONE], hold=30, seconds=5)


def test_a_release_holds_nothing_and_a_cordon_has_its_time_on_top() -> None:
    assert (settled("n", "release", "r", 10, 3).hold, settled("n", "release", "r", 10, 3).seconds) == (0, 10)
    assert (settled("n", "cordon", "r", 10, 3).hold, settled("n", "cordon", "r", 10, 3).seconds) == (3, 13)
    assert settled("n", "cordon", "r", 10, -3).hold == 0
