"""The current tuple and the hardware from the live cluster, beside what was typed, and `gpurunbook qualify --live`.

Covered: what is read of nodes and NFD's objects; agreement before and in the middle of an upgrade; every difference
with its pool; what nobody shows; the nodes of a canary; what is filled in; the command on a fixture cluster.
Not covered: where each value is sighted (test_tuple.py), the record's own checks (test_qualification.py).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from test_qualification import qualify
from test_tuple import DRIVER, EXPORTER, VALUES, cluster, node, pod

from gpurunbook.findings import Finding, Status, worst
from gpurunbook.plan import Judgement, Observed, Pages, Problem
from gpurunbook.supply import current
from gpurunbook.supply.current import Typed
from gpurunbook.supply.qualification import COMPONENTS

NAMESPACES = ["gpu-operator"]
NEED = Pages("/x")
H100, V100 = "10de:2330/10de:16c1", "10de:1db6/10de:124a"
TARGET = {**VALUES, "kernel": "6.8.0-136-generic", "rke2": "v1.35.4+rke2r1", "driver": "595.91.07"}
TARGET |= {"gpuOperator": "v26.7.0", "dcgmExporter": "4.6.0-4.8.3-distroless"}


def attributes(identity: str, kind: str = "0302") -> dict[str, Any]:
    (vendor, device), (subvendor, subdevice) = (part.split(":") for part in identity.split("/"))
    subsystem = {"subsystem_vendor": subvendor, "subsystem_device": subdevice}
    return {"attributes": {"class": kind, "vendor": vendor, "device": device, **subsystem}}


def feature(name: str, *elements: Any) -> dict[str, Any]:
    devices = {"pci.device": {"elements": list(elements)}}
    labels = {"nfd.node.kubernetes.io/node-name": name}
    return {
        "kind": "NodeFeature",
        "metadata": {"name": name, "labels": labels},
        "spec": {"features": {"instances": devices}},
    }


def fleet(*more: Any, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Two GPU nodes a and b on the current tuple, and one without a GPU."""
    control = node("control")
    control["metadata"]["labels"] = {}
    objects = [*cluster(), control, *(feature(name, attributes(H100)) for name in "ab"), *more]
    return [raw for raw in copy.deepcopy(objects) if raw["metadata"]["name"] not in without or raw in more]


def collected(objects: list[dict[str, Any]], **problems: str) -> current.Current:
    seen = {}
    for name in current.needs(NAMESPACES):
        kind = name.split()[0]
        if kind in problems:
            seen[name] = Observed(NEED, problem=Problem(problems[kind], "said no"))
        else:
            bare = [{k: v for k, v in raw.items() if k != "kind"} for raw in objects if raw["kind"] == kind]
            seen[name] = Observed(NEED, bare)
    return current.collect(seen, NAMESPACES)


def judged(objects: list[dict[str, Any]], canaries: Any = None, hardware: Any = (H100,), **typed: str) -> Judgement:
    now = collected(objects)
    return current.judge(
        Typed({**{f: VALUES[f] for f in COMPONENTS}, **typed}, TARGET, hardware, (H100,)), now, canaries
    )


def bad(found: Judgement) -> list[Finding]:
    return [one for one in found.findings if one.status in (Status.FAIL, Status.UNKNOWN)]


def codes(found: Judgement) -> list[str]:
    return [one.code for one in bad(found)]


