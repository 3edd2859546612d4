"""The parts of Kubernetes objects that the holder rules need, as types that decode quickly and skip the rest.

A field that the rule cannot do without is required: an answer without it does not decode and is unknown, never
"nobody". Null is as good as absent everywhere else, because Go writes nil maps and lists so.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Struct(msgspec.Struct, gc=False):
    """No cycles among these, so the collector need not look at twenty thousand of them."""


class Present(Struct):
    """An object of which only the presence matters."""


class Owner(Struct):
    """metadata.ownerReferences[]."""

    kind: str
    name: str
    apiVersion: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Struct):
    """metadata."""

    name: str
    namespace: str = "default"
    uid: str = ""
    deletionTimestamp: str | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[Owner] | None = None

    @property
    def key(self) -> str:
        """Writes nothing. `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> Owner | None:
        """Writes nothing. The one owner that controls the object."""
        return next((o for o in self.ownerReferences or () if o.controller), None)


class Resources(Struct):
    """resources of a container or a pod. Quantities are strings or numbers."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class Env(Struct):
    """env[]."""

    name: str
    value: str | None = None
    valueFrom: Present | None = None


class Security(Struct):
    """securityContext of a container."""

    privileged: bool | None = None


class Mount(Struct):
    """volumeMounts[]."""

    name: str = ""
    mountPath: str = ""
    subPath: str | None = None


class Container(Struct):
    """One regular, init or ephemeral container. An init container with restartPolicy Always is a sidecar."""

    name: str = ""
    resources: Resources | None = None
    env: list[Env] | None = None
    securityContext: Security | None = None
    volumeMounts: list[Mount] | None = None
    restartPolicy: str | None = None


class HostPath(Struct):
    """volumes[].hostPath."""

    path: str = ""


class Volume(Struct):
    """volumes[]."""

    name: str = ""
    hostPath: HostPath | None = None


class PodClaim(Struct):
    """spec.resourceClaims[] and status.resourceClaimStatuses[]."""

    name: str
    resourceClaimName: str | None = None


class PodSpec(Struct):
    """spec of a pod."""

    containers: list[Container]
    nodeName: str | None = None
    runtimeClassName: str | None = None
    serviceAccountName: str | None = None
    overhead: dict[str, Any] | None = None
    resources: Resources | None = None
    resourceClaims: list[PodClaim] | None = None
    initContainers: list[Container] | None = None
    ephemeralContainers: list[Container] | None = None
    volumes: list[Volume] | None = None


class ExtendedClaim(Struct):
    """status.extendedResourceClaimStatus: an extended resource that the scheduler took from DRA devices."""

    resourceClaimName: str | None = None


class ContainerState(Struct):
    """status.*Statuses[].state."""

    running: Present | None = None


class ContainerStatus(Struct):
    """status.containerStatuses[], .initContainerStatuses[] and .ephemeralContainerStatuses[]."""

    name: str = ""
    state: ContainerState | None = None


class PodStatus(Struct):
    """status of a pod."""

    phase: str | None = None
    containerStatuses: list[ContainerStatus] | None = None
    initContainerStatuses: list[ContainerStatus] | None = None
    ephemeralContainerStatuses: list[ContainerStatus] | None = None
    resourceClaimStatuses: list[PodClaim] | None = None
    extendedResourceClaimStatus: ExtendedClaim | None = None


class Pod(Struct):
    """A pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus | None = None
    kind: str | None = None

    @property
    def phase(self) -> str:
        """Writes nothing. The phase, empty where there is none."""
        return (self.status.phase if self.status else None) or ""

    @property
    def ended(self) -> bool:
        """Writes nothing. Whether the phase is a last one."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def running(self) -> list[str]:
        """Writes nothing. The containers that are said to run."""
        status = self.status or PodStatus()
        lists = (status.containerStatuses, status.initContainerStatuses, status.ephemeralContainerStatuses)
        return [c.name for each in lists for c in each or () if c.state and c.state.running is not None]

    @property
    def live(self) -> bool:
        """Writes nothing. Whether the pod may still have devices.

        An ended pod that is being deleted may still await unprepare; NVIDIA's own DRA node logic counts it. Others than
        the kubelet set a last phase as well (a node that is lost, an eviction): what is said to run has its devices.
        """
        return not self.ended or self.metadata.deletionTimestamp is not None or bool(self.running)


class PodPage(Struct):
    """One page of pods."""

    items: list[Pod] | None = None


class DeviceResult(Struct):
    """status.allocation.devices.results[]."""

    driver: str = ""
    pool: str = ""
    adminAccess: bool | None = None


class DeviceResults(Struct):
    """status.allocation.devices."""

    results: list[DeviceResult] | None = None


class Allocation(Struct):
    """status.allocation. Without a node selector the devices can be reached from every node."""

    devices: DeviceResults | None = None
    nodeSelector: dict[str, Any] | None = None


class Consumer(Struct):
    """status.reservedFor[]."""

    name: str = ""
    resource: str = ""
    uid: str = ""


class ClaimStatus(Struct):
    """status of a claim."""

    allocation: Allocation | None = None
    reservedFor: list[Consumer] | None = None


class DeviceClass(Struct):
    """What one request asks for: `exactly`, an entry of `firstAvailable`, or (v1beta1) the request itself."""

    deviceClassName: str = ""
    adminAccess: bool | None = None


class DeviceRequest(DeviceClass):
    """spec.devices.requests[]."""

    exactly: DeviceClass | None = None
    firstAvailable: list[DeviceClass] | None = None


class ClaimDevices(Struct):
    """spec.devices."""

    requests: list[DeviceRequest] | None = None


class ClaimSpec(Struct):
    """spec of a claim."""

    devices: ClaimDevices | None = None


class Claim(Struct):
    """A ResourceClaim, of v1, v1beta2, v1beta1 or v1alpha3."""

    metadata: Metadata
    spec: ClaimSpec
    status: ClaimStatus | None = None
    kind: str | None = None


class ClaimPage(Struct):
    """One page of claims."""

    items: list[Claim] | None = None


class DaemonSet(Struct):
    """Who a DaemonSet is."""

    metadata: Metadata


class DaemonSetPage(Struct):
    """One page of DaemonSets."""

    items: list[DaemonSet] | None = None


class RuntimeClass(Struct):
    """A runtime class and the handler that the container runtime knows it by."""

    metadata: Metadata
    handler: str = ""


class RuntimeClassPage(Struct):
    """One page of runtime classes."""

    items: list[RuntimeClass] | None = None
