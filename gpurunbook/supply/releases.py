"""Releases of charts and the values that belong to them: Flux, Fleet, RKE2, Cluster API, Argo.

Their settings are judged at the end, when all layers of the values are known.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import field as member

from gpurunbook.supply.charts import Source, chart_name, referred
from gpurunbook.supply.flaws import Flaw
from gpurunbook.supply.found import Notes, Place
from gpurunbook.supply.packed import KUSTOMIZATIONS, VALUES
from gpurunbook.supply.settings import Layers, chart_of_values, judge_layers
from gpurunbook.supply.strictyaml import List, Map, Node, Text
from gpurunbook.supply.tree import at, line, word

CARRYING = frozenset(
    {"HelmRelease", "HelmChart", "HelmChartConfig", "HelmChartProxy", "Application", "ApplicationSet", "Bundle"}
    | {"HelmOp", ""}
)
"""Kinds that carry Helm values; "" is a document of values itself, or a fleet.yaml."""

CONCERNED = CARRYING | {"ConfigMap", "OCIRepository"}
"""Kinds that a release may be made of."""

_NO_VALUES = frozenset({"Chart.yaml", *KUSTOMIZATIONS})

Layer = tuple[Node, Place]
Reader = Callable[[Place, str, Text | Map, str], Layer | None]
"""Values in a text (place, subject, text, field): judged as such, and returned with their place; None: not readable."""

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


@dataclass
class _Release:
    """A release whose settings are judged at the end. whole: no layer stands where it was not given."""

    place: Place
    subject: str
    chart: str
    line: int
    field: str
    layers: list[Layer] = member(default_factory=list)
    files: list[str] = member(default_factory=list)
    maps: list[tuple[str, str, str]] = member(default_factory=list)
    overrides: list[Node] = member(default_factory=list)
    whole: bool = True


class Releases:
    """Takes documents one after another, and answers at the end."""

    def __init__(self, notes: Notes, read: Reader) -> None:
        self._notes = notes
        self._read = read
        self._releases: list[_Release] = []
        self._values: dict[str, list[Layer]] = {}
        self._maps: dict[tuple[str, str, str], Layer | None] = {}
        self._texts: dict[tuple[str, str, str], tuple[Place, str, Text]] = {}
        self._sources: set[tuple[str, str, str]] = set()
        self._referred: list[tuple[Place, str, Source]] = []

    def take(self, place: Place, subject: str, doc: Map, kind: str) -> None:
        """Writes nothing. Notes what a document says of releases and values."""
        namespace, name = word(doc, "metadata", "namespace"), word(doc, "metadata", "name")
        self._sources.add((kind, namespace, name))
        if source := referred(doc):
            self._referred.append((place, subject, source))
        if kind == "ConfigMap":
            data = at(doc, "data")
            for key, value in data.items.items() if isinstance(data, Map) else ():
                where = (namespace, name, key)
                if isinstance(value, Text) and key.endswith(VALUES):
                    self._maps[where] = self._read(place, subject, value, f"data.{key}")
                elif isinstance(value, Text):  # values too, when a release says so
                    self._texts[where] = (place, subject, value)
        elif not kind and isinstance(at(doc, "helm"), Map):
            self._fleet(place, subject, doc, place.folder)
        elif kind in {"Bundle", "HelmOp"} and isinstance(at(doc, "spec", "helm"), Map):
            self._fleet(place, subject, at(doc, "spec"), files_of(place, subject))
        elif not kind and place.name not in _NO_VALUES:
            self._values.setdefault(posixpath.normpath(place.path), []).append((doc, place))
        elif kind in CARRYING:
            self._releases += self._release(place, subject, doc, kind)

    def finish(self) -> None:
        """Writes nothing. Judges what needs several documents."""
        used: set[str] = set()
        maps: set[tuple[str, str, str]] = set()
        for release in self._releases:
            self._settle(release, used, maps)
        for path, values in self._values.items():
            for one, place in values if path not in used else ():
                self._bare(one, place, place.file, whole=True)
        for where, found in self._maps.items():
            if found is not None and where not in maps:  # the rest of its release was not given
                self._bare(*found, "/".join(part for part in (where[0], "ConfigMap", where[1]) if part), whole=False)
        for place, subject, source in self._referred:
            self._notes.note(place, subject, self._source(source))

    def _bare(self, values: Node, place: Place, subject: str, *, whole: bool) -> None:
        given = Layers(chart_of_values(values), [values], values.line, "", whole)
        self._notes.note(place, subject, judge_layers(given))

    def _release(self, place: Place, subject: str, doc: Map, kind: str) -> Iterator[_Release]:
        spec = at(doc, "spec")
        made = _Release(place, subject, chart_name(doc), line(spec, doc.line), "spec.values")
        inline = at(spec, "values")
        if kind == "HelmRelease":
            self._values_from(made, at(spec, "valuesFrom"), word(doc, "metadata", "namespace"))
            made.layers = [(inline, place)] if inline is not None else []
            made.whole = made.whole and at(spec, "chart", "spec", "valuesFiles") is None
            if not made.chart and (source := at(spec, "chartRef")):
                made.chart = word(source, "name")
        elif kind in {"HelmChart", "HelmChartConfig"}:
            self._text(made, at(spec, "valuesContent"), "spec.valuesContent")
            if kind == "HelmChartConfig":  # laid over a chart that is installed elsewhere
                made.chart, made.whole = made.chart or word(doc, "metadata", "name"), False
            elif inline is not None:
                made.layers.append((inline, place))
            single = at(spec, "set")
            self._single(made, list(single.items.items()) if isinstance(single, Map) else [])
            made.whole = made.whole and at(spec, "valuesSecrets") is None
        elif kind == "HelmChartProxy":
            self._text(made, at(spec, "valuesTemplate"), "spec.valuesTemplate")
        elif kind in {"Application", "ApplicationSet"}:
            yield from self._argo(place, subject, doc)
            return
        else:
            return
        yield made

    def _argo(self, place: Place, subject: str, doc: Map) -> Iterator[_Release]:
        for spec in (at(doc, "spec"), at(doc, "spec", "template", "spec")):
            several = at(spec, "sources")
            for source in [at(spec, "source"), *(several.items if isinstance(several, List) else [])]:
                if source is None or not word(source, "chart"):
                    continue
                made = _Release(place, subject, word(source, "chart"), source.line, "source.helm")
                self._text(made, at(source, "helm", "values"), "source.helm.values")
                if (inline := at(source, "helm", "valuesObject")) is not None:
                    made.layers.append((inline, place))
                given = (at(source, "helm", name) for name in ("valueFiles", "fileParameters"))
                made.whole = made.whole and not any(one is not None for one in given)
                single = at(source, "helm", "parameters")
                named = single.items if isinstance(single, List) else []
                self._single(made, [(word(one, "name"), at(one, "value")) for one in named])
                yield made

    def _single(self, made: _Release, named: list[tuple[str, Node | None]]) -> None:
        """Values that are set one by one, as `helm --set` does: over all others."""
        root = Map({}, made.line)
        for name, value in named:
            if not _NAME.fullmatch(name) or not isinstance(value, Text):  # an index of a list, or a key with a dot
                made.whole = False
                continue
            *outer, last = name.split(".")
            node = root
            for key in outer:
                inner = node.items.setdefault(key, Map({}, value.line))
                node = inner if isinstance(inner, Map) else Map({}, value.line)
            node.items[last] = Text(value.text, value.text in {"true", "false"} or value.null, value.line)
        if root.items and (found := self._read(made.place, made.subject, root, "")):
            made.layers.append(found)

    def _text(self, made: _Release, value: Node | None, where: str) -> None:
        made.field = where
        if value is None:
            return
        found = self._read(made.place, made.subject, value, where) if isinstance(value, Text) else None
        if found is None:
            made.whole = False
        else:
            made.layers.append(found)

    def _values_from(self, made: _Release, listed: Node | None, namespace: str) -> None:
        for item in listed.items if isinstance(listed, List) else ():
            if word(item, "kind") == "ConfigMap" and not word(item, "targetPath"):
                made.maps.append((namespace, word(item, "name"), word(item, "valuesKey") or "values.yaml"))
            else:
                made.whole = False

    def _fleet(self, place: Place, subject: str, doc: Node | None, folder: str) -> None:
        helm = at(doc, "helm")
        chart = chart_name(doc) if isinstance(doc, Map) else ""
        made = _Release(place, subject, chart, line(helm, 1), "helm.values")
        listed = at(helm, "valuesFiles")
        for item in listed.items if isinstance(listed, List) else ():
            if isinstance(item, Text):
                made.files.append(posixpath.normpath(posixpath.join(folder, item.text)))
        made.whole = at(helm, "valuesFrom") is None
        if (inline := at(helm, "values")) is not None:
            made.layers = [(inline, place)]
        for name in ("targetCustomizations", "targets"):  # of a fleet.yaml, and of a Bundle
            targets = at(doc, name)
            for target in targets.items if isinstance(targets, List) else ():
                if (values := at(target, "helm", "values")) is not None:
                    made.overrides.append(values)
        self._releases.append(made)

    def _map(self, key: tuple[str, str, str]) -> Layer | None:
        if key not in self._maps and key in self._texts:
            place, subject, value = self._texts[key]
            self._maps[key] = self._read(place, subject, value, f"data.{key[2]}")
        return self._maps.get(key)

    def _settle(self, release: _Release, used: set[str], maps: set[tuple[str, str, str]]) -> None:
        layers: list[Layer] = []
        whole = release.whole
        for key in release.maps:
            maps.add(key)
            found = self._map(key)
            whole = whole and found is not None
            layers += [found] if found is not None else []
        for name in release.files:
            used.add(name)
            whole = whole and name in self._values
            layers += self._values.get(name, [])
        layers += release.layers
        for extra in [None, *release.overrides]:
            every = [*layers, (extra, release.place)] if extra is not None else layers
            nodes = [node for node, _ in every]
            chart = release.chart
            if chart not in {"gpu-operator", "hami"}:  # a mirror may call the chart something else
                chart = next((name for one in nodes if (name := chart_of_values(one))), "")
            for flaw in judge_layers(Layers(chart, nodes, release.line, release.field, whole)):
                place = every[flaw.layer][1] if flaw.layer >= 0 else release.place
                self._notes.note(place, release.subject, [flaw])

    def _source(self, source: Source) -> Iterator[Flaw]:
        names = {(source.kind, source.namespace, source.name), (source.kind, "", source.name)}
        if source.kind == "ExternalArtifact" or not names & self._sources:
            where = f"{source.namespace}/{source.kind}/{source.name}".strip("/")
            message = f"the chart's version stands in {where}, which says none or was not given"
            yield Flaw(
                source.line, source.field, "chart-version-unknown", message, "Give the source to the review too."
            )


def files_of(place: Place, subject: str) -> str:
    """Writes nothing. The folder that stands for the files in an object, a Bundle say."""
    return f"{place.path}#{subject}"
