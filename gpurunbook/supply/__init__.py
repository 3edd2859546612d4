"""Rules on images, tuples and their evidence. Pure functions.

The checks that notebooks use are imported when they are named, so that a rule costs only what it needs.
"""

from __future__ import annotations

import importlib
from typing import Any

_CHECKS = {
    "evidence_gate": "gpurunbook.supply.gatecheck",
    "evidence_ready": "gpurunbook.supply.audit",
    "approved_by_another": "gpurunbook.supply.proposal",
    "approved_run": "gpurunbook.supply.promotion",
    "canary_proven": "gpurunbook.supply.canary",
    "carried": "gpurunbook.supply.promotion",
    "gates_closed": "gpurunbook.supply.eligibility",
    "manifests_kept": "gpurunbook.supply.reviewed",
    "provenance": "gpurunbook.supply.audit",
    "qualified": "gpurunbook.supply.promotion",
    "release_proposal": "gpurunbook.supply.proposal",
    "same_digests": "gpurunbook.supply.inventory",
    "stabilise": "gpurunbook.supply.stabilisation",
    "stabilised": "gpurunbook.supply.stabilisation",
    "still_live": "gpurunbook.supply.reviewed",
}
"""Check → the module that holds it."""


def __getattr__(name: str) -> Any:
    if name in _CHECKS:
        return getattr(importlib.import_module(_CHECKS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its checks: {', '.join(sorted(_CHECKS))}")


def __dir__() -> list[str]:
    return sorted(_CHECKS)
