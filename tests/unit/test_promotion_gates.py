"""Billing eligibility and creation gates, wherever they stand.

Covered: each gate missing, open, spelled otherwise; profiles; the backend's environment by value, by reference and by
envFrom; what cannot be read. Not covered: the live cluster (scenarios gate-open, gate-opened).
"""

from __future__ import annotations

from typing import Any

import pytest

from gpurunbook.findings import Status, Verdict
from gpurunbook.plan import Object, Observed, Problem
from gpurunbook.supply.eligibility import GATES, gates_closed, judge_gates

NAMES = {
    "config": "kube-dc/ConfigMap/cluster-config",
    "profiles": "kube-dc/ConfigMap/p",
    "backend": "kube-dc/Deployment/b",
}
CLOSED = dict.fromkeys(GATES, "false")
PROFILES = "profiles:\n- {id: v100, enabled: true, billingEligible: false}\n- {id: h100, enabled: false}\n"


def observed(value: Any) -> Observed:
    need = Object("/x")
    return Observed(need, problem=value) if isinstance(value, Problem) else Observed(need, value)


def environment(*entries: Any, **more: Any) -> Any:
    return deployment({"name": "backend", "env": list(entries), **more})


def deployment(*containers: Any, **status: int) -> Any:
    rolled = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, **status}
    meta = {"uid": "u", "generation": 2}
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": list(containers)}}}, "status": rolled}


SAME = environment(*({"name": gate, "value": "false"} for gate in GATES))


def codes(config: Any = CLOSED, profiles: Any = PROFILES, backend: Any = SAME) -> list[str]:
    seen = {
        "config": observed({"data": config} if isinstance(config, dict) else config),
        "profiles": observed({"data": {"profiles.yaml": profiles}} if isinstance(profiles, str) else profiles),
        "backend": observed(backend),
    }
    found = judge_gates(seen, NAMES)
    good = all(f.status is Status.PASS for f in found.findings)
    assert found.facts["closed"] is good
    return [f.code for f in found.findings]


def test_all_closed_is_closed() -> None:
    assert codes() == ["gates-closed"]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("value", ["true", "False", "FALSE", "", "0", "no", " false", "false\n"])
def test_only_the_literal_false_is_closed(gate: str, value: str) -> None:
    assert codes({**CLOSED, gate: value}) == ["gate-open"]
    backend = environment(*({"name": g, "value": value if g == gate else "false"} for g in GATES))
    assert codes(backend=backend) == ["backend-gate-open"]


@pytest.mark.parametrize("gate", GATES)
def test_a_missing_gate_counts_as_open(gate: str) -> None:
    assert codes({k: v for k, v in CLOSED.items() if k != gate}) == ["gate-open"]


def test_an_empty_config_has_every_gate_open() -> None:
    assert codes({}) == ["gate-open"] * 3
    assert codes(profiles=observed({}).value) == ["gates-closed"]


@pytest.mark.parametrize(
    ("profiles", "wanted"),
    [
        ("profiles:\n- {id: a, billingEligible: true}\n", ["profile-eligible"]),
        ("profiles:\n- {id: a}\n", ["profile-eligible"]),
        ('profiles:\n- {id: a, billingEligible: "false"}\n', ["profile-eligible"]),
        ("- {id: a, billingEligible: no}\n- {id: b, billingEligible: false}\n", ["profile-eligible"]),
        ("- {id: a}\n", ["profile-eligible"]),
        ("profiles:\n- {id: a, enabled: false, billingEligible: true}\n", ["gates-closed"]),
        ("a: {b: {id: a, billingEligible: true}}\n", ["profile-eligible"]),
        ("profiles: {a: {enabled: true}, b: {billingEligible: false}}\n", ["profile-eligible"]),
        ("profiles: {a: {}}\n", ["profile-eligible"]),
        ("id: a\nenabled: true\n", ["profile-eligible"]),
        ("version: 3\n", ["gates-closed"]),
        ("profiles: [\n", ["profiles-unreadable"]),
    ],
)
def test_every_enabled_profile_must_say_that_it_is_not_billed(profiles: str, wanted: list[str]) -> None:
    assert codes(profiles=profiles) == wanted


def test_without_a_catalogue_nothing_is_on_offer() -> None:
    assert codes(profiles=Problem("not-found", "404")) == ["gates-closed"]
    assert codes(profiles=Problem("forbidden", "403")) == ["profiles-unreadable"]


def test_the_backend_must_show_both_creation_gates() -> None:
    assert codes(backend=environment()) == ["backend-gate-open"] * 2
    assert codes(backend=environment(*({"name": g, "value": "false"} for g in GATES[1:]))) == ["gates-closed"]


def taken(gate: str, name: str = "cluster-config", key: str = "") -> Any:
    return {"name": gate, "valueFrom": {"configMapKeyRef": {"name": name, "key": key or gate}}}


