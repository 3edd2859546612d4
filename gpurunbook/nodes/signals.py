"""What in one pod says that it holds a GPU. The union of all signals counts; each is a reason with its detail.

Facts: Kubernetes keeps a device-plugin allocation, also of a finished init container, until the pod is gone;
the NVIDIA runtime injects devices by environment alone; HAMi chooses the node before the pod is bound.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from gpurunbook.nodes.resources import gpus
from gpurunbook.nodes.shapes import Container, Pod

HAMI_NODE = "hami.io/vgpu-node"
HAMI_PHASE = "hami.io/bind-phase"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DEVICE_MOUNTS = "/var/run/nvidia-container-devices/"
NVIDIA_CDI = "nvidia.cdi.k8s.io/"
CDI = "cdi.k8s.io/"

NO_DEVICES = frozenset({"", "void", "none"})
"""Values of NVIDIA_VISIBLE_DEVICES that give no device."""

CDI_VENDORS = ("nvidia.com", "amd.com", "gpu.intel.com")
"""Whose CDI kinds are GPUs, those of their subdomains too: `runtime.nvidia.com/gpu`, `k8s.gpu.nvidia.com/claim`."""

_HAMI_DEVICES = re.compile(r"hami\.io/.*devices-(?:allocated|to-allocate)")
_DEVICE_PATH = re.compile(r"(?:(?:/var)?/run/nvidia/driver)?/dev/(?:nvidia.*|vfio(?:/.*)?)", re.DOTALL)
"""The driver container has the device files in its own root as well."""
_OTHER_DEVICE_PATH = re.compile(r"/dev/(?:dri|kfd)(?:/.*)?", re.DOTALL)
"""AMD's and Intel's; their device plugins look there too, without being privileged."""


@dataclass(frozen=True, order=True)
class Reason:
    """Why something counts as a holder. word: stable, in docs/codes.md; detail: what was seen."""

    word: str
    detail: str = ""


def gpu_runtime(name: str | None, handlers: Mapping[str, str]) -> bool | None:
    """Writes nothing. Whether a runtime class is a GPU one, by its name (`nvidia`, `nvidia-cdi`,
    `kata-qemu-nvidia-gpu-snp`) or its handler; None where its handler is not known: it may be one."""
    if not name:
        return False
    if "nvidia" in name:
        return True
    return "nvidia" in handlers[name] if name in handlers else None


def signals(pod: Pod, names: Collection[str], handlers: Mapping[str, str]) -> list[Reason]:
    """Writes nothing. Every signal of a live pod that stands on its node; claims and machines are judged elsewhere.

    names: further GPU resource names; handlers: of the runtime classes that are there.
    """
    found = [*_requests(pod, names), *_environment(pod, handlers), *_annotations(pod), *_paths(pod)]
    return sorted(set(found))


def states(pod: Pod) -> Iterator[Reason]:
    """Writes nothing. In what state a holder is where a careless reader would not count it."""
    if pod.metadata.deletionTimestamp is not None:
        yield Reason("terminating", f"since {pod.metadata.deletionTimestamp}")
    elif pod.phase == "Pending" and pod.spec.nodeName:
        yield Reason("scheduled-pending", "the node is chosen, the pod has not started")
    elif pod.ended:
        yield Reason("ended-running", f"phase {pod.phase}, but said to run: {', '.join(pod.running)}")


def assigned(pod: Pod, node: str) -> list[Reason]:
    """Writes nothing. HAMi's choice of the node, asked of a pod that is not bound yet."""
    annotations = pod.metadata.annotations or {}
    if annotations.get(HAMI_NODE) != node:
        return []
    return [Reason("hami-assigned", f"{HAMI_NODE}={node}, {HAMI_PHASE}={annotations.get(HAMI_PHASE, 'absent')}")]


