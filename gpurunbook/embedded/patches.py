"""JSON patch, merge patch and strategic merge patch, as an API server applies them.

JSON patch follows the library that the API server uses (evanphx/json-patch v4), which is laxer than RFC 6902:
`replace` adds a missing key of an object, and `test` for null passes on a missing key.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from gpurunbook.embedded.status import Obj, bad_request, not_implemented, unprocessable


class _DoesNotApply(Exception):
    """An operation that does not fit the document."""


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and bool(left == right)


def _parts(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise _DoesNotApply
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _index(key: str, size: int) -> int:
    if not re.fullmatch(r"-?[0-9]+", key):
        raise _DoesNotApply
    at = int(key) + (size if key.startswith("-") else 0)
    if not 0 <= at < size:
        raise _DoesNotApply
    return at


def _get(where: Any, key: str) -> Any:
    if isinstance(where, dict):
        return where.get(key)
    if isinstance(where, list):
        return where[_index(key, len(where))]
    raise _DoesNotApply


def _parent(doc: Any, parts: list[str]) -> Any:
    if not parts:
        raise _DoesNotApply
    for part in parts[:-1]:
        doc = _get(doc, part)
    if not isinstance(doc, dict | list):
        raise _DoesNotApply
    return doc


def _add(doc: Any, parts: list[str], value: Any) -> None:
    where, key = _parent(doc, parts), parts[-1]
    if isinstance(where, dict):
        where[key] = value
    elif key == "-":
        where.append(value)
    else:
        where.insert(_index(key, len(where) + 1), value)


def _remove(doc: Any, parts: list[str]) -> Any:
    where, key = _parent(doc, parts), parts[-1]
    if isinstance(where, list):
        return where.pop(_index(key, len(where)))
    if key not in where:
        raise _DoesNotApply
    return where.pop(key)


def _operate(doc: Any, operation: Obj) -> Any:
    kind, parts = operation.get("op"), _parts(operation.get("path"))
    value = copy.deepcopy(operation.get("value"))
    if kind in ("add", "replace") and not parts:
        return value
    if kind == "add":
        _add(doc, parts, value)
    elif kind == "remove":
        _remove(doc, parts)
    elif kind == "replace":
        where = _parent(doc, parts)
        where[_index(parts[-1], len(where)) if isinstance(where, list) else parts[-1]] = value
    elif kind == "test":
        if not same(_get(_parent(doc, parts), parts[-1]) if parts else doc, value):
            raise _DoesNotApply
    elif kind in ("copy", "move"):
        source = _parts(operation.get("from"))
        moved = _remove(doc, source) if kind == "move" else copy.deepcopy(_get(_parent(doc, source), source[-1]))
        _add(doc, parts, moved)
    else:
        raise _DoesNotApply
    return doc


def json_patch(obj: Obj, operations: Any) -> Obj:
    """A new object. 422 for an operation that does not apply or a test that fails; 400 for what is no patch."""
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    doc: Any = copy.deepcopy(obj)
    try:
        for operation in operations:
            doc = _operate(doc, operation)
    except _DoesNotApply:
        raise unprocessable() from None
    if not isinstance(doc, dict):
        raise unprocessable()
    return doc


def merge(obj: Any, patch: Any) -> Any:
    """A merge patch (RFC 7386) applied; a new object."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


# the merge keys of the core types, by field name; None merges a list of plain values
_MERGE_KEYS: dict[str, str | None] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "finalizers": None,
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def _merge_key(field: str, items: list[Any]) -> tuple[bool, str | None]:
    """Whether the list is merged, and by which key. Ports of a Service and of a container differ in theirs."""
    if field == "ports":
        service = any(isinstance(item, dict) and "containerPort" not in item for item in items)
        return True, "port" if service else "containerPort"
    if field == "claims" or field not in _MERGE_KEYS:
        return False, None
    return True, _MERGE_KEYS[field]


def strategic(obj: Any, patch: Any) -> Any:
    """A strategic merge patch of a built-in kind applied; a new object."""
    if not isinstance(patch, dict) or not isinstance(obj, dict):
        return copy.deepcopy(_plain(patch))
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(obj)
    for key, value in patch.items():
        if key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$"):
            raise not_implemented(f"the strategic merge directive {key}")
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key), value)
        else:
            merged[key] = strategic(merged.get(key), value)
    return merged


def _plain(value: Any) -> Any:
    """A patch that meets nothing, without its nulls and directives."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None and not key.startswith("$")}
    return value


def _merge_list(field: str, current: Any, patch: list[Any]) -> list[Any]:
    replace = [item for item in patch if isinstance(item, dict) and item.get("$patch") == "replace"]
    merged_by_key, key = _merge_key(field, patch)
    if replace or not merged_by_key or not isinstance(current, list):
        return [_plain(item) for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    result = list(current)
    if key is None:
        return result + [item for item in patch if item not in result]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, old in enumerate(result) if isinstance(old, dict) and same(old.get(key), item[key])), None)
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif at is None:
            result.append(_plain(item))
        else:
            result[at] = strategic(result[at], item)
    return result
