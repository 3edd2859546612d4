"""Where the tuple's values stand: in Git, in rendered manifests, and in a live cluster. From raw objects.

One sighting is one value in one place. The table of `places` compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.supply import references, strictyaml
from gpurunbook.supply.members import at
from gpurunbook.supply.packed import VALUES
from gpurunbook.supply.rollouts import Rollouts

CUDA_DRIVER_VERSION = "nvidia.com/cuda.driver-version.full"
GPU_PRESENT = "nvidia.com/gpu.present"
NFD_GPU = tuple(f"feature.node.kubernetes.io/pci-{name}.present" for name in ("10de", "0302_10de", "0300_10de"))
"""NFD's labels by which the GPU Operator knows a GPU node (controllers/state_manager.go) before it labels it itself."""

HELM_CHART = "helm.sh/chart"

_LIMIT = 64 << 20
_VARIABLE = re.compile(r"\$\{[^}]*\}|\{\{")
_OS_SUFFIX = re.compile(r"([0-9]+\.[0-9]+(?:\.[0-9]+)?)-[a-z]+[a-z0-9.]*")

Raw = Mapping[str, Any]
Known = Mapping[tuple[str, str], Sequence[Raw]]
"""Documents by kind and name."""


@dataclass(frozen=True)
class Sighting:
    """One value of one field. where: `kind/namespace/name path`; node: "" where it is bound to none.

    state: "" for a value that counts; `unresolved` for one that only rendering can tell; `pending` and `stale` for
    what a pod of an earlier revision runs; `rolling` while its roll-out goes on.
    """

    field: str
    value: str
    where: str
    node: str = ""
    state: str = ""


def named(raw: Raw) -> str:
    """Writes nothing. `kind/namespace/name`, or `values` for what is no object."""
    parts = (raw.get("kind"), at(raw, "metadata", "namespace"), at(raw, "metadata", "name"))
    return "/".join(str(part) for part in parts if part) or "values"


def _one(field: str, value: Any, where: str, node: str = "", state: str = "") -> Iterator[Sighting]:
    if value is None or value == "":
        return
    text = str(value)
    if _VARIABLE.search(text):
        state = "unresolved"
    yield Sighting(field, text, where, node, state)


def declared(documents: Sequence[Raw]) -> list[Sighting]:
    """Writes nothing. What Git asks for: Flux, Fleet, RKE2, Cluster API, Argo, Helm values also in texts, upgrade Plan.

    A text that cannot be read is left out: the review tells it. A values document is told by its keys;
    `global.imageTag` and other image tags lose their leading v for HAMi, whose chart has none.
    """
    found: list[Sighting] = []
    known: dict[tuple[str, str], list[Raw]] = {}
    for raw in documents:
        known.setdefault((str(raw.get("kind")), str(at(raw, "metadata", "name"))), []).append(raw)
    for raw in documents:
        kind, where = raw.get("kind"), named(raw)
        if kind == "HelmRelease":
            found += _release(raw, where, known)
        elif kind in {"HelmChart", "HelmChartConfig", "HelmChartProxy"}:
            found += _installed(at(raw, "spec") or {}, where)
        elif kind in {"Application", "ApplicationSet"}:
            for path in (("spec",), ("spec", "template", "spec")):
                found += _argo(at(raw, *path), f"{where} {'.'.join(path)}")
        elif kind == "ConfigMap":
            for key, text in (at(raw, "data") or {}).items():
                if str(key).endswith(VALUES):
                    found += _values(_parsed(text), f"{where} data.{key}")
        elif kind in {"Bundle", "HelmOp"} and isinstance(at(raw, "spec", "helm"), Mapping):
            found += _fleet(raw["spec"], "targets", f"{where} spec.helm")
        elif kind == "Plan":
            found += _one("rke2", at(raw, "spec", "version"), f"{where} spec.version")
        elif kind is None and isinstance(raw.get("helm"), Mapping):
            found += _fleet(raw, "targetCustomizations", "fleet.yaml helm")
        elif kind is None:
            found += _values(raw, "values")
    return found


