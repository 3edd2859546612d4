"""Review of rendered manifests and of what they are rendered from: Helm values, Flux, Fleet, Argo, kustomize.

Exact chart versions, every image reference, the CUDA canary pinned, auto-upgrade off, module type and scheduler tag
written out, no secret value. Whatever cannot be read makes the whole answer an error: nothing is skipped in silence.
Not seen: manifests that are packed into text (a Fleet Bundle's resources, a ConfigMap of an addon manager).
Source: GPU supply-chain policy, Reference policy and promotion step 3.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as member

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import strictyaml
from gpurunbook.supply.charts import Source, chart_name, judge_charts, referred
from gpurunbook.supply.flaws import Flaw
from gpurunbook.supply.images import Images
from gpurunbook.supply.secrets import Secrets
from gpurunbook.supply.settings import Layers, chart_of_values, judge_layers, judge_policy
from gpurunbook.supply.strictyaml import List, Map, Node, Text
from gpurunbook.supply.tree import at, line, walk, word

LIMIT = 64 << 20
"""Bytes of one file."""

CHECK = "manifests"
SOURCE = "GPU supply-chain policy, Reference policy; promotion step 3"

_CARRIES_VALUES = frozenset({"HelmRelease", "HelmChart", "HelmChartConfig", "HelmChartProxy", "Application"})
_CARRIES_VALUES |= {"ApplicationSet", "Bundle", "HelmOp", ""}
_REMEMBERED = _CARRIES_VALUES | {"ConfigMap", "OCIRepository"}
"""Kinds that are needed again at the end, with what other files say."""


@dataclass(frozen=True)
class Found:
    """A finding at a line of a file; the subject is `namespace/kind/name`, or the file where there is no object."""

    file: str
    line: int
    finding: Finding

    def as_json(self) -> dict[str, str | int]:
        """Writes nothing. The finding with its place."""
        return {**self.finding.as_json(), "file": self.file, "line": self.line}


@dataclass(frozen=True)
class Reviewed:
    """The answer. found: sorted by file and line; documents: how many were judged."""

    found: tuple[Found, ...]
    files: int
    documents: int

    @property
    def verdict(self) -> str:
        """`error` before `fail` before `pass`."""
        statuses = {one.finding.status for one in self.found}
        return "error" if Status.UNKNOWN in statuses else "fail" if Status.FAIL in statuses else "pass"


@dataclass
class _Release:
    """A release whose settings are judged at the end, when all layers of its values are known."""

    file: str
    subject: str
    chart: str
    line: int
    field: str
    layers: list[Node] = member(default_factory=list)
    files: list[str] = member(default_factory=list)
    maps: list[tuple[str, str, str]] = member(default_factory=list)
    overrides: list[Node] = member(default_factory=list)
    whole: bool = True


class Review:
    """Takes files one after another, keeps only findings and values, and answers at the end."""

    def __init__(self) -> None:
        self._found: dict[Found, None] = {}
        self._files = 0
        self._documents = 0
        self._releases: list[_Release] = []
        self._values: dict[str, list[Map]] = {}
        self._maps: dict[tuple[str, str, str], Node] = {}
        self._sources: set[tuple[str, str, str]] = set()
        self._referred: list[tuple[str, str, Source]] = []

    def refuse(self, path: str, wrong: InputError) -> None:
        """Writes nothing. Notes a file that cannot be read; the answer is then an error."""
        _, _, number = wrong.subject.partition("line ")
        made = Finding(CHECK, path, Status.UNKNOWN, wrong.code, wrong.message, wrong.remedy, SOURCE)
        self._found[Found(path, int(number) if number.isdecimal() else 1, made)] = None

    def add(self, path: str, data: bytes) -> None:
        """Writes nothing. Judges every document of a file; at the first that cannot be read the file is refused."""
        self._files += 1
        try:
            for doc in strictyaml.documents(data, limit=LIMIT):
                if isinstance(doc, Text):
                    if not doc.null:
                        raise strictyaml.fault("type", doc.line, "a document that is text, wanted a mapping or a list")
                    continue
                self._documents += 1
                for one, kind in _objects(doc):
                    self._judge(path, one, kind)
        except InputError as wrong:
            if b"{{" in data:
                text = f"{wrong.message}; it looks like a template"
                wrong = InputError(text, subject=wrong.subject, code=wrong.code, remedy="Render it, and review that.")
            self.refuse(path, wrong)
            return
        if not data.strip():  # a renderer that failed leaves such a file
            self.refuse(path, InputError("nothing in it", subject="line 1", code="empty"))

    def finish(self) -> Reviewed:
        """Writes nothing. Judges what needs several files, and answers."""
        if not self._documents and not self._found:
            self.refuse("-", InputError("no document was given", code="empty"))
        used: set[str] = set()
        for release in self._releases:
            self._settle(release, used)
        for path, values in self._values.items():
            for one in values if path not in used else ():
                given = Layers(chart_of_values(one), [one], one.line, "")
                self._note(path, path, judge_layers(given))
        for path, subject, source in self._referred:
            self._note(path, subject, self._source(source))
        found = sorted(self._found, key=lambda one: (one.file, one.line, one.finding.code, one.finding.message))
        return Reviewed(tuple(found), self._files, self._documents)

    def _note(self, path: str, subject: str, flaws: Iterable[Flaw]) -> None:
        for flaw in flaws:
            message = f"{flaw.field}: {flaw.message}" if flaw.field else flaw.message
            made = Finding(CHECK, subject, Status.FAIL, flaw.code, message, flaw.remedy, SOURCE)
            self._found[Found(path, flaw.line, made)] = None

    def _judge(self, path: str, doc: Map | List, kind: str) -> None:
        name = posixpath.basename(path)
        if isinstance(doc, List):  # a list of patches, say
            self._walk(path, path, Map({"items": doc}, doc.line), "", "", "")
            return
        own = _name(doc)
        subject = "/".join(part for part in (word(doc, "metadata", "namespace"), kind, own) if part)
        subject = subject if kind else path
        secrets = Secrets(doc, kind, name)
        self._note(path, subject, secrets.whole())
        if kind.startswith("ENC["):
            return
        self._note(path, subject, judge_charts(doc, name))
        self._note(path, subject, judge_policy(doc))
        self._walk(path, subject, doc, kind, name, own)
        if not kind or kind in _REMEMBERED:
            self._remember(path, subject, doc, kind)

    def _walk(self, path: str, subject: str, doc: Map, kind: str, name: str, own: str) -> None:
        images = Images(doc, kind, own, values=kind in _CARRIES_VALUES)
        secrets = Secrets(doc, kind, name)
        judged = kind != "CustomResourceDefinition"  # a schema speaks of images, and holds none
        for node, trail in walk(doc, without=("sops", "status") if kind else ("sops",)):
            if isinstance(node, List):
                self._note(path, subject, secrets.items(node, trail))
                continue
            if judged and images.concern(node, trail):
                self._note(path, subject, images.judge(node, trail))
            if secrets.concern(node):
                self._note(path, subject, secrets.judge(node, trail))

    def _embedded(self, path: str, subject: str, value: Node | None) -> Map | None:
        """Values that stand as text in an object; judged where they stand. None when they are still a template."""
        if not isinstance(value, Text) or "{{" in value.text:
            return None
        shift = value.line
        try:
            docs = [one for one in strictyaml.documents(value.text.encode(), limit=LIMIT) if isinstance(one, Map)]
        except InputError as wrong:
            message = f"values in the text at line {shift}: {wrong.message} ({wrong.subject} of the text)"
            self.refuse(path, InputError(message, subject=f"line {shift}", code=wrong.code))
            return None
        found = docs[0] if docs else Map({}, 1)
        _shift(found, shift)
        self._walk(path, subject, found, "", "", "")
        return found

    def _remember(self, path: str, subject: str, doc: Map, kind: str) -> None:
        namespace, name = word(doc, "metadata", "namespace"), _name(doc)
        self._sources.add((kind, namespace, name))
        if source := referred(doc):
            self._referred.append((path, subject, source))
        if kind == "ConfigMap":
            data = at(doc, "data")
            for key, value in data.items.items() if isinstance(data, Map) else ():
                if key.endswith(("values.yaml", "values.yml")) and (found := self._embedded(path, subject, value)):
                    self._maps[(namespace, name, key)] = found
        elif not kind and isinstance(at(doc, "helm"), Map):
            self._fleet(path, subject, doc)
        elif not kind and posixpath.basename(path) not in {"Chart.yaml", "kustomization.yaml"}:
            self._values.setdefault(posixpath.normpath(path), []).append(doc)
        elif kind in {"HelmRelease", "HelmChart", "HelmChartConfig", "HelmChartProxy", "Application", "ApplicationSet"}:
            self._releases += self._release(path, subject, doc, kind)

    def _release(self, path: str, subject: str, doc: Map, kind: str) -> Iterator[_Release]:
        spec = at(doc, "spec")
        made = _Release(path, subject, chart_name(doc), line(spec, doc.line), "spec.values")
        inline = at(spec, "values")
        if kind == "HelmRelease":
            self._values_from(made, at(spec, "valuesFrom"), word(doc, "metadata", "namespace"))
            made.layers = [inline] if inline is not None else []
            if not made.chart and (source := at(spec, "chartRef")):
                made.chart = word(source, "name")
        elif kind in {"HelmChart", "HelmChartConfig"}:
            self._text(made, at(spec, "valuesContent"), "spec.valuesContent")
            if kind == "HelmChartConfig":  # laid over a chart that is installed elsewhere
                made.chart, made.whole = made.chart or _name(doc), False
            elif inline is not None:
                made.layers.append(inline)
        elif kind == "HelmChartProxy":
            self._text(made, at(spec, "valuesTemplate"), "spec.valuesTemplate")
        else:
            yield from self._argo(path, subject, doc)
            return
        yield made

    def _argo(self, path: str, subject: str, doc: Map) -> Iterator[_Release]:
        for spec in (at(doc, "spec"), at(doc, "spec", "template", "spec")):
            several = at(spec, "sources")
            for source in [at(spec, "source"), *(several.items if isinstance(several, List) else [])]:
                if source is None or not word(source, "chart"):
                    continue
                made = _Release(path, subject, word(source, "chart"), source.line, "source.helm")
                self._text(made, at(source, "helm", "values"), "source.helm.values")
                if (inline := at(source, "helm", "valuesObject")) is not None:
                    made.layers.append(inline)
                if at(source, "helm", "valueFiles") is not None or at(source, "helm", "parameters") is not None:
                    made.whole = False
                yield made

    def _text(self, made: _Release, value: Node | None, where: str) -> None:
        made.field = where
        if value is None:
            return
        found = self._embedded(made.file, made.subject, value)
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

    def _fleet(self, path: str, subject: str, doc: Map) -> None:
        helm = at(doc, "helm")
        made = _Release(path, subject, chart_name(doc), line(helm, 1), "helm.values")
        listed = at(helm, "valuesFiles")
        folder = posixpath.dirname(path)
        for item in listed.items if isinstance(listed, List) else ():
            if isinstance(item, Text):
                made.files.append(posixpath.normpath(posixpath.join(folder, item.text)))
        made.whole = at(helm, "valuesFrom") is None
        if (inline := at(helm, "values")) is not None:
            made.layers = [inline]
        targets = at(doc, "targetCustomizations")
        for target in targets.items if isinstance(targets, List) else ():
            if (values := at(target, "helm", "values")) is not None:
                made.overrides.append(values)
        self._releases.append(made)

    def _settle(self, release: _Release, used: set[str]) -> None:
        layers: list[Node] = []
        whole = release.whole
        for key in release.maps:
            found = self._maps.get(key)
            whole = whole and found is not None
            layers += [found] if found is not None else []
        for name in release.files:
            used.add(name)
            whole = whole and name in self._values
            layers += self._values.get(name, [])
        layers += release.layers
        for extra in [None, *release.overrides]:
            every = [*layers, extra] if extra is not None else layers
            chart = release.chart
            if chart not in {"gpu-operator", "hami"}:  # a mirror may call the chart something else
                chart = next((name for one in every if (name := chart_of_values(one))), "")
            given = Layers(chart, every, release.line, release.field, whole)
            self._note(release.file, release.subject, judge_layers(given))

    def _source(self, source: Source) -> Iterator[Flaw]:
        names = {(source.kind, source.namespace, source.name), (source.kind, "", source.name)}
        if source.kind == "ExternalArtifact" or not names & self._sources:
            where = f"{source.namespace}/{source.kind}/{source.name}".strip("/")
            message = f"the chart's version stands in {where}, which says none or was not given"
            yield Flaw(
                source.line, source.field, "chart-version-unknown", message, "Give the source to the review too."
            )


def _name(doc: Map) -> str:
    return word(doc, "metadata", "name") or word(doc, "metadata", "generateName")


def _objects(doc: Map | List, kind: str = "") -> Iterator[tuple[Map | List, str]]:
    """The document, or the objects of a list kind; those of a `PodList` carry no kind themselves."""
    if isinstance(doc, List):
        yield doc, ""
        return
    kind = word(doc, "kind") or kind
    listed = at(doc, "items")
    if kind.endswith("List") and isinstance(listed, List):
        for item in listed.items:
            if isinstance(item, Map):
                yield from _objects(item, kind.removesuffix("List"))
            elif not (isinstance(item, Text) and item.null):
                raise strictyaml.fault("type", item.line, f"an item of a {kind} that is no object")
    else:
        yield doc, kind


def _shift(root: Map, by: int) -> None:
    """Moves the lines of values that stand in a text to where they stand in the file."""
    for node, _ in walk(root):
        node.line += by
        pairs = node.items.items() if isinstance(node, Map) else enumerate(node.items)
        moved = [(k, Text(v.text, v.plain, v.line + by)) for k, v in pairs if isinstance(v, Text)]
        for key, text in moved:
            node.items[key] = text  # type: ignore[index]


def review(files: Iterable[tuple[str, bytes]]) -> Reviewed:
    """Writes nothing. Judges files of manifests, each with its path."""
    made = Review()
    for path, data in files:
        made.add(path, data)
    return made.finish()
