"""Lists and items of another shape than the API server writes: never a pass, never a crash, never a policy answer.

Covered: files that are no JSON or not one list; every judged field with a value of another type; what is missing;
null; repeated keys, in files of every size; NaN, depth, encodings; what stays readable beside them.
Not covered: what a shape that is right says (test_audit_words.py).
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pods import IMAGE, REPO, WAYS, audited, codes, pod, podlist, running, sha

from gpurunbook.supply import podlist as reading


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def any_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads as a small, a large and a very large file is read."""
    monkeypatch.setattr(reading, "WHOLE", request.param[0])
    monkeypatch.setattr(reading, "AT_ONCE", request.param[1])


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "not-json"),
        (b" \n", "not-json"),
        (b"pods", "not-json"),
        (b"apiVersion: v1\nkind: PodList\nitems: []\n", "not-json"),
        (podlist(pod())[:-1], "not-json"),
        (podlist(pod())[:200], "not-json"),
        (podlist(pod()) + b"}", "not-json"),
        (podlist(pod()) + b" x", "not-json"),
        (podlist(pod()) + podlist(pod())[:50], "not-json"),
        (b'{"kind":"PodList","items":[],}', "not-json"),
        (b'{"kind":"PodList","items":[],"x":NaN}', "not-json"),
        (b'{"kind":"PodList","items":[],"x":01}', "not-json"),
        (b'{"kind":"PodList","items":[],"x":"\n"}', "not-json"),
        (b'{"kind":"PodList","items":[],"x":"\xff"}', "not-json"),
        (b'{"kind":"PodList","items":[],"x":"\xc3', "not-json"),
        (podlist(pod()).decode().encode("utf-16"), "not-json"),
        (b'{"kind":"PodList","items":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not-json"),
        (b'{"kind":"PodList","items":5,"x":NaN}', "not-json"),
        (b'{"kind":"PodList","items":[{"metadata":5}],"x":', "not-json"),
        (podlist() + podlist(), "not-a-podlist"),
        (podlist(pod()) + b"\n" + podlist(pod()) + b"\n", "not-a-podlist"),
        (b"1 2", "not-a-podlist"),
        (b"null", "not-a-podlist"),
        (b"[]", "not-a-podlist"),
        (b'"PodList"', "not-a-podlist"),
        (b"{}", "not-a-podlist"),
        (b'{"kind":"PodList"}', "not-a-podlist"),
        (b'{"items":[]}', "not-a-podlist"),
        (b'{"kind":"PodList","items":null}', "not-a-podlist"),
        (b'{"kind":"PodList","items":{}}', "not-a-podlist"),
        (b'{"kind":"PodList","items":"x"}', "not-a-podlist"),
        (b'{"kind":null,"items":[]}', "not-a-podlist"),
        (b'{"kind":["PodList"],"items":[]}', "not-a-podlist"),
        (b'{"kind":"podlist","items":[]}', "not-a-podlist"),
        (b'{"kind":"PodMetricsList","items":[]}', "not-a-podlist"),
        (b'{"kind":"Status","status":"Failure","code":403}', "not-a-podlist"),
        (b'{"kind":"PodList","items":[],"metadata":[]}', "not-a-podlist"),
    ],
    ids=lambda value: repr(value)[-60:],
)
def test_a_file_that_is_not_one_list_is_an_error_without_records(data: bytes, code: str) -> None:
    report = audited(data)
    assert (report.verdict, codes(report), report.records) == ("error", [code], [])
    assert not report.evidence_ready


def test_a_byte_order_mark_before_a_list_is_no_fault() -> None:
    assert audited(b"\xef\xbb\xbf" + podlist(pod())).verdict == "pass"


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, (*path, key))
    if isinstance(value, list):
        for place, inner in enumerate(value):
            found += paths(inner, (*path, place))
    return found


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    made = copy.deepcopy(value)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = new
    return made


