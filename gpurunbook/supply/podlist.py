"""A list of pods as it was given: read from a captured file, in which nothing may stand in two ways."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.supply import strictjson
from gpurunbook.supply.pods import Malformed, Metadata, Pod, Spec, Status, flaw, live

WHOLE = 4 << 20
"""Bytes up to which a file is also read by a parser that sees every repeated key; see `_at_once`."""

AT_ONCE = 64 << 20
"""Bytes up to which all pods are decoded at once, which is quicker; beyond, one by one, which holds no memory."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Listing:
    """A list as it was given. code: "" or why there are no items, or not all.

    items: Pod or Malformed as read, PodRecords or Malformed to be judged; can be consumed once.

    subject: the file or namespace that it is of; demands: namespaces that must have a pod in it.
    """

    items: Iterable[Any] = ()
    code: str = ""
    message: str = ""
    subject: str = ""
    demands: tuple[str, ...] = ()


class _Meta(msgspec.Struct, gc=False):
    continue_: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="continue")
    remaining: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="remainingItemCount")

    @property
    def more(self) -> str:
        """The field that says that the list goes on, or ""."""
        if bytes(self.continue_) not in (b"", b'""', b"null"):
            return "continue"
        return "" if bytes(self.remaining) in (b"", b"0", b"null") else "remainingItemCount"


class _Envelope(msgspec.Struct, gc=False):
    items: list[msgspec.Raw]
    kind: str
    metadata: _Meta | None = None


class _Whole(msgspec.Struct, gc=False):
    items: list[Pod]
    kind: str
    metadata: _Meta | None = None


class _Kind(msgspec.Struct, gc=False):
    kind: str | None = None


class _Named(msgspec.Struct, gc=False):
    metadata: Metadata | None = None


_POD = msgspec.json.Decoder(Pod)
_KIND = msgspec.json.Decoder(_Kind)
_NAMED = msgspec.json.Decoder(_Named)
_IMAGE_KEYS = re.compile(rb'"image(?:ID)?"')
_PAGED = (b'"continue"', b'"remainingItemCount"')
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")
_BETWEEN = re.compile(rb"[ \t\r\n]*,?[ \t\r\n]*")
_BLANKS = re.compile(r"[ \t\r\n]*")


