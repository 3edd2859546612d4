"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpurunbook.embedded.status import bad_request

Match = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"(!?)\s*([^\s=!(),<>]+)\s*(?:(in|notin)\s*\(([^()]*)\)|(==|=|!=|>|<)\s*([^\s,()]*))?\s*")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _split(text: str) -> list[str]:
    """Requirements between the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _label(text: str) -> Match:
    found = _SET.fullmatch(text.strip())
    if not found:
        raise bad_request(f"unable to parse requirement: found '{text.strip()}'")
    negated, key, word, listed, sign, value = found.groups()
    if negated and (word or sign):
        raise bad_request(f"unable to parse requirement: found '{text.strip()}'")
    if word:
        values = frozenset(item.strip() for item in listed.split(","))
    else:
        values = frozenset([value or ""])
    for item in values if word or sign else ():
        if not _VALUE.fullmatch(item):
            raise bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{item}"')
    if word == "in" or sign in ("=", "=="):
        return lambda labels: labels.get(key) in values
    if word == "notin" or sign == "!=":  # an object without the key matches, as upstream
        return lambda labels: labels.get(key) not in values
    if sign in (">", "<"):
        return _compare(key, sign, value)
    if negated:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _compare(key: str, sign: str, value: str) -> Match:
    if not re.fullmatch(r"-?[0-9]+", value):
        raise bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}"')
    bound = int(value)

    def matches(labels: Mapping[str, str]) -> bool:
        seen = labels.get(key, "")
        if not re.fullmatch(r"-?[0-9]+", seen):
            return False
        return int(seen) > bound if sign == ">" else int(seen) < bound

    return matches


def labels(text: str) -> Match | None:
    """A predicate over labels; None for the empty selector, which matches everything."""
    if not text.strip():
        return None
    tests = [_label(part) for part in _split(text)]
    return lambda found: all(test(found) for test in tests)


def requirement(selector: Mapping[str, object]) -> Match:
    """A predicate for a LabelSelector object; an empty one matches everything."""
    equal = selector.get("matchLabels") or {}
    parts = [f"{key}={value}" for key, value in equal.items()] if isinstance(equal, Mapping) else []
    expressions = selector.get("matchExpressions") or ()
    for item in expressions if isinstance(expressions, list) else ():
        operator, key = item["operator"], item["key"]
        if operator in ("In", "NotIn"):
            parts.append(f"{key} {operator.lower()} ({','.join(item.get('values') or ())})")
        else:
            parts.append(key if operator == "Exists" else f"!{key}")
    return labels(",".join(parts)) or (lambda _: True)


def fields(text: str, supported: frozenset[str]) -> tuple[Match | None, dict[str, str]]:
    """A predicate over selectable fields, and what it demands by equality. 400 for a field outside `supported`."""
    equal: dict[str, str] = {}
    tests: list[tuple[str, bool, str]] = []
    for part in text.split(",") if text.strip() else ():
        found = re.fullmatch(r"\s*([^\s=!,]+)\s*(==|=|!=)\s*([^,]*?)\s*", part)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        key, sign, value = found.groups()
        if key not in supported:
            raise bad_request(f"field label not supported: {key}")
        tests.append((key, sign != "!=", value))
        if sign != "!=":
            equal[key] = value
    if not tests:
        return None, {}
    return lambda seen: all((seen.get(key, "") == value) is same for key, same, value in tests), equal
