"""How a status word looks: always the word and a symbol, colour only besides."""

from __future__ import annotations

import re

from gpurunbook.shown.hostile import escaped, harmless

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")
"""Okabe and Ito's colours, told apart with every common colour blindness."""

_GOOD, _CARE, _BAD, _OPEN, _PLAIN = (
    ("✓", "#00664b", "#ffffff"),
    ("!", "#f0e442", "#000000"),
    ("✗", "#a02c00", "#ffffff"),
    ("?", "#5b2a86", "#ffffff"),
    ("•", "#595959", "#ffffff"),
)
_LOOK = {
    **dict.fromkeys(("pass", "ok", "yes", "ready", "verified"), _GOOD),
    **dict.fromkeys(("planned", "warn", "pass_with_warning"), _CARE),
    **dict.fromkeys(("fail", "failed", "rejected", "blocked", "refused", "denied", "rehearsal"), _BAD),
    **dict.fromkeys(("unknown", "error", "unsealed"), _OPEN),
}


def colour(word: str) -> str:
    """Writes nothing. The dark or bright ground of a status word."""
    return _LOOK.get(word, _PLAIN)[1]


def plain(word: object) -> str:
    """Writes nothing. Symbol and word, for text."""
    return f"{_LOOK.get(str(word), _PLAIN)[0]} {harmless(str(word))}"


def badge(word: object, *, size: str = "") -> str:
    """Writes nothing. Symbol and word on their colour, as HTML that JupyterLab's sanitiser keeps."""
    symbol, ground, ink = _LOOK.get(str(word), _PLAIN)
    style = f"background-color:{ground};color:{ink};padding:1px 6px;white-space:nowrap"
    if size:
        style += f";font-size:{size};font-weight:bold"
    return f'<span class="rb-status" style="{style}">{symbol} <span class="rb-word">{escaped(str(word))}</span></span>'


def slug(name: str) -> str:
    """Writes nothing. A name as the tail of a CSS class: `Pod name` → `pod-name`."""
    return re.sub(r"[^a-z0-9]+", "-", name[:60].lower()).strip("-") or "unnamed"
