"""Texts that hold manifests: Fleet's bundles, add-ons in ConfigMaps, files for a node, patches, what was last applied.

A text is taken for manifests when it begins as YAML or JSON does and has keys that only manifests have. Scripts and
configuration files have no such beginning or no such keys.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from gpurunbook.errors import InputError
from gpurunbook.supply.strictyaml import List, Map, Node, Text, documents, fault
from gpurunbook.supply.tree import Trail, dotted, walk, word

DEPTH = 8
"""Texts in texts that are followed; deeper ones are refused."""

_EXAMPLES = frozenset({"alm-examples"})
"""Annotations with objects that a person may apply one day; OLM's catalogue shows them."""

BINARY: Trail = (None, "binaryData")
"""Where a ConfigMap has base64."""

SHORTEST = 24
"""Characters below which no text is a manifest."""

VALUES = ("values.yaml", "values.yml")
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""Names that kustomize knows (api/konfig, RecognizedKustomizationFileNames)."""

_FILES = (*VALUES, *KUSTOMIZATIONS, "fleet.yaml", "Chart.yaml")
"""Files that are read by their name, whatever stands in them."""

# The openings of "apiVersion", "kind", "---", "{" and of gzip, in base64.
_ENCODED = ("YXBpVmVyc2lvb", "a2luZDo", "LS0tC", "eyJ", "eyAi", "ewog", "H4sI", "ZGF0YTo", "bWV0YWRhdGE")
_CLOUD_INIT = "#cloud-config"
_ADDRESS = "data:"
"""An address that is the content itself (RFC 2397): files of Ignition, and so of a MachineConfig."""

_ADDRESSED = re.compile(r"data:[^\s,]*,\S*")
_FIRST = {one[0] for one in (*_ENCODED, _CLOUD_INIT, _ADDRESS)}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")

_BEGINS = re.compile(
    r"""(?:[ \t]*(?:\#[^\n]*)?\r?\n|---[^\n]*\n|%[^\n]*\n|\ufeff)*[ \t]*(?:-[ \t]+)*
        (?:["']?[A-Za-z0-9_./$-]+["']?[ \t]*:(?:[ \t\r\n]|\Z)|[{\[])""",
    re.VERBOSE,
)

_REMARK = re.compile(r"\{\{-?\s{0,40}/\*")
_CONTROL = re.compile(
    r"^[ \t]*(?:\{\{-?[ \t]*(?:(?:if|else|end|range|with|define|block)\b|\$\w+[ \t]*:?=)[^{}\n]{0,400}"
    r"\}\}[ \t]*)+$",
    re.MULTILINE,
)
_WHOLE = re.compile(r"^[ \t]*(?:-[ \t]+)?\{\{[^\n]{0,400}\}\}[ \t]*$", re.MULTILINE)
_ACTION = re.compile(r"\{\{[^\n]{0,400}?\}\}")


def _key(words: str) -> re.Pattern[str]:
    # Bounded: a text of blanks alone must not cost its square.
    before = r"(?:^[ \t]{0,400}|[{,]\s{0,400})(?:-[ \t]{1,8}){0,4}"
    return re.compile(rf"""{before}["']?(?:{words})["']?[ \t]{{0,8}}:""", re.MULTILINE)


_KEYS = (
    (_key("apiVersion"), _key("kind")),
    (_key("containers|initContainers|ephemeralContainers"), _key("image")),
    (_key("op"), _key("path")),  # a JSON patch
)


@dataclass(frozen=True)
class Packed:
    """A text that holds documents. field: where it stands; name: of the file that it is, with its folders, or its key;
    data: unpacked.

    sure: it looks like manifests; when it cannot be read, that must be told.
    """

    field: str
    value: Text
    name: str
    data: bytes
    written: bool
    sure: bool


def concern(text: str) -> bool:
    """Writes nothing. Whether a text may hold manifests. Quick: most do not."""
    return (
        ("kind" in text and "apiVersion" in text)
        or ("image" in text and "ontainers" in text)
        or ("op" in text and "path" in text and "/image" in text)
        or (text[0] in _FIRST and text.startswith((*_ENCODED, _CLOUD_INIT, _ADDRESS)))
    )


def looks(text: str) -> bool:
    """Writes nothing. Whether a text is meant as manifests, readable or not."""
    return _BEGINS.match(text) is not None and any(all(key.search(text) for key in keys) for keys in _KEYS)


def begins(data: bytes) -> bool:
    """Writes nothing. Whether a text begins as a document does."""
    return _BEGINS.match(data.decode(errors="replace")) is not None


def unrendered(line: int, field: str) -> InputError:
    """Writes nothing. What is said of a chart that an object holds."""
    text = f"{field}: a chart that is not rendered, so what it would apply was not seen"
    remedy = "Render it with its values (helm template), and review that."
    return InputError(text, subject=f"line {line}", code="not-rendered", remedy=remedy)


def filled(data: bytes) -> bytes | None:
    """Writes nothing. A Go template as a document: a variable stands for what is put in, and all lines are there.

    None for what is no template, and for one that puts in whole lines: nobody can tell what they become.
    """
    if b"{{" not in data:
        return None
    bare = _CONTROL.sub("", _without_remarks(data.decode(errors="replace")))
    return None if _WHOLE.search(bare) else _ACTION.sub("${filled}", bare).encode()


def _without_remarks(text: str) -> str:
    """A template without what it says to its readers; as many lines."""
    made, at = "", 0
    while found := _REMARK.search(text, at):
        end = text.find("*/", found.end())
        end = text.find("}}", end) if end >= 0 else -1
        if end < 0:
            break
        made += text[at : found.start()] + "\n" * text.count("\n", found.start(), end)
        at = end + 2
    return made + text[at:]


def packed(node: Map | List, trail: Trail, *, binary: bool, limit: int) -> Iterator[Packed]:
    """Writes nothing. The texts of this mapping or list that hold documents, unpacked to at most `limit` bytes.

    binary: everything in it is base64. Raises InputError when one is larger, or is not what its encoding says.
    """
    if isinstance(node, List):
        for n, item in enumerate(node.items):
            if isinstance(item, Text) and (found := _guessed(item, f"{dotted(trail)}[{n}]", "", limit)):
                yield found
        return
    encoding = word(node, "encoding").lower()
    for key, value in node.items.items():
        if not isinstance(value, Text) or not value.text or key in _EXAMPLES:
            continue
        field, name = dotted(trail, key), key
        if key == "chartContent":  # of an RKE2 HelmChart
            raise unrendered(value.line, field)
        if key in {"content", "contents"}:
            name = (word(node, "name") or word(node, "path")).strip("/") or key
        if binary or (name != key and ("base64" in encoding or "gz" in encoding)):
            found = _declared(value, field, name, encoding or "base64", limit)
        elif name != key and posixpath.basename(name).endswith(_FILES):
            found = Packed(field, value, name, value.text.encode(errors="replace"), True, True)
        else:
            found = _guessed(value, field, name, limit)
        if found:
            yield found


def opened(root: Node, limit: int, depth: int = 0) -> Iterator[Map | List]:
    """Writes nothing. The documents in the texts of a document, and in theirs. What cannot be read is left out: the
    review tells it.
    """
    for node, trail in walk(root, without=("sops", "status")):
        if depth >= DEPTH or not any(
            isinstance(item, Text) and (trail == BINARY or (len(item.text) >= SHORTEST and concern(item.text)))
            for item in (node.items if isinstance(node, List) else node.items.values())
        ):
            continue
        with suppress(InputError):
            for one in packed(node, trail, binary=trail == BINARY, limit=limit):
                if not (one.sure or begins(one.data)):
                    continue
                with suppress(InputError):
                    for inner in documents(one.data, limit=limit):
                        if not isinstance(inner, Text):
                            yield inner
                            yield from opened(inner, limit, depth + 1)


def _guessed(value: Text, field: str, name: str, limit: int) -> Packed | None:
    if len(value.text) < SHORTEST or not concern(value.text):
        return None
    if _ADDRESSED.fullmatch(value.text):
        return _addressed(value, field, name, limit)
    sure = looks(value.text)
    if sure or value.text.startswith(_CLOUD_INIT):
        return Packed(field, value, name, value.text.encode(errors="replace"), True, sure)
    if not value.text.startswith(_ENCODED) or (data := _decoded(value.text)) is None:
        return None
    return _unpacked(value, field, name, data, limit)


def _addressed(value: Text, field: str, name: str, limit: int) -> Packed | None:
    head, _, content = value.text.partition(",")
    data: bytes | None = unquote_to_bytes(content)
    if head.endswith(";base64"):
        data = _decoded(data.decode(errors="replace")) if data else None
    if data is None:
        raise fault("encoding", value.line, f"{field}: is not what its address says: {head[:80]!r}")
    return _unpacked(value, field, name, data, limit)


def _declared(value: Text, field: str, name: str, encoding: str, limit: int) -> Packed | None:
    """What Fleet (base64, base64+gz) and kubeadm (base64, gzip, gzip+base64) write beside a file's content."""
    if "base64" not in encoding:
        raise fault("encoding", value.line, f"{field}: cannot be unpacked; its encoding is {encoding[:40]!r}")
    data = _decoded(value.text)
    if data is None:
        raise fault("encoding", value.line, f"{field}: is not {encoding[:40]}")
    return _unpacked(value, field, name, data, limit, files=True)


def _unpacked(value: Text, field: str, name: str, data: bytes, limit: int, *, files: bool = False) -> Packed | None:
    if data[:2] == b"\x1f\x8b":
        data = _inflated(data, value, field, limit)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None  # a program, a certificate, an archive
    return Packed(field, value, name, data, False, (files and posixpath.basename(name).endswith(_FILES)) or looks(text))


def _decoded(text: str) -> bytes | None:
    bare = "".join(text.split())
    if not _BASE64.fullmatch(bare):
        return None
    bare = bare.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return None


def _inflated(data: bytes, value: Text, field: str, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        found = stream.decompress(data, limit + 1)
    except zlib.error as wrong:
        raise fault("encoding", value.line, f"{field}: does not unpack: {wrong}") from None
    if len(found) > limit:
        raise fault("too-large", value.line, f"{field}: unpacks to more than {limit} bytes")
    if not stream.eof:
        raise fault("encoding", value.line, f"{field}: does not unpack: it is cut off")
    return found
