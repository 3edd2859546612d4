"""Signals to a driver, asked for from before its heavy imports until its answer stands."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from typing import Any


class Signals:
    """SIGTERM, SIGINT and SIGHUP of this process as a request to end in order; ignored ones stay ignored."""

    _ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.seen = 0
        self.answered = False
        self.wake: Callable[[], object] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        with contextlib.suppress(ValueError):  # Only the main thread may set handlers.
            for number in self._ASKED:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.seen and not self.answered:  # It came when all cells had run: nothing is half-done, so obey now.
            signal.raise_signal(self.seen)

    def _note(self, number: int, _: object) -> None:
        self.seen = self.seen or number
        if self.wake is not None:
            self.wake()

    @property
    def reason(self) -> str:
        """Writes nothing. What was received, for people."""
        return f"the driver was stopped by {signal.Signals(self.seen).name}"
