"""What Argo's workflows and Tekton's tasks put in by name, unless whoever starts one gives something else."""

from __future__ import annotations

import re

from gpurunbook.supply.strictyaml import Map, Text
from gpurunbook.supply.tree import walk, word

_GROUPS = ("argoproj.io/", "tekton.dev/")
_ASKED = re.compile(r"(?:\{\{|\$\()\s*(?:[a-z]+\.)?param(?:eter)?s\.([A-Za-z0-9_-]+)\s*(?:\}\}|\))")


def asked(doc: Map, text: str) -> str:
    """Writes nothing. The name of the parameter that a text is in such a document, "" for any other text."""
    found = _ASKED.fullmatch(text) if text[:1] in {"{", "$"} else None
    return found[1] if found and word(doc, "apiVersion").startswith(_GROUPS) else ""


def given(doc: Map) -> dict[str, list[Text]]:
    """Writes nothing. The values of parameters by their names; none that is a parameter itself."""
    found: dict[str, list[Text]] = {}
    for node, trail in walk(doc):
        if trail and trail[0] and trail[0][1] in {"parameters", "params"} and isinstance(node, Map):
            value = node.items.get("value", node.items.get("default"))
            if isinstance(value, Text) and not value.null and not _ASKED.fullmatch(value.text):
                found.setdefault(word(node, "name"), []).append(value)
    return found
