"""YAML as a reviewer reads it: text stays text, one key once, nothing hidden behind anchors or tags.

`document` reads a file that must hold exactly one document and refuses anchors. `documents` streams the
documents of a rendered fleet, one in memory at a time; there an alias is put in with a limit on what all of
them together may add, and merge keys (`<<`) are filled in as Helm and kubectl do.

No resolver runs: `595.90`, `yes`, `2026-08-18` and 40 digits stay what was written. What a scalar would have
meant unquoted can be told by `Text.plain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any, TypeAlias

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from gpurunbook.errors import InputError

ORDER = (
    "too-large",
    "encoding",
    "empty",
    "multi-document",
    "syntax",
    "alias",
    "tag",
    "duplicate-key",
    "unknown-field",
    "type",
)
"""Codes of the InputErrors raised here. Of several faults of one document the first in this order is raised."""

DEPTH = 200
"""Nesting that is refused beyond this, as `syntax`: no file of ours comes near it, and walking stays safe."""

EXTRA = 200_000
"""Nodes that the aliases of one document may add together; beyond it the document is refused as `alias`."""

EXTRA_IN_ALL = 10 * EXTRA
"""The same for all that is read with one Aliases: many small bombs are one."""


@dataclass
class Aliases:
    """What aliases may still add, in all documents that are read with it."""

    left: int = EXTRA_IN_ALL


class Text(msgspec.Struct, frozen=True, gc=False):
    """A scalar. plain: written without quotes and not as a block; line: of the key before it, or its own.

    block: written after a `|`, so that its lines are those below `line`.
    """

    text: str
    plain: bool
    line: int
    block: bool = False

    @property
    def null(self) -> bool:
        """Whether YAML reads it as null: nothing at all, `~`, `null`, `Null` or `NULL`, unquoted."""
        return self.plain and self.text in {"", "~", "null", "Null", "NULL"}


class Map(msgspec.Struct, gc=False):
    """A mapping, in the order of the file."""

    items: dict[str, Node]
    line: int


class List(msgspec.Struct, gc=False):
    """A sequence."""

    items: list[Node]
    line: int


Node: TypeAlias = Text | Map | List

_PARSER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""libyaml where PyYAML was built with it: eight times as fast."""

