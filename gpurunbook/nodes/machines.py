"""Who holds a GPU through KubeVirt: virtual machine instances with GPUs or passthrough devices on the node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from gpurunbook.nodes.resources import is_gpu
from gpurunbook.nodes.shapes import Pod
from gpurunbook.nodes.signals import Reason
from gpurunbook.nodes.vmshapes import Vmi

VMI = "VirtualMachineInstance"


def on_node(vmis: Iterable[Vmi], node: str, names: Collection[str] = ()) -> Iterator[tuple[str, Reason]]:
    """Writes nothing. (`namespace/name`, reason) of each instance with a GPU that is on the node or moves there.

    A stopped machine has no instance and holds nothing. names: further GPU resource names of this cluster.
    """
    for vmi in vmis:
        devices = _gpus(vmi, names)
        status = vmi.status
        if not devices or status is None or status.phase in ("Succeeded", "Failed"):
            continue
        migration = status.migrationState
        if status.nodeName == node or node in (status.activePods or {}).values():
            yield vmi.metadata.key, Reason("kubevirt-vmi", f"VMI {vmi.metadata.name}: {', '.join(devices)}")
        elif migration and migration.targetNode == node and not migration.completed and not migration.failed:
            yield (
                vmi.metadata.key,
                Reason("kubevirt-migration-target", f"VMI {vmi.metadata.name} moves here: {', '.join(devices)}"),
            )


def _gpus(vmi: Vmi, names: Collection[str]) -> list[str]:
    """What is under `gpus` is a GPU by any name; host devices may be network cards."""
    devices = vmi.spec.domain.devices
    if devices is None:
        return []
    found = {d.deviceName or f"claim {d.claimName}" for d in devices.gpus or ()}
    found |= {d.deviceName for d in devices.hostDevices or () if d.deviceName and is_gpu(d.deviceName, names)}
    return sorted(found)


def of_pod(pod: Pod) -> str:
    """Writes nothing. `namespace/name` of the instance whose virt-launcher pod this is, or ""."""
    owner = pod.metadata.controller
    return f"{pod.metadata.namespace}/{owner.name}" if owner and owner.kind == VMI else ""
