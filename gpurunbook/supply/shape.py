"""Strict YAML nodes read against a fixed set of fields: each field has one type, and no other field may stand there."""

from __future__ import annotations

from collections.abc import Collection

from gpurunbook.errors import InputError
from gpurunbook.supply.strictyaml import List, Map, Node, Text, fault, gravest


class Shape:
    """Notes every fault of a document and raises the gravest at `done`.

    A field that is absent, or null as YAML knows it, reads as nothing: empty text, False, no item, no field.
    """

    def __init__(self) -> None:
        self._faults: list[InputError] = []

    def fields(self, node: Node | None, known: Collection[str], at: str) -> dict[str, Node]:
        """Writes nothing. The fields of a mapping, of which none may be outside `known`."""
        if node is None or (isinstance(node, Text) and node.null):
            return {}
        if not isinstance(node, Map):
            self._wrong(node, at, "a mapping")
            return {}
        for name, value in node.items.items():
            if name not in known:
                message = f"{at} has no field {name!r}; it has {', '.join(sorted(known))}"
                self._faults.append(fault("unknown-field", value.line, message))
        return node.items

    def text(self, node: Node | None, at: str) -> str:
        """Writes nothing. The text as it was written."""
        if node is None or (isinstance(node, Text) and node.null):
            return ""
        if isinstance(node, Text):
            return node.text
        self._wrong(node, at, "text")
        return ""

    def flag(self, node: Node | None, at: str) -> bool:
        """Writes nothing. Plain `true` or `false`; not quoted, not `yes`, not `True`, not 1."""
        if node is None or (isinstance(node, Text) and node.null):
            return False
        if isinstance(node, Text) and node.plain and node.text in {"true", "false"}:
            return node.text == "true"
        self._wrong(node, at, "plain true or false")
        return False

    def items(self, node: Node | None, at: str) -> list[Node]:
        """Writes nothing. The items of a list."""
        if node is None or (isinstance(node, Text) and node.null):
            return []
        if isinstance(node, List):
            return node.items
        self._wrong(node, at, "a list")
        return []

    def texts(self, node: Node | None, at: str) -> list[str]:
        """Writes nothing. The items of a list of text."""
        return [self.text(item, f"{at}[{n}]") for n, item in enumerate(self.items(node, at))]

    def done(self) -> None:
        """Raises the gravest fault that was noted, if any."""
        if self._faults:
            raise gravest(self._faults)

    def _wrong(self, node: Node, at: str, wanted: str) -> None:
        kind = {Map: "a mapping", List: "a list"}.get(type(node), "")
        seen = kind or f"the text {node.text!r}"[:80]  # type: ignore[union-attr]
        self._faults.append(fault("type", node.line, f"{at} is {seen}, where {wanted} is due"))
