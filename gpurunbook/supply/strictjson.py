"""JSON that cannot be read in two ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gpurunbook.errors import InputError


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the key {twice!r} stands twice in one object", code="unreadable")
    return made


def _constant(word: str) -> Any:
    raise InputError(f"{word} is not JSON", code="unreadable")


def loads(data: bytes) -> Any:
    """Writes nothing. One JSON text in UTF-8.

    Raises InputError (`unreadable`) for anything else, for a key given twice in one object, and for NaN and
    Infinity, which the standard library accepts.
    """
    return _loads(data, _pairs)


def unambiguous(data: bytes) -> None:
    """Writes nothing. Raises InputError as `loads`; keeps no objects, so that a large file takes no memory."""
    _loads(data, _once)


def _once(pairs: list[tuple[str, Any]]) -> None:
    _pairs(pairs)


def _loads(data: bytes, hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=hook, parse_constant=_constant)
    except UnicodeDecodeError as wrong:
        raise InputError(f"not UTF-8 at byte {wrong.start}", code="unreadable") from None
    except json.JSONDecodeError as wrong:
        message = f"not JSON at line {wrong.lineno}, column {wrong.colno}: {wrong.msg}"
        raise InputError(message, code="unreadable") from None
    except RecursionError:
        raise InputError("JSON that is nested too deeply", code="unreadable") from None
    except InputError:
        raise
    except ValueError as wrong:  # an integer of more digits than Python converts
        raise InputError(f"not JSON that can be read: {wrong}", code="unreadable") from None


_Typed = TypeVar("_Typed")


def typed(value: Any, kind: type[_Typed]) -> _Typed:
    """Writes nothing. JSON that was read, as a type, exactly. Raises InputError (`unreadable`) for another shape."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as wrong:
        raise InputError(str(wrong), code="unreadable") from None
    except UnicodeEncodeError:  # msgspec's, where it looks into a text or a key
        raise InputError("a lone surrogate, which is no character", code="unreadable") from None