def doubts(pod: Pod, handlers: Mapping[str, str]) -> list[str]:
    """Writes nothing. What may give the pod a GPU though nothing in it proves so.

    CUDA images set NVIDIA_VISIBLE_DEVICES themselves, and a node may have the NVIDIA runtime as its default. A
    privileged container sees every device of the host; agents of a node (DaemonSets, static pods) commonly are so. Kata
    gives a guest only the devices that its pod asks for.
    """
    runtime = pod.spec.runtimeClassName
    under, kata = gpu_runtime(runtime, handlers), str(runtime).startswith("kata")
    owner = pod.metadata.controller
    agent = owner is not None and owner.kind in ("DaemonSet", "Node")
    found: list[str] = []
    for _, c in _containers(pod):
        devices = _visible(c)
        if under and not kata and devices is None:
            found.append(
                f"container {c.name} runs under runtime class {runtime} and leaves {VISIBLE_DEVICES} to its image"
            )
        elif devices and not under:
            found.append(f"container {c.name} {devices[0]}, which works where the NVIDIA runtime is the default")
        elif _privileged(c) and not kata and not agent:
            found.append(f"container {c.name} is privileged and sees every device of the node")
    return found


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


def _visible(container: Container) -> list[str] | None:
    """By what words the container asks for devices ([]: for none), None where it leaves that to its image.

    The last entry of a name wins, as in the kubelet. The runtime also takes a list of mounts, one for each device.
    """
    value: str | None = None
    for env in container.env or ():
        if env.name == VISIBLE_DEVICES:
            value = "(from elsewhere)" if env.valueFrom is not None else (env.value or "")
    found = [] if value is None or value in NO_DEVICES else [f"sets {VISIBLE_DEVICES}={value}"]
    for mount in container.volumeMounts or ():
        path = posixpath.normpath(mount.mountPath)
        if path.startswith(DEVICE_MOUNTS) and path.removeprefix(DEVICE_MOUNTS) not in NO_DEVICES:
            found.append(f"mounts {path}")
    return None if value is None and not found else found


def _privileged(container: Container) -> bool:
    return bool(container.securityContext and container.securityContext.privileged)


def _environment(pod: Pod, handlers: Mapping[str, str]) -> Iterator[Reason]:
    runtime = pod.spec.runtimeClassName
    under = gpu_runtime(runtime, handlers) is not False
    for _, container in _containers(pod):
        if under or _privileged(container):
            why = f"under runtime class {runtime}" if under else "privileged"
            for how in _visible(container) or ():
                yield Reason("visible-devices", f"container {container.name} {how}, {why}")


def _annotations(pod: Pod) -> Iterator[Reason]:
    for key, value in (pod.metadata.annotations or {}).items():
        if _HAMI_DEVICES.fullmatch(key):
            if hami_devices(value):
                yield Reason("hami-devices", f"{key} names devices")
        elif (key.startswith(NVIDIA_CDI) and value.strip()) or (key.startswith(CDI) and _cdi_gpu(value)):
            yield Reason("cdi-annotation", f"{key}: {value}")


def _cdi_gpu(value: str) -> bool:
    """Whether one of the CDI names `vendor/class=device` is a GPU."""
    vendors = {name.strip().partition("/")[0] for name in value.split(",")}
    return any(v == known or v.endswith(f".{known}") for v in vendors for known in CDI_VENDORS)


def hami_devices(value: str) -> bool:
    """Writes nothing. Whether a HAMi annotation names at least one device.

    Devices are `UUID,TYPE,MiB,cores` each ended by `:`, containers ended by `;`. A container without a GPU is
    empty or `,,0,0:` (Project-HAMi/HAMi#991).
    """
    return any(field.strip() not in ("", "0") for field in re.split("[:;,]", value))


def _paths(pod: Pod) -> Iterator[Reason]:
    volumes = [(v.name, v.hostPath.path) for v in pod.spec.volumes or () if v.hostPath and v.hostPath.path]
    host = dict(volumes)
    for _, path in volumes:
        if _DEVICE_PATH.fullmatch(_normal(path)):
            yield Reason("device-path", f"hostPath {path}")
    for _, container in _containers(pod):
        for mount in container.volumeMounts or ():
            if mount.name not in host:
                continue
            path = posixpath.join(host[mount.name], mount.subPath or "")
            other = _privileged(container) and _OTHER_DEVICE_PATH.fullmatch(_normal(path))
            if other or (mount.subPath and _DEVICE_PATH.fullmatch(_normal(path))):
                yield Reason("device-path", f"container {container.name} mounts hostPath {path}")


def _normal(path: str) -> str:
    """The path with one slash at its start, which POSIX lets be two."""
    return "/" + posixpath.normpath(path).lstrip("/")