_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z))*")
_MARKER = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_BEFORE_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?(?:(?:%[^\r\n]*|[ \t]*(?:#[^\r\n]*)?)(?:\r\n|\r|\n))*")


_PAIR = re.compile(rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
"""One character as JSON writers escape it, in two halves (RFC 8259); libyaml takes no half."""


def _joined(pair: re.Match[bytes]) -> bytes:
    high, low = (int(half, 16) for half in pair.group(2, 3))
    return pair[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)).encode()


def fault(code: str, line: int, message: str) -> InputError:
    """Writes nothing. An InputError whose subject is the line; whoever knows the file's name puts it before."""
    return InputError(message, subject=f"line {line}", code=code)


def gravest(faults: list[InputError]) -> InputError:
    """Writes nothing. Of several faults the first in ORDER, and of those the first in the file."""
    return min(faults, key=lambda wrong: ORDER.index(wrong.code))


def document(data: bytes, *, limit: int) -> Node:
    """Writes nothing. The one document of a file of at most `limit` bytes.

    Raises InputError with a code of ORDER; anchors, aliases and tags are refused.
    """
    _decodable(data, limit)
    if _BLANK.fullmatch(data):
        raise fault("empty", 1, "no document: no bytes, or only blanks and comments")
    try:
        reader = _Reader(data, aliases=None)
        found = reader.document()
        more = found is not None and reader.another()
    except InputError:
        line = _second_marker(data)
        if line:
            raise fault("multi-document", line, "a second document; exactly one was expected") from None
        raise
    if found is None:
        raise fault("empty", 1, "no document")
    if more:
        raise fault("multi-document", reader.line, "a second document, even an empty one; exactly one was expected")
    if reader.faults:
        raise gravest(reader.faults)
    return found


def documents(data: bytes, *, limit: int, aliases: Aliases | None = None) -> Iterator[Node]:
    """Counts in `aliases`; writes nothing. Each document of a stream of at most `limit` bytes, aliases put in.

    A document of nothing (between two `---`) is a plain empty Text. Raises InputError with a code of ORDER
    at the first document with a fault.
    """
    _decodable(data, limit)
    if b"\\u" in data:
        data = _PAIR.sub(_joined, data)
    reader = _Reader(data, aliases=aliases or Aliases())
    while (found := reader.document()) is not None:
        if reader.faults:
            raise gravest(reader.faults)
        yield found


def plain(node: Node) -> Any:
    """Writes nothing. The same as dicts and lists; scalars as text, null as None."""
    if isinstance(node, Map):
        return {key: plain(value) for key, value in node.items.items()}
    if isinstance(node, List):
        return [plain(item) for item in node.items]
    return None if node.null else node.text


def _decodable(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise InputError(f"more than {limit} bytes", code="too-large", subject="file")
    try:
        data.decode()
    except UnicodeDecodeError as wrong:
        line = data.count(b"\n", 0, wrong.start) + 1
        raise fault("encoding", line, f"not UTF-8 at byte {wrong.start}") from None


def _second_marker(data: bytes) -> int:
    """The line of the `---` that begins a second document, 0 without one. For files that do not parse."""
    before = _BEFORE_FIRST.match(data)
    begin = before.end() if before else 0
    first = _MARKER.match(data, begin)
    again = _MARKER.search(data, first.end() if first else begin)
    return data.count(b"\n", 0, again.start()) + 1 if again else 0


class _Reader:
    """Composes nodes from PyYAML's events, without recursion. `faults` are those of the last document."""

    def __init__(self, data: bytes, *, aliases: Aliases | None) -> None:
        self._aliases = aliases
        self.line = 1
        self.faults: list[InputError] = []
        try:
            self._event = _PARSER(data).get_event
        except yaml.YAMLError as wrong:  # the pure parser looks for control characters at once
            raise self._syntax(wrong) from None

    def another(self) -> bool:
        """Whether a further document begins."""
        while type(event := self._next()) is DocumentEndEvent:
            pass
        self.line = event.start_mark.line + 1
        return type(event) is not StreamEndEvent

    def document(self) -> Node | None:
        """The next document, None after the last."""
        while (kind := type(self._next())) is not StreamEndEvent:
            if kind is DocumentStartEvent:
                return self._compose()
        return None

    def _next(self) -> Any:
        try:
            return self._event()
        except yaml.YAMLError as wrong:
            raise self._syntax(wrong) from None

    def _syntax(self, wrong: yaml.YAMLError) -> InputError:
        mark = getattr(wrong, "problem_mark", None) or getattr(wrong, "context_mark", None)
        if mark is not None:
            self.line = mark.line + 1
        text = getattr(wrong, "problem", None) or getattr(wrong, "reason", None) or "not YAML"
        return fault("syntax", self.line, f"does not parse: {text}")

    def _note(self, code: str, line: int, message: str) -> None:
        self.faults.append(fault(code, line, message))

    def _refuse_marks(self, event: Any, line: int) -> None:
        if event.tag is not None:
            self._note("tag", line, f"an explicit tag, {event.tag}; none is allowed")
        if event.anchor is not None and not self._aliases:
            self._note("alias", line, f"an anchor, &{event.anchor}; none is allowed")

    def _compose(self) -> Node:
        try:
            return self._composed()
        except yaml.YAMLError as wrong:
            raise self._syntax(wrong) from None

    def _composed(self) -> Node:
        self.faults = []
        next_event, aliases = self._event, self._aliases  # called for every key and value of a whole fleet
        anchors: dict[str, tuple[Node, int]] = {}
        stack: list[tuple[Any, Node, str | None, int]] = []  # holder and node outside, its anchor, count before it
        holder: Any = None  # the dict or list that is being filled
        key: str | None = None
        line = count = extra = 0
        while True:
            event = next_event()
            kind = type(event)
            if kind is MappingEndEvent or kind is SequenceEndEvent:
                holder, node, anchor, before = stack.pop()
                key = None
                if type(node) is Map and aliases and "<<" in node.items:
                    self._merge(node)
                if anchor is not None:
                    anchors[anchor] = (node, count - before)
                if holder is None:
                    return node
                continue

            own = event.start_mark.line + 1
            if key is None:
                line = own
            count += 1
            opens = False
            if kind is ScalarEvent:
                style = event.style
                node = Text(event.value, False, line, style == "|") if style else Text(event.value, True, line)
                if event.anchor is not None or event.tag is not None:
                    self._refuse_marks(event, own)
                    anchors[event.anchor or ""] = (node, 1)
            elif kind is AliasEvent:
                if aliases is None:
                    self._note("alias", own, f"an alias, *{event.anchor}; none is allowed")
                node, size = self._alias(event.anchor, own, anchors)
                count, extra = count + size, extra + size
                if aliases is not None:
                    aliases.left -= size
                if extra > EXTRA or (aliases is not None and aliases.left < 0):
                    limits = f"more than {EXTRA} nodes to one document, or {EXTRA_IN_ALL} in all"
                    raise fault("alias", own, f"aliases that add {limits}")
            else:
                opens = True
                if event.anchor is not None or event.tag is not None:
                    self._refuse_marks(event, own)
                node = Map({}, line) if kind is MappingStartEvent else List([], line)
                if len(stack) >= DEPTH:
                    raise fault("syntax", own, f"nested deeper than {DEPTH} levels")

            if type(holder) is list:
                holder.append(node)
            elif type(holder) is dict:
                if key is None:
                    if type(node) is not Text:
                        raise fault("unknown-field", own, "a key that is not text")
                    key = intern(node.text)
                    if key in holder:
                        self._note("duplicate-key", own, f"the key {key!r} stands here a second time")
                    continue
                holder[key] = node
                key = None
            if opens:
                stack.append((holder, node, event.anchor, count))
                holder = node.items  # type: ignore[union-attr]
            elif holder is None:
                return node

    def _alias(self, name: str, line: int, anchors: dict[str, tuple[Node, int]]) -> tuple[Node, int]:
        if not self._aliases:
            return Text("", True, line), 0
        if name not in anchors:
            raise fault("syntax", line, f"the alias *{name} has no anchor that ends before it")
        return anchors[name]

    def _merge(self, node: Map) -> None:
        merged = node.items.pop("<<")
        sources = merged.items if type(merged) is List else [merged]
        for source in sources:
            if type(source) is not Map:
                self._note("type", merged.line, "a merge key (<<) takes a mapping or a list of mappings")
                return
            for name, value in source.items.items():
                node.items.setdefault(name, value)