def upgraded(name: str, **more: str) -> dict[str, Any]:
    made = node(name, kernelVersion=TARGET["kernel"], kubeletVersion=TARGET["rke2"], **more)
    made["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = TARGET["driver"]
    return made


# -- before an upgrade -----------------------------------------------------------------------------------------------


def test_a_cluster_that_is_as_typed_passes_and_is_shown_beside_it() -> None:
    found = judged(fleet())
    assert [one.code for one in found.findings] == ["current-as-typed"]
    rows = {row[0]: row for row in found.views[0].rows}  # type: ignore[union-attr]
    assert list(rows) == [*COMPONENTS, "hardware"]
    assert rows["rke2"][1:] == ("v1.35.3+rke2r3", "v1.35.3+rke2r3 ×3", "pass")
    assert rows["hardware"][1:] == (H100, H100, "pass")


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_typed_value_that_is_not_live_is_told_with_both(name: str) -> None:
    found = judged(fleet(), **{name: "typed-wrong"})
    assert set(codes(found)) == {"current-differs"}
    assert all(VALUES[name] in one.message and "typed-wrong" in one.message for one in bad(found))


def test_every_pool_that_disagrees_is_named_with_its_nodes() -> None:
    others = [node(name, kernelVersion="5.15.0-1-generic") for name in ("c", "d")]
    for other in others:
        other["metadata"]["labels"]["nvidia.com/gpu.product"] = "Tesla-V100"
    features = [feature(name, attributes(V100)) for name in ("c", "d")]
    found = judged(fleet(*others, *features))
    told = {(one.code, one.subject): one.message for one in bad(found)}
    assert set(told) == {("current-differs", "pool Tesla-V100"), ("hardware-differs", "pool Tesla-V100")}
    assert all("c, d" in message for message in told.values())


def test_an_upgrade_that_has_begun_is_told_wherever_it_shows() -> None:
    control = upgraded("control")
    control["metadata"]["labels"] = {}
    assert [(one.code, one.subject) for one in bad(judged(fleet(control, without=("control",))))] == [
        ("current-differs", "Node/control")
    ]
    found = judged(fleet(upgraded("b"), without=("b",)))
    assert {(one.code, one.subject) for one in bad(found) if "b" in one.message} >= {
        ("current-differs", "pool without a product label")
    }


def test_hardware_is_of_gpus_only_and_of_every_object_of_the_node() -> None:
    audio, switch = attributes("10de:10fa/10de:16c1", "0403"), attributes("10de:22a3/10de:1796", "0680")
    network = attributes("15b3:1021/15b3:0041", "0302")
    assert codes(judged(fleet(feature("a", audio, switch, network)))) == []
    found = judged(fleet(feature("a", attributes(V100))))
    assert codes(found) == ["hardware-differs"]
    assert V100 in bad(found)[0].message


def test_the_long_labels_of_nfd_say_it_as_well() -> None:
    labelled = node("c")
    labelled["metadata"]["labels"]["feature.node.kubernetes.io/pci-0302_10de_2330_10de_16c1.present"] = "true"
    assert codes(judged(fleet(labelled))) == []


def test_typed_hardware_that_no_node_has_is_told() -> None:
    assert codes(judged(fleet(), hardware=(H100, V100))) == ["hardware-not-live"]
    assert codes(judged(fleet(), hardware=(f" {H100.upper()} ",))) == []


# -- what is not known -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted({name.split()[0] for name in current.needs(NAMESPACES)}))
def test_a_list_that_cannot_be_read_is_unknown(kind: str) -> None:
    typed = Typed({f: VALUES[f] for f in COMPONENTS}, TARGET, (H100,), (H100,))
    for canaries in (None, ["a"]):
        found = current.judge(typed, collected(fleet(), **{kind: "forbidden"}), canaries)
        assert worst(found.findings) is Status.UNKNOWN
        assert "live-unreadable" in codes(found)
        assert "current-as-typed" not in [one.code for one in found.findings]


def test_without_nfd_the_hardware_is_unknown_and_its_pool_named() -> None:
    now = collected(fleet(), NodeFeature="not-found")
    found = current.judge(Typed({f: VALUES[f] for f in COMPONENTS}, TARGET, (H100,), (H100,)), now)
    assert [(one.code, one.status) for one in bad(found)] == [("hardware-unseen", Status.UNKNOWN)]
    assert current.filled(now)[1] == []


def test_one_node_whose_hardware_nobody_shows_is_unknown() -> None:
    found = judged(fleet(node("c")))
    assert [(one.code, one.status) for one in bad(found)] == [("hardware-unseen", Status.UNKNOWN)]
    assert "c" in bad(found)[0].message


def test_a_driver_that_no_place_shows_on_a_node_is_unknown_unless_the_node_has_none() -> None:
    bare = node("c")
    del bare["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"]
    objects = fleet(bare, feature("c", attributes(H100)))
    assert [(one.code, one.status) for one in bad(judged(objects))] == [("current-unseen", Status.UNKNOWN)]
    bare["metadata"]["labels"]["nvidia.com/gpu.workload.config"] = "vm-passthrough"
    assert codes(judged(fleet(bare, feature("c", attributes(H100))))) == []
    assert codes(judged(fleet(bare, feature("c", attributes(H100)), pod("d", DRIVER, node="c")))) == []


def test_an_operand_that_is_declared_and_does_not_run_is_unknown() -> None:
    found = judged(fleet(without=("exporter",)))
    assert [(one.code, one.subject, one.status) for one in bad(found)] == [
        ("current-unseen", "dcgmExporter", Status.UNKNOWN)
    ]


def test_a_gpu_that_only_nfd_knows_makes_a_gpu_node() -> None:
    bare = node("c")
    bare["metadata"]["labels"] = {}
    found = judged(fleet(bare, feature("c", attributes(V100))))
    assert {(one.code, one.status) for one in bad(found)} == {
        ("hardware-differs", Status.FAIL),
        ("current-unseen", Status.UNKNOWN),
    }


def test_a_cluster_that_shows_nothing_is_unknown() -> None:
    found = judged([])
    assert worst(found.findings) is Status.UNKNOWN
    assert {"no-gpu-node", "current-unseen"} <= set(codes(found))


def test_odd_objects_do_not_crash() -> None:
    odd = [
        {"kind": "NodeFeature", "metadata": None},
        {"kind": "NodeFeature", "metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "a"}}, "spec": []},
        feature("a", None, {"attributes": []}, {"attributes": {"vendor": 4318, "class": 3}}),
    ]
    assert codes(judged([*fleet(), *odd])) == []  # type: ignore[list-item]


# -- in the middle of an upgrade -------------------------------------------------------------------------------------


def midway(*more: Any, without: tuple[str, ...] = ("a", "driver-x")) -> list[dict[str, Any]]:
    """a is upgraded, and the exporter rolled by itself."""
    objects = fleet(upgraded("a"), *more, without=without)
    for raw in objects:
        if raw["metadata"]["name"] == "exporter":
            raw["spec"]["containers"][0]["image"] = f"nvcr.io/nvidia/k8s/dcgm-exporter:{TARGET['dcgmExporter']}"
    return [*objects, feature("a", attributes(H100))]


def test_the_cluster_and_the_canary_may_be_on_the_target_and_other_gpu_nodes_may_not() -> None:
    assert codes(judged(midway(), ["a"])) == []
    other = (upgraded("b"), feature("b", attributes(H100)))
    found = judged(midway(*other, without=("a", "b", "driver-x")), ["a"])
    assert set(codes(found)) == {"current-differs"}
    assert {one.subject for one in bad(found)} == {"pool without a product label"}
    assert codes(judged(midway(*other, without=("a", "b", "driver-x")), ["a", "b"])) == []


def test_what_is_neither_current_nor_target_is_told_even_where_things_move() -> None:
    objects = midway(pod("other", {"containers": [{**EXPORTER["containers"][0], "image": "x/dcgm-exporter:9.9.9"}]}))
    assert codes(judged(objects, ["a"])) == ["current-differs"]


def test_when_nothing_is_left_on_the_current_tuple_it_is_told() -> None:
    both = midway(upgraded("b"), feature("b", attributes(H100)), without=("a", "b", "driver-x"))
    told = [(one.code, one.status) for one in judged(both, ["a", "b"]).findings]
    assert ("current-nowhere", Status.WARN) in told


def test_a_canary_node_must_be_there_and_have_the_records_hardware() -> None:
    assert codes(judged(midway(), ["a", "gone"])) == ["canary-node-unknown"]
    assert codes(judged(midway(), ["a", "control"])) == ["canary-node-without-gpu"]
    found = judged([*midway(), feature("a", attributes(V100))], ["a"], hardware=(H100, V100))
    assert codes(found) == ["canary-node-hardware"]
    assert bad(found)[0].subject == "Node/a"


def test_a_canary_node_must_run_the_target_in_every_place() -> None:
    assert [(one.code, one.subject) for one in bad(judged(fleet(), ["a"]))] == [
        ("canary-node-not-upgraded", "Node/a")
    ] * 3
    waiting = pod("driver-x", DRIVER, "driver", "r1")  # on a, of the revision before
    found = judged(midway(waiting), ["a"])
    assert codes(found) == ["canary-node-not-upgraded"]
    assert VALUES["driver"] in bad(found)[0].message and TARGET["driver"] in bad(found)[0].message
    silent = upgraded("a")
    del silent["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"]
    shown = [raw for raw in midway() if raw["metadata"]["name"] != "a"]
    found = judged([*shown, silent, feature("a", attributes(H100))], ["a"])
    assert [(one.code, one.status) for one in bad(found)] == [("current-unseen", Status.UNKNOWN)]


def test_the_canary_must_cover_all_hardware_of_the_record() -> None:
    typed = Typed({f: VALUES[f] for f in COMPONENTS}, TARGET, (H100, V100), (H100, V100))
    more = [node("c"), feature("c", attributes(V100))]
    found = current.judge(typed, collected(midway(*more)), ["a"])
    assert codes(found) == ["canary-node-hardware"]
    assert V100 in bad(found)[0].message


# -- what is filled in -----------------------------------------------------------------------------------------------


def test_a_value_is_filled_in_only_where_every_place_agrees() -> None:
    assert current.filled(collected(fleet())) == ({f: VALUES[f] for f in COMPONENTS}, [H100])
    values, hardware = current.filled(collected(fleet(node("c", kernelVersion="5.15.0-1-generic"))))
    assert values == {f: VALUES[f] for f in COMPONENTS} | {"kernel": ""}
    assert hardware == []


def test_a_blank_value_is_told_where_its_places_disagree() -> None:
    objects = fleet(node("c", kernelVersion="5.15.0-1-generic"), feature("c", attributes(H100)))
    found = judged(objects, kernel="")
    assert set(codes(found)) == {"current-disagrees"}
    assert codes(judged(fleet(), kernel="")) == []


# -- the command -----------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
RECORD = str(ROOT / "parameters/promotion/data/record.yaml")
REQUEST = str(ROOT / "parameters/promotion/data/request.json")
AT = ("--now", "2026-08-22T12:00:00Z")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runbooks", "parameters"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_request_is_filled_from_the_cluster_and_then_holds(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("--record", RECORD, "--live", "--cluster", "embedded:clusters/small", *AT)
    code, answer = qualify(capsys, *line, "--fill", "request.json")
    assert (code, answer["verdict"], answer["problems"]) == (0, "pass", [])
    written = json.loads((home / "request.json").read_text())
    assert written == json.loads(Path(REQUEST).read_text())
    assert answer["live"]["current"] == written["current"] and answer["live"]["hardware"] == written["hardware"]
    assert answer["cluster"] and answer["rehearsal"] is True
    assert [row["status"] for row in answer["live"]["typed_and_live"]] == ["pass"] * 6
    code, answer = qualify(capsys, *line, "--request", "request.json")
    assert (code, answer["verdict"]) == (0, "pass")
    assert qualify(capsys, *line, "--fill", "request.json")[0] == 2  # never over what is there


def test_what_was_typed_wrong_blocks_with_the_records_own_problems(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = json.loads(Path(REQUEST).read_text())
    typed["current"]["driver"], typed["hardware"] = "570.1.2", [V100]
    (home / "typed.json").write_text(json.dumps(typed))
    line = ("--record", RECORD, "--request", "typed.json", "--live", "--cluster", "embedded:clusters/small", *AT)
    code, answer = qualify(capsys, *line)
    assert (code, answer["verdict"]) == (1, "blocked")
    live = ["current-differs", "hardware-differs", "hardware-not-live"]
    assert (
        sorted({*live, "driver-from-mismatch", "driver-rollback-mismatch", "hardware-mismatch"}) == answer["problems"]
    )


def test_a_cluster_that_cannot_be_reached_is_unknown(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(home / "none"))
    code, answer = qualify(capsys, "--record", RECORD, "--request", REQUEST, "--live", *AT)
    assert (code, answer["verdict"], answer["problems"]) == (2, "unknown", ["cluster-unreadable"])


@pytest.mark.parametrize(
    "line",
    [
        (),
        ("--request", REQUEST, "--cluster", "x"),
        ("--request", REQUEST, "--live", "--fill", "x"),
        ("--live", "--canary-node", "gpu-0000"),
    ],
)
def test_options_that_do_not_go_together_are_refused(line: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert qualify(capsys, "--record", RECORD, *line) == (2, {})
