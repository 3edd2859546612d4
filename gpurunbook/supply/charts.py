"""Which version of a chart is asked for, and whether it is exactly one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpurunbook.supply.flaws import Flaw, not_final
from gpurunbook.supply.references import is_digest
from gpurunbook.supply.sightings import chart_of
from gpurunbook.supply.strictyaml import List, Map, Node, Text
from gpurunbook.supply.tree import at, line, word

_EXACT = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_ALIAS = re.compile(r"(?![vV]?[xX](?:\.|\Z))(?!v[0-9])[A-Za-z][A-Za-z0-9._-]*")
_RANGE = ("chart-version-range", "a range")
_PACKAGE = re.compile(r"-v?[0-9]+\.[0-9]+\.[0-9]+[^/]*\.tgz(?:[?#].*)?$")

_KINDS = frozenset({"HelmRelease", "HelmChart", "OCIRepository", "HelmChartProxy", "Application", "ApplicationSet"})
_KINDS |= {"Bundle", "HelmOp", "Kustomization"}

FLUX_SOURCES = "source.toolkit.fluxcd.io/"


@dataclass(frozen=True)
class Source:
    """A chart source that a release refers to. namespace "" where none is written."""

    kind: str
    namespace: str
    name: str
    line: int = 0
    field: str = ""


def judge_version(value: Node | None, otherwise: int, field: str) -> Iterator[Flaw]:
    """Writes nothing. Why a chart version is not exactly one: missing, an alias, a range, a variable, a number.

    otherwise: the line where no value stands. Source: GPU supply-chain policy, Reference policy.
    """
    number = line(value, otherwise)
    remedy = "Write the exact version of the tuple, such as v26.3.3."
    if value is None or (type(value) is Text and (value.null or not value.text.strip())):
        message = "no version: Helm would take the latest"
        yield Flaw(number, field, "chart-version-missing", message, remedy)
    elif type(value) is not Text:
        yield Flaw(number, field, "chart-version-range", "the version is no text", remedy)
    elif flaw := not_final(value, field):
        yield flaw
    elif not _EXACT.fullmatch(value.text):
        code, what = ("chart-version-alias", "a name that moves") if _ALIAS.fullmatch(value.text) else _RANGE
        yield Flaw(number, field, code, f"the version {value.text!r} is {what}, wanted exactly one", remedy)


def judge_charts(doc: Map, file_name: str) -> Iterator[Flaw]:
    """Writes nothing. Every chart version that the document asks for by its kind."""
    kind = word(doc, "kind")
    if kind and kind not in _KINDS:
        return
    version, spec = word(doc, "apiVersion"), at(doc, "spec")
    if kind == "HelmRelease" and at(spec, "chart", "spec") is not None:
        # From a Git repository or a bucket the chart's own version counts, and this field is ignored.
        if word(spec, "chart", "spec", "sourceRef", "kind") not in {"GitRepository", "Bucket"}:
            yield from _at(spec, "spec", "chart", "spec", "version")
    elif kind == "HelmChart" and version.startswith(FLUX_SOURCES):
        if word(spec, "sourceRef", "kind") not in {"GitRepository", "Bucket"}:
            yield from _at(spec, "spec", "version")
    elif kind == "HelmChart":
        packed = word(spec, "chartContent") or _PACKAGE.search(word(spec, "chart"))
        if not packed or word(spec, "version"):
            yield from _at(spec, "spec", "version")
    elif kind == "OCIRepository" and version.startswith(FLUX_SOURCES):
        yield from _oci(spec, line(spec, doc.line))
    elif kind == "HelmChartProxy":
        yield from _at(spec, "spec", "version")
    elif kind in {"Application", "ApplicationSet"}:
        yield from _argo(doc)
    if file_name == "Chart.yaml":
        yield from _dependencies(doc, "dependencies", "version")
    if "helmCharts" in doc.items:
        yield from _dependencies(doc, "helmCharts", "version")
    if not kind or kind in {"Bundle", "HelmOp"}:
        yield from _fleet(doc)


def _at(spec: Node | None, root: str, *path: str) -> Iterator[Flaw]:
    holder = at(spec, *path[:-1])
    yield from judge_version(at(spec, *path), line(holder, line(spec, 1)), ".".join([root, *path]))


def _oci(spec: Node | None, number: int) -> Iterator[Flaw]:
    reference = at(spec, "ref")
    digest = word(reference, "digest")
    if digest:
        if not is_digest(digest):
            message = f"the digest {digest!r} is not sha256: and 64 lower-case hexadecimal digits"
            yield Flaw(line(reference, number), "spec.ref.digest", "bad-digest", message, "Write the whole digest.")
        return
    for name in ("semver", "tag"):  # Flux's own order
        if word(reference, name):
            yield from judge_version(at(reference, name), number, f"spec.ref.{name}")
            return
    yield from judge_version(None, line(reference, number), "spec.ref.tag")


def _argo(doc: Map) -> Iterator[Flaw]:
    for path in (("spec",), ("spec", "template", "spec")):
        spec = at(doc, *path)
        single, several = at(spec, "source"), at(spec, "sources")
        found = [(single, "source")] if single is not None else []
        if type(several) is List:
            found += [(item, f"sources[{n}]") for n, item in enumerate(several.items)]
        for source, name in found:
            if word(source, "chart"):
                field = ".".join([*path, name, "targetRevision"])
                yield from judge_version(at(source, "targetRevision"), line(source, doc.line), field)


def _dependencies(doc: Map, name: str, field: str) -> Iterator[Flaw]:
    listed = at(doc, name)
    for n, item in enumerate(listed.items if type(listed) is List else []):
        if not word(item, "repository").startswith("file://"):
            yield from judge_version(at(item, field), line(item, doc.line), f"{name}[{n}].{field}")


def _fleet(doc: Map) -> Iterator[Flaw]:
    """Of fleet.yaml, and of Fleet's Bundle and HelmOp, which have the same `helm`."""
    for path in (("helm",), ("spec", "helm")):
        holder = at(doc, *path)
        chart = word(holder, "chart")
        remote = word(holder, "repo") or chart.startswith("oci://")
        if word(holder, "version") or (remote and not _PACKAGE.search(chart)):
            yield from judge_version(at(holder, "version"), line(holder, doc.line), ".".join((*path, "version")))
    targets = at(doc, "targetCustomizations")
    for n, target in enumerate(targets.items if type(targets) is List else []):
        if word(target, "helm", "version"):
            version = at(target, "helm", "version")
            yield from judge_version(version, line(target, 1), f"targetCustomizations[{n}].helm.version")


def referred(doc: Map) -> Source | None:
    """Writes nothing. The source whose version a HelmRelease with `chartRef` takes, None without one."""
    reference = at(doc, "spec", "chartRef")
    if word(doc, "kind") != "HelmRelease" or type(reference) is not Map:
        return None
    namespace = word(reference, "namespace") or word(doc, "metadata", "namespace")
    return Source(word(reference, "kind"), namespace, word(reference, "name"), reference.line, "spec.chartRef")


def chart_name(doc: Map) -> str:
    """Writes nothing. The chart that a document installs, by the last component of its name; "" for none."""
    places = (
        ("spec", "chart", "spec", "chart"),
        ("spec", "chart"),
        ("spec", "chartName"),
        ("spec", "source", "chart"),
        ("spec", "helm", "chart"),
        ("helm", "chart"),
    )
    return chart_of(next((found for path in places if (found := word(doc, *path))), ""))
