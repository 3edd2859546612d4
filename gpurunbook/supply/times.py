"""Points in time and durations as evidence files write them, in whole nanoseconds."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE = 146_097
"""Days in 400 years. Shifting by it keeps year 0000 and far years inside what `date` can hold."""

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": SECOND, "m": MINUTE, "h": HOUR}
_NUMBER, _UNIT = r"[0-9]+\.?[0-9]*|\.[0-9]+", "|".join(_UNITS)
_PART = re.compile(f"({_NUMBER})({_UNIT})")
_DURATION = re.compile(f"([+-]?)(0|(?:(?:{_NUMBER})(?:{_UNIT}))+)")
_INT64 = 1 << 63
_FIRST = (date.min.toordinal() - _EPOCH) * 86_400
_LAST = (date.max.toordinal() + 1 - _EPOCH) * 86_400 - 1
"""The seconds that `datetime` can hold, since 1970."""
_LONGEST = 200
"""Characters of a duration; Python refuses to convert numbers of thousands of digits."""


def days(text: str) -> int | None:
    """Writes nothing. `YYYY-MM-DD` as days since 1970-01-01, None for anything else."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:])
    try:
        return date(year % 400 + 400, month, day).toordinal() + (year // 400 - 1) * _CYCLE - _EPOCH
    except ValueError:
        return None


def instant(text: str) -> int | None:
    """Writes nothing. RFC 3339 with an upper-case `T` and a zone, as nanoseconds since 1970-01-01T00:00:00Z.

    None for anything else: a date alone, a blank for the `T`, no zone, lower case, a leap second. Digits
    beyond nanoseconds are cut off, as Go cuts them.
    """
    found = _RFC3339.fullmatch(text)
    if found is None:
        return None
    day = days(text[:10])
    hour, minute, second = (int(found[n]) for n in (4, 5, 6))
    zone_hours, zone_minutes = int(found[9] or 0), int(found[10] or 0)
    if day is None or hour > 23 or minute > 59 or second > 59 or zone_hours > 23 or zone_minutes > 59:
        return None
    offset = (zone_hours * 60 + zone_minutes) * (-1 if found[8] == "-" else 1)
    seconds = day * 86_400 + hour * 3_600 + (minute - offset) * 60 + second
    return seconds * SECOND + int((found[7] or "0")[:9].ljust(9, "0"))


def spelled(moment: int) -> str:
    """Writes nothing. Nanoseconds since 1970 as RFC 3339 in UTC, whole seconds.

    What is before the year 1 or after 9999 is spelled as the first or the last second of these.
    """
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=max(_FIRST, min(moment // SECOND, _LAST)))
    return at.isoformat().replace("+00:00", "Z")


def nanoseconds(moment: datetime) -> int:
    """Writes nothing. An aware datetime as nanoseconds since 1970-01-01T00:00:00Z."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000


def duration(text: str) -> int | None:
    """Writes nothing. A duration as Go writes it (`48h`, `1h30m`, `-1.5s`, `0`), in nanoseconds; None if it is none.

    Units ns, us, µs, ms, s, m, h. A number without a unit is refused, except `0`; so is what does not fit
    into 64 bits.
    """
    found = _DURATION.fullmatch(text)
    if found is None or len(text) > _LONGEST:
        return None
    total = sum(int(Fraction(number.rstrip(".")) * _UNITS[unit]) for number, unit in _PART.findall(found[2]))
    if total >= _INT64:
        return None
    return -total if found[1] == "-" else total