def _fleet(spec: Raw, targets: str, where: str) -> Iterator[Sighting]:
    listed = spec.get(targets)
    for one in (spec, *(listed if isinstance(listed, list) else ())):
        helm = at(one, "helm")
        if isinstance(helm, Mapping):
            yield from _chart(helm.get("chart") or spec["helm"].get("chart"), helm.get("version"), f"{where}.version")
            yield from _values(helm.get("values"), f"{where}.values")


def _installed(spec: Raw, where: str) -> Iterator[Sighting]:
    """HelmChart and HelmChartConfig of RKE2, HelmChartProxy of Cluster API."""
    yield from _chart(spec.get("chart") or spec.get("chartName"), spec.get("version"), where)
    for name in ("valuesContent", "valuesTemplate"):
        yield from _values(_parsed(spec.get(name)), f"{where} spec.{name}")
    yield from _values(spec.get("values"), f"{where} spec.values")
    single = spec.get("set")
    yield from _values(_nested(single.items() if isinstance(single, Mapping) else ()), f"{where} spec.set")


def _argo(spec: Any, where: str) -> Iterator[Sighting]:
    several = at(spec, "sources")
    for source in (at(spec, "source"), *(several if isinstance(several, list) else ())):
        yield from _chart(at(source, "chart"), at(source, "targetRevision"), f"{where} source.targetRevision")
        helm = at(source, "helm")
        yield from _values(_parsed(at(helm, "values")), f"{where} source.helm.values")
        yield from _values(at(helm, "valuesObject"), f"{where} source.helm.valuesObject")
        listed = at(helm, "parameters")
        pairs = [(at(one, "name"), at(one, "value")) for one in (listed if isinstance(listed, list) else ())]
        yield from _values(_nested(pairs), f"{where} source.helm.parameters")


def _parsed(text: Any) -> Any:
    """Values that stand as text; None when they cannot be read."""
    if not isinstance(text, str):
        return None
    try:
        return next(
            (strictyaml.plain(one) for one in strictyaml.documents(text.encode(errors="replace"), limit=_LIMIT)), None
        )
    except InputError:
        return None


