"""Billing eligibility and the two creation gates: nobody may ask for a GPU while the tuple under it changes.

Source: GPU supply-chain policy, promotion step 1. A gate that is missing counts as open, and only the literal `false`
counts as closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.plan import Check, Judgement, Need, Object, Observed, Seen, Table
from gpurunbook.supply import strictyaml
from gpurunbook.supply.members import at
from gpurunbook.supply.strictyaml import List, Map, Text
from gpurunbook.supply.tree import walk

BILLING = "GPU_BILLING_ELIGIBLE"
CREATION = ("GPU_SHARED_CREATION_ENABLED", "GPU_VM_CREATION_ENABLED")
GATES = (BILLING, *CREATION)

CHECK = "eligibility"
SOURCE = "GPU supply-chain policy, promotion step 1"

_CLOSE = 'Set it to "false" in Git, wait until it is reconciled, and run this cell again.'
_LOOK = "Correct the parameter, or have what it names restored; what cannot be read is never taken as closed."
_LIMIT = 1 << 20


def gates_closed(namespace: str, config: str, profiles: str, backend: str) -> Check:
    """Writes nothing. Whether billing eligibility and both creation gates are false, wherever they stand.

    config: ConfigMap with the gates; profiles: ConfigMap with the GPU profiles, which need not exist; backend:
    Deployment that enforces the gates. All in one namespace.
    """
    core = f"/api/v1/namespaces/{namespace}/configmaps"
    needs: dict[str, Need] = {
        "config": Object(f"{core}/{config}"),
        "profiles": Object(f"{core}/{profiles}"),
        "backend": Object(f"/apis/apps/v1/namespaces/{namespace}/deployments/{backend}"),
    }
    names = {
        "config": f"{namespace}/ConfigMap/{config}",
        "profiles": f"{namespace}/ConfigMap/{profiles}",
        "backend": f"{namespace}/Deployment/{backend}",
    }

    def judge(seen: Seen) -> Judgement:
        return judge_gates(seen, names)

    return Check("Billing eligibility and creation gates", needs, judge, against=Verdict.BLOCKED)


def judge_gates(seen: Seen, names: Mapping[str, str]) -> Judgement:
    """Writes nothing. seen and names: `config`, `profiles` and `backend`."""
    config, backend = _data(seen["config"]), _environment(seen["backend"], names["config"])
    findings = [
        *_gates(seen["config"], config, names["config"]),
        *_profiles(seen["profiles"], names["profiles"]),
        *_backend(seen["backend"], backend, config or {}, names["backend"]),
    ]
    if not findings:
        findings = [Finding(CHECK, names["config"], Status.PASS, "gates-closed", "every gate is false", "", SOURCE)]
    rows = [(gate, _cell(config, gate), _cell(backend, gate), "false") for gate in GATES]
    table = Table("Gates", ("gate", "cluster config", "backend", "wanted"), rows)
    return Judgement(tuple(findings), (table,), {"closed": all(f.status is Status.PASS for f in findings)})


def _cell(values: Mapping[str, str | None] | None, gate: str) -> str:
    if values is None:
        return "not read"
    return str(values[gate]) if gate in values else "missing"


def _data(observed: Observed) -> dict[str, Any] | None:
    data = at(observed.value, "data")
    return None if observed.problem else dict(data) if isinstance(data, Mapping) else {}


def _fail(code: str, subject: str, message: str) -> Finding:
    return Finding(CHECK, subject, Status.FAIL, code, message, _CLOSE, SOURCE)


def _unknown(code: str, subject: str, message: str) -> Finding:
    return Finding(CHECK, subject, Status.UNKNOWN, code, message, _LOOK, SOURCE)


def _gates(observed: Observed, data: Mapping[str, Any] | None, subject: str) -> Iterator[Finding]:
    if observed.problem is not None or data is None:
        yield _unknown("gates-unreadable", subject, observed.problem.message if observed.problem else "no data")
        return
    for gate in GATES:
        if gate not in data:
            yield _fail("gate-open", subject, f"{gate} is missing, which counts as open")
        elif data[gate] != "false":
            yield _fail("gate-open", subject, f"{gate} is {data[gate]!r:.80}, wanted 'false'")


def _profiles(observed: Observed, subject: str) -> Iterator[Finding]:
    if observed.problem is not None:
        if observed.problem.code != "not-found":  # without a catalogue nothing is on offer
            yield _unknown("profiles-unreadable", subject, observed.problem.message)
        return
    for key, text in sorted((_data(observed) or {}).items()):
        try:
            for node in strictyaml.documents(str(text).encode(), limit=_LIMIT):
                yield from _offered(node, f"{subject}/{key}")
        except InputError as wrong:
            yield _unknown("profiles-unreadable", f"{subject}/{key}", f"{wrong.subject}: {wrong.message}")


def _offered(root: strictyaml.Node, subject: str) -> Iterator[Finding]:
    """Every profile: an item of a list `profiles`, and whatever says of itself whether it is billed."""
    for node, trail in walk(root):
        if not isinstance(node, Map):
            continue
        listed = trail is not None and (trail[0] is None or trail[0][1] == "profiles") and isinstance(trail[1], int)
        if not listed and "billingEligible" not in node.items:
            continue
        name = node.items.get("id") or node.items.get("name")
        told = name.text if isinstance(name, Text) else f"line {node.line}"
        if not _is(node.items.get("enabled"), "false") and not _is(node.items.get("billingEligible"), "false"):
            yield _fail("profile-eligible", subject, f"profile {told!r:.80} is enabled, and not billingEligible: false")


def _is(node: Map | List | Text | None, word: str) -> bool:
    return isinstance(node, Text) and node.plain and node.text == word


def _environment(observed: Observed, config: str) -> dict[str, str | None] | None:
    """Gate → its value in the backend; `config` for what it takes from the cluster config, None for elsewhere."""
    if observed.problem is not None:
        return None
    name = config.rpartition("/")[2]
    values: dict[str, str | None] = {}
    for container in at(observed.value, "spec", "template", "spec", "containers") or []:
        for source in at(container, "envFrom") or []:
            if at(source, "configMapRef", "name") == name and not at(source, "prefix"):
                values |= dict.fromkeys(GATES, "config")
        for entry in at(container, "env") or []:
            if (gate := at(entry, "name")) in GATES:
                taken = at(entry, "valueFrom", "configMapKeyRef") or {}
                here = at(entry, "valueFrom") is None
                same = (at(taken, "name"), at(taken, "key")) == (name, gate)
                found = str(at(entry, "value") or "") if here else "config" if same else None
                values[gate] = found if values.get(gate, found) in (found, "config") else None
    return values


def _backend(
    observed: Observed, values: Mapping[str, str | None] | None, config: Mapping[str, Any], subject: str
) -> Iterator[Finding]:
    if values is None:
        yield _unknown("backend-unreadable", subject, observed.problem.message if observed.problem else "no template")
        return
    for gate in GATES:
        if gate not in values:
            if gate in CREATION:
                yield _fail("backend-gate-open", subject, f"{gate} is not in its environment, which counts as open")
        elif values[gate] is None:
            yield _unknown("backend-unreadable", subject, f"{gate} comes from elsewhere than the cluster config")
        elif (value := config.get(gate) if values[gate] == "config" else values[gate]) != "false":
            yield _fail("backend-gate-open", subject, f"{gate} is {value!r:.80} in its environment, wanted 'false'")
