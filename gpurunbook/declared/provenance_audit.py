"""The runtime image provenance audit."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpurunbook.declared.book import Permission, Runbook, Step, described
from gpurunbook.declared.common import Common


class Parameters(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator may choose."""

    namespaces: Annotated[list[str], described("namespaces whose images are audited; each must hold a pod")] = (
        msgspec.field(default_factory=lambda: ["gpu-operator", "hami-system"])
    )
    pod_json: Annotated[str, described("a captured PodList file instead of the live cluster (a rehearsal)")] = ""
    baseline: Annotated[str, described("audit.json of an earlier audit: digests that changed since are named")] = ""
    relations: Annotated[str, described("JSON file: index digest to its manifests with platform")] = ""
    platforms: Annotated[str, described("JSON file: node name to platform")] = ""
    tolerate_never_started: Annotated[
        bool, described("report ended pods that never started apart, instead of failing them")
    ] = False


RUNBOOK = Runbook(
    name="provenance_audit",
    title="Runtime image provenance audit",
    parameters=Parameters,
    steps=(
        Step("audit", "Judge every image that runs in the GPU namespaces"),
        Step("evidence", "Is each digest usable as evidence", needs=("audit",)),
    ),
    permissions=(Permission("list", "pods", namespace="{namespaces}"),),
)