def _nested(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """`a.b.c` and its value as mappings, as `helm --set` takes them."""
    root: dict[str, Any] = {}
    for name, value in pairs:
        *outer, last = str(name).split(".")
        node = root
        for key in outer:
            inner = node.setdefault(key, {})
            node = inner if isinstance(inner, dict) else {}
        node[last] = value
    return root


def chart_of(name: Any) -> str:
    """Writes nothing. The last component of a chart's name or address, without a version in it."""
    last = re.split(r"[?#]", str(name or ""))[0].rstrip("/").rpartition("/")[2].partition(":")[0]
    return re.sub(r"-v?[0-9][^/]*\.tgz$", "", last)


def _chart(name: Any, version: Any, where: str) -> Iterator[Sighting]:
    field = {"gpu-operator": "gpuOperator", "hami": "hami"}.get(chart_of(name))
    if field:
        yield from _one(field, version, where)


def _release(raw: Raw, where: str, known: Known) -> Iterator[Sighting]:
    spec = at(raw, "spec") or {}
    inner = at(spec, "chart", "spec") or {}
    yield from _chart(inner.get("chart"), inner.get("version"), f"{where} spec.chart.spec.version")
    reference = spec.get("chartRef")
    if isinstance(reference, Mapping):
        yield from _referred(reference, raw, where, known)
    yield from _values(spec.get("values"), f"{where} spec.values")
    listed = spec.get("valuesFrom")
    for item in listed if isinstance(listed, list) else ():
        key = at(item, "valuesKey") or "values.yaml"
        if at(item, "kind") == "ConfigMap" and not str(key).endswith(VALUES):  # the others are read anyway
            for other in known.get(("ConfigMap", str(at(item, "name"))), ()):
                if named(other) == f"ConfigMap/{at(raw, 'metadata', 'namespace')}/{at(item, 'name')}":
                    yield from _values(_parsed(at(other, "data", key)), f"{named(other)} data.{key}")


def _referred(reference: Raw, raw: Raw, where: str, known: Known) -> Iterator[Sighting]:
    namespace = reference.get("namespace") or at(raw, "metadata", "namespace")
    for other in known.get((str(reference.get("kind")), str(reference.get("name"))), ()):
        if at(other, "metadata", "namespace") in (namespace, None):
            tag = at(other, "spec", "ref", "tag") or at(other, "spec", "version")
            chart = at(other, "spec", "url") or at(other, "spec", "chart")
            digest = at(other, "spec", "ref", "digest")
            place = f"{named(other)} for {where}"
            if tag:
                yield from _chart(chart, tag, place)
            elif digest:  # exact, but it says no version
                yield from (Sighting(s.field, s.value, place, "", "unresolved") for s in _chart(chart, digest, place))


def _values(values: Any, where: str) -> Iterator[Sighting]:
    if not isinstance(values, Mapping):
        return
    for chart in ("gpu-operator", "hami"):  # an umbrella chart hands values down under the name of the chart
        yield from _values(values.get(chart), f"{where}.{chart}")
    if any(isinstance(values.get(name), Mapping) for name in ("driver", "toolkit", "dcgmExporter")):
        yield from _policy(values, where)
    kube = at(values, "scheduler", "kubeScheduler")
    image_tag = at(values, "global", "imageTag")
    if isinstance(kube, Mapping) or image_tag:
        yield from _one("hamiScheduler", at(kube, "image", "tag"), f"{where} scheduler.kubeScheduler.image.tag")
        own = [("scheduler", "extender"), ("devicePlugin",), ("devicePlugin", "monitor")]
        for path in [("global", "imageTag"), *((*part, "image", "tag") for part in own)]:
            tag = at(values, *path)
            yield from _one("hami", _without_v(tag), f"{where} {'.'.join(path)}")


def _without_v(tag: Any) -> Any:
    return tag[1:] if isinstance(tag, str) and re.match(r"v[0-9]", tag) else tag


def _policy(spec: Raw, where: str) -> Iterator[Sighting]:
    """Of a ClusterPolicy's spec, or of the chart's values, which have the same fields."""
    driver = spec.get("driver")
    if str(at(driver, "useNvidiaDriverCRD")).lower() != "true":
        yield from _driver(driver, f"{where} driver")
    yield from _one("toolkit", at(spec, "toolkit", "version"), f"{where} toolkit.version")
    exporter = at(spec, "dcgmExporter", "version")
    field = "dcgmExporterDigest" if str(exporter or "").startswith("sha256:") else "dcgmExporter"
    yield from _one(field, exporter, f"{where} dcgmExporter.version")


def _driver(driver: Any, where: str) -> Iterator[Sighting]:
    version = at(driver, "version")
    # A precompiled driver is named by its branch, a digest by nothing: neither tells the release.
    branch = str(at(driver, "usePrecompiled")).lower() == "true" or str(version or "").startswith("sha256:")
    yield from _one("driver", version, f"{where}.version", "", "unresolved" if branch else "")
    yield from _one("kernelModuleType", at(driver, "kernelModuleType"), f"{where}.kernelModuleType")


def _containers(spec: Any) -> list[Raw]:
    return [item for item in at(spec, "containers") or [] if isinstance(item, Mapping)]


def _images(spec: Any, where: str, node: str = "", state: str = "") -> Iterator[Sighting]:
    """What the regular containers of a pod spec run. Init containers borrow images of other operands."""
    parsed = []
    for container in _containers(spec):
        try:
            parsed.append((references.parse(str(container.get("image") or "")), container.get("name")))
        except InputError:
            continue
    hami = any(reference.name == "hami" for reference, _ in parsed)
    for reference, name in parsed:
        place = f"{where} container {name}"
        if reference.name == "driver":
            full = _OS_SUFFIX.fullmatch(reference.tag)
            yield from _one("driver", full[1] if full else None, place, node, state)
        elif reference.name == "container-toolkit":
            yield from _one("toolkit", reference.tag, place, node, state)
        elif reference.name == "dcgm-exporter":
            yield from _one("dcgmExporter", reference.tag, place, node, state)
        elif reference.name == "gpu-operator":
            yield from _one("gpuOperator", reference.tag, place, node, state)
        elif reference.name == "hami":
            yield from _one("hami", _without_v(reference.tag), place, node, state)
        elif reference.name == "kube-scheduler" and hami:  # not the control plane's own
            yield from _one("hamiScheduler", reference.tag, place, node, state)


def rendered(objects: Iterable[Raw]) -> list[Sighting]:
    """Writes nothing. What would be applied: ClusterPolicy, NVIDIADriver, chart labels, images of workloads."""
    found: list[Sighting] = []
    for raw in objects:
        kind, where = raw.get("kind"), named(raw)
        if kind == "ClusterPolicy":
            found += _policy(at(raw, "spec") or {}, f"{where} spec")
        elif kind == "NVIDIADriver":
            found += _driver(at(raw, "spec"), f"{where} spec")
        label = at(raw, "metadata", "labels", HELM_CHART)
        for chart, field in (("gpu-operator-", "gpuOperator"), ("hami-", "hami")):
            if isinstance(label, str) and re.fullmatch(rf"{chart}v?[0-9].*", label):
                # A label cannot hold a +, so Helm writes _ for it.
                found += _one(field, label.removeprefix(chart).replace("_", "+"), f"{where} label {HELM_CHART}")
        if kind in {"Deployment", "DaemonSet", "StatefulSet"}:
            found += _images(at(raw, "spec", "template", "spec"), where)
    return found


def live(objects: Sequence[Raw]) -> list[Sighting]:
    """Writes nothing. What runs: HelmRelease status, ClusterPolicy, NVIDIADriver, workloads, pods, nodes.

    Objects of an API list carry no kind; give each its `kind`. Pods that have ended say nothing.
    """
    found = rendered([raw for raw in objects if raw.get("kind") != "HelmRelease"])
    rollouts = Rollouts(objects)
    told = any(raw.get("kind") == "Node" and has_gpu(raw) for raw in objects)
    for raw in objects:
        kind, where = raw.get("kind"), named(raw)
        if kind == "HelmRelease":
            history = at(raw, "status", "history")
            latest = history[0] if isinstance(history, list) and history else {}
            chart = at(latest, "chartName") or at(raw, "spec", "chart", "spec", "chart")
            found += _chart(chart, at(latest, "chartVersion"), f"{where} status.history[0]")
        elif kind == "Node":
            found += _node(raw, where, kernel=has_gpu(raw) or not told)
        elif kind == "Pod" and at(raw, "status", "phase") not in {"Succeeded", "Failed"}:
            node = at(raw, "spec", "nodeName") or ""
            state = rollouts.state(raw)
            found += _images(at(raw, "spec"), where, node, state)
            found += _exporter_digest(raw, where, node, state)
    return found


def has_gpu(node: Raw) -> bool:
    """Writes nothing. Whether a node has a GPU, as the GPU Operator tells it."""
    return any(at(node, "metadata", "labels", label) == "true" for label in (GPU_PRESENT, *NFD_GPU))


def _node(node: Raw, where: str, *, kernel: bool) -> Iterator[Sighting]:
    name = str(at(node, "metadata", "name"))
    info = at(node, "status", "nodeInfo")
    if kernel:
        yield from _one("kernel", at(info, "kernelVersion"), f"{where} nodeInfo.kernelVersion", name)
    yield from _one("rke2", at(info, "kubeletVersion"), f"{where} nodeInfo.kubeletVersion", name)
    label = at(node, "metadata", "labels", CUDA_DRIVER_VERSION)
    yield from _one("driver", label, f"{where} label {CUDA_DRIVER_VERSION}", name)


def _exporter_digest(pod: Raw, where: str, node: str, state: str) -> Iterator[Sighting]:
    exporters = {c.get("name") for c in _containers(at(pod, "spec")) if "/dcgm-exporter" in str(c.get("image"))}
    for status in at(pod, "status", "containerStatuses") or []:
        image_id = str(at(status, "imageID") or "")
        if at(status, "name") in exporters and "@" in image_id:
            place = f"{where} container {status['name']} imageID"
            yield from _one("dcgmExporterDigest", image_id.rpartition("@")[2], place, node, state)
