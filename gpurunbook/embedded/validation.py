"""What an API server refuses in an object: a wrong shape, a bad value, a change of what may not change.

Built-in kinds are checked in the fields that runbooks write; custom resources by the schema of their definition.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gpurunbook.embedded.access import RBAC
from gpurunbook.embedded.patches import same
from gpurunbook.embedded.resources import Resource
from gpurunbook.embedded.status import Cause, Obj, forbidden_field, invalid_value, required, unsupported

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUALIFIED = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_ANNOTATION_BYTES = 256 * 1024
# what Go's decoder takes: lists of objects and of strings, maps of anything and of strings
_TYPES: dict[str, type[Any]] = {
    "bool": bool,
    "int32": int,
    "int64": int,
    "map": dict,
    "objects": list,
    "string": str,
    "strings": list,
    "texts": dict,
}
_COMMON = (
    "metadata map, metadata.name string, metadata.generateName string, metadata.namespace string, metadata.uid string, "
    "metadata.resourceVersion string, metadata.labels texts, metadata.annotations texts, metadata.finalizers strings, "
    "metadata.ownerReferences objects, spec map, status map"
)
_POD = (
    "nodeName string, containers objects, initContainers objects, tolerations objects, nodeSelector texts, "
    "terminationGracePeriodSeconds int64, hostPID bool, volumes objects"
)
_SHAPES = {
    "Node": "spec.unschedulable bool, spec.taints objects, spec.podCIDR string, spec.podCIDRs strings, "
    "spec.providerID string, status.conditions objects, status.capacity map",
    "Pod": ", ".join(f"spec.{entry}" for entry in _POD.split(", "))
    + ", status.phase string, status.conditions objects",
    "ConfigMap": "data texts",
    "Lease": "spec.holderIdentity string, spec.leaseDurationSeconds int32, spec.leaseTransitions int32, "
    "spec.acquireTime string, spec.renewTime string",
    "DaemonSet": "spec.selector map, spec.template map, spec.template.spec map, spec.updateStrategy map, "
    "spec.updateStrategy.type string",
    "PodDisruptionBudget": "spec.selector map, spec.selector.matchLabels texts, status.disruptedPods map, "
    "status.disruptionsAllowed int32",
    "CustomResourceDefinition": "spec.names map, spec.versions objects, spec.group string, spec.scope string",
    "ClusterRole": "rules objects",
    "Role": "rules objects",
    "RoleBinding": "subjects objects, roleRef map",
    "ClusterRoleBinding": "subjects objects, roleRef map",
}


def at(obj: Any, path: str) -> Any:
    """The value at a dotted path, or None."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _json_kind(value: Any) -> str:
    names = ((bool, "bool"), (int | float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in names if isinstance(value, kind)), "object")


def wrong_shape(resource: Resource, obj: Obj) -> str:
    """What Go's decoder says of the first field of a wrong type, or nothing."""
    own = "" if resource.custom else _SHAPES.get(resource.kind, "")
    for entry in f"{_COMMON}, {own}".rstrip(", ").split(", "):
        path, name = entry.split()
        value = at(obj, path)
        if value is None:
            continue
        items = {"objects": dict, "strings": str, "texts": str}.get(name)
        inner = (
            list(value.values() if isinstance(value, dict) else value) if items and type(value) is _TYPES[name] else []
        )
        wrong = [item for item in inner if items and not isinstance(item, items)]
        if type(value) is not _TYPES[name] or wrong:
            seen = _json_kind(wrong[0] if wrong else value)
            struct = "ObjectMeta" if path.startswith("metadata.") else resource.kind + ("Spec" if "." in path else "")
            return f"json: cannot unmarshal {seen} into Go struct field {struct}.{path} of type {name}"
    return ""


def _metadata(meta: Obj, group: str) -> list[Cause]:
    found: list[Cause] = []
    name = meta.get("name") or ""
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    elif len(name) > 253 or not (_NAME.fullmatch(name) or (group == RBAC and not set(name) & set("/%"))):
        text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        found.append(invalid_value("metadata.name", json.dumps(name), text))
    for key, value in (meta.get("labels") or {}).items():
        if not _QUALIFIED.fullmatch(key):
            text = "name part must consist of alphanumeric characters, '-', '_' or '.'"
            found.append(invalid_value("metadata.labels", json.dumps(key), text))
        if not _LABEL_VALUE.fullmatch(value):
            text = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
            found.append(invalid_value("metadata.labels", json.dumps(value), text))
    annotations = meta.get("annotations") or {}
    for key in annotations:
        if not _QUALIFIED.fullmatch(key.lower()):
            text = "name part must consist of alphanumeric characters, '-', '_' or '.'"
            found.append(invalid_value("metadata.annotations", json.dumps(key), text))
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > _ANNOTATION_BYTES:
        text = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        found.append(Cause("metadata.annotations", "FieldValueTooLong", text))
    return found


def _taints(taints: list[Obj]) -> list[Cause]:
    # the real server names them below metadata, not spec
    found: list[Cause] = []
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        path = f"metadata.taints[{i}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if not _QUALIFIED.fullmatch(key):
            found.append(invalid_value(f"{path}.key", json.dumps(key), "name part must be non-empty"))
        if not _LABEL_VALUE.fullmatch(taint.get("value", "")):
            text = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
            found.append(invalid_value(f"{path}.value", json.dumps(taint["value"]), text))
        if not effect:
            found.append(required(f"{path}.effect"))
        elif effect not in effects:
            found.append(unsupported(f"{path}.effect", json.dumps(effect), effects))
        if (key, effect) in seen:
            found.append(Cause(path, "FieldValueDuplicate", f"Duplicate value: {json.dumps(taint)}"))
        seen.add((key, effect))
    return found


