"""Which manifests belong to one index, and which of them a node of some platform takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec

from gpurunbook.digests import digest as sha256
from gpurunbook.errors import InputError
from gpurunbook.supply import strictjson


class Child(msgspec.Struct, frozen=True, gc=False):
    """A manifest of an index. platform: `os/architecture[/variant]`."""

    digest: str
    platform: str


class Relations(msgspec.Struct, frozen=True):
    """indexes: index digest to its manifests; nodes: node name to its platform. Both come from outside the audit."""

    indexes: Mapping[str, list[Child]] = msgspec.field(default_factory=dict)
    nodes: Mapping[str, str] = msgspec.field(default_factory=dict)

    def child(self, index: str, node: str) -> str:
        """Writes nothing. The one manifest that a node takes from an index; "" when unknown or ambiguous."""
        platform = self.nodes.get(node, "")
        found = {c.digest for c in self.indexes.get(index, ()) if _same(c.platform, platform)} if platform else set()
        return found.pop() if len(found) == 1 else ""

    def related(self, one: str, other: str, node: str) -> bool:
        """Writes nothing. Whether one digest is an index and the other its child for the node's platform."""
        return self.child(one, node) == other or self.child(other, node) == one

    def one_image(self, seen: Iterable[tuple[str, str]]) -> bool:
        """Writes nothing. Whether all pairs of digest and node are one index or its child for that node.

        The index itself counts on every node whose platform it lists.
        """
        pairs = list(seen)
        return any(all((c := self.child(index, n)) and d in (index, c) for d, n in pairs) for index in self.indexes)

    def family(self, digest: str) -> set[str]:
        """Writes nothing. The digests of every index that is or holds this one, and of all their children."""
        found = set()
        for index, children in self.indexes.items():
            members = {index, *(c.digest for c in children)}
            if digest in members:
                found |= members
        return found


def _same(one: str, other: str) -> bool:
    # containerd reads arm64 without a variant and arm64/v8 as the same platform.
    return one.removesuffix("/v8") == other.removesuffix("/v8") if "/arm64" in one else one == other


def digest(indexes: Mapping[str, Iterable[Child]]) -> str:
    """Writes nothing. `sha256:…` of what a file of relations says, however it is written; "" when it says nothing."""
    said = {index: sorted((one.platform, one.digest) for one in children) for index, children in indexes.items()}
    return sha256(json.dumps(said, sort_keys=True).encode()) if said else ""


def read_indexes(data: bytes) -> dict[str, list[Child]]:
    """Writes nothing. `{index digest: [{"digest", "platform"}]}`. Raises InputError (`malformed-relations`)."""
    try:
        return strictjson.typed(strictjson.loads(data), dict[str, list[Child]])
    except InputError as wrong:
        raise InputError(
            f"the relations are not an object of index digest to manifests with digest and platform: {wrong}",
            code="malformed-relations",
        ) from None


def read_nodes(data: bytes) -> dict[str, str]:
    """Writes nothing. `{node name: platform}`. Raises InputError (`malformed-platforms`)."""
    try:
        return strictjson.typed(strictjson.loads(data), dict[str, str])
    except InputError as wrong:
        raise InputError(
            f"the platforms are not an object of node name to platform: {wrong}", code="malformed-platforms"
        ) from None
