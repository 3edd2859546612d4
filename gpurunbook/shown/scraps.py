"""Named data in the notebook's outputs, in the format that `scrapbook.read_notebook` reads.

Our own writer, because importing scrapbook in a kernel costs 3 to 5 seconds, and because one NaN makes the whole
notebook unreadable for scrapbook.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.shown.mime import SCRAP_BUDGET, put

MIME = "application/scrapbook.scrap.json+json"
CLOSING = "gpurunbook.close"
"""The scrap with the verdict: written anew at every close, the last one counts."""

_DEPTH = 30

TOO_LARGE = "scrap-too-large"
"""Code of the InputError for what does not fit."""

_written: set[str] = set()


def scrap(name: str, data: Any, *, replace: bool = False) -> None:
    """Displays one scrap in the cell.

    data: as `normalise` takes it. A name is written once per kernel unless `replace` is true (a step that was run
    again) or it is the closing scrap: of two scraps scrapbook silently keeps the last. Raises InputError when the
    name is taken, the data cannot be kept as it is, or it is larger than 16 KB.
    """
    made = payload(name, data)
    if name in _written and not replace and name != CLOSING:
        raise InputError(
            "a scrap of this name was written already", subject=repr(name), remedy="Give each scrap its own name."
        )
    put({MIME: made}, {"scrapbook": {"name": name, "data": True, "display": False}})
    _written.add(name)


def payload(name: str, data: Any) -> dict[str, Any]:
    """Writes nothing. What scrapbook keeps for one name. Raises InputError as `scrap` does."""
    clean = normalise(data, name)
    bytes_ = len(json.dumps(clean, ensure_ascii=False, indent=1, allow_nan=False).encode())
    if bytes_ > SCRAP_BUDGET:
        raise InputError(
            f"is {bytes_} bytes, at most {SCRAP_BUDGET} are kept in a notebook",
            subject=f"scrap {name!r}",
            remedy="Put the data into a file of the run and keep its digest here.",
            code=TOO_LARGE,
        )
    return {"name": name, "data": clean, "encoder": "json", "version": 1}


def normalise(data: Any, where: str = "data") -> Any:
    """Writes nothing. The data as plain JSON values with sorted keys.

    NaN becomes null; subclasses (StrEnum, say) become plain text or numbers; aware datetimes RFC 3339 in UTC; sets
    sorted lists; tuples lists; numpy scalars numbers; lone surrogates escapes. Raises InputError for what would be
    lost without a word: infinities, keys that are not text, naive datetimes, bytes, and every other type.
    """
    return _plain(data, where, 0)


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > _DEPTH:
        raise _refused(where, f"is nested deeper than {_DEPTH} levels")
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, Enum):
        value = value.value
    match value:
        case None | True | False:
            return value
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case int():
            return int(value)
        case float():
            if math.isinf(value):
                raise _refused(where, "is infinite, which JSON cannot hold")
            return None if math.isnan(value) else float(value)
        case datetime():
            return _moment(value, where)
        case date():
            return value.isoformat()
        case Mapping():
            return _mapping(value, where, depth)
        case Set():
            items = [_plain(item, f"{where}[]", depth + 1) for item in value]
            return sorted(items, key=lambda item: (type(item).__name__, json.dumps(item, sort_keys=True)))
        case bytes() | bytearray() | memoryview():
            raise _refused(where, "is bytes")
        case Sequence():
            return [_plain(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
    raise _refused(where, f"is of type {type(value).__name__}")


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
    made = {}
    for key in value:
        if not isinstance(key, str):
            raise _refused(where, f"has the key {key!r:.60} of type {type(key).__name__}, wanted text")
        clean = _plain(key, where, depth)
        if clean in made:
            raise _refused(where, f"has two keys that become {clean!r:.60}")
        made[clean] = _plain(value[key], f"{where}.{clean:.60}", depth + 1)
    return dict(sorted(made.items()))


def _moment(value: datetime, where: str) -> str:
    if value.tzinfo is None:
        raise _refused(where, "is a time without a zone")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _refused(where: str, why: str) -> InputError:
    return InputError(why, subject=f"scrap {where}", remedy="Scraps hold text, numbers, true, false, null, lists.")
