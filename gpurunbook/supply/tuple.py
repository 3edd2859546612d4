"""The released and the proposed tuple: the versions that are qualified together, and only together.

Two files of one schema. `released` is what the fleet runs; `proposed` is what manifests, canary and record of
a promotion must equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import references, strictyaml
from gpurunbook.supply.qualification import Record
from gpurunbook.supply.shape import Shape

API_VERSION = "gpurunbook.io/v1alpha1"
KIND = "GPUTuple"
LIMIT = 65_536

CHECK = "tuple"
SOURCE = "GPU supply-chain policy, Released pilot tuple"

_SEMVER = r"(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
_FORMS = {
    "kernel": (r"[0-9]+\.[0-9]+[0-9A-Za-z._+~-]*", "as in `uname -r`, 6.8.0-134-generic"),
    "rke2": (r"v1\.[0-9]+\.[0-9]+\+rke2r[0-9]+", "v1.35.3+rke2r3"),
    "gpuOperator": (f"v?{_SEMVER}", "an exact chart version, v26.3.3"),
    "driver": (r"[0-9]+\.[0-9]+(?:\.[0-9]+)?", "580.126.20"),
    "kernelModuleType": (r"open|proprietary", "open or proprietary; auto would let the operator decide"),
    "toolkit": (f"v?{_SEMVER}", "v1.19.1"),
    "hami": (_SEMVER, "an exact chart version without v, 2.9.0"),
    "hamiScheduler": (f"v{_SEMVER}", "v1.35.3"),
    "dcgmExporter": (r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}", "a release tag, 4.4.1-4.6.0-ubuntu22.04"),
    "dcgmExporterDigest": (r"sha256:[0-9a-f]{64}", "sha256: and 64 lower-case hexadecimal digits"),
}
FIELDS = tuple(_FORMS)
"""Of the tuple, in the order in which they are shown."""

IN_RECORD = ("kernel", "rke2", "driver", "gpuOperator", "dcgmExporter")
"""Fields that a qualification record has too."""

Values = Mapping[str, str]
"""Field → value, as text."""


@dataclass(frozen=True)
class Tuple:
    """A whole tuple. state: released or proposed; values: every one of FIELDS."""

    state: str
    values: Values


@dataclass(frozen=True)
class Difference:
    """One field in which two tuples differ."""

    field: str
    one: str
    other: str


def read_tuple(data: bytes, state: str) -> Tuple:
    """Writes nothing. A tuple file that says of itself that it is `state`.

    Raises InputError: a code of `strictyaml.ORDER`, or `tuple` for a value that has not its form or for a file
    of another kind or state.
    """
    node = strictyaml.document(data, limit=LIMIT)
    shape = Shape()
    if not isinstance(node, strictyaml.Map):
        raise strictyaml.fault("type", node.line, f"the top level is not a mapping; a {KIND} was expected")
    top = shape.fields(node, ("apiVersion", "kind", "state", "components"), "the tuple")
    head = {name: shape.text(top.get(name), name) for name in ("apiVersion", "kind", "state")}
    given = shape.fields(top.get("components"), FIELDS, "components")
    values = {name: shape.text(given.get(name), f"components.{name}") for name in FIELDS}
    shape.done()
    wanted = {"apiVersion": API_VERSION, "kind": KIND, "state": state}
    wrong = [f"{name} is {head[name]!r}, wanted {text}" for name, text in wanted.items() if head[name] != text]
    wrong += [
        f"{name} is {text!r}, wanted {_FORMS[name][1]}" for name, text in values.items() if not _formed(name, text)
    ]
    if wrong:
        raise InputError("; ".join(wrong), subject=f"line {node.line}", code="tuple")
    return Tuple(state, values)


def _formed(name: str, text: str) -> bool:
    if not re.fullmatch(_FORMS[name][0], text):
        return False
    return not (name == "dcgmExporter" and references.floats(text))


def as_yaml(it: Tuple) -> bytes:
    """Writes nothing. The tuple as a file that `read_tuple` reads back; every value in quotes."""
    lines = [f"apiVersion: {API_VERSION}", f"kind: {KIND}", f"state: {it.state}", "components:"]
    lines += [f"  {name}: {json.dumps(it.values[name])}" for name in FIELDS]
    return ("\n".join(lines) + "\n").encode()


def diff(one: Values, other: Values) -> tuple[Difference, ...]:
    """Writes nothing. The fields in which they differ, in order; a field that one has not is empty there."""
    pairs = ((name, one.get(name, ""), other.get(name, "")) for name in FIELDS)
    return tuple(Difference(*pair) for pair in pairs if pair[1] != pair[2])


def judge_proposal(proposed: Tuple, released: Tuple, record: Record) -> tuple[Finding, ...]:
    """Writes nothing. Whether a proposal is a change, and the one that the qualification record proves."""
    found: list[Finding] = []
    changes = diff(released.values, proposed.values)
    if not changes:
        message = "the proposed tuple is the released one"
        found.append(_fail("no-change", "tuple", message, "There is nothing to promote."))
    for name in IN_RECORD:
        seen = record.target[name]
        wanted = {proposed.values[name]}
        if name == "dcgmExporter":  # a record may pin the exporter by its digest
            wanted.add(proposed.values["dcgmExporterDigest"])
        if seen not in wanted:
            message = f"the record qualifies {name} {seen!r}, proposed is {proposed.values[name]!r}"
            found.append(_fail("record-differs", name, message, "Qualify exactly the proposed tuple."))
    for change in changes:
        if change.field not in IN_RECORD and change.field != "dcgmExporterDigest":
            message = f"{change.field} goes from {change.one} to {change.other}; a record has no field for it"
            remedy = "The canary's bundle must show it."
            found.append(Finding(CHECK, change.field, Status.WARN, "not-in-record", message, remedy, SOURCE))
    if not any(one.status is Status.FAIL for one in found):
        names = ", ".join(change.field for change in changes)
        found.append(Finding(CHECK, "tuple", Status.PASS, "proposal-qualified", f"changes {names}", "", SOURCE))
    return tuple(found)


def _fail(code: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding(CHECK, subject, Status.FAIL, code, message, remedy, SOURCE)