FULL = pod(
    spec={
        "initContainers": [{"name": "wait", "image": IMAGE}],
        "ephemeralContainers": [{"name": "debug", "image": IMAGE}],
        "volumes": [{"name": "model", "image": {"reference": IMAGE}}],
    },
    status={
        "initContainerStatuses": [running("wait", f"{REPO}@{sha('one')}", restartCount=0, lastState={})],
        "containerStatuses": [running("driver", f"{REPO}@{sha('one')}", restartCount=1, lastState={"terminated": {}})],
        "ephemeralContainerStatuses": [running("debug", f"{REPO}@{sha('one')}")],
    },
)
NOT_JUDGED = {"startedAt", "resourceVersion"}
JUDGED = [p for p in paths(FULL)[1:] if p[-1] not in NOT_JUDGED and not (p[0] == "status" and p[-1] == "image")]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("path", JUDGED, ids=lambda path: ".".join(map(str, path)))
def test_a_judged_field_of_another_type_is_an_error_that_names_the_item(path: tuple[Any, ...]) -> None:
    right = FULL
    for step in path:
        right = right[step]
    wrong = [w for w in (5.5, True, "text", ["list"], {"a": "dict"}) if type(w) is not type(right)]
    for value in wrong:
        report = audited(podlist(pod(name="good"), put(FULL, path, value)))
        assert (report.verdict, codes(report)) == ("error", ["malformed-pod"]), value
        assert "items[1]" in report.findings[0].message
        assert [r.pod for r in report.records] == ["good"]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    "path",
    [
        ("metadata",),
        ("metadata", "name"),
        ("metadata", "namespace"),
        ("spec",),
        ("spec", "containers"),
        *(("spec", which, 0, "name") for which in ("containers", "initContainers", "ephemeralContainers", "volumes")),
        *(
            ("status", f"{which}tatuses", 0, "name")
            for which in ("containerS", "initContainerS", "ephemeralContainerS")
        ),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_what_the_api_server_always_writes_must_be_there(path: tuple[Any, ...]) -> None:
    empty = [None, ""] if path[-1] in ("name", "namespace") else [None]
    absent = put(FULL, path, None)
    inner = absent
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    for broken in [absent, *(put(FULL, path, value) for value in empty)]:
        report = audited(podlist(pod(name="good"), broken))
        assert (report.verdict, codes(report)) == ("error", ["malformed-pod"])


@pytest.mark.usefixtures("any_size")
def test_null_is_absent_where_kubernetes_writes_null() -> None:
    nulls = pod(spec={"initContainers": None, "ephemeralContainers": None, "volumes": None, "nodeName": None})
    nulls["status"] |= {"initContainerStatuses": None, "ephemeralContainerStatuses": None}
    nulls["status"]["containerStatuses"][0] |= {"lastState": None, "restartCount": None, "containerID": None}
    assert audited(podlist(nulls)).verdict == "pass"
    for status in (None, {}, {"phase": None, "containerStatuses": None}):
        report = audited(podlist({**nulls, "status": status}))
        assert (report.verdict, [r.runtime_class for r in report.records]) == ("fail", ["unresolved"])


def test_a_pod_with_an_empty_list_of_containers_has_no_record() -> None:
    assert codes(audited(podlist(pod(spec={"containers": []})))) == ["no-containers"]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("item", [None, 5, "pod", [], True])
def test_an_item_that_is_no_object_is_malformed(item: object) -> None:
    for kind in ("PodList", "List"):
        report = audited(podlist(pod(name="good"), item, kind=kind))
        assert (report.verdict, codes(report), len(report.records)) == ("error", ["malformed-pod"], 1)


@pytest.mark.usefixtures("any_size")
def test_other_kinds_are_left_out_of_a_list_and_malformed_in_a_podlist() -> None:
    others = [
        {"kind": "Service", "metadata": {"name": "dcgm"}, "spec": {"ports": []}},
        {"kind": "Strange", "metadata": 5, "spec": {"containers": "none"}, "status": []},
        {"kind": "Strange"},
    ]
    report = audited(podlist({"kind": "Pod", **pod()}, *others, kind="List"))
    assert (report.verdict, codes(report), len(report.records)) == ("pass", [], 1)
    for other in others:
        report = audited(podlist(pod(), other))
        assert (report.verdict, codes(report), len(report.records)) == ("error", ["malformed-pod"], 1)


@pytest.mark.usefixtures("any_size")
def test_an_item_of_a_list_without_a_usable_kind_is_not_left_out() -> None:
    for item in (pod(), {"kind": None, **pod()}, {"kind": "", **pod()}):
        for listed in ("List", "PodList"):
            report = audited(podlist(item, kind=listed))
            assert (report.verdict, codes(report), len(report.records)) == ("pass", [], 1)
    assert codes(audited(podlist({"kind": "", "metadata": 5}, kind="List"))) == ["malformed-pod"]
    for kind in (5, [], {}):
        assert codes(audited(podlist({"kind": kind, **pod()}, kind="List"))) == ["malformed-pod"]
    assert codes(audited(podlist({"metadata": {"name": "x"}}, kind="List"))) == ["malformed-pod"]


@pytest.mark.usefixtures("any_size")
def test_two_entries_of_one_name_are_malformed() -> None:
    for path in ("containers", "initContainers", "ephemeralContainers", "volumes"):
        entry = FULL["spec"][path][0]
        assert codes(audited(podlist(put(FULL, ("spec", path), [entry, entry])))) == ["malformed-pod"]
    for path in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        entry = FULL["status"][path][0]
        assert codes(audited(podlist(put(FULL, ("status", path), [entry, entry])))) == ["malformed-pod"]


def doubled(text: str, key: str, value: str) -> bytes:
    """The text with another value for a key before the one that stands in it."""
    at = text.index(f'"{key}": ')
    return (text[:at] + f'"{key}": {value}, ' + text[at:]).encode()


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("first", [IMAGE, f"{REPO}:latest"])
def test_an_image_that_stands_twice_is_malformed_whichever_comes_last(first: str) -> None:
    report = audited(doubled(podlist(pod()).decode(), "image", json.dumps(first)))
    assert (report.verdict, codes(report), report.records) == ("error", ["malformed-pod"], [])


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("imageID", json.dumps(f"{REPO}@{sha('two')}")),
        ("containers", json.dumps([{"name": "hidden", "image": f"{REPO}:latest"}])),
        ("containerStatuses", json.dumps([running("driver", f"{REPO}@{sha('two')}")])),
        ("spec", json.dumps({"containers": [{"name": "hidden", "image": f"{REPO}:latest"}]})),
        ("status", json.dumps({"containerStatuses": [running("driver", "x")]})),
        ("items", json.dumps([pod(f"{REPO}:latest")])),
    ],
)
def test_what_hides_an_image_behind_a_second_key_is_an_error(key: str, value: str) -> None:
    report = audited(doubled(podlist(pod()).decode(), key, value))
    assert (report.verdict, report.records) == ("error", [])
    assert codes(report) == ["not-a-podlist" if key == "items" else "malformed-pod"]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("shared", ["begin", "end", "begin and end"])
