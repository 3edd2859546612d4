"""Settings that must be written out: auto-upgrade off, the kernel module type, HAMi's scheduler tag.

A setting may stand in several layers of values (a chart's values files, then those of the release); the last layer
that has it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpurunbook.supply.flaws import Flaw, not_final
from gpurunbook.supply.strictyaml import Map, Node, Text
from gpurunbook.supply.tree import at, line, word

OPERATOR, HAMI = "gpu-operator", "hami"

NVIDIA = "nvidia.com/"
"""Kyverno has a ClusterPolicy too."""

_OPERATOR_KEYS = frozenset(
    {"operator", "toolkit", "devicePlugin", "dcgm", "dcgmExporter", "gfd", "migManager", "validator", "daemonsets"}
    | {"sandboxWorkloads", "node-feature-discovery", "nfd", "vfioManager", "ccManager", "kataManager", "cdi", "psa"}
)
_DRIVER_KEYS = frozenset({"upgradePolicy", "kernelModuleType", "usePrecompiled", "nvidiaDriverCRD", "licensingConfig"})


@dataclass(frozen=True)
class Layers:
    """The values of one release, first to last. line: where to point when none has a setting; own: the layer of it.

    whole: every layer is here; else something may stand elsewhere (a values file or a ConfigMap that was not given).
    """

    chart: str
    layers: Sequence[Node | None]
    line: int
    field: str
    whole: bool = True
    own: int = -1

    def find(self, *path: str) -> tuple[Node | None, int]:
        """Writes nothing. What the last layer that has it says, and which that is; (None, -1) without one.

        A layer that has something else than a mapping on the way, such as null, takes away what stands before it.
        """
        for n in reversed(range(len(self.layers))):
            found = self.layers[n]
            for key in path:
                if type(found) is Map:
                    found = found.items.get(key)
                else:
                    found = None if found is None else Text("", True, found.line)
            if found is not None:
                return found, n
        return None, -1

    def near(self, path: Sequence[str]) -> tuple[int, int]:
        """Writes nothing. Where a setting would stand: line and layer of the innermost mapping on its path."""
        for length in range(len(path) - 1, 0, -1):
            found, layer = self.find(*path[:length])
            if isinstance(found, Map):
                return found.line, layer
        return self.line, self.own


def chart_of_values(values: Node | None) -> str:
    """Writes nothing. The chart whose values these are, told by their keys; "" for any other."""
    if not isinstance(values, Map):
        return ""
    driver = at(values, "driver")
    if isinstance(driver, Map) and (_OPERATOR_KEYS & values.items.keys() or _DRIVER_KEYS & driver.items.keys()):
        return OPERATOR
    if isinstance(at(values, "scheduler", "kubeScheduler"), Map) or isinstance(
        at(values, "scheduler", "extender"), Map
    ):
        return HAMI
    if at(values, "global", "imageTag") is not None and {"scheduler", "devicePlugin"} & values.items.keys():
        return HAMI
    return ""


def judge_layers(given: Layers) -> Iterator[Flaw]:
    """Writes nothing. The settings of a release of the GPU Operator or of HAMi, and of one that wraps them."""
    if given.chart == OPERATOR:
        yield from _auto_upgrade(given, "driver")
        enabled, _ = given.find("driver", "enabled")
        if word(enabled) != "false":
            yield from _module_type(given, "driver")
    elif given.chart == HAMI:
        yield from _scheduler(given)
    else:
        for chart in (OPERATOR, HAMI):  # an umbrella chart hands values down under the name of the chart
            inner = [at(layer, chart) for layer in given.layers]
            first = next((n for n, layer in enumerate(inner) if layer is not None), None)
            if first is not None:
                field = f"{given.field}.{chart}".strip(".")
                yield from judge_layers(Layers(chart, inner, line(inner[first], 1), field, given.whole, first))


def judge_policy(doc: Map) -> Iterator[Flaw]:
    """Writes nothing. The settings of a ClusterPolicy or an NVIDIADriver."""
    kind, spec = word(doc, "kind"), at(doc, "spec")
    version = word(doc, "apiVersion")
    if kind not in {"ClusterPolicy", "NVIDIADriver"} or (version and not version.startswith(NVIDIA)):
        return
    given = Layers(OPERATOR, [spec] if spec else [], line(spec, doc.line), "spec")
    if kind == "ClusterPolicy":
        driver = at(spec, "driver")
        yield from _auto_upgrade(given, "driver")
        if word(driver, "useNvidiaDriverCRD") != "true" and word(driver, "enabled") != "false":
            yield from _module_type(given, "driver")
    elif kind == "NVIDIADriver":
        if at(spec, "upgradePolicy", "autoUpgrade") is not None:
            yield from _auto_upgrade(given)
        yield from _module_type(given)


def _name(given: Layers, *parts: str) -> str:
    return ".".join(part for part in (given.field, *parts) if part)


def _unset(given: Layers, path: Sequence[str], code: str, message: str, remedy: str) -> Flaw:
    number, layer = given.near(path)
    if given.whole:
        return Flaw(number, _name(given, *path), code, message, remedy, layer)
    message = f"{message}; it may stand in values that were not given"
    remedy = "Give those values too, or review what is rendered."
    return Flaw(number, _name(given, *path), "values-elsewhere", message, remedy, layer)


def _in(layer: int, flaw: Flaw) -> Flaw:
    return replace(flaw, layer=layer)


def _auto_upgrade(given: Layers, *outer: str) -> Iterator[Flaw]:
    path = (*outer, "upgradePolicy", "autoUpgrade")
    value, layer = given.find(*path)
    field = _name(given, *path)
    remedy = "Write autoUpgrade: false; drivers are promoted with the tuple."
    if value is None or (isinstance(value, Text) and value.null):
        message = "autoUpgrade is not set, and its default is true"
        yield _unset(given, path, "auto-upgrade-unset", message, remedy)
    elif not isinstance(value, Text) or (value.plain and value.text in {"true", "True", "TRUE"}):
        yield Flaw(value.line, field, "auto-upgrade-on", "autoUpgrade is on", remedy, layer)
    elif not (value.plain and value.text in {"false", "False", "FALSE"}):
        flaw = not_final(Text(value.text, False, value.line), field)
        message = f"autoUpgrade is {value.text!r}, which is not plain false to every reader"
        yield _in(layer, flaw or Flaw(value.line, field, "yaml-trap", message, remedy))


def _module_type(given: Layers, *outer: str) -> Iterator[Flaw]:
    path = (*outer, "kernelModuleType")
    value, layer = given.find(*path)
    field = _name(given, *path)
    remedy = "Write open or proprietary, as the tuple has it."
    text = value.text if isinstance(value, Text) and not value.null else ""
    if not text.strip():
        message = "kernelModuleType is not set: the operator decides by GPU and branch"
        yield _unset(given, path, "kernel-module-type-unset", message, remedy)
    elif isinstance(value, Text) and (flaw := not_final(value, field)):
        yield _in(layer, flaw)
    elif text not in {"open", "proprietary"}:
        message = f"kernelModuleType is {text!r}, wanted open or proprietary"
        yield Flaw(line(value, given.line), field, "kernel-module-type-auto", message, remedy, layer)


def _scheduler(given: Layers) -> Iterator[Flaw]:
    path = ("scheduler", "kubeScheduler", "image", "tag")
    remedy = "Write scheduler.kubeScheduler.image.tag; an empty one follows the cluster's version by itself."
    value, _ = given.find(*path)
    old, layer = given.find("scheduler", "kubeScheduler", "imageTag")
    if isinstance(old, Text) and old.text:
        message = "kubeScheduler.imageTag is ignored since chart 2.9; the tag stands in kubeScheduler.image.tag"
        ignored = _name(given, "scheduler.kubeScheduler.imageTag")
        yield Flaw(old.line, ignored, "scheduler-tag-ignored", message, remedy, layer)
    if value is None or (isinstance(value, Text) and (value.null or not value.text.strip())):
        yield _unset(given, path, "scheduler-tag-unset", "the tag of HAMi's kube-scheduler is not set", remedy)