def read(data: bytes) -> Listing:
    """Writes nothing. A captured list: one JSON object of kind PodList or List.

    Codes of the listing: `not-json` and `not-a-podlist` (without items), `incomplete-list` (with the items that are
    there). Items of another kind in a List are left out; an item that cannot be read comes out as Malformed.
    """
    if data.startswith(_BOM):
        data = data[len(_BOM) :]
    try:
        _utf8(data)
        envelope = _at_once(data) or msgspec.json.decode(data, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        return _refused(data, str(wrong), isinstance(wrong, msgspec.ValidationError))
    if envelope.kind not in ("PodList", "List"):
        return Listing(code="not-a-podlist", message=f"it is of kind {envelope.kind[:80]!r}, wanted PodList or List")
    items: Iterable[Pod | Malformed]
    if isinstance(envelope, _Whole):
        items = live(envelope.items)
    else:
        try:
            strictjson.loads(_around(data, envelope.items))
        except InputError as wrong:
            return Listing(code="not-a-podlist", message=f"it can be read in two ways: {wrong.message}")
        items = _items(envelope, exact=len(data) <= WHOLE)
    if field := envelope.metadata and envelope.metadata.more:
        return Listing(items, "incomplete-list", f"metadata.{field} is set: this is one page of a longer list")
    return Listing(items)


def _utf8(data: bytes) -> None:
    """Raises UnicodeDecodeError. msgspec does not look at the encoding of strings that it skips."""
    if not data.isascii():
        decoder = codecs.getincrementaldecoder("utf-8")()
        view = memoryview(data)
        for start in range(0, len(data), 1 << 20):
            decoder.decode(view[start : start + (1 << 20)])
        decoder.decode(b"", final=True)


def _refused(data: bytes, why: str, another_shape: bool) -> Listing:
    """Tells text that is no JSON from JSON of another shape, and from several documents after one another."""
    decoder = json.JSONDecoder(object_pairs_hook=lambda _: None, parse_constant=_no_number)
    documents = 0
    try:
        text = data.decode()
        at = _end_of_blanks(text, 0)
        while at < len(text):
            at = _end_of_blanks(text, decoder.raw_decode(text, at)[1])
            documents += 1
    except (ValueError, RecursionError):
        documents = 0
    if documents > 1:
        return Listing(code="not-a-podlist", message=f"it holds {documents} JSON documents, wanted one")
    if documents == 1 and another_shape:
        return Listing(code="not-a-podlist", message=f"it is not one list of pods: {why}")
    return Listing(code="not-json", message=f"it does not parse: {why}" if data.strip() else "it is empty")


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _end_of_blanks(text: str, at: int) -> int:
    return len(text) if (found := _BLANKS.match(text, at)) is None else found.end()


def _around(data: bytes, items: list[msgspec.Raw]) -> bytes:
    """The text without its items: without the first place where they stand one after another."""
    if not items:
        return data
    start = end = -1
    while end < 0:
        start = data.find(items[0], start + 1)
        end = _end_of_items(data, items, start)
    return data[:start] + b"0" + data[end:]


def _end_of_items(data: bytes, items: list[msgspec.Raw], at: int) -> int:
    """Where they end that begin there, -1 when they do not stand there. A list that is read twice has not these."""
    for raw in items:
        if not data.startswith(bytes(raw), at):
            return -1
        at += len(raw)
        between = _BETWEEN.match(data, at)
        at = between.end() if between else at
    return at


def _items(envelope: _Envelope, exact: bool) -> Iterator[Pod | Malformed]:
    for place, raw in enumerate(envelope.items):
        try:
            pod = _POD.decode(raw)
            kind = pod.kind or None  # empty is absent, as in Kubernetes
            if exact or len(_IMAGE_KEYS.findall(raw)) != _images(pod) or _ESCAPED_LETTER.search(raw):
                strictjson.loads(bytes(raw))
            why = flaw(pod) if kind in (None, "Pod") else f"it is of kind {kind[:80]!r} in a PodList"
        except (msgspec.DecodeError, InputError, RecursionError) as wrong:
            kind, why = _kind(raw), getattr(wrong, "message", str(wrong))
        if envelope.kind == "List" and kind not in (None, "Pod"):
            if not kind.endswith("List"):
                continue
            why = f"it is of kind {kind[:80]!r}: a list in the list, whose pods are not read"
        yield Malformed(place, why, _metadata(raw)) if why else pod


def _at_once(data: bytes) -> _Whole | None:
    """The quick way for a large list in which nothing is odd; None where it must be read item by item.

    Repeated keys are only searched for among images and image IDs, by their number, and around the items: the exact
    search costs 20 times the decoding.
    """
    if not WHOLE < len(data) <= AT_ONCE or any(word in data for word in _PAGED) or _ESCAPED_LETTER.search(data):
        return None
    try:
        whole = msgspec.json.decode(data, type=_Whole)
    except msgspec.ValidationError:
        return None
    plain = all(pod.kind in (None, "Pod") for pod in whole.items)
    return whole if plain and len(_IMAGE_KEYS.findall(data)) == sum(map(_images, whole.items)) else None


def _images(pod: Pod) -> int:
    """How often a pod of the API server says `image` and `imageID`."""
    spec, status = pod.spec or Spec(), pod.status or Status()
    lists = (spec.containers, spec.init_containers, spec.ephemeral_containers)
    reports = (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses)
    stated = sum(map(len, filter(None, lists))) + 2 * sum(map(len, filter(None, reports)))
    return stated + sum(volume.image is not None for volume in spec.volumes or ())


def _kind(raw: msgspec.Raw) -> str | None:
    try:
        return _KIND.decode(raw).kind or None
    except (msgspec.DecodeError, RecursionError):
        return None


def _metadata(raw: msgspec.Raw) -> Metadata:
    try:
        return _NAMED.decode(raw).metadata or Metadata()
    except (msgspec.DecodeError, RecursionError):
        return Metadata()
