"""SRE runbooks for GPU clusters on Kubernetes: `import gpurunbook as rb`.

A notebook's cell needs `rb.start`, and the rooms of rules `rb.supply` and `rb.nodes`. They are imported on
first use: the command line must answer `--help` at once, and a kernel must start quickly.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["nodes", "start", "supply"]


def __getattr__(name: str) -> Any:
    if name == "start":
        return importlib.import_module("gpurunbook.runbook.start").start
    if name in __all__:
        return importlib.import_module(f"gpurunbook.{name}")
    raise AttributeError(f"module 'gpurunbook' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