def test_two_lists_of_items_are_an_error_also_where_they_share_pods(shared: str) -> None:
    same, bad, other = (json.dumps(p) for p in (pod(), pod(f"{REPO}:latest", name="hidden"), pod(name="other")))
    first, second = {
        "begin": ([same, bad], [same, other]),
        "end": ([bad, same], [other, same]),
        "begin and end": ([same, bad, other], [same, other]),
    }[shared]
    text = f'{{"kind":"PodList","items":[{",".join(first)}],"items":[{",".join(second)}]}}'
    report = audited(text.encode())
    assert (report.verdict, codes(report), report.records) == ("error", ["not-a-podlist"], [])


@pytest.mark.usefixtures("any_size")
def test_an_image_behind_a_key_that_is_spelled_with_an_escape_is_malformed() -> None:
    text = podlist(pod()).decode().replace('"image":', r'"image": "r/hidden:latest", "\u0069mage":')
    report = audited(text.encode())
    assert (report.verdict, codes(report)) == ("error", ["malformed-pod"])


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("more", [{"continue": "abc"}, {"remainingItemCount": 3}])
def test_a_page_is_incomplete_also_where_other_metadata_stands_behind_it(more: dict[str, Any]) -> None:
    report = audited(podlist(pod(), metadata=more))
    assert (report.verdict, codes(report)) == ("error", ["incomplete-list"])
    twice = podlist(pod()).decode().replace('"metadata":', f'"metadata": {json.dumps(more)}, "metadata":', 1)
    assert codes(audited(twice.encode())) == ["not-a-podlist"]


