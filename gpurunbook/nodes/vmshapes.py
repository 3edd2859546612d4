"""The parts of KubeVirt's objects that the holder rules need, as in `shapes`."""

from __future__ import annotations

from gpurunbook.nodes.shapes import Metadata, Struct


class HostDevice(Struct):
    """spec.domain.devices.gpus[] and .hostDevices[]."""

    deviceName: str | None = None
    claimName: str | None = None


class Devices(Struct):
    """spec.domain.devices."""

    gpus: list[HostDevice] | None = None
    hostDevices: list[HostDevice] | None = None


class Domain(Struct):
    """spec.domain."""

    devices: Devices | None = None


class VmiSpec(Struct):
    """spec of a virtual machine instance."""

    domain: Domain


class Migration(Struct):
    """status.migrationState."""

    targetNode: str | None = None
    completed: bool | None = None
    failed: bool | None = None


class VmiStatus(Struct):
    """status of a virtual machine instance. activePods: uid of each of its pods → node."""

    phase: str | None = None
    nodeName: str | None = None
    activePods: dict[str, str] | None = None
    migrationState: Migration | None = None


class Vmi(Struct):
    """A KubeVirt VirtualMachineInstance."""

    metadata: Metadata
    spec: VmiSpec
    status: VmiStatus | None = None


class VmiPage(Struct):
    """One page of virtual machine instances."""

    items: list[Vmi] | None = None


class PermittedDevice(Struct):
    """permittedHostDevices.pciHostDevices[] and .mediatedDevices[]."""

    resourceName: str = ""
    pciVendorSelector: str = ""


class PermittedHostDevices(Struct):
    """spec.configuration.permittedHostDevices."""

    pciHostDevices: list[PermittedDevice] | None = None
    mediatedDevices: list[PermittedDevice] | None = None


class KubeVirtConfiguration(Struct):
    """spec.configuration."""

    permittedHostDevices: PermittedHostDevices | None = None


class KubeVirtSpec(Struct):
    """spec of the KubeVirt object."""

    configuration: KubeVirtConfiguration | None = None


class KubeVirt(Struct):
    """The KubeVirt object, which says which host devices may be passed through."""

    spec: KubeVirtSpec


class KubeVirtPage(Struct):
    """One page of KubeVirt objects."""

    items: list[KubeVirt] | None = None
