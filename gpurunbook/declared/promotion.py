"""From a proposed tuple to a release: everything that must be proven first, and what is written down for review."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpurunbook.declared.book import Permission, Runbook, Step, described
from gpurunbook.declared.common import Common


class Parameters(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator may choose."""

    phase: Annotated[
        Literal["approve", "admit"],
        described("approve: judge everything and propose; admit: after the stabilisation window"),
    ] = "approve"
    namespaces: Annotated[list[str], described("GPU namespaces: audited, and where admission will be enforced")] = (
        msgspec.field(default_factory=lambda: ["gpu-operator", "hami-system"])
    )
    gates_namespace: Annotated[str, described("namespace of the gates, the profiles and the backend")] = "kube-dc"
    gates: Annotated[str, described("ConfigMap with the billing and creation gates")] = "cluster-config"
    profiles: Annotated[str, described("ConfigMap with the GPU profiles; there may be none")] = "gpu-profiles"
    backend: Annotated[str, described("Deployment that enforces the gates")] = "kube-dc-backend"
    released: Annotated[str, described("tuple that the fleet runs")] = "parameters/tuples/released.yaml"
    proposed: Annotated[str, described("tuple that is promoted")] = "parameters/tuples/proposed.yaml"
    record: Annotated[str, described("qualification record of the proposed tuple")] = ""
    request: Annotated[str, described("upgrade request: current, target, hardware, max_age as JSON")] = ""
    declared: Annotated[list[str], described("folders with what stands in Git: Helm values, Flux, Fleet")] = (
        msgspec.field(default_factory=list)
    )
    rendered: Annotated[list[str], described("folders with the rendered manifests")] = msgspec.field(
        default_factory=list
    )
    canary_nodes: Annotated[
        list[str], described("nodes that were upgraded; the others still run the released tuple")
    ] = msgspec.field(default_factory=list)
    canary: Annotated[str, described("folder of the canary run's sealed bundle")] = ""
    canary_manifest: Annotated[str, described("manifest digest of that bundle, from the change ticket")] = ""
    canary_signers: Annotated[
        str, described("or: who signs evidence, an allowed_signers file or a cosign public key")
    ] = ""
    relations: Annotated[str, described("JSON file: index digest to its manifests with platform")] = ""
    platforms: Annotated[str, described("JSON file: node name to platform")] = ""
    evidence: Annotated[str, described("folder with signatures, SBOMs and scans of every digest")] = ""
    exceptions: Annotated[str, described("Security's exceptions and dispositions; empty: none")] = ""
    platforms_in_use: Annotated[list[str], described("platforms that need evidence; empty: those of the nodes")] = (
        msgspec.field(default_factory=list)
    )
    max_database_age: Annotated[str, described("how old the data of a vulnerability scan may be")] = "48h"
    rollback: Annotated[str, described("audit.json of the released tuple: what a rollback leads to")] = ""
    enforcement: Annotated[Literal["warn", "deny"], described("what the admission policy does; begin with warn")] = (
        "warn"
    )
    admission_namespace: Annotated[str, described("namespace of the admission policy's parameters")] = "kube-system"
    stabilisation_hours: Annotated[int, described("length of the stabilisation window")] = 24
    approval: Annotated[str, described("approval file; empty: approval.json in this run's folder")] = ""
    approved: Annotated[str, described("admit: folder of the approved run's sealed bundle")] = ""
    approved_manifest: Annotated[str, described("admit: manifest digest of that bundle, from the change ticket")] = ""
    approved_signers: Annotated[
        str, described("admit, or: who signs evidence, an allowed_signers file or a cosign public key")
    ] = ""
    alerts: Annotated[str, described("admit: Prometheus' answer to query_range of ALERTS over the window")] = ""
    alert_rules: Annotated[str, described("admit: Prometheus' answer to rules: which alerts there are")] = ""
    now: Annotated[str, described("judge at this time, RFC 3339, which makes it a rehearsal; empty: the clock")] = ""


RUNBOOK = Runbook(
    name="promotion",
    title="Promote a GPU tuple to a release",
    parameters=Parameters,
    lasts=4.0,  # an approval may take days, and everything is then judged anew
    steps=(
        Step("eligibility", "Billing eligibility and both creation gates are false"),
        Step("tuple", "Qualification record and tuple", needs=("eligibility",)),
        Step("manifests", "Manifest review, and the tuple wherever it stands", needs=("tuple",)),
        Step("canary", "Canary evidence", needs=("tuple", "manifests")),
        Step("audit", "Provenance audit against the canary's digests", needs=("canary",)),
        Step("evidence", "Signatures, SBOMs, scans and Security's dispositions", needs=("audit",)),
        Step("proposal", "Release proposal", needs=("evidence",)),
        Step("approval", "Approval by another person", needs=("proposal",)),
        Step("stabilisation", "Stabilisation window", needs=("approval",)),
        Step("still-closed", "Billing eligibility and both creation gates are still false", needs=("stabilisation",)),
    ),
    permissions=(
        Permission("get", "configmaps", namespace="{gates_namespace}", name="{gates}"),
        Permission("get", "configmaps", namespace="{gates_namespace}", name="{profiles}"),
        Permission("get", "deployments", group="apps", namespace="{gates_namespace}", name="{backend}"),
        Permission("list", "pods", namespace="{namespaces}"),
        Permission("list", "daemonsets", group="apps", namespace="{namespaces}"),
        Permission("list", "deployments", group="apps", namespace="{namespaces}"),
        Permission("list", "controllerrevisions", group="apps", namespace="{namespaces}"),
        Permission("list", "nodes"),
        Permission("list", "clusterpolicies", group="nvidia.com"),
        Permission("list", "nvidiadrivers", group="nvidia.com"),
        Permission("list", "helmreleases", group="helm.toolkit.fluxcd.io"),
        Permission("list", "nodefeatures", group="nfd.k8s-sigs.io"),
    ),
)
