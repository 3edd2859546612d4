"""HTML of a notebook's outputs made safe to show: an allow-list, written anew.

Everything that comes out was written by this module: tags and attributes from the lists below, text escaped, and as
many end tags as start tags, so that nothing reaches beyond its box, however the input is read. What is not plainly a
tag is text. bleach does the same, but takes 0.22 s for one cell of 64 KB where a whole notebook has 0.4 s;
html.parser takes minutes for 64 KB of `<a ` and raises AssertionError for `<![` (python/cpython#135462).
"""

from __future__ import annotations

import re
from html import escape, unescape

from gpurunbook.shown.hostile import harmless

_TAGS = frozenset(
    (
        *("a", "b", "blockquote", "br", "caption", "code", "dd", "del", "details", "div", "dl", "dt", "em", "h1", "h2"),
        *("h3", "h4", "h5", "h6", "hr", "i", "li", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "summary"),
        *("sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul"),
    )
)
_VOID = frozenset({"br", "hr"})
# Dropped with all that they hold: what is not text in them, or is drawn in another way.
_DROPPED = frozenset(
    (
        *("applet", "audio", "canvas", "embed", "form", "frame", "frameset", "head", "iframe", "link", "math", "meta"),
        *("noembed", "noframes", "noscript", "object", "option", "plaintext", "script", "select", "style", "svg"),
        *("template", "textarea", "title", "video", "xmp"),
    )
)
_ALONE = frozenset({"embed", "frame", "link", "meta"})  # of the dropped, those that hold nothing
_NESTING = frozenset({"applet", "audio", "canvas", "form", "math", "noscript", "object", "select", "svg", "template"})
_DEPTH = 60

# Possessive, so that no text takes more than a few looks at each character.
_NAME = r"[A-Za-z_:@][A-Za-z0-9_:.@-]{0,80}+"
_GIVEN = r"""(?:"[^"]{0,4000}+"|'[^']{0,4000}+'|[^\s"'<>=`]{1,4000}+)"""
_TAG = re.compile(rf"<(/?)([A-Za-z][A-Za-z0-9-]{{0,30}}+)((?:\s++{_NAME}(?:\s*+=\s*+{_GIVEN})?)*+)\s*+(/?)>")
_ATTRIBUTE = re.compile(rf"\s++({_NAME})(?:\s*+=\s*+({_GIVEN}))?")

_CLASS = re.compile(r"rb-[a-z0-9-]{1,80}")
_LINK = re.compile(
    r"https?://[!-~]{1,1000}|#[A-Za-z0-9._:-]{1,200}|[A-Za-z0-9_-][A-Za-z0-9_./-]{0,200}(?:#[A-Za-z0-9._-]+)?"
)
_SPAN = re.compile(r"[1-9][0-9]{0,2}")
# No position, margin, transform or animation: nothing may be laid over the banner. No url().
_PROPERTY = re.compile(
    r"background(?:-color)?|border(?:-(?:left|right|top|bottom|collapse|radius))?|caption-side|color|display|"
    r"flex|font-(?:family|size|style|weight)|height|(?:max-|min-)?width|padding(?:-(?:left|right|top|bottom))?|"
    r"text-align|vertical-align|white-space"
)
_VALUE = re.compile(
    r"(?:[a-z][a-z-]{0,30}|#[0-9a-fA-F]{3,8}|[0-9]{1,4}(?:\.[0-9]{1,4})?(?:px|em|ch|pt|%)?|rgba?\([0-9., %]{1,40}\))"
    r"(?:,? (?:[a-z][a-z-]{0,30}|#[0-9a-fA-F]{3,8}|[0-9]{1,4}(?:\.[0-9]{1,4})?(?:px|em|ch|pt|%)?)){0,5}"
)


def clean(html: str) -> str:
    """Writes nothing. The harmless part of a piece of HTML; what is not allowed goes, the text in it mostly stays."""
    cleaner = _Cleaner()
    at = 0
    while (start := html.find("<", at)) >= 0:
        cleaner.text(html[at:start])
        if html.startswith("<!--", start):
            end = html.find("-->", start + 4)
            at = end + 3 if end >= 0 else len(html)
        elif match := _TAG.match(html, start):
            cleaner.tag(match)
            at = match.end()
        else:
            cleaner.text("<")
            at = start + 1
    cleaner.text(html[at:])
    return cleaner.finished()


class _Cleaner:
    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[str] = []
        self._dropping = ""
        self._nested = 0

    def text(self, text: str) -> None:
        if text and not self._dropping:
            # Text can reorder what is read even when it is escaped: bidirectional overrides, invisible characters.
            plain = unescape(text).replace("\t", "    ").replace("\r", "")
            self._parts.append(escape(harmless(plain, len(plain), lines=True), quote=False))

    def tag(self, match: re.Match[str]) -> None:
        name = match[2].lower()
        if self._dropping:
            if name == self._dropping:
                self._nested += -1 if match[1] else int(name in _NESTING and not match[4])
                self._dropping = name if self._nested else ""
        elif match[1]:
            self._end(name)
        elif name in _DROPPED:
            if name not in _ALONE and not match[4]:
                self._dropping, self._nested = name, 1
        elif name in _TAGS and len(self._open) < _DEPTH:
            given = ((m[1].lower(), unescape((m[2] or "").strip("\"'"))) for m in _ATTRIBUTE.finditer(match[3]))
            self._parts.append(f"<{name}{''.join(_attribute(name, *pair) for pair in given)}>")
            if name not in _VOID:
                self._open.append(name)
                if match[4]:
                    self._end(name)

    def _end(self, name: str) -> None:
        while name in self._open:
            last = self._open.pop()
            self._parts.append(f"</{last}>")
            if last == name:
                break

    def finished(self) -> str:
        """Writes nothing. What was kept, with every open tag ended."""
        return "".join([*self._parts, *(f"</{tag}>" for tag in reversed(self._open))])


def _attribute(tag: str, name: str, value: str) -> str:
    if name == "class":
        value = " ".join(word for word in value.split() if _CLASS.fullmatch(word))
    elif name == "style":
        value = _style(value)
    elif name in {"colspan", "rowspan"}:
        value = value if _SPAN.fullmatch(value) else ""
    elif name == "href" and tag == "a":
        value = value if _LINK.fullmatch(value) else ""
    elif name == "open" and tag == "details":
        return " open"
    elif name != "title":
        return ""
    return f' {name}="{escape(value, quote=True)}"' if value else ""


def _style(value: str) -> str:
    kept = []
    for declaration in value.split(";")[:30]:
        name, _, given = declaration.partition(":")
        name, given = name.strip().lower(), given.strip()
        if _PROPERTY.fullmatch(name) and _VALUE.fullmatch(given) and given != "none":
            kept.append(f"{name}:{given}")
    return ";".join(kept)
