"""Rooms whose names are imported when they are used, so that a rule costs only what it needs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def offered(room: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Writes nothing. The `__getattr__` and `__dir__` of a package. places: name → the module that holds it."""

    def found(name: str) -> Any:
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}; it offers: {', '.join(sorted(places))}")

    return found, lambda: sorted(places)
