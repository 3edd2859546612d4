"""Who holds a GPU through DRA: ResourceClaims that pods name, and claims that are allocated without a running pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpurunbook.nodes.resources import positive
from gpurunbook.nodes.selectors import node_selector
from gpurunbook.nodes.shapes import Claim, DeviceClass, Pod
from gpurunbook.nodes.signals import Reason

NO_GPU_DRIVERS = frozenset({"compute-domain.nvidia.com", "dra.net", "mrdma.google.com"})
"""DRA drivers that give out no GPU. Every other driver counts as a GPU driver."""

NO_GPU_CLASSES = NO_GPU_DRIVERS | {"compute-domain-daemon.nvidia.com", "compute-domain-default-channel.nvidia.com"}
"""Their device classes, for a claim that is not allocated yet."""

UNREAD = "resource-claim-unread"

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""How a pod asks for a device class as for an extended resource; the scheduler makes the claim."""


def by_key(claims: Iterable[Claim]) -> dict[str, Claim]:
    """Writes nothing. Claims by `namespace/name`; of two with one name the one that consumes."""
    found: dict[str, Claim] = {}
    for claim in claims:
        if claim.metadata.key not in found or consumes(claim):
            found[claim.metadata.key] = claim
    return found


def names(pod: Pod) -> Iterator[tuple[str, str]]:
    """Writes nothing. Per claim of the pod: its name in the pod, and the ResourceClaim's name ("" when not known).

    A claim from a template has its name in the status. A status entry without a name says that none was needed.
    """
    status = pod.status
    generated = {s.name: s.resourceClaimName for s in (status.resourceClaimStatuses if status else None) or ()}
    for entry in pod.spec.resourceClaims or ():
        if entry.resourceClaimName:
            yield entry.name, entry.resourceClaimName
        elif entry.name not in generated:
            yield entry.name, ""
        elif generated[entry.name]:
            yield entry.name, str(generated[entry.name])
    extended = status.extendedResourceClaimStatus if status else None
    if extended and extended.resourceClaimName:
        yield "extended resource", extended.resourceClaimName
    else:
        yield from ((name, "") for name in sorted(_implicit(pod)))


def _implicit(pod: Pod) -> set[str]:
    spec = pod.spec
    every = [*spec.containers, *(spec.initContainers or ()), *(spec.ephemeralContainers or ())]
    asked = [q for c in every if c.resources for q in (c.resources.requests, c.resources.limits)]
    names = {name for q in asked for name, n in (q or {}).items() if positive(n)}
    return {n for n in names if n.startswith(_IMPLICIT) and n.removeprefix(_IMPLICIT) not in NO_GPU_CLASSES}


def of_pod(pod: Pod, claims: Mapping[str, Claim] | None) -> Iterator[Reason]:
    """Writes nothing. Reasons from the claims that a pod names. A claim that was not read is a reason of its own.

    claims: by `namespace/name`; None when there is no list of claims.
    """
    for entry, name in names(pod):
        claim = (claims or {}).get(f"{pod.metadata.namespace}/{name}") if name else None
        if claim is None:
            yield Reason(UNREAD, f"claim {name or entry} could not be read")
        elif consumes(claim):
            yield Reason("resource-claim", f"claim {name}: {_devices(claim)}")


def consumes(claim: Claim) -> bool:
    """Writes nothing. Whether the claim takes a GPU away from others.

    It does not when each allocated device is of a driver that gives out no GPU, or is there for administration
    only (adminAccess). A claim without a list of devices is judged by its requests; with neither it counts.
    """
    allocation = claim.status.allocation if claim.status else None
    results = (allocation.devices.results if allocation and allocation.devices else None) or []
    if results:
        return any(not r.adminAccess and r.driver not in NO_GPU_DRIVERS for r in results)
    wanted = list(_wanted(claim))
    return not wanted or any(not w.adminAccess and w.deviceClassName not in NO_GPU_CLASSES for w in wanted)


def _wanted(claim: Claim) -> Iterator[DeviceClass]:
    for request in (claim.spec.devices.requests if claim.spec.devices else None) or ():
        if request.exactly:
            yield request.exactly
        elif request.firstAvailable:
            yield from request.firstAvailable
        else:
            yield request


def _devices(claim: Claim) -> str:
    allocation = claim.status.allocation if claim.status else None
    results = (allocation.devices.results if allocation and allocation.devices else None) or []
    drivers = sorted({r.driver for r in results})
    return f"devices of {', '.join(drivers)}" if drivers else "not allocated yet"


def without_pod(
    claims: Mapping[str, Claim], node: str, labels: Mapping[str, str] | None
) -> Iterator[tuple[str, str, str, Reason]]:
    """Writes nothing. Claims with devices of this node: (claim, `pod` or `claim`, its `namespace/name`, reason), one
    for each pod that the claim is reserved for, or one for the claim itself when it is reserved for nobody."""
    for key, claim in sorted(claims.items()):
        if not (_is_here(claim, node, labels) and consumes(claim)):
            continue
        reserved = (claim.status.reservedFor if claim.status else None) or ()
        if not reserved:
            yield key, "claim", key, Reason("resource-claim-allocated", f"{_devices(claim)}, reserved for nobody")
        for consumer in reserved:
            who = f"{claim.metadata.namespace}/{consumer.name or claim.metadata.name}"
            detail = f"claim {claim.metadata.name} is reserved for it: {_devices(claim)}"
            yield key, "pod", who, Reason("resource-claim-reserved", detail)


def _is_here(claim: Claim, node: str, labels: Mapping[str, str] | None) -> bool:
    allocation = claim.status.allocation if claim.status else None
    if allocation is None:
        return False
    results = (allocation.devices.results if allocation.devices else None) or []
    # The pool of gpu.nvidia.com is the node's name.
    if any(r.pool == node for r in results):
        return True
    # Without a selector every node can reach the devices, so they are no devices of a node.
    if allocation.nodeSelector is None:
        return False
    # What labels would tell and they are not known: it may be here.
    return node_selector(allocation.nodeSelector, node, labels) is not False
