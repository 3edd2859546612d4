"""Rules on holders, cordons and rollouts. Pure functions.

What notebooks use is imported when it is named, so that a rule costs only what it needs.
"""

from __future__ import annotations

import importlib
from typing import Any

_OFFERED = {
    "capacity_lost": "gpurunbook.nodes.capacity",
    "held": "gpurunbook.nodes.service",
    "held_after": "gpurunbook.nodes.service",
    "mark": "gpurunbook.nodes.service",
    "no_holders": "gpurunbook.nodes.holders",
    "other_hands": "gpurunbook.nodes.controllers",
    "returns": "gpurunbook.nodes.service",
    "settled": "gpurunbook.nodes.service",
    "whose": "gpurunbook.nodes.service",
}
"""Name → the module that holds it."""


def __getattr__(name: str) -> Any:
    if name in _OFFERED:
        return getattr(importlib.import_module(_OFFERED[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers: {', '.join(sorted(_OFFERED))}")


def __dir__() -> list[str]:
    return sorted(_OFFERED)
