"""Walking strict YAML nodes: every mapping and list once, with the way that led there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TypeAlias

from gpurunbook.supply.strictyaml import List, Map, Node, Text

Trail: TypeAlias = "tuple[Trail, str | int] | None"
"""The way to a node, innermost step first: a key, or an index of a list."""

VARIABLE = re.compile(r"\{\{|\$[{(]?[A-Za-z_]|<<")
"""What Flux, Helm, envsubst or make would still replace."""

# What a YAML 1.1 reader (Helm, kubectl, kustomize) takes for something else than text when it is not quoted.
_TYPED = re.compile(
    r"""[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|[0-9][0-9_]*)
      | [-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?
      | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
      | [-+]?\.(?:inf|Inf|INF) | \.(?:nan|NaN|NAN)
      | y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF
      | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt\s].*)?""",
    re.VERBOSE,
)


def walk(root: Node, without: Collection[str] = (), pruned: Collection[int] = ()) -> Iterator[tuple[Map | List, Trail]]:
    """Writes nothing. Every mapping and list, outer before inner; without recursion.

    without: keys of the root that are not entered; pruned: ids of nodes below which nothing is looked for, to which the
    caller may add the node at hand.
    """
    if isinstance(root, Text):
        return
    stack: list[tuple[Map | List, Trail]] = [(root, None)]
    while stack:
        node, trail = stack.pop()
        yield node, trail
        if pruned and id(node) in pruned:
            continue
        if isinstance(node, Map):
            for key, value in node.items.items():
                if not isinstance(value, Text) and (trail is not None or key not in without):
                    stack.append((value, (trail, key)))
        else:
            for index, item in enumerate(node.items):
                if not isinstance(item, Text):
                    stack.append((item, (trail, index)))


def steps(trail: Trail) -> list[str | int]:
    """Writes nothing. The way as a list, outermost first."""
    found: list[str | int] = []
    while trail is not None:
        trail, step = trail
        found.append(step)
    return found[::-1]


def dotted(trail: Trail, *more: str) -> str:
    """Writes nothing. `spec.containers[0].image`."""
    text = ""
    for step in [*steps(trail), *more]:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def at(node: Node | None, *path: str) -> Node | None:
    """Writes nothing. What stands at the path of keys, None where there is no such key."""
    for key in path:
        node = node.items.get(key) if type(node) is Map else None
    return node


def word(node: Node | None, *path: str) -> str:
    """Writes nothing. The text at the path; "" for null, for what is no text and for nothing."""
    node = at(node, *path)
    return "" if type(node) is not Text or node.null else node.text


def line(node: Node | None, otherwise: int) -> int:
    """Writes nothing. The line of a node, or another one where there is no node."""
    return otherwise if node is None else node.line


def typed(text: Text) -> bool:
    """Writes nothing. Whether a scalar, for want of quotes, is a number, a boolean or a date to Helm and kubectl."""
    return text.plain and _TYPED.fullmatch(text.text) is not None
