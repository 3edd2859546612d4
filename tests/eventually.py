"""Waiting for a condition and not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(test: Callable[[], Any], seconds: float = 180) -> Any:
    """The first true value; AssertionError when there is none within the seconds: a slow machine needs many."""
    end = time.monotonic() + seconds
    while not (found := test()):
        assert time.monotonic() < end, f"not so within {seconds} s: {test}"
        time.sleep(0.02)
    return found
