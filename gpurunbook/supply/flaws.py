"""What is against a manifest, at a line of it."""

from __future__ import annotations

from dataclasses import dataclass

from gpurunbook.supply.strictyaml import Text
from gpurunbook.supply.tree import VARIABLE, typed


@dataclass(frozen=True, order=True)
class Flaw:
    """One flaw. line: in its document, from 1; field: the path of keys; code: in docs/codes.md.

    layer: of several layers of values, the one of `line`; -1 is the document that puts them together.
    """

    line: int
    field: str
    code: str
    message: str
    remedy: str
    layer: int = -1


def not_final(value: Text, field: str) -> Flaw | None:
    """Writes nothing. A text that is not what will be used: a variable stands in it, or YAML reads it as a number."""
    text = value.text
    if text.startswith("ENC["):
        message = "it is encrypted, so nobody can review it"
        return Flaw(value.line, field, "encrypted-setting", message, "Keep it in the open; it is no secret.")
    if VARIABLE.search(text):
        message = f"{text!r} is not the value: a part of it is still replaced"
        remedy = "Review what is rendered, with the variable replaced."
        return Flaw(value.line, field, "unresolved-variable", message, remedy)
    if typed(value):
        message = f"{text!r} without quotes is a number, a boolean or a date to Helm and kubectl, not this text"
        return Flaw(value.line, field, "yaml-trap", message, "Put it in quotes.")
    return None
