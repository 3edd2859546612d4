"""Pods as the audit sees them: typed decoding that skips everything else.

Null is read as absent, as Kubernetes means it. Nothing of a node is read but the name that a pod carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec


class Happened(msgspec.Struct, gc=False):
    """A state that is present; what is in it does not matter."""


class State(msgspec.Struct, gc=False):
    """`state` or `lastState` of a container."""

    running: Happened | None = None
    terminated: Happened | None = None


class Container(msgspec.Struct, gc=False):
    """An entry of `containers`, `initContainers` or `ephemeralContainers`."""

    name: str | None = None
    image: str | None = None


class ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    """An entry of one of the three lists of container statuses."""

    name: str | None = None
    image_id: str | None = msgspec.field(default=None, name="imageID")
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: State | None = None
    last_state: State | None = None
    restart_count: int | None = None

    @property
    def ran(self) -> bool:
        """Writes nothing. Whether anything here says that the container has run, now or before."""
        states = (self.state, self.last_state)
        return bool(self.container_id or self.restart_count) or any(s and (s.running or s.terminated) for s in states)


class ImageSource(msgspec.Struct, gc=False):
    """The `image` source of a volume."""

    reference: str | None = None


class Volume(msgspec.Struct, gc=False):
    """A volume; `image` is set on image volumes only."""

    name: str | None = None
    image: ImageSource | None = None


class Spec(msgspec.Struct, gc=False, rename="camel"):
    """What of a pod's spec is judged."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    node_name: str | None = None


class Status(msgspec.Struct, gc=False, rename="camel"):
    """What of a pod's status is judged."""

    phase: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class Metadata(msgspec.Struct, gc=False):
    """Namespace and name."""

    namespace: str | None = None
    name: str | None = None


class Pod(msgspec.Struct, gc=False):
    """A pod. kind is absent in a PodList."""

    kind: str | None = None
    metadata: Metadata | None = None
    spec: Spec | None = None
    status: Status | None = None


class PodList(msgspec.Struct, gc=False):
    """One page of a live list, for `plan.Pages`."""

    items: list[Pod] | None = None


class Malformed(msgspec.Struct, gc=False):
    """An item that is no readable pod. item: its place in the list; metadata: as far as it can be read."""

    item: int
    why: str
    metadata: Metadata


def live(pods: Iterable[Pod]) -> Iterator[Pod | Malformed]:
    """Writes nothing. Pods of live pages, each as it is or as Malformed."""
    for place, pod in enumerate(pods):
        why = flaw(pod)
        yield Malformed(place, why, pod.metadata or Metadata()) if why else pod


def flaw(pod: Pod) -> str:
    """Writes nothing. Why a pod cannot be judged in full: what the API server never leaves out is missing, or stands
    twice; else "".
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if meta is None or not meta.name or not meta.namespace:
        return "it has no metadata.name or no metadata.namespace"
    if spec is None or spec.containers is None:
        return "it has no spec.containers"
    why = (
        _unnamed("spec.containers", spec.containers)
        or _unnamed("spec.initContainers", spec.init_containers)
        or _unnamed("spec.ephemeralContainers", spec.ephemeral_containers)
        or _unnamed("spec.volumes", spec.volumes)
    )
    if why or status is None:
        return why
    return (
        _unnamed("status.containerStatuses", status.container_statuses)
        or _unnamed("status.initContainerStatuses", status.init_container_statuses)
        or _unnamed("status.ephemeralContainerStatuses", status.ephemeral_container_statuses)
    )


def _unnamed(where: str, entries: Sequence[Container | ContainerStatus | Volume] | None) -> str:
    if not entries:
        return ""
    if len(entries) == 1:
        return "" if entries[0].name else f"an entry of {where} has no name"
    names = {entry.name for entry in entries}
    if None in names or "" in names:
        return f"an entry of {where} has no name"
    return "" if len(names) == len(entries) else f"two entries of {where} have the same name"
