"""Members of a JSON object by their type. Absent and null are nothing; another type makes the file unreadable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpurunbook.errors import InputError


def _wrong(name: str, wanted: str) -> InputError:
    return InputError(f"{name} is not {wanted}", code="unreadable")


def whole(document: Any) -> dict[str, Any]:
    """Writes nothing. The document, which must be an object."""
    if not isinstance(document, dict):
        raise _wrong("the top level", "an object")
    return document


def member(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Writes nothing. A member that is an object."""
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(name, "an object")
    return value


def items(holder: Mapping[str, Any], name: str) -> list[Any]:
    """Writes nothing. A member that is a list."""
    value = holder.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(name, "a list")
    return value


def objects(holder: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Writes nothing. A member that is a list of objects."""
    value = items(holder, name)
    if not all(isinstance(item, dict) for item in value):
        raise _wrong(name, "a list of objects")
    return value


def text(holder: Mapping[str, Any], name: str) -> str:
    """Writes nothing. A member that is text."""
    value = holder.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(name, "text")
    return value


def texts(holder: Mapping[str, Any], name: str) -> list[str]:
    """Writes nothing. A member that is a list of text."""
    value = items(holder, name)
    if not all(isinstance(item, str) for item in value):
        raise _wrong(name, "a list of text")
    return value


def flag(holder: Mapping[str, Any], name: str) -> bool:
    """Writes nothing. A member that is true or false."""
    value = holder.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def at(holder: Any, *path: str) -> Any:
    """Writes nothing. What stands at the path, of any type; None where a step has no such member."""
    for name in path:
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    return holder
