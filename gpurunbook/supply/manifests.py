"""Review of rendered manifests and of what they are rendered from: Helm values, Flux, Fleet, Argo, kustomize.

Exact chart versions, every image reference, the CUDA canary pinned, auto-upgrade off, module type and scheduler tag
written out, no secret value. What is packed into a text (a Fleet Bundle, an add-on's ConfigMap, a patch, what was last
applied) is judged as if it stood in the open. Whatever cannot be read makes the whole answer an error: nothing is
skipped in silence. Not seen: a chart that is named, and not given; what `mentions` does not see.
Source: GPU supply-chain policy, Reference policy and promotion step 3.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpurunbook.errors import InputError
from gpurunbook.findings import Status
from gpurunbook.leaks import suspect
from gpurunbook.supply import images, mentions, secrets, sops, strictyaml
from gpurunbook.supply.beside import Beside, hidden
from gpurunbook.supply.charts import judge_charts
from gpurunbook.supply.found import Found, Notes, Place
from gpurunbook.supply.images import Images
from gpurunbook.supply.packed import (
    BINARY,
    DEPTH,
    SHORTEST,
    VALUES,
    Packed,
    begins,
    concern,
    filled,
    packed,
    unrendered,
)
from gpurunbook.supply.releases import CARRYING, CONCERNED, Layer, Releases, files_of
from gpurunbook.supply.secrets import Secrets
from gpurunbook.supply.settings import judge_policy
from gpurunbook.supply.strictyaml import List, Map, Text
from gpurunbook.supply.tree import Trail, at, dotted, walk, word

LIMIT = 64 << 20
"""Bytes of one file, and of all that is unpacked in a review."""

_BUNDLES = frozenset({"Bundle", ""})
"""What holds the files of a chart for Fleet; what is in its Content has no kind."""

_CRD = "CustomResourceDefinition"
_PATCH = re.compile(r"(?<![A-Za-z])patch|(?<=[a-z])Patch|PATCH")
"""In the name of a field: a word of its own, as in patches, jsonPatch and 10-patch.yaml, not in dispatch."""


@dataclass(frozen=True)
class Reviewed:
    """The answer. found: sorted by file and line; documents: how many were judged; passed_over: files that were not."""

    found: tuple[Found, ...]
    files: int
    documents: int
    passed_over: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """`error` before `fail` before `pass`."""
        statuses = {one.finding.status for one in self.found}
        return "error" if Status.UNKNOWN in statuses else "fail" if Status.FAIL in statuses else "pass"


class Review:
    """Takes files one after another, keeps only findings and values, and answers at the end."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._files = 0
        self._documents = 0
        self._releases = Releases(self._notes, self._values)
        self._left = LIMIT
        self._aliases = strictyaml.Aliases()
        self._beside = Beside()
        self._unrendered: set[str] = set()

    def refuse(self, path: str, wrong: InputError) -> None:
        """Writes nothing. Notes a file that cannot be read; the answer is then an error."""
        self._notes.refuse(Place(path, path), wrong)

    def add(self, path: str, data: bytes) -> None:
        """Writes nothing. Judges every document of a file; at the first that cannot be read the file is refused.

        A template of a chart whose Chart.yaml was given before is not judged: only helm can tell what it becomes.
        """
        self._beside.chart(path)
        braced = b"{{" in data
        if braced and self._beside.template(path) and self._beside.hold(path):
            return
        self._files += 1
        place = Place(path, path, raw=data if sops.concern(data) else b"")
        try:
            for doc in strictyaml.documents(data, limit=LIMIT, aliases=self._aliases):
                if isinstance(doc, Text):
                    if not doc.null:
                        raise strictyaml.fault("type", doc.line, "a document that is text, wanted a mapping or a list")
                    continue
                self._documents += 1
                self._document(place, doc)
        except InputError as wrong:
            if not (braced and self._beside.hold(path)):
                self._notes.refuse(place, _template(data, wrong))
            return
        if not data.strip() and not self._beside.values(path):  # a renderer that failed leaves such a file
            self.refuse(path, InputError("nothing in it", subject="line 1", code="empty"))

    def pass_over(self, path: str, data: bytes) -> None:
        """Writes nothing. Takes note of a file of another kind; a packed chart in a folder cannot be judged.

        data: what of it could be read, to find secrets of known shapes in it.
        """
        if self._beside.other(path):
            self._notes.note(Place(path, path), path, hidden(path, data))

    def finish(self) -> Reviewed:
        """Writes nothing. Judges what needs several files, and answers."""
        for path, wrong in self._beside.unseen():
            self.refuse(path, wrong)
        if not self._documents and not self._notes.found:
            self.refuse("-", InputError("no document was given", code="empty"))
        self._releases.finish()
        found = sorted(self._notes.found, key=lambda one: (one.file, one.line, one.finding.code, one.finding.message))
        return Reviewed(tuple(found), self._files, self._documents, tuple(sorted(self._beside.passed_over)))

    def _document(self, place: Place, doc: Map | List, outer: str = "", *, patch: bool = False) -> None:
        if word(doc, "kind").endswith("List") and isinstance(doc, Map) and isinstance(at(doc, "sops"), Map):
            self._notes.note(place, outer or place.file, Secrets(doc, "", place).whole())
            place = replace(place, sops=True)
        for one, kind in _objects(doc):
            self._judge(place, one, kind, outer, patch=patch)

    def _judge(self, place: Place, doc: Map | List, kind: str, outer: str = "", *, patch: bool = False) -> None:
        """outer: the object that holds the document; patch: only what it changes stands in it."""
        if isinstance(doc, List):  # a list of patches, say
            whole = Map({"items": doc}, doc.line)
            self._notes.note(place, outer or place.file, Secrets(whole, "", place).whole())
            self._walk(place, outer or place.file, whole, "", "", values=False)
            return
        own = word(doc, "metadata", "name") or word(doc, "metadata", "generateName")
        subject = "/".join(part for part in (word(doc, "metadata", "namespace"), kind, own) if part) if kind else ""
        place = place.of(subject)
        subject = outer or subject or place.file
        values = kind in CARRYING and (bool(kind) or not outer or place.name.endswith(VALUES))
        self._notes.note(place, subject, Secrets(doc, kind, place).whole())
        self._notes.note(place, subject, judge_charts(doc, place.name))
        self._notes.note(place, subject, judge_policy(doc))
        self._walk(place, subject, doc, kind, own, values=values, patch=patch)
        if kind in CONCERNED and (kind or values):
            self._releases.take(place, subject, doc, kind)

    def _walk(
        self, place: Place, subject: str, doc: Map, kind: str, own: str, *, values: bool, patch: bool = False
    ) -> None:
        note = self._notes.note
        found = Images(doc, "" if patch and kind in images.WORKLOADS else kind, own, values=values)
        hidden = Secrets(doc, kind, place)
        schema = kind == _CRD or place.name == "Chart.yaml" or (not kind and mentions.speaks(doc))
        always = _SECRET if hidden.encrypted else 0
        told = _TOLD.get
        inner: set[int] = set()
        for node, trail in walk(doc, ("sops", "status") if kind else ("sops",), inner):
            marks = always
            if isinstance(node, List):
                for item in node.items:
                    if type(item) is Text and len(item.text) > 2:
                        marks |= _ITEM | (_PACKED if len(item.text) >= SHORTEST and concern(item.text) else 0)
                        marks |= _MENTION if len(item.text) > 15 and mentions.concern(item.text) else 0
                if marks & _ITEM:
                    note(place, subject, hidden.items(node, trail))
            else:
                if trail == BINARY:
                    marks |= _PACKED
                elif trail is not None and trail[1] == "images":
                    marks |= _MENTION
                for key, value in node.items.items():
                    mark = told(key)
                    marks |= _told(key) if mark is None else mark
                    if type(value) is Text and len(value.text) > 15:
                        text = value.text
                        if suspect(text):
                            marks |= _SECRET
                        if mentions.concern(text):
                            marks |= _MENTION
                        if len(text) >= SHORTEST and concern(text):
                            marks |= _PACKED
                if marks & _OBJECT and trail is not None and not schema and _is_object(node) and place.depth < DEPTH:
                    inner.add(id(node))
                    self._below(place, subject, node, trail, sops=hidden.encrypted)
                    continue
                if not schema and (marks & _IMAGE or (trail is not None and found.operand(trail))):
                    note(place, subject, found.judge(node, trail))
                if marks & _SECRET or (marks & _PAIR and secrets.concern(word(node, "name"))):
                    note(place, subject, hidden.judge(node, trail))
            if schema:
                continue
            taken = self._unpack(place, subject, node, trail, kind) if marks & _PACKED else set()
            if marks & _MENTION:
                note(place, subject, found.texts(node, trail, taken))

    def _below(self, place: Place, subject: str, node: Map, trail: Trail, *, sops: bool) -> None:
        """An object that stands in another one, judged as if it stood alone."""
        field = dotted(trail)
        there = place.below(field, posixpath.join(files_of(place, subject), field), sops=sops)
        self._judge(there, node, word(node, "kind"), subject, patch=_is_patch(field))

    def _unpack(self, place: Place, subject: str, node: Map | List, trail: Trail, kind: str) -> set[int]:
        """The ids of the texts that were judged as documents."""
        taken: set[int] = set()
        try:
            for one in packed(node, trail, binary=kind == "ConfigMap" and trail == BINARY, limit=self._left):
                if _is_values(one, trail, kind) or self._texts(place, subject, one, kind):
                    taken.add(id(one.value))
        except InputError as wrong:
            self._notes.refuse(place, wrong)
        return taken

    def _texts(self, place: Place, subject: str, one: Packed, kind: str) -> bool:
        """The documents of a text, judged as if they stood in the open; whether all is said of it then."""
        path = posixpath.join(files_of(place, subject), one.name)
        inner = place.inside(one.value, one.field, path, written=one.written)
        chart = kind in _BUNDLES and "resources[" in one.field and "templates" in one.name.split("/")[:-1]
        if chart and b"{{" in one.data:
            if path.rpartition("templates/")[0] not in self._unrendered:  # told once for each chart
                self._unrendered.add(path.rpartition("templates/")[0])
                self._notes.refuse(place, unrendered(one.value.line, one.field))
            return True
        if not (one.sure or begins(one.data)):
            return not one.written and self._lines(inner, subject, one)
        sure = one.sure and kind not in secrets.REFERRING
        try:
            self._parsed(inner, subject, one.data, one.field)
        except InputError as wrong:
            if not sure:
                return not one.written and self._lines(inner, subject, one)
            try:  # what an operator fills in while it runs, nobody can render here
                if kind in CARRYING or (data := filled(one.data)) is None:
                    raise wrong
                self._parsed(inner, subject, data, one.field)
            except InputError:
                self._notes.refuse(inner, _template(one.data, wrong))
        return True

    def _parsed(self, inner: Place, subject: str, data: bytes, field: str) -> None:
        for doc in self._documents_of(inner, data):
            self._document(inner, doc, subject, patch=_is_patch(field))

    def _lines(self, inner: Place, subject: str, one: Packed) -> bool:
        """A text that was unpacked and is no document: what stands in its lines."""
        text = Text(one.data.decode(errors="replace"), False, 0, block=True)
        if suspect(text.text) and not any(True for _ in secrets.judge_text(one.value, "")):  # else it is told already
            self._notes.note(inner, subject, secrets.judge_text(text, ""))
        self._notes.note(inner, subject, Images(Map({}, 1), "", "", values=False).mentioned(text, ""))
        return True

    def _values(self, place: Place, subject: str, value: Text | Map, field: str) -> Layer | None:
        """Values of an object, as text or not; judged where they stand. None when they cannot be read."""
        if isinstance(value, Map):
            self._walk(place, subject, value, "", "", values=True)
            return value, place
        inner = place.inside(value, field, posixpath.join(files_of(place, subject), field))
        data = value.text.encode(errors="replace")
        try:
            docs = [one for one in self._documents_of(inner, data) if isinstance(one, Map)]
        except InputError as wrong:
            self._notes.refuse(inner, _template(data, wrong))
            return None
        found = docs[0] if docs else Map({}, 1)
        self._walk(inner, subject, found, "", "", values=True)
        return found, inner

    def _documents_of(self, place: Place, data: bytes) -> Iterator[Map | List]:
        if place.depth > DEPTH:
            raise strictyaml.fault("too-large", 1, f"texts in texts, deeper than {DEPTH}")
        self._left -= len(data)
        if self._left < 0:
            raise strictyaml.fault("too-large", 1, f"more than {LIMIT} bytes in texts")
        for doc in strictyaml.documents(data, limit=LIMIT, aliases=self._aliases):
            if not isinstance(doc, Text):
                yield doc


