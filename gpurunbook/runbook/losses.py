"""How often something that must stand was lost in a run, for how long, and who came: read from the journal alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpurunbook.journal import Record
from gpurunbook.runbook.changing import AGAIN

_NAMED = 20
"""So many of those who came are named."""


@dataclass
class Loss:
    """One time that it was gone.

    seconds: at most so long, from when it was last seen whole until it stood again; None when no clock can say. made:
    this run made it again; over: it was seen whole since; came: who came meanwhile.
    """

    seconds: float | None = None
    made: bool = False
    over: bool = False
    came: set[str] = field(default_factory=set)


def losses(records: Sequence[Record]) -> list[Loss]:
    """Writes nothing. Each loss in order. One that is not over may have been lost again before anybody looked."""
    found: list[Loss] = []
    gone: float | None = None
    missed = ""
    for record in records:
        event, data = record["event"], record["data"]
        loss = found[-1] if found and not found[-1].over else None
        if event == "lost":
            if loss is None or loss.made:
                loss, missed = Loss(), data["missed"]
                found.append(loss)
                gone = data["seconds"] if data["seconds"] is not None else _between(data["stood"], missed)
            loss.came |= set(data["came"])
        elif loss and event == "result" and AGAIN in data["name"] and data["how"] != "refused":
            loss.made, loss.seconds = True, _sum(gone, _between(missed, record["time"]))
        elif loss and event == "whole":
            loss.over = True
            loss.came |= set(data["came"])
            if not loss.made:
                loss.seconds = _sum(gone, _between(missed, record["time"]))
    return found


def told(what: str, found: Sequence[Loss]) -> str:
    """Writes nothing. All losses in one sentence; "" when there are none."""
    if not found:
        return ""
    often = "once" if len(found) == 1 else f"{len(found)} times"
    again = "was made again" if all(loss.made for loss in found) else "stands again"
    times = [loss.seconds for loss in found if loss.seconds is not None]
    seconds = f"{sum(times):.0f} s" if sum(times) >= 1 else "1 s"
    long = f"gone for at most {seconds}" if len(times) == len(found) else "nobody can say for how long"
    pods = sorted({pod for loss in found for pod in loss.came})
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    came = f"meanwhile landed {', '.join(pods[:_NAMED])}{more}" if pods else "nothing landed meanwhile"
    return f"The {what} was lost {often} and {again}: {long}; {came}."


def _between(first: str, last: str) -> float | None:
    """Seconds by the wall clock; None when it was set back meanwhile, or a time is missing."""
    if not first:
        return None
    seconds = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    return seconds if seconds >= 0 else None


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
