"""Which resource names mean a GPU, and which quantities mean one or more of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpurunbook.nodes.vmshapes import KubeVirt

PREFIXES = (
    "nvidia.com/",
    "requests.nvidia.com/",
    "amd.com/",
    "gpu.intel.com/",
    "volcano.sh/vgpu-",
    "aliyun.com/gpu-",
    "tencent.com/vcuda-",
    "iluvatar.ai/vcuda-",
    "hygon.com/dcu",
)
"""Vendors' names. Passthrough names are made from pci.ids (`nvidia.com/GH100_H100_PCIE`) or set as an alias by the
device plugin, so no fixed list of whole names would do."""

_WORD = re.compile(r"gpu|nvidia", re.IGNORECASE)
"""What others call theirs: `metax-tech.com/gpu`, `koordinator.sh/gpu-core`, `volcano.sh/gpu-memory`,
`k8s.amazonaws.com/vgpu`, `tke.cloud.tencent.com/qgpu-core`, `smarter-devices/nvidia0`."""

NO_GPU_VENDORS = frozenset({"14e4", "144d", "15b3"})
"""PCI vendors (Broadcom, Samsung, Mellanox) that make no GPU; a passthrough device of any other one counts."""

_NUMBER = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")


def is_gpu(name: str, more: Iterable[str] = ()) -> bool:
    """Writes nothing. Whether a resource of this name is a GPU or a share of one.

    A name that says so counts whoever gives it out: a share that nobody knows is held all the same.
    more: further names, as KubeVirt permits them on this cluster.
    """
    return name.startswith(PREFIXES) or bool(_WORD.search(name)) or name in more


def positive(quantity: Any) -> bool:
    """Writes nothing. Whether a Kubernetes quantity (`"0"`, `"1k"`, `1`) is above zero.

    What is no quantity counts as one: it is not known to be zero.
    """
    if quantity is None:
        return False
    found = _NUMBER.fullmatch(str(quantity).strip())
    if found is None:
        return True
    return found[1] != "-" and any(c in "123456789" for c in found[2])


def whole(quantity: Any) -> int:
    """Writes nothing. A quantity as a whole number: the API server writes 1000 as `1k`. Raises ValueError otherwise."""
    found = re.fullmatch(r"([0-9]+)(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?", str(quantity))
    if found is None:
        raise ValueError(f"quantity {str(quantity)[:40]!r} is no whole number")
    suffix = found[2] or ""
    base = 1024 if suffix.endswith("i") else 1000
    power = " KMGTPE".index(suffix[0].upper()) if suffix else 0
    return int(found[1]) * int(base**power)


def gpus(quantities: Mapping[str, Any] | None, more: Iterable[str] = ()) -> list[str]:
    """Writes nothing. The names of GPU resources with a positive quantity, sorted."""
    return sorted(name for name, q in (quantities or {}).items() if is_gpu(name, more) and positive(q))


def permitted(kubevirt: KubeVirt) -> Iterator[str]:
    """Writes nothing. The resource names that one KubeVirt object permits for passthrough and mediated GPUs."""
    configuration = kubevirt.spec.configuration
    devices = configuration.permittedHostDevices if configuration else None
    if devices is None:
        return
    for device in devices.pciHostDevices or ():
        if device.pciVendorSelector.partition(":")[0].lower() not in NO_GPU_VENDORS:
            yield device.resourceName
    for device in devices.mediatedDevices or ():
        yield device.resourceName
