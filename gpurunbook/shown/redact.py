"""Taking secrets out of what is shown: those of a known shape (`gpurunbook.leaks`), and what stands under their names.

A redacted secret keeps its kind, its length and a fingerprint, so that two places can be compared.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from gpurunbook.leaks import SHAPES, fingerprint, matches, secrets, wrapped

Value = TypeVar("Value")

_KEYED = re.compile(
    r"client-key-data|(?:id-|access-|refresh-|identity|registry)?token|password|passwd|auth|authorization|"
    r"(?:aws_)?secret_access_key|\.dockerconfigjson|\.dockercfg",
    re.IGNORECASE,
)


def redact(value: Value) -> Value:
    """Writes nothing. The same text or JSON tree with every secret replaced by its kind, length and fingerprint.

    Keys stay. In a tree also what stands under a key such as `password` goes, and all data of a Secret object.
    """
    made: Value = _redacted(value, False)
    return made


def _redacted(value: Any, secret: bool) -> Any:
    if isinstance(value, str):
        return _placeholder("secret", value) if secret and value and not _is_placeholder(value) else _clean(value)
    if isinstance(value, dict):
        sealed = value.get("kind") == "Secret"
        return {
            _clean(key) if isinstance(key, str) else key: _redacted(item, secret or _hides(key, item, sealed))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_redacted(item, secret) for item in value)
    return value


def _hides(key: Any, item: Any, sealed: bool) -> bool:
    if sealed and key in {"data", "stringData"}:
        return True
    return isinstance(item, str) and len(item) >= 6 and isinstance(key, str) and bool(_KEYED.fullmatch(key))


def _clean(text: str) -> str:
    if next(secrets(text), None) is None:
        return text
    spans: list[tuple[int, int, str]] = []
    for shape in SHAPES:
        for match in matches(shape, text):
            spans.append((*match.span("secret"), shape.kind))
    spans += wrapped(text)
    for start, end, kind in sorted(spans, key=lambda span: (-span[0], -span[1])):
        if end <= len(text) and not _is_placeholder(text[start:end]):
            text = text[:start] + _placeholder(kind, text[start:end]) + text[end:]
    # A secret that only shows after unescaping has no place of its own: the whole text goes.
    hidden = next(secrets(text), None)
    return _placeholder(hidden[1], text) if hidden else text


def _placeholder(kind: str, secret: str) -> str:
    return f"[redacted {kind}, {len(secret)} characters, sha256 {fingerprint(secret)}]"


def _is_placeholder(text: str) -> bool:
    return bool(re.match(r"\[redacted [a-z-]+, [0-9]+ characters, sha256 [0-9a-f]{8}\]", text))
