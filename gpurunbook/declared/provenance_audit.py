"""The runtime image provenance audit."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpurunbook.declared.book import Permission, Runbook, Step, described


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator may choose."""

    cluster: Annotated[
        str, described("kubeconfig context, embedded:DIR of a fixture cluster, in-cluster, or empty: current context")
    ] = ""
    expect_cluster: Annotated[str, described("uid of namespace kube-system that must be met; empty: any")] = ""
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
    run_id: Annotated[str, described("go on with this run; empty: a new one")] = ""
    change_id: Annotated[str, described("change ticket that this evidence belongs to")] = ""
    reason: Annotated[str, described("why the audit is made, for whoever reads the evidence")] = ""


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
