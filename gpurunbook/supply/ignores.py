"""`.trivyignore.yaml`: vulnerabilities that Trivy leaves out of its report, each of which must be dated and stated."""

from __future__ import annotations

from dataclasses import dataclass

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding
from gpurunbook.supply import strictyaml, times
from gpurunbook.supply.evidence import failing
from gpurunbook.supply.shape import Shape

LIMIT = 1 << 20

_SECTIONS = ("vulnerabilities", "misconfigurations", "secrets", "licenses")


@dataclass(frozen=True)
class Ignored:
    """One entry. until: nanoseconds since 1970 at 00:00 UTC of the day, None without a date."""

    id: str
    statement: str
    until: int | None
    paths: tuple[str, ...]
    purls: tuple[str, ...]
    line: int


def read_ignores(data: bytes) -> tuple[Ignored, ...]:
    """Writes nothing. The entries of all sections. Raises InputError (`unreadable`) with the line."""
    try:
        return _entries(data)
    except InputError as wrong:
        raise InputError(wrong.message, subject=wrong.subject, code="unreadable") from None


def _entries(data: bytes) -> tuple[Ignored, ...]:
    node = strictyaml.document(data, limit=LIMIT)
    if not isinstance(node, strictyaml.Map):
        raise strictyaml.fault("type", node.line, f"not a mapping with {', '.join(_SECTIONS)}")
    shape = Shape()
    top = shape.fields(node, _SECTIONS, "the file")
    found: list[Ignored] = []
    for section in _SECTIONS:
        for item in shape.items(top.get(section), section):
            at = f"{section}, line {item.line}"
            entry = shape.fields(item, ("id", "paths", "purls", "expired_at", "statement"), at)
            made = Ignored(
                id=shape.text(entry.get("id"), f"{at}: id"),
                statement=shape.text(entry.get("statement"), f"{at}: statement").strip(),
                until=_midnight(shape.text(entry.get("expired_at"), f"{at}: expired_at"), item.line),
                paths=tuple(shape.texts(entry.get("paths"), f"{at}: paths")),
                purls=tuple(shape.texts(entry.get("purls"), f"{at}: purls")),
                line=item.line,
            )
            if not made.id.strip():
                raise strictyaml.fault("type", item.line, "an entry without an id")
            found.append(made)
    shape.done()
    return tuple(found)


def _midnight(text: str, line: int) -> int | None:
    if not text:
        return None
    day = times.days(text)
    moment = day * times.DAY if day is not None else times.instant(text)
    if moment is None:
        raise strictyaml.fault("type", line, f"expired_at {text!r} is not YYYY-MM-DD")
    return moment // times.DAY * times.DAY


def judge_ignores(entries: tuple[Ignored, ...], now: int) -> list[Finding]:
    """Writes nothing. What keeps each entry from being honoured. now: nanoseconds since 1970."""
    found: list[Finding] = []
    for entry in entries:
        where = f"{entry.id} (line {entry.line})"
        if entry.until is None:
            found.append(failing("exception-undated", where, "no expired_at: it would hold for ever", "Date it."))
        elif entry.until <= now:
            message = "expired_at counts from 00:00 UTC of that day, which is past"
            found.append(
                failing("exception-expired", where, message, "Fix the finding, or have the exception renewed.")
            )
        if not entry.statement:
            found.append(failing("exception-unstated", where, "no statement", "Say why, and under which exception id."))
    return found