def _lease(spec: Obj) -> list[Cause]:
    found = []
    for name, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(name)
        if value is not None and value < least:
            text = "must be greater than 0" if least else "must be greater than or equal to 0"
            found.append(invalid_value(f"spec.{name}", str(value), text))
    return found


def _pod(obj: Obj, old: Obj | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    if old is None:
        found = [] if spec.get("containers") else [required("spec.containers")]
        for field in ("initContainers", "containers"):
            for i, container in enumerate(spec.get(field) or ()):
                found += [
                    required(f"spec.{field}[{i}].{part}") for part in ("name", "image") if not container.get(part)
                ]
        return found

    def fixed(pod: Obj) -> Obj:
        kept = {key: value for key, value in pod["spec"].items() if key not in ("activeDeadlineSeconds", "tolerations")}
        for field in ("initContainers", "containers"):
            kept[field] = [{k: v for k, v in item.items() if k != "image"} for item in kept.get(field) or ()]
        return kept

    if same(fixed(obj), fixed(old)):
        return []
    may = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
    return [forbidden_field("spec", f"pod updates may not change fields other than {may}")]


def _frozen(resource: Resource, obj: Obj, old: Obj) -> list[Cause]:
    found: list[Cause] = []
    for path in ("metadata.uid", "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds"):
        if not same(at(obj, path), at(old, path)):
            found.append(invalid_value(path, json.dumps(at(obj, path)), "field is immutable"))
    new = [name for name in at(obj, "metadata.finalizers") or () if name not in (at(old, "metadata.finalizers") or ())]
    if new and at(old, "metadata.deletionTimestamp"):
        text = "no new finalizers can be added if the object is being deleted, found new finalizers "
        listed = ", ".join(json.dumps(name) for name in new)
        found.append(forbidden_field("metadata.finalizers", f"{text}[]string{{{listed}}}"))
    if resource.kind == "Node":
        for name in ("podCIDRs", "providerID"):
            before = at(old, f"spec.{name}")
            if before and not same(before, at(obj, f"spec.{name}")):
                text = 'node updates may not change {} except from "" to valid'.format(name.removesuffix("s"))
                found.append(forbidden_field(f"spec.{name}", text))
    if resource.group == "apps" and not same(at(obj, "spec.selector"), at(old, "spec.selector")):
        found.append(invalid_value("spec.selector", json.dumps(at(obj, "spec.selector")), "field is immutable"))
    if resource.kind in ("ConfigMap", "Secret") and old.get("immutable") and not same(obj.get("data"), old.get("data")):
        found.append(forbidden_field("data", "field is immutable when `immutable` is set"))
    return found


def check(resource: Resource, obj: Obj, old: Obj | None) -> list[Cause]:
    """Everything that is not valid in an object of the right shape, given what it was before."""
    found = _metadata(obj["metadata"], resource.group)
    if old is not None:
        found += _frozen(resource, obj, old)
    if resource.custom:
        return found + by_schema(resource.schema, {k: v for k, v in obj.items() if k != "metadata"}, "")
    if resource.kind == "Node":
        found += _taints(at(obj, "spec.taints") or [])
    elif resource.kind == "Lease":
        found += _lease(obj.get("spec") or {})
    elif resource.kind == "Pod":
        found += _pod(obj, old)
    elif resource.kind == "DaemonSet":
        kind = at(obj, "spec.updateStrategy.type")
        if kind not in (None, "", "RollingUpdate", "OnDelete"):
            found.append(unsupported("spec.updateStrategy.type", json.dumps(kind), ("RollingUpdate", "OnDelete")))
    return found


_SCHEMA_TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def _of_type(schema: Obj, value: Any) -> bool:
    name = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return name is None or type(value) is _SCHEMA_TYPES[name]


def by_schema(schema: Obj, value: Any, path: str) -> list[Cause]:
    """What a structural schema refuses: types, enumerations, bounds, patterns, missing fields. Nothing is pruned."""
    if value is None and schema.get("nullable"):
        return []
    shown = json.dumps(value)
    if not _of_type(schema, value):
        kind = _json_kind(value).replace("bool", "boolean").replace("number", "integer")
        text = f'Invalid value: "{kind}": {path} in body must be of type {schema.get("type")}: "{kind}"'
        return [Cause(path, "FieldValueTypeInvalid", text)]
    found: list[Cause] = []
    if "enum" in schema and not any(same(value, item) for item in schema["enum"]):
        found.append(unsupported(path, shown, [str(item) for item in schema["enum"]]))
    if "minimum" in schema and value < schema["minimum"]:
        found.append(
            invalid_value(path, shown, f"{path} in body should be greater than or equal to {schema['minimum']}")
        )
    if "maximum" in schema and value > schema["maximum"]:
        found.append(invalid_value(path, shown, f"{path} in body should be less than or equal to {schema['maximum']}"))
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(invalid_value(path, shown, f"{path} in body should match '{schema['pattern']}'"))
    if isinstance(value, list) and "items" in schema:
        found += [cause for i, item in enumerate(value) for cause in by_schema(schema["items"], item, f"{path}[{i}]")]
    if isinstance(value, dict):
        below = f"{path}." if path else ""
        found += [required(f"{below}{name}") for name in schema.get("required", ()) if name not in value]
        properties, other = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            inner = properties.get(name) or (other if isinstance(other, dict) else None)
            if inner:
                found += by_schema(inner, item, f"{below}{name}")
    return found
