"""Billing eligibility and the two creation gates: nobody may ask for a GPU while the tuple under it changes.

Source: GPU supply-chain policy, promotion step 1. A gate that is missing counts as open, and only the literal `false`
counts as closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.plan import Check, Judgement, Need, Object, Observed, Recorded, Seen, Table
from gpurunbook.supply import strictyaml
from gpurunbook.supply.members import at
from gpurunbook.supply.strictyaml import List, Map, Text
from gpurunbook.supply.tree import walk

BILLING = "GPU_BILLING_ELIGIBLE"
CREATION = ("GPU_SHARED_CREATION_ENABLED", "GPU_VM_CREATION_ENABLED")
GATES = (BILLING, *CREATION)

CHECK = "eligibility"
SOURCE = "GPU supply-chain policy, promotion step 1"

_CLOSE = 'Set it to "false" in Git and wait until it is reconciled.'
_LOOK = "Correct the parameter, or have what it names restored; what cannot be read is never taken as closed."
_LIMIT = 1 << 20


def gates_closed(namespace: str, config: str, profiles: str, backend: str, *, since: str = "") -> Check:
    """Writes nothing. Whether billing eligibility and both creation gates are false, wherever they stand.

    config: ConfigMap with the gates; profiles: ConfigMap with the GPU profiles, which need not exist; backend:
    Deployment that enforces the gates. All in one namespace. since: an earlier step of this check, since which none of
    them may have been written; without one it keeps `gates.json`, which versions of them were judged.
    """
    core = f"/api/v1/namespaces/{namespace}/configmaps"
    needs: dict[str, Need] = {
        "config": Object(f"{core}/{config}"),
        "profiles": Object(f"{core}/{profiles}"),
        "backend": Object(f"/apis/apps/v1/namespaces/{namespace}/deployments/{backend}"),
    }
    if since:
        needs["since"] = Recorded(since, "gates.json")
    names = {
        "config": f"{namespace}/ConfigMap/{config}",
        "profiles": f"{namespace}/ConfigMap/{profiles}",
        "backend": f"{namespace}/Deployment/{backend}",
    }

    def judge(seen: Seen) -> Judgement:
        return judge_gates(seen, names)

    return Check("Billing eligibility and creation gates", needs, judge, against=Verdict.BLOCKED)


def judge_gates(seen: Seen, names: Mapping[str, str]) -> Judgement:
    """Writes nothing. seen and names: `config`, `profiles` and `backend`; seen: also `since`, what was kept then."""
    config, backend = _data(seen["config"]), _environment(seen["backend"], names["config"])
    findings = [
        *_gates(seen["config"], config, names["config"]),
        *_profiles(seen["profiles"], names["profiles"]),
        *_backend(seen["backend"], backend, config or {}, names["backend"]),
    ]
    versions = {names[word]: _version(seen[word]) for word in names}
    findings += _touched(seen["since"], versions) if "since" in seen else []
    if not findings:
        findings = [Finding(CHECK, names["config"], Status.PASS, "gates-closed", "every gate is false", "", SOURCE)]
    rows = [(gate, _cell(config, gate), _cell(backend, gate), "false") for gate in GATES]
    table = Table("Gates", ("gate", "cluster config", "backend", "wanted"), rows)
    facts = {"closed": all(f.status is Status.PASS for f in findings)}
    kept = {} if "since" in seen else {"gates.json": json.dumps(versions, sort_keys=True).encode()}
    return Judgement(tuple(findings), (table,), facts, kept)


def _cell(values: Mapping[str, Any] | None, gate: str) -> str:
    if values is None:
        return "not read"
    if gate not in values:
        return "missing"
    found = values[gate] if isinstance(values[gate], list) else [values[gate]]
    return ", ".join("from elsewhere" if one is None else str(one) for one in found)


def _version(observed: Observed) -> str:
    """What changes with every write of a ConfigMap, and with every change of what a Deployment asks for."""
    meta = at(observed.value, "metadata")
    version = at(meta, "generation") if at(observed.value, "spec") else at(meta, "resourceVersion")
    return "" if observed.problem else f"{at(meta, 'uid')} {version}"


def _touched(since: Observed, versions: Mapping[str, str]) -> Iterator[Finding]:
    if since.problem is not None:
        yield _unknown("gates-unreadable", "gates.json", since.problem.message)
        return
    before = json.loads(since.value)
    for name in sorted(versions):
        if before.get(name) != versions[name]:
            message = f"it was written meanwhile ({before.get(name) or 'not there'} → {versions[name] or 'not there'})"
            remedy = "A gate may have been open: find out who wrote what, then run all cells again."
            yield Finding(CHECK, name, Status.FAIL, "gates-touched", f"{message}, and stands as before", remedy, SOURCE)


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
    for key in at(observed.value, "binaryData") or {}:
        yield _unknown("profiles-unreadable", f"{subject}/{key}", "it stands in binaryData, which is not read")


def _offered(root: strictyaml.Node, subject: str) -> Iterator[Finding]:
    """Every profile: an item of `profiles`, by number or by name, and whatever says whether it is enabled or billed."""
    for node, trail in walk(root):
        if not isinstance(node, Map):
            continue
        outer = trail[0] if trail is not None else None
        named = outer is not None and outer[1] == "profiles"
        listed = named or (trail is not None and outer is None and isinstance(trail[1], int))
        if not listed and not {"billingEligible", "enabled"} & set(node.items):
            continue
        name = node.items.get("id") or node.items.get("name")
        told = name.text if isinstance(name, Text) else f"line {node.line}"
        if not _is(node.items.get("enabled"), "false") and not _is(node.items.get("billingEligible"), "false"):
            yield _fail("profile-eligible", subject, f"profile {told!r:.80} is enabled, and not billingEligible: false")


def _is(node: Map | List | Text | None, word: str) -> bool:
    return isinstance(node, Text) and node.plain and node.text == word


def _environment(observed: Observed, config: str) -> dict[str, list[str | None]] | None:
    """Gate → its value in each container that has it; `config` for what is taken from the cluster config, None for
    what comes from elsewhere."""
    if observed.problem is not None:
        return None
    name = config.rpartition("/")[2]
    values: dict[str, list[str | None]] = {}
    for container in at(observed.value, "spec", "template", "spec", "containers") or []:
        for gate, found in _of_container(container, name).items():
            values.setdefault(gate, []).append(found)
    return values


def _of_container(container: Any, config: str) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for source in at(container, "envFrom") or []:  # the last one that has a name wins
        if at(source, "configMapRef", "name") == config and not at(source, "prefix"):
            values |= dict.fromkeys(GATES, "config")
        elif values:  # it may hold the gate as well; without the config before it, the gate is missed below
            values |= dict.fromkeys(GATES, None)
    own: dict[str, str | None] = {}
    for entry in at(container, "env") or []:
        if (gate := at(entry, "name")) in GATES:
            taken = at(entry, "valueFrom", "configMapKeyRef") or {}
            here = at(entry, "valueFrom") is None
            same = (at(taken, "name"), at(taken, "key")) == (config, gate)
            found = str(at(entry, "value") or "") if here else "config" if same else None
            own[gate] = found if own.get(gate, found) == found else None
    return values | own


def _backend(
    observed: Observed, values: Mapping[str, list[str | None]] | None, config: Mapping[str, Any], subject: str
) -> Iterator[Finding]:
    if values is None:
        yield _unknown("backend-unreadable", subject, observed.problem.message if observed.problem else "no template")
        return
    for gate in GATES:
        if gate not in values:
            if gate in CREATION:
                yield _fail("backend-gate-open", subject, f"{gate} is not in its environment, which counts as open")
            continue
        for told in dict.fromkeys(values[gate]):
            if told is None:
                yield _unknown("backend-unreadable", subject, f"{gate} comes from elsewhere than the cluster config")
            elif (value := config.get(gate) if told == "config" else told) != "false":
                yield _fail("backend-gate-open", subject, f"{gate} is {value!r:.80} in its environment, wanted 'false'")
    yield from _rolled(observed.value, subject)


def _rolled(backend: Any, subject: str) -> Iterator[Finding]:
    """A pod of an earlier template still answers as it was told then."""
    status, asked = at(backend, "status"), at(backend, "metadata", "generation")
    seen, pods, updated = (at(status, name) or 0 for name in ("observedGeneration", "replicas", "updatedReplicas"))
    if not seen or (isinstance(asked, int) and seen < asked) or pods > updated:
        message = (
            f"{pods - updated} of its {pods} pods are of an earlier template" if seen else "its status is not known"
        )
        yield _fail("backend-rolling", subject, f"{message}: what they enforce is not what was read")