@pytest.mark.usefixtures("any_size")
def test_a_list_in_the_list_is_no_other_kind_that_may_be_left_out() -> None:
    inner = json.loads(podlist(pod(f"{REPO}:latest")))
    report = audited(podlist({**pod(), "kind": "Pod"}, {"kind": "Service"}, inner, kind="List"))
    assert (report.verdict, codes(report), len(report.records)) == ("error", ["malformed-pod"], 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", '"other"'),
        ("namespace", '"other"'),
        ("phase", '"Failed"'),
        ("nodeName", '"gpu-b"'),
        ("metadata", '{"continue": "abc"}'),
        ("kind", '"NodeList"'),
        ("containerID", '"cri-o://x"'),
        ("state", "null"),
    ],
)
def test_in_a_small_file_every_key_that_stands_twice_is_an_error(key: str, value: str) -> None:
    report = audited(doubled(podlist(pod()).decode(), key, value))
    assert (report.verdict, report.records) == ("error", [])


@pytest.mark.usefixtures("any_size")
def test_depth_and_numbers_that_python_cannot_hold_are_errors() -> None:
    deep = podlist(pod(spec={"x": "HERE"})).replace(b'"HERE"', b"[" * 100_000 + b"]" * 100_000)
    assert audited(deep).verdict == "error"
    for huge in (b"9" * 5000, b"1e999999"):
        number = podlist(pod(status={"containerStatuses": [running("driver", "x", restartCount=7777)]}))
        assert codes(audited(number.replace(b"7777", huge))) == ["malformed-pod"]


@pytest.mark.usefixtures("any_size")
def test_a_lone_surrogate_is_an_error_and_no_crash() -> None:
    report = audited(podlist(pod(name="HERE")).replace(b"HERE", b"\\ud800"))
    assert report.verdict == "error"
    assert report.as_json()


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "image", "spec"]), inner),
        max_leaves=6,
    ),
    st.sampled_from(paths(FULL)[1:]),
)
def test_any_value_anywhere_gives_a_report_and_passes_only_what_it_must(value: Any, path: tuple[Any, ...]) -> None:
    report = audited(podlist(put(FULL, path, value)))
    assert report.verdict in ("pass", "fail", "error")
    assert json.loads(report.as_json())["verdict"] == report.verdict
    if report.verdict == "pass":
        assert {r.audit for r in report.records} == {"pass"}


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 10_000), st.booleans())
def test_any_damage_to_the_bytes_gives_a_report(noise: bytes, at: int, cut: bool) -> None:
    whole = podlist(FULL, pod(name="other"))
    place = at % len(whole)
    report = audited(whole[:place] + noise + (b"" if cut else whole[place:]))
    assert report.verdict in ("pass", "fail", "error")
    if cut and place < len(whole) - 1 and noise.strip() in (b"", b"{"):
        assert report.verdict == "error"
