"""Taking a GPU node out of service, giving it back, or going on for a run that died."""

from __future__ import annotations

from typing import Annotated, Literal

from gpurunbook.declared.book import Permission, Runbook, Stands, Step, described
from gpurunbook.declared.common import Changing
from gpurunbook.nodes import service

_LEASES = "coordination.k8s.io"


class Parameters(Changing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator may choose."""

    node: Annotated[str, described("name of the node")] = ""
    action: Annotated[
        Literal["cordon", "release", "adopt"],
        described("cordon: out of service; release: back; adopt: go on for a run that died"),
    ] = "cordon"
    holders: Annotated[
        Literal["nobody", "may-stay"],
        described("nobody: whoever holds a GPU blocks a cordon; may-stay: holders are shown and stay"),
    ] = "nobody"
    taint: Annotated[bool, described("also set our NoSchedule taint; False is weaker")] = True
    max_out: Annotated[int, described("at most so many GPU nodes out of service, this one included")] = 2
    wait_seconds: Annotated[int, described("how long to wait until the node shows it")] = 120
    hold_seconds: Annotated[int, described("how long the cordon must then stand without a break")] = 3


RUNBOOK = Runbook(
    name="node_cordon",
    title="Take a GPU node out of service and give it back",
    parameters=Parameters,
    steps=(
        Step("whose", "Whose cordon is it, and how many nodes are out"),
        Step("holders", "Who holds the GPUs", needs=("whose",)),
        Step("capacity", "What the pool loses", needs=("whose",)),
        Step("daemonsets", "What would not come back under our taint", needs=("whose",)),
        Step("hands", "Who else cordons and uncordons here", needs=("whose",)),
        Step("mark", "Cordon, release or adopt", needs=("holders", "capacity", "daemonsets", "hands")),
        Step("settled", "Wait until the node shows it", needs=("mark",)),
        Step("again", "Who holds the GPUs now", needs=("settled",)),
    ),
    permissions=(
        Permission("get", "nodes", name="{node}"),
        Permission("list", "nodes"),
        Permission("watch", "nodes"),
        Permission("patch", "nodes", name="{node}"),
        Permission("list", "pods"),
        Permission("watch", "pods"),
        Permission("list", "daemonsets", group="apps"),
        Permission("list", "runtimeclasses", group="node.k8s.io"),
        Permission("list", "resourceclaims", group="resource.k8s.io"),
        Permission("list", "virtualmachineinstances", group="kubevirt.io"),
        Permission("list", "kubevirts", group="kubevirt.io"),
        Permission("list", "plans", group="upgrade.cattle.io"),
        Permission("get", "configmaps", namespace="kube-system", name="cluster-autoscaler-status"),
        Permission("get", "configmaps", namespace="nvsentinel", name="circuit-breaker"),
        Permission("get", "leases", group=_LEASES, namespace="{site.lease_namespace}"),
        Permission("create", "leases", group=_LEASES, namespace="{site.lease_namespace}"),
        Permission("patch", "leases", group=_LEASES, namespace="{site.lease_namespace}"),
        Permission("delete", "leases", group=_LEASES, namespace="{site.lease_namespace}"),
    ),
    changes=True,
    lease="node/{node}",
    stands=Stands(
        what="cordon",
        since="mark",
        again=lambda p, run, stood: service.keep(p.node, p.action, p.taint, run, stood),
        recheck=lambda p: service.held(p.node, p.action, p.holders),
    ),
)
