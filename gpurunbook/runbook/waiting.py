"""run.wait: follow by watch until a pure predicate says done, failed, or the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from gpurunbook.errors import DeadlineError
from gpurunbook.plan import Observed, Progress, Wait
from gpurunbook.shown.mime import line
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.watch import follow

LOOK_SECONDS = 0.5
"""The state is judged at every change, and at least so often: what must stand is looked at then."""


def until(
    cluster: Cluster,
    wait: Wait,
    *,
    standing: Callable[[Mapping[str, Observed]], None],
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Writes nothing. The progress that ended the wait, `done` or `failed`.

    standing: called with what was observed at every look, so that a cordon lost meanwhile is made again. One
    updating line says what is still missing and since when. Raises DeadlineError with that when the time is up.
    An interrupt is safe: nothing is held, and the wait may be begun again.
    """
    begin = clock()
    done: float | None = None
    since: dict[str, float] = {}
    told = _Line()
    with follow(cluster, wait.needs) as after:
        while True:
            left = begin + wait.seconds - clock()
            seen = after(min(LOOK_SECONDS, max(left, 0.0)))
            standing(seen)
            progress = wait.progress(seen)
            now = clock()
            done = (now if done is None else done) if progress.state == "done" else None
            if done is not None and now - done < wait.hold:
                progress = Progress("waiting", (f"it to last for {wait.hold:.0f} s",))
            since = {what: since.get(what, now) for what in progress.missing}
            if progress.state != "waiting":
                told.say(f"{wait.title}: {progress.state} after {now - begin:.1f} s")
                return progress
            said = "; ".join(f"{what} (since {now - then:.0f} s)" for what, then in since.items())
            told.say(f"{wait.title}: waiting {now - begin:.0f} of {wait.seconds:.0f} s for {said}")
            if now - begin >= wait.seconds:
                raise DeadlineError(
                    f"after {wait.seconds:g} s still missing: {said or 'unknown'}",
                    subject=wait.title,
                    remedy="Find what holds it up; when it is run again it goes on waiting.",
                )


class _Line:
    """One line in the cell that is replaced in place."""

    def __init__(self) -> None:
        self._last = ""
        self._id = ""

    def say(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self._id = line(text, self._id)
