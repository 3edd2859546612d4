"""What stands beside manifests in a folder: charts that are not rendered, packed charts, files of other kinds.

Covered: a chart's source as a user has it, with subcharts; what of it is judged all the same; packed charts; that every
other file is named; secrets in such files; the same in JSON and for people. Not covered: the promotion's folders
(test_promotion_release).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.cli import main
from gpurunbook.supply.manifests import review

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: 'r.example/a:IMAGE'}]}\n"
GOOD, BAD = POD.replace("IMAGE", "v1"), POD.replace("IMAGE", "latest")
TEMPLATE = "{{- if .Values.on }}\nkind: Pod\nspec:\n  {{- toYaml .Values.spec | nindent 2 }}\n{{- end }}\n"
QUOTED = "kind: Pod\nspec: {containers: [{name: c, image: '{{ .Values.image }}'}]}\n"
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
    "values.yaml": "image: {repository: r.example/a, tag: v1}\n",
    "templates/a.yaml": TEMPLATE,
    "templates/sub/b.yaml": QUOTED,
    "templates/_helpers.tpl": "{{- define \"x\" }}{{ end }}\n",
    "crds/crd.yaml": "kind: CustomResourceDefinition\nspec: {description: 'as {{ x }}'}\n",
}  # fmt: skip


def lay(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def run(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ended:
        main(["review-manifests", str(folder), "-o", "json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == {"pass": 0, "fail": 1, "error": 2}[answer["verdict"]]
    for found in answer["findings"]:
        found["file"] = str(Path(found["file"]).relative_to(folder))
    answer["passed_over"] = [name.removeprefix(f"{folder}/") for name in answer["passed_over"]]
    return answer


def codes(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(found["file"], found["code"]) for found in answer["findings"]]


def test_a_chart_is_told_once_and_its_values_and_definitions_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(tmp_path, CHART)
    answer = run(capsys, tmp_path)
    assert (answer["verdict"], codes(answer)) == ("error", [("Chart.yaml", "not-rendered")])
    assert "templates/a.yaml, templates/sub/b.yaml" in answer["findings"][0]["message"]
    assert (answer["files"], answer["passed_over"]) == (3, ["templates/_helpers.tpl"])


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("values.yaml", "image: {repository: r.example/a, tag: latest}\n", "explicit-latest"),
        ("prod-values.yaml", "image: {repository: r.example/a, tag: latest}\n", "explicit-latest"),
        ("templates/plain.yaml", BAD, "explicit-latest"),
        ("crds/pod.yaml", BAD, "explicit-latest"),
        ("templates/NOTES.txt", "glpat-" + "a1B2" * 6, "known-token"),
    ],
)
def test_what_is_bad_in_a_chart_is_told_though_it_is_not_rendered(
    name: str, text: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(tmp_path, CHART | {name: text})
    answer = run(capsys, tmp_path)
    assert answer["verdict"] == "error"
    assert set(codes(answer)) == {("Chart.yaml", "not-rendered"), (name, code)}


def test_subcharts_belong_to_the_chart_that_holds_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(tmp_path, {f"one/{name}": text for name, text in CHART.items()})
    lay(
        tmp_path, {f"one/charts/two/{name}": text for name, text in CHART.items()} | {"one/charts/three-1.tgz": b"\x1f"}
    )
    lay(tmp_path, {f"other/{name}": text for name, text in CHART.items()})
    answer = run(capsys, tmp_path)
    assert codes(answer) == [("one/Chart.yaml", "not-rendered"), ("other/Chart.yaml", "not-rendered")]
    assert "charts/three-1.tgz" in answer["findings"][0]["message"]


def test_a_file_that_a_template_puts_in_belongs_to_the_chart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(tmp_path, {"Chart.yaml": CHART["Chart.yaml"], "files/job.yaml": TEMPLATE})
    assert codes(run(capsys, tmp_path)) == [("Chart.yaml", "not-rendered")]


def test_a_chart_without_templates_of_its_own_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(tmp_path, {name: text for name, text in CHART.items() if not name.startswith("templates/")})
    assert run(capsys, tmp_path)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("values.yaml", "pass"), ("ci/one-values.yaml", "pass"), ("other.yaml", "error"), ("../values.yaml", "error")],
)
def test_values_of_a_chart_may_be_none(
    name: str, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(tmp_path / "c", {"Chart.yaml": CHART["Chart.yaml"], name: ""})
    assert run(capsys, tmp_path)["verdict"] == verdict


def test_a_template_outside_a_chart_is_refused_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(tmp_path, {"a/Chart.yaml": CHART["Chart.yaml"], "b/templates/a.yaml": TEMPLATE})
    assert codes(run(capsys, tmp_path)) == [("b/templates/a.yaml", "unknown-field")]


def test_what_was_rendered_into_a_folder_of_templates_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = "kind: PrometheusRule\nspec: {description: 'on {{ $labels.node }}'}\n"
    lay(tmp_path, {"c/templates/a.yaml": alert, "c/templates/b.yaml": BAD})
    answer = run(capsys, tmp_path)
    assert codes(answer) == [("c/templates/b.yaml", "explicit-latest")]


@pytest.mark.parametrize("name", ["c-1.0.0.tgz", "charts/c.TGZ", "c.tar.gz"])
def test_a_packed_chart_cannot_be_judged(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(tmp_path, {"a.yaml": GOOD, name: b"\x1f\x8b"})
    answer = run(capsys, tmp_path)
    assert (answer["verdict"], codes(answer)) == ("error", [(name, "not-rendered")])


OTHERS = {
    "a.yaml": GOOD,
    "README.md": "postgres://user:password@db.example/x",
    "job.yaml.template": BAD,
    "rule_yaml": BAD,
    "run.sh": "nvidia-smi\n",
    "tool": b"\x7fELF\x00" + b"hf_" + b"a" * 40,
    "sub/.helmignore": "x",
}


def test_every_file_of_another_kind_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(tmp_path, OTHERS)
    (tmp_path / "link.txt").symlink_to("nowhere")
    answer = run(capsys, tmp_path)
    assert (answer["verdict"], answer["files"]) == ("pass", 1)
    assert answer["passed_over"] == sorted((OTHERS.keys() | {"link.txt"}) - {"a.yaml"})


def test_people_see_how_many_were_not_judged_and_the_first_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(tmp_path, {"a.yaml": GOOD} | {f"{n}.txt": "" for n in range(8)} | {"0\x1b[2J.txt": ""})
    with pytest.raises(SystemExit):
        main(["review-manifests", str(tmp_path), "-o", "table"])
    out = capsys.readouterr().out
    assert "not judged (9): " in out and "2.txt" in out and "and 4 more" in out
    assert "\x1b" not in out


KEY = "-----BEGIN PRIVATE KEY-----\n" + "QUJD" * 20 + "\n-----END PRIVATE KEY-----\n"
ENC = "ENC[AES256_GCM,data:eA==,iv:aXY=,tag:dGFn,type:str]"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("tls.key", "#\n" + KEY, [("private-key", 2)]),
        ("client.tok", "nvapi-" + "a1B2" * 8, [("known-token", 1)]),
        ("config", json.dumps({"auths": {"r.example": {"auth": "dTpwYXNzd29yZA=="}}}), [("registry-password", 1)]),
        ("prod.env", "# x\nexport DB_PASSWORD='hunter22'\nA=b\n", [("secret-value", 2)]),
        ("prod.env", f"DB_PASSWORD={ENC}\nTOKEN_FILE=/run/x\nAPI_TOKEN=${{T}}\nPASSWORD=\n", []),
        ("app.properties", "db.password=hunter22\n", [("secret-value", 1)]),
        ("run.sh", "DB_PASSWORD=hunter22\n", []),
        ("notes.txt", "nothing\n", []),
    ],
)
def test_a_secret_in_such_a_file_is_told(name: str, text: str, found: list[tuple[str, int]], tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    lay(tmp_path, {"a.yaml": GOOD, name: text})
    answer = run(capsys, tmp_path)
    assert [(one["code"], one["line"]) for one in answer["findings"]] == found
    assert answer["verdict"] == ("fail" if found else "pass")
    assert "hunter22" not in json.dumps(answer)


def test_charts_are_told_in_whatever_order_their_folders_come() -> None:
    files = [("b/Chart.yaml", b"name: b"), ("b/templates/x.yaml", TEMPLATE.encode()), ("a/Chart.yaml", b"name: a")]
    reviewed = review([*files, ("a/templates/x.yaml", TEMPLATE.encode())])
    assert [(one.file, one.finding.code) for one in reviewed.found] == [
        ("a/Chart.yaml", "not-rendered"),
        ("b/Chart.yaml", "not-rendered"),
    ]
