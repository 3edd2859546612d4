"""How a node is asked for, and which API groups a cluster serves.

Only a list of groups that was read says that one is absent: a 404 on a collection may be a proxy, an aggregated API
that is down, or a version that is switched off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gpurunbook.errors import ParameterError
from gpurunbook.plan import Object, Observed

GROUPS = Object("/apis")

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
"""What an object or a namespace can be called (a DNS subdomain)."""


def node_object(name: str) -> Object:
    """Writes nothing. The need of one node. Raises ParameterError for what cannot be a node's name.

    An empty name would ask for the list of nodes and for the pods that are bound nowhere, and find nobody.
    """
    if not NAME.fullmatch(name):
        raise ParameterError(
            f"{name!r} cannot be a node's name: lower-case letters, digits, `-` and `.`",
            subject="parameter node",
            remedy="`kubectl get nodes` lists the names.",
        )
    return Object(f"/api/v1/nodes/{name}")


class Served:
    """What `GET /apis` (an APIGroupList) said. problem: why nothing can be told from it, or ""."""

    def __init__(self, observed: Observed) -> None:
        self.problem = ""
        self._groups: dict[str, Any] = {}
        if observed.problem:
            self.problem = f"{observed.problem.code}: {observed.problem.message}"
            return
        groups = observed.value.get("groups") if isinstance(observed.value, dict) else None
        if not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
            self.problem = "the answer has no list of groups"
            return
        self._groups = {str(g.get("name")): g for g in groups}

    def has(self, group: str) -> bool:
        """Writes nothing. Whether the group is served; False also when nothing can be told (see `problem`)."""
        return group in self._groups

    def version(self, group: str, wanted: Sequence[str]) -> str:
        """Writes nothing. The first wanted version that is served, else the preferred one, "" without the group."""
        found = self._groups.get(group)
        if found is None:
            return ""
        served = [str(v.get("version")) for v in found.get("versions") or () if isinstance(v, dict)]
        preferred = str((found.get("preferredVersion") or {}).get("version") or "")
        return next((v for v in wanted if v in served), preferred or (served[0] if served else wanted[0]))
