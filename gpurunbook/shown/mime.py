"""MIME bundles: their size in a saved notebook, the budget of a cell, and the way into the cell."""

from __future__ import annotations

import json
import secrets
from typing import Any

from gpurunbook.shown.hostile import escaped, harmless

Bundle = dict[str, Any]

CELL_BUDGET = 64 * 1024
"""Bytes of all outputs of one cell in the saved notebook: larger ones make browsers slow (jupyter/notebook#3572)."""

VIEW_BUDGET = 32 * 1024
"""What the tables and figures of one cell may take of it."""

SCRAP_BUDGET = 16 * 1024
"""What the scraps of one cell may take of it."""

CARD_BUDGET = 8 * 1024
"""What a card or banner may take of it; a line of state and an error output take the rest."""


def size(data: Bundle) -> int:
    """Writes nothing. Bytes that a bundle takes in a saved notebook, where each line of a text is a line of its own."""
    lines = {mime: value.splitlines(keepends=True) if isinstance(value, str) else value for mime, value in data.items()}
    return len(json.dumps(lines, ensure_ascii=False, indent=4).encode())


def _verbatim(data: Bundle) -> Bundle:
    """The bundle with its HTML shown as it stands.

    JupyterLab typesets `$…$` in the HTML of outputs: `${run}` becomes a formula, and a formula can hide text. MathJax 3
    leaves out what has the class mathjax_ignore (its FindTeX options), MathJax 2 what has tex2jax_ignore.
    """
    html = data.get("text/html")
    return data if html is None else {**data, "text/html": f'<div class="tex2jax_ignore mathjax_ignore">{html}</div>'}


def line(text: str, previous: str = "") -> str:
    """Displays one line of text, in place of the previous one where its id is given. The id of the line."""
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    data = {"text/plain": harmless(text, 600), "text/html": f'<div class="rb-line">{escaped(text, 600)}</div>'}
    if get_ipython() is None:
        return previous
    named = previous or f"rb-line-{secrets.token_hex(4)}"
    display(_verbatim(data), raw=True, display_id=named, update=bool(previous))
    return named


def put(data: Bundle, metadata: dict[str, Any] | None = None) -> None:
    """Displays one MIME bundle in the cell; outside a kernel its text is printed."""
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    if get_ipython() is not None:
        display(_verbatim(data), raw=True, metadata=metadata or {})
    elif "text/plain" in data:
        print(data["text/plain"])
