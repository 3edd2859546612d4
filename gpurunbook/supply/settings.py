"""Settings that must be written out: auto-upgrade off, the kernel module type, HAMi's scheduler tag.

A setting may stand in several layers of values (a chart's values files, then those of the release); the last layer
that has it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpurunbook.supply.flaws import Flaw, not_final
from gpurunbook.supply.strictyaml import Map, Node, Text
from gpurunbook.supply.tree import at, line, word

OPERATOR, HAMI = "gpu-operator", "hami"

_OPERATOR_KEYS = frozenset(
    {"operator", "toolkit", "devicePlugin", "dcgm", "dcgmExporter", "gfd", "migManager", "validator", "daemonsets"}
    | {"sandboxWorkloads", "node-feature-discovery", "nfd", "vfioManager", "ccManager", "kataManager", "cdi", "psa"}
)
_DRIVER_KEYS = frozenset({"upgradePolicy", "kernelModuleType", "usePrecompiled", "nvidiaDriverCRD", "licensingConfig"})


@dataclass(frozen=True)
class Layers:
    """The values of one release, first to last. line: where to point when none has a setting.

    whole: every layer is here; else something may stand elsewhere (a values file or a ConfigMap that was not given).
    """

    chart: str
    layers: Sequence[Node]
    line: int
    field: str
    whole: bool = True

    def find(self, *path: str) -> Node | None:
        """Writes nothing. What the last layer that has it says."""
        return next((found for layer in reversed(self.layers) if (found := at(layer, *path)) is not None), None)


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
        driver = "driver"
        yield from _auto_upgrade(given.find(driver, "upgradePolicy", "autoUpgrade"), given, f"{driver}.upgradePolicy")
        yield from _module_type(given.find(driver, "kernelModuleType"), given, driver)
    elif given.chart == HAMI:
        yield from _scheduler(given)
    else:
        for chart in (OPERATOR, HAMI):  # an umbrella chart hands values down under the name of the chart
            inner = [layer.items[chart] for layer in given.layers if isinstance(layer, Map) and chart in layer.items]
            if inner:
                field = f"{given.field}.{chart}".strip(".")
                yield from judge_layers(Layers(chart, inner, inner[0].line, field, given.whole))


def judge_policy(doc: Map) -> Iterator[Flaw]:
    """Writes nothing. The settings of a ClusterPolicy or an NVIDIADriver."""
    kind, spec = word(doc, "kind"), at(doc, "spec")
    if kind not in {"ClusterPolicy", "NVIDIADriver"}:
        return
    given = Layers(OPERATOR, [spec] if spec else [], line(spec, doc.line), "spec")
    if kind == "ClusterPolicy":
        driver = given.find("driver")
        yield from _auto_upgrade(at(driver, "upgradePolicy", "autoUpgrade"), given, "driver.upgradePolicy")
        if word(driver, "useNvidiaDriverCRD") != "true" and word(driver, "enabled") != "false":
            yield from _module_type(at(driver, "kernelModuleType"), given, "driver")
    elif kind == "NVIDIADriver":
        if at(spec, "upgradePolicy", "autoUpgrade") is not None:
            yield from _auto_upgrade(at(spec, "upgradePolicy", "autoUpgrade"), given, "upgradePolicy")
        yield from _module_type(at(spec, "kernelModuleType"), given, "")


def _name(given: Layers, *parts: str) -> str:
    return ".".join(part for part in (given.field, *parts) if part)


def _unset(given: Layers, field: str, code: str, message: str, remedy: str) -> Flaw:
    if given.whole:
        return Flaw(given.line, field, code, message, remedy)
    message = f"{message}; it may stand in values that were not given"
    return Flaw(given.line, field, "values-elsewhere", message, "Give those values too, or review what is rendered.")


def _auto_upgrade(value: Node | None, given: Layers, path: str) -> Iterator[Flaw]:
    field = _name(given, path, "autoUpgrade")
    remedy = "Write autoUpgrade: false; drivers are promoted with the tuple."
    if value is None or (isinstance(value, Text) and value.null):
        message = "autoUpgrade is not set, and its default is true"
        yield _unset(given, field, "auto-upgrade-unset", message, remedy)
    elif not isinstance(value, Text) or (value.plain and value.text in {"true", "True", "TRUE"}):
        yield Flaw(value.line, field, "auto-upgrade-on", "autoUpgrade is on", remedy)
    elif not (value.plain and value.text in {"false", "False", "FALSE"}):
        flaw = not_final(Text(value.text, False, value.line), field)
        message = f"autoUpgrade is {value.text!r}, which is not plain false to every reader"
        yield flaw or Flaw(value.line, field, "yaml-trap", message, remedy)


def _module_type(value: Node | None, given: Layers, path: str) -> Iterator[Flaw]:
    field = _name(given, path, "kernelModuleType")
    remedy = "Write open or proprietary, as the tuple has it."
    text = value.text if isinstance(value, Text) and not value.null else ""
    if not text.strip():
        message = "kernelModuleType is not set: the operator decides by GPU and branch"
        yield _unset(given, field, "kernel-module-type-unset", message, remedy)
    elif isinstance(value, Text) and (flaw := not_final(value, field)):
        yield flaw
    elif text not in {"open", "proprietary"}:
        message = f"kernelModuleType is {text!r}, wanted open or proprietary"
        yield Flaw(line(value, given.line), field, "kernel-module-type-auto", message, remedy)


def _scheduler(given: Layers) -> Iterator[Flaw]:
    path = ("scheduler", "kubeScheduler", "image", "tag")
    field = _name(given, *path)
    remedy = "Write scheduler.kubeScheduler.image.tag; an empty one follows the cluster's version by itself."
    value = given.find(*path)
    old = given.find("scheduler", "kubeScheduler", "imageTag")
    if isinstance(old, Text) and old.text:
        message = "kubeScheduler.imageTag is ignored since chart 2.9; the tag stands in kubeScheduler.image.tag"
        yield Flaw(old.line, _name(given, "scheduler.kubeScheduler.imageTag"), "scheduler-tag-ignored", message, remedy)
    if value is None or (isinstance(value, Text) and (value.null or not value.text.strip())):
        yield _unset(given, field, "scheduler-tag-unset", "the tag of HAMi's kube-scheduler is not set", remedy)