def _told(key: str) -> int:
    """What a key alone says, found out once for each key."""
    if len(_TOLD) > 50_000:  # a hostile file has a new key in every line
        _TOLD.clear()
    marks = (_IMAGE if images.concern(key) else 0) | (_SECRET if secrets.concern(key) else 0)
    marks |= _PACKED if key in {"content", "contents"} else _PAIR if key == "value" else 0
    marks |= (_OBJECT if key == "apiVersion" else 0) | (_MENTION if mentions.is_key(key) else 0)
    _TOLD[key] = marks
    return marks


_IMAGE, _SECRET, _PACKED, _PAIR, _ITEM, _OBJECT, _MENTION = 1, 2, 4, 8, 16, 32, 64
_TOLD: dict[str, int] = {}


def _is_object(node: Map) -> bool:
    """Whether a mapping is an object, and no reference to one."""
    held = ("metadata", "spec", "data", "stringData")
    whole = any(isinstance(node.items.get(name), Map) for name in held)
    return whole and bool(word(node, "apiVersion") and word(node, "kind"))


def _is_patch(field: str) -> bool:
    return bool(_PATCH.search(field))


def _is_values(one: Packed, trail: Trail, kind: str) -> bool:
    """Whether a text is Helm values of an object, which the release reads."""
    key = one.field.rpartition(".")[2]
    if kind == "ConfigMap":
        return one.field.startswith("data.") and one.field.endswith(VALUES)
    if kind not in CARRYING:
        return False
    return key in {"valuesContent", "valuesTemplate"} or (key == "values" and trail is not None and trail[1] == "helm")


def _template(data: bytes, wrong: InputError) -> InputError:
    if b"{{" not in data:
        return wrong
    text = f"{wrong.message}; it looks like a template"
    return InputError(text, subject=wrong.subject, code=wrong.code, remedy="Render it, and review that.")


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


def review(files: Iterable[tuple[str, bytes]]) -> Reviewed:
    """Writes nothing. Judges files of manifests, each with its path."""
    made = Review()
    for path, data in files:
        made.add(path, data)
    return made.finish()
