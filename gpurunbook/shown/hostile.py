"""Text from the cluster, made harmless to look at: names of pods and images, guest output, annotations."""

from __future__ import annotations

import html
import re
from functools import lru_cache

LIMIT = 300
"""Characters of one table cell."""

_PLAIN = re.compile(r"[ -~]*")

_CODE = re.compile(r"`([^`\n]+)`")

# Printable by category, yet drawn as nothing or as a blank (Unicode: Default_Ignorable_Code_Point, fillers, U+2800).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def harmless(text: object, limit: int = LIMIT, *, lines: bool = False) -> str:
    """Writes nothing. The text on one line, with everything that a terminal or a browser would obey as escapes.

    Control characters (ANSI escapes among them), bidirectional overrides, zero-width and other invisible
    characters and lone surrogates become `\\x1b`, `\\u202e`, …; line ends stay when `lines` is true. What is
    longer than `limit` characters is cut, and the length is noted. HTML is left as it is: see `escaped`.
    """
    whole = text if isinstance(text, str) else str(text)
    shown = whole[:limit]
    if not _PLAIN.fullmatch(shown):
        kept = shown.split("\n") if lines else [shown]
        shown = "\n".join("".join(map(_drawn, line)) for line in kept)
    return shown if len(whole) <= limit else f"{shown}… ({len(whole)} characters)"


def escaped(text: object, limit: int = LIMIT, *, lines: bool = False) -> str:
    """Writes nothing. `harmless`, and safe between HTML tags and inside a quoted attribute."""
    return html.escape(harmless(text, limit, lines=lines), quote=True)


def coded(text: object, limit: int = LIMIT, *, lines: bool = False) -> str:
    """Writes nothing. `escaped`, and what stands between backticks on one line as code."""
    return _CODE.sub(r"<code>\1</code>", escaped(text, limit, lines=lines))


@lru_cache(maxsize=1 << 14)
def _drawn(char: str) -> str:
    if char.isprintable() and not _INVISIBLE.match(char):
        return char
    return char.encode("unicode_escape").decode("ascii")
