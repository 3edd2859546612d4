"""Rules on images, tuples and their evidence. Pure functions.

The checks that notebooks use are imported when they are named, so that a rule costs only what it needs.
"""

from __future__ import annotations

import importlib
from typing import Any

_CHECKS = {
    "evidence_ready": "gpurunbook.supply.audit",
    "provenance": "gpurunbook.supply.audit",
}
"""Check → the module that holds it."""


def __getattr__(name: str) -> Any:
    if name in _CHECKS:
        return getattr(importlib.import_module(_CHECKS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its checks: {', '.join(sorted(_CHECKS))}")


def __dir__() -> list[str]:
    return sorted(_CHECKS)
