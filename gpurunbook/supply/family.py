"""What belongs to one digest: an index, its manifests with their platforms, their configs.

Taken from a file of relations, and from registry documents, which prove themselves: the SHA-256 of an index is its
digest, and it names its manifests; a manifest names its config; a config names its platform.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.supply.evidence import DIGEST, Subject, same_platform
from gpurunbook.supply.members import member, objects, text
from gpurunbook.supply.relations import Child

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Family:
    """Knows digests by what was added; nothing is guessed.

    contradicted: indexes of which a file of relations said other manifests than they hold.
    """

    def __init__(self, relations: Mapping[str, Iterable[Child]] | None = None) -> None:
        self._children: dict[str, dict[str, str]] = defaultdict(dict)
        self._parents: dict[str, set[str]] = defaultdict(set)
        self._configs: dict[str, str] = {}
        self._platforms: dict[str, str] = {}
        self._indexes: set[str] = set()
        self.contradicted: set[str] = set()
        self._manifests: set[str] = set()
        for index, children in (relations or {}).items():
            for child in children:
                self._belongs(index, child.platform, child.digest)

    def _belongs(self, index: str, platform: str, digest: str) -> None:
        self._children[index].setdefault(platform, digest)
        self._parents[digest].add(index)

    def add(self, digest: str, document: Mapping[str, Any]) -> None:
        """Takes a registry document whose SHA-256 is `digest`. Raises InputError (`unreadable`) for another shape."""
        if "manifests" in document:
            named = [
                (platform_of(member(entry, "platform")), _digest(entry)) for entry in objects(document, "manifests")
            ]
            # Attestations of BuildKit stand in the index as manifests of the platform unknown/unknown.
            images = [(platform, child) for platform, child in named if platform != "unknown/unknown"]
            said = self._children.pop(digest, {})  # what a file of relations said counts for less
            for child in said.values():
                self._parents[child].discard(digest)
            if set(said.values()) - {child for _, child in images}:
                self.contradicted.add(digest)
            self._indexes.add(digest)
            for platform, child in images:
                self._belongs(digest, platform, child)
        elif "config" in document and "layers" in document:
            self._manifests.add(digest)
            self._configs[digest] = _digest(member(document, "config"))
        elif "architecture" in document and "rootfs" in document:
            self._platforms[digest] = platform_of(document)
        else:
            raise InputError("neither an index nor a manifest nor a config of an image", code="unreadable")

    def children(self, digest: str) -> Mapping[str, str]:
        """Writes nothing. Platform → manifest of an index; empty for what is not known as one."""
        return self._children.get(digest, {})

    def parents(self, digest: str) -> frozenset[str]:
        """Writes nothing. The indexes that hold a manifest."""
        return frozenset(self._parents.get(digest, ()))

    def holders(self, digest: str) -> frozenset[str]:
        """Writes nothing. The indexes that are proven to hold a manifest, by their own document."""
        return self.parents(digest) & self._indexes

    def single(self, digest: str) -> bool:
        """Writes nothing. Whether a digest is known to be of one platform."""
        return digest in self._manifests or bool(self._parents.get(digest))

    def platforms(self, digest: str) -> tuple[str, ...]:
        """Writes nothing. The platforms that a digest is known to be for, sorted; empty when not all are known."""
        if children := self._children.get(digest):
            return tuple(sorted(children)) if all(children) else ()
        own = self._platforms.get(self._configs.get(digest, ""), "")
        named = {p for index in self.parents(digest) for p, d in self._children[index].items() if d == digest and p}
        return (own,) if own else tuple(sorted(named))

    def wanted(self, digest: str, used: Sequence[str]) -> tuple[tuple[str, ...], str]:
        """Writes nothing. The platforms that a digest must have evidence for, and what is not known about them.

        used: in use, none when nobody said. What it has and is in use; one of the two when the other is not known. What
        only a file of relations says of an image leaves out no platform that is in use.
        """
        has = self.platforms(digest)
        if not has and not used:
            return (), "neither the platforms in use nor those of the image are known"
        if not has or not used:
            return tuple(sorted(has or used)), ""
        both = tuple(one for one in has if any(same_platform(one, other) for other in used))
        if both and not self._proven(digest):
            more = {one for one in used if not any(same_platform(one, other) for other in both)}
            return tuple(sorted({*both, *more})), ""
        return both or has, "" if both else f"it is for {', '.join(has)}; said to be in use: {', '.join(used)}"

    def _proven(self, digest: str) -> bool:
        return digest in self._indexes or digest in self._manifests or bool(self.holders(digest))

    def subject(self, digest: str, platform: str) -> Subject:
        """Writes nothing. The image that evidence must be about, with all that is known of it."""
        children = self.children(digest)
        manifests = {p: d for p, d in children.items() if same_platform(p, platform)} or {platform: digest}
        configs = {p: self._configs[d] for p, d in manifests.items() if d in self._configs}
        return Subject(digest, platform, children, configs)

    def related(self, digest: str) -> set[str]:
        """Writes nothing. Every digest by which a file can name the image: itself, its manifests, their configs."""
        manifests = {digest, *self.children(digest).values()}
        return manifests | {self._configs[d] for d in manifests if d in self._configs}

    def known(self, digest: str) -> set[str]:
        """Writes nothing. As `related`, and the indexes that hold it."""
        return self.related(digest) | self.parents(digest)


def platform_of(holder: Mapping[str, Any]) -> str:
    """Writes nothing. `os/architecture[/variant]`, "" where none is named."""
    parts = [text(holder, name) for name in ("os", "architecture", "variant")]
    if odd := next((part for part in parts if part and not _PART.fullmatch(part)), None):
        raise InputError(f"{odd[:80]!r} is no part of a platform", code="unreadable")  # folders are named by it
    return "/".join(parts).rstrip("/") if any(parts) else ""


def _digest(entry: Mapping[str, Any]) -> str:
    found = text(entry, "digest")
    if not DIGEST.fullmatch(found):
        raise InputError(f"digest is {found[:80]!r}, wanted sha256: and 64 hexadecimal digits", code="unreadable")
    return found
