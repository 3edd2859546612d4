"""How often something that must stand was lost: counted from the records of a journal."""

from __future__ import annotations

from typing import Any

import pytest

from gpurunbook.runbook.losses import losses, told

LOST = {"stood": "2026-01-31T12:00:00.000000Z", "seconds": 2.0, "missed": "2026-01-31T12:00:02.000000Z", "came": []}
AGAIN = {"name": "cordon-again-1", "how": "applied"}


def at(second: int, event: str, **data: Any) -> dict[str, Any]:
    base = {"lost": LOST, "result": AGAIN, "whole": {"came": []}}.get(event, {})
    return {"event": event, "time": f"2026-01-31T12:00:{second:02d}.000000Z", "data": {**base, **data}}


ONCE = [at(2, "lost"), at(3, "result"), at(30, "whole")]


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([], ""),
        ([at(1, "result", name="cordon")], ""),
        (ONCE, "was lost once and was made again: gone for at most 3 s; nothing landed meanwhile."),
        # Lost again before anybody looked: that is twice.
        ([*ONCE[:2], *ONCE], "was lost 2 times and was made again: gone for at most 6 s; nothing landed meanwhile."),
        # A kernel that died had told it, and so does the next one: that is once.
        ([at(2, "lost"), *ONCE], "was lost once and was made again: gone for at most 3 s; nothing landed meanwhile."),
        # A try that was refused has made nothing.
        (
            [at(2, "lost"), at(3, "result", how="refused"), at(4, "whole")],
            "was lost once and stands again: gone for at most 4 s; nothing landed meanwhile.",
        ),
        (
            [at(2, "lost", came=["a/b", "a/a"]), at(3, "result"), at(9, "whole", came=["a/c"])],
            "was lost once and was made again: gone for at most 3 s; meanwhile landed a/a, a/b, a/c.",
        ),
        # By another kernel only the wall clock can say, and not when it was set back.
        (
            [at(2, "lost", seconds=None), *ONCE[1:]],
            "was lost once and was made again: gone for at most 3 s; nothing landed meanwhile.",
        ),
        (
            [at(2, "lost", seconds=None, stood="2026-02-01T12:00:00.000000Z"), *ONCE[1:]],
            "was lost once and was made again: nobody can say for how long; nothing landed meanwhile.",
        ),
        (
            [at(2, "lost", seconds=0.2), at(2, "result")],
            "was lost once and was made again: gone for at most 1 s; nothing landed meanwhile.",
        ),
    ],
)
def test_losses_are_told_in_one_sentence(records: list[dict[str, Any]], text: str) -> None:
    assert told("cordon", losses(records)) == (f"The cordon {text}" if text else "")


def test_a_crowd_is_not_named_in_full() -> None:
    crowd = [at(2, "lost", came=[f"a/{n:02d}" for n in range(25)]), *ONCE[1:]]
    assert "a/19 and 5 more." in told("cordon", losses(crowd))
    assert "a/20" not in told("cordon", losses(crowd))
