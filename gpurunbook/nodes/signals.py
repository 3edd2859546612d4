"""What in one pod says that it holds a GPU. The union of all signals counts; each is a reason with its detail.

Facts: Kubernetes keeps a device-plugin allocation, also of a finished init container, until the pod is gone;
the NVIDIA runtime injects devices by environment alone; HAMi chooses the node before the pod is bound.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpurunbook.nodes.resources import gpus, is_gpu
from gpurunbook.nodes.shapes import Container, Pod

HAMI_NODE = "hami.io/vgpu-node"
HAMI_PHASE = "hami.io/bind-phase"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
NVIDIA_CDI = "nvidia.cdi.k8s.io/"
CDI = "cdi.k8s.io/"

NO_DEVICES = frozenset({"", "void", "none"})
"""Values of NVIDIA_VISIBLE_DEVICES that give no device."""

_HAMI_DEVICES = re.compile(r"hami\.io/.*devices-(?:allocated|to-allocate)")
_DEVICE_PATH = re.compile(r"/+dev/(?:nvidia.*|vfio(?:/.*)?)", re.DOTALL)


@dataclass(frozen=True, order=True)
class Reason:
    """Why something counts as a holder. word: stable, in docs/codes.md; detail: what was seen."""

    word: str
    detail: str = ""


def gpu_runtime(name: str | None, classes: Collection[str] = ()) -> bool:
    """Writes nothing. Whether a runtime class is a GPU one: by its name (`nvidia`, `nvidia-cdi`,
    `kata-qemu-nvidia-gpu-snp`), or because `classes` has it for its handler."""
    return bool(name) and ("nvidia" in str(name) or name in classes)


def signals(pod: Pod, names: Collection[str] = (), runtimes: Collection[str] = ()) -> list[Reason]:
    """Writes nothing. Every signal of a live pod that stands on its node; claims and machines are judged elsewhere.

    names: further GPU resource names; runtimes: further GPU runtime classes.
    """
    found = [*_requests(pod, names), *_environment(pod, runtimes), *_annotations(pod), *_paths(pod)]
    return sorted(set(found))


def states(pod: Pod) -> Iterator[Reason]:
    """Writes nothing. In what state a holder is where a careless reader would not count it."""
    if pod.metadata.deletionTimestamp is not None:
        yield Reason("terminating", f"since {pod.metadata.deletionTimestamp}")
    elif pod.phase == "Pending" and pod.spec.nodeName:
        yield Reason("scheduled-pending", "the node is chosen, the pod has not started")


def assigned(pod: Pod, node: str) -> list[Reason]:
    """Writes nothing. HAMi's choice of the node, asked of a pod that is not bound yet."""
    annotations = pod.metadata.annotations or {}
    if annotations.get(HAMI_NODE) != node:
        return []
    return [Reason("hami-assigned", f"{HAMI_NODE}={node}, {HAMI_PHASE}={annotations.get(HAMI_PHASE, 'absent')}")]


def doubts(pod: Pod, runtimes: Collection[str] = ()) -> list[str]:
    """Writes nothing. What may give the pod a GPU though nothing in it proves so.

    CUDA images set NVIDIA_VISIBLE_DEVICES themselves, and a node may have the NVIDIA runtime as its default. Kata
    gives a guest only the devices that its pod asks for.
    """
    under = gpu_runtime(pod.spec.runtimeClassName, runtimes)
    if (
        under
        and not str(pod.spec.runtimeClassName).startswith("kata")
        and not any(_visible(c)[0] for _, c in _containers(pod))
    ):
        return [f"runs under runtime class {pod.spec.runtimeClassName} and leaves {VISIBLE_DEVICES} to its image"]
    return [
        f"container {c.name} sets {VISIBLE_DEVICES}={value}, which works where the NVIDIA runtime is the default"
        for _, c in _containers(pod)
        for there, value in [_visible(c)]
        if there and value not in NO_DEVICES and not under and not _privileged(c)
    ]


def _containers(pod: Pod) -> Iterator[tuple[str, Container]]:
    """Each container with the ending of the reason for what it requests."""
    spec = pod.spec
    for container in spec.containers:
        yield "", container
    for container in spec.initContainers or ():
        yield ("-sidecar" if container.restartPolicy == "Always" else "-init"), container
    for container in spec.ephemeralContainers or ():
        yield "-ephemeral", container


def _requests(pod: Pod, names: Collection[str]) -> Iterator[Reason]:
    for kind, container in _containers(pod):
        if container.resources:
            asked = {*gpus(container.resources.requests, names), *gpus(container.resources.limits, names)}
            for name in asked:
                yield Reason(f"resource{kind}", f"container {container.name} asks for {name}")
    for name in gpus(pod.spec.overhead, names):
        yield Reason("resource-overhead", f"the runtime class adds {name}")
    if pod.spec.resources:
        for name in {*gpus(pod.spec.resources.requests, names), *gpus(pod.spec.resources.limits, names)}:
            yield Reason("resource", f"the pod asks for {name}")


def _visible(container: Container) -> tuple[bool, str]:
    """Whether the container names its devices, and how; the last entry of a name wins, as in the kubelet."""
    there, value = False, ""
    for env in container.env or ():
        if env.name == VISIBLE_DEVICES:
            there = True
            value = "(from elsewhere)" if env.valueFrom is not None else (env.value or "")
    return there, value


def _privileged(container: Container) -> bool:
    return bool(container.securityContext and container.securityContext.privileged)


def _environment(pod: Pod, runtimes: Collection[str]) -> Iterator[Reason]:
    under = gpu_runtime(pod.spec.runtimeClassName, runtimes)
    for _, container in _containers(pod):
        there, value = _visible(container)
        if there and value not in NO_DEVICES and (under or _privileged(container)):
            why = f"under runtime class {pod.spec.runtimeClassName}" if under else "privileged"
            yield Reason("visible-devices", f"container {container.name} sets {VISIBLE_DEVICES}={value}, {why}")


def _annotations(pod: Pod) -> Iterator[Reason]:
    for key, value in (pod.metadata.annotations or {}).items():
        if _HAMI_DEVICES.fullmatch(key):
            if hami_devices(value):
                yield Reason("hami-devices", f"{key} names devices")
        elif (key.startswith(NVIDIA_CDI) and value.strip()) or (key.startswith(CDI) and _cdi_gpu(value)):
            yield Reason("cdi-annotation", f"{key}: {value}")


def _cdi_gpu(value: str) -> bool:
    """Whether one of the CDI names `vendor/class=device` is a GPU."""
    return any(is_gpu(name.strip().partition("=")[0]) for name in value.split(","))


def hami_devices(value: str) -> bool:
    """Writes nothing. Whether a HAMi annotation names at least one device.

    Devices are `UUID,TYPE,MiB,cores` each ended by `:`, containers ended by `;`. A container without a GPU is
    empty or `,,0,0:` (Project-HAMi/HAMi#991).
    """
    return any(device.partition(",")[0].strip() for device in re.split("[:;]", value))


def _paths(pod: Pod) -> Iterator[Reason]:
    for volume in pod.spec.volumes or ():
        path = volume.hostPath.path if volume.hostPath else ""
        if path and _DEVICE_PATH.fullmatch(posixpath.normpath(path)):
            yield Reason("device-path", f"hostPath {path}")
