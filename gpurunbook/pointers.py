"""JSON pointers (RFC 6901) and placeholders in planned mutations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_INDEX = re.compile(r"0|[1-9][0-9]*")
_WORD = re.compile(r"\$\{([a-z_]+)\}")


def escape(key: str) -> str:
    """Writes nothing. A key as one token of a pointer: `nvidia.com/gpu` becomes `nvidia.com~1gpu`."""
    return key.replace("~", "~0").replace("/", "~1")


def at(value: Any, pointer: str) -> Any:
    """Writes nothing. What stands at the pointer, or None where nothing does."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def differences(value: Any, wanted: Mapping[str, Any]) -> list[str]:
    """Writes nothing. One line per pointer whose value is not the wanted one; in JSON, unlike Python, 1 is not true."""
    return [
        f"{pointer}: wanted {expected!r}, is {at(value, pointer)!r}"
        for pointer, expected in sorted(wanted.items())
        if _spelled(at(value, pointer)) != _spelled(expected)
    ]


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def fill(value: Any, words: Mapping[str, str]) -> Any:
    """Writes nothing. The value with each `${word}` in its strings replaced. Raises KeyError for an unknown word."""
    if isinstance(value, str):
        return _WORD.sub(lambda found: words[found[1]], value)
    if isinstance(value, Mapping):
        return {key: fill(item, words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, words) for item in value]
    return value