def test_what_the_backend_takes_from_the_config_is_judged_there() -> None:
    by_key = environment(*map(taken, GATES))
    whole = environment(envFrom=[{"configMapRef": {"name": "cluster-config"}}])
    assert codes(backend=by_key) == codes(backend=whole) == ["gates-closed"]
    opened = {**CLOSED, GATES[1]: "true"}
    assert codes(opened, backend=by_key) == codes(opened, backend=whole) == ["gate-open", "backend-gate-open"]


def test_what_the_backend_takes_from_elsewhere_is_unknown() -> None:
    others = [taken(GATES[1], "other"), taken(GATES[1], key="X"), {"name": GATES[1], "valueFrom": {"secretKeyRef": {}}}]
    for other in others:
        backend = environment(other, *({"name": g, "value": "false"} for g in GATES[2:]))
        assert codes(backend=backend) == ["backend-unreadable"]


def test_two_containers_that_disagree_are_unknown() -> None:
    backend = environment(*({"name": g, "value": v} for g in GATES for v in ("true", "false")))
    assert set(codes(backend=backend)) == {"backend-unreadable"}


def test_no_container_hides_another() -> None:
    literal = {"name": "a", "env": [{"name": g, "value": "false"} for g in GATES]}
    whole = {"name": "b", "envFrom": [{"configMapRef": {"name": "cluster-config"}}]}
    opened = {"name": "c", "env": [{"name": GATES[1], "value": "true"}]}
    elsewhere = {"name": "d", "env": [taken(GATES[1], "other")]}
    for order in (1, -1):
        assert codes(backend=deployment(*[literal, whole][::order])) == ["gates-closed"]
        assert codes(backend=deployment(*[opened, whole][::order])) == ["backend-gate-open"]
        assert codes(backend=deployment(*[elsewhere, whole][::order])) == ["backend-unreadable"]


def test_what_comes_after_the_config_may_hold_a_gate_as_well() -> None:
    config, secret = {"configMapRef": {"name": "cluster-config"}}, {"secretRef": {"name": "backend"}}
    literal = [{"name": g, "value": "false"} for g in GATES]
    assert codes(backend=environment(envFrom=[secret, config])) == ["gates-closed"]
    assert codes(backend=environment(envFrom=[config, secret])) == ["backend-unreadable"] * 3
    assert codes(backend=environment(*literal, envFrom=[config, secret])) == ["gates-closed"]


@pytest.mark.parametrize("status", [{"observedGeneration": 1}, {"observedGeneration": 0}, {"updatedReplicas": 1}])
def test_a_pod_of_an_earlier_template_enforces_what_it_was_told_then(status: dict[str, int]) -> None:
    container = {"name": "a", "env": [{"name": g, "value": "false"} for g in GATES]}
    assert codes(backend=deployment(container, **status)) == ["backend-rolling"]
    assert codes(backend=deployment(container, replicas=0, updatedReplicas=0)) == ["gates-closed"]


def test_profiles_in_binary_data_are_not_passed_over() -> None:
    assert codes(profiles=observed({"binaryData": {"p.yaml": "cHJvZmlsZXM6"}}).value) == ["profiles-unreadable"]


def test_what_was_written_between_the_two_looks_is_told() -> None:
    """A gate that was opened and closed again stands as before; its object does not."""

    def look(version: str, generation: int = 2, before: bytes | Problem | None = None) -> Any:
        status = {**SAME["status"], "observedGeneration": generation}
        backend = {**SAME, "metadata": {"uid": "u", "generation": generation}, "status": status}
        config = {"metadata": {"uid": "c", "resourceVersion": version}, "data": CLOSED}
        seen = {"config": observed(config), "profiles": observed(Problem("not-found", "404"))}
        seen["backend"] = observed(backend)
        return judge_gates(seen if before is None else {**seen, "since": observed(before)}, NAMES)

    first = look("7").files["gates.json"]
    assert [f.code for f in look("7", before=first).findings] == ["gates-closed"]
    assert [(f.code, f.subject) for f in look("9", before=first).findings] == [("gates-touched", NAMES["config"])]
    assert [(f.code, f.subject) for f in look("7", 4, first).findings] == [("gates-touched", NAMES["backend"])]
    assert [f.code for f in look("7", before=Problem("unreadable", "gone")).findings] == ["gates-unreadable"]


@pytest.mark.parametrize("code", ["not-found", "forbidden", "unreachable"])
def test_what_cannot_be_read_is_never_closed(code: str) -> None:
    assert codes(Problem(code, "x")) == ["gates-unreadable"]
    assert codes(backend=Problem(code, "x")) == ["backend-unreadable"]


def test_an_open_gate_blocks_and_says_where_to_look() -> None:
    check = gates_closed("kube-dc", "cluster-config", "gpu-profiles", "kube-dc-backend")
    assert check.against is Verdict.BLOCKED
    assert {need.path for need in check.needs.values() if isinstance(need, Object)} == {
        "/api/v1/namespaces/kube-dc/configmaps/cluster-config",
        "/api/v1/namespaces/kube-dc/configmaps/gpu-profiles",
        "/apis/apps/v1/namespaces/kube-dc/deployments/kube-dc-backend",
    }
