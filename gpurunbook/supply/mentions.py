"""References in texts that are no manifests: what operators read as configuration, scripts, units of a node.

Judged line by line: what is given to a key or an option named image, and any reference with a path whose tag is moved.
Comments say nothing. Not seen: an image without a tag that a command takes as a bare word, and what a script puts
together from variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpurunbook.supply import references
from gpurunbook.supply.strictyaml import List, Map

SPEAKING = frozenset({"ConstraintTemplate", "PrometheusRule", "ValidatingAdmissionPolicy", "GrafanaDashboard"})
"""Kinds whose texts ask for images, and name none to run."""

PROSE = frozenset({"description", "message", "summary", "help", "title", "notes", "expr", "expression", "query"})
PROSE |= {"_example"}
"""Keys of texts for people, and of questions; Knative and KServe describe in `_example` what could be set."""

_SCHEMA = frozenset({"$schema", "swagger", "openapi"})
_TESTS = frozenset({"suite", "templates", "release", "values"})

_FLOATS = re.compile(rf":(?:[a-z0-9._-]*latest|(?:{'|'.join(sorted(references.FLOATING_TAGS))})\b)", re.IGNORECASE)
"""Where a tag may float. Quick: `references.floats` judges it."""

_REMARK = re.compile(r"\s*(?:#|//)")
_BEHIND = re.compile(r"\s#\s.*")
_CONTAINERS = re.compile(r"ontainers[\"']?[ \t]*:")
_WORD = r"(?P<value>[^\s\"'`,;(){}\[\]\\|]+)"
_QUOTE = r"\\{0,3}[\"']?"
# An equals sign behind a brace or a comma is PromQL, which asks for series by their image.
_ASSIGNED = re.compile(
    rf"(?<![A-Za-z0-9_.-])(?P<key>-{{0,2}}(?:[A-Za-z0-9]+[-_.]+)*"
    rf"(?:[a-z][A-Za-z0-9]*Image|[iI]mage|IMAGE)){_QUOTE}(?P<is>[ \t]{{0,20}}[:=][ \t]{{0,20}}|[ \t]+){_QUOTE}{_WORD}"
)
_PLACE = r"(?:[A-Za-z0-9._-]+(?::[0-9]{1,5})?/)+[a-z0-9._-]+"
# A refspec of git's is written alike.
_TAGGED = rf"(?P<value>(?!refs/){_PLACE}:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})(?:@sha256:[0-9a-f]{{64}})?)"
_WHOLE = re.compile(rf"(?:[A-Za-z0-9._/:-]+=)?{_TAGGED}")
_PLACED = re.compile(rf"(?:(?<=docker://)|(?<=oci://)|(?<![A-Za-z0-9_./:@-])){_TAGGED}(?![A-Za-z0-9_./:@-])")
_RUNS = re.compile(r"\b(?:docker|podman|nerdctl|crictl|ctr)\s")
_RUN = re.compile(r"(?<=\s)(?P<value>[a-z0-9._-]+:(?P<tag>latest))(?![A-Za-z0-9_./:@-])")
_HALF = re.compile(rf":[A-Za-z0-9._-]+|{_PLACE}:")
"""What a template makes of a value that is not there: it is meant as a reference."""

_KEY = re.compile(r"(?:(?:.*[-_./])?(?:image|IMAGE)|[a-z](?:.*[a-z0-9])?Image)(?:[-_]?[rR]ef(?:erence)?)?")
_TAG = re.compile(
    r"(?:[A-Za-z0-9]+[_-])*image[_-](?:tag|version)(?:[_-]version)?|[a-z][A-Za-z0-9]*Image(?:Tag|Version)"
    r"|(?:[A-Z0-9]+_)*IMAGE_(?:TAG|VERSION)"
)


def speaks(doc: Map) -> bool:
    """Writes nothing. Whether a document speaks of images and holds none: a schema, or what helm-unittest expects."""
    tests = isinstance(doc.items.get("tests"), List) and not _TESTS.isdisjoint(doc.items)
    return tests or not _SCHEMA.isdisjoint(doc.items)


def concern(text: str) -> bool:
    """Writes nothing. Whether a reference may be mentioned in a text. Quick: most have none."""
    return "mage" in text or "MAGE" in text or (":" in text and _FLOATS.search(text) is not None)


def is_word(text: str) -> bool:
    """Writes nothing. Whether a text is one word, which is judged by its key."""
    return not any(sign in text for sign in " \n\t\"'{")


def is_key(key: str) -> bool:
    """Writes nothing. Whether a key is named as those of references are."""
    return _KEY.fullmatch(key) is not None


def is_tag(key: str) -> bool:
    """Writes nothing. Whether a key is named as that of a tag is, where the image's own name stands elsewhere."""
    return _TAG.fullmatch(key) is not None


def is_image(key: str, text: str) -> bool:
    """Writes nothing. Whether a word is a reference, by the name of its key; a file and a bare word are not."""
    return is_key(key) and _is_reference(text)


def moved(text: str) -> str:
    """Writes nothing. The reference that a word of any name is, alone or behind `NAME=`, when its tag is one that is
    moved; else ""."""
    found = _WHOLE.fullmatch(text) if "/" in text and ":" in text else None
    return found["value"] if found and references.floats(found["tag"]) else ""


def mentions(text: str) -> Iterator[tuple[int, str]]:
    """Writes nothing. Each reference with its line in the text, from 1."""
    manifest = _CONTAINERS.search(text) is not None  # there a bare word is an image too
    for number, whole in enumerate(text.split("\n"), 1):
        if not concern(whole) or _REMARK.match(whole):
            continue
        line = _BEHIND.sub("", whole)
        seen: set[str] = set()
        for found in _ASSIGNED.finditer(line):
            value, option, apart = found["value"].rstrip("."), found["key"].startswith("-"), not found["is"].strip()
            if apart and not option:
                continue  # prose: an image of
            if "=" in found["is"] and line[max(0, found.start() - 20) : found.start()].rstrip()[-1:] in {"{", ","}:
                continue
            if line[found.start() - 1 : found.start()] == "$" and line[found.end("key")] in "\"'":
                continue  # compared in a shell: [ "$IMAGE" = a/b ]
            bare = (manifest or option) and not apart and _is_bare(value)  # behind a blank it may be prose: --image is
            if value not in seen and (bare or _is_reference(value)):
                seen.add(value)
                yield number, value
        runs = _RUNS.search(line)
        for found in (*_PLACED.finditer(line), *(_RUN.finditer(line, runs.end() - 1) if runs else ())):
            if found["value"] not in seen and references.floats(found["tag"]):
                seen.add(found["value"])
                yield number, found["value"]


def _is_reference(text: str) -> bool:
    """A word with a path or a tag; no address, no path of a file, and nothing that a shell or a template fills in."""
    if "://" in text or text[:1] in {"/", ".", "~", "-", "%", "<"} or "$" in text or "{{" in text:
        return False
    seen = references.desired(text)
    if seen.reference is None:
        return _HALF.fullmatch(text) is not None
    if not (seen.reference.tag or seen.reference.pinned):
        return "/" in text and "." not in seen.reference.name
    return not seen.reference.tag.isdecimal() or "/" in text  # host:port


def _is_bare(text: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9-]*", text) is not None and text not in {"true", "false", "null", "none"}
