"""Manifests in other documents, in texts and in the open, reviewed as if they stood alone.

Covered: objects in objects, lists and values; Fleet bundles plain and compressed, ConfigMaps of add-ons, binary data,
files for nodes, patches, what was last applied, values in ConfigMaps and in bundles, texts in texts, places of
what is found, what cannot be read, bombs, charts that are packed unrendered, and texts that are something else. Not
covered: texts that are no documents (test_mentions).
"""

from __future__ import annotations

import base64
import gzip
import json
import textwrap

import pytest

from gpurunbook.supply.manifests import Reviewed, review

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: x, namespace: n}
spec:
  containers:
    - name: c
      image: IMAGE
"""
BAD, GOOD = POD.replace("IMAGE", "r.example/a:latest"), POD.replace("IMAGE", "r.example/a:v1")
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: b\n"


def reviewed(text: str, path: str = "rendered.yaml") -> Reviewed:
    return review([(path, text.encode())])


def said(text: str) -> list[str]:
    return [found.finding.code for found in reviewed(text).found]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def gz(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def block(text: str, by: int) -> str:
    return "|\n" + textwrap.indent(text, " " * by)


def bundle(content: str, name: str = "a.yaml", encoding: str = "") -> str:
    said = f"      encoding: {encoding}\n" if encoding else ""
    return (
        "apiVersion: fleet.cattle.io/v1alpha1\nkind: Bundle\nmetadata: {name: b, namespace: fleet-local}\n"
        f"spec:\n  resources:\n    - name: {name}\n{said}      content: {content}"
    )


def config(key: str, value: str, part: str = "data", kind: str = "ConfigMap") -> str:
    return f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: addon, namespace: n}}\n{part}:\n  {key}: {value}"


CARRIERS = {
    "Fleet bundle": lambda text: bundle(block(text, 8)),
    "Fleet bundle, base64": lambda text: bundle(b64(text), encoding="base64"),
    "Fleet bundle, compressed": lambda text: bundle(gz(text), encoding="base64+gz"),
    "Fleet content": lambda text: (
        "apiVersion: fleet.cattle.io/v1alpha1\nkind: Content\nmetadata: {name: s-1}\n"
        f"content: {gz(json.dumps({'resources': [{'name': 'a.yaml', 'content': text}]}))}"
    ),
    "add-on in a ConfigMap": lambda text: config("addon.yaml", block(text, 4)),
    "add-on under any key": lambda text: config("data", block(text, 4)),
    "add-on with a beginning": lambda text: config("addon.yaml", block("# ours\n\n---\n" + text, 4)),
    "several documents": lambda text: config("addon.yaml", block(f"{GOOD}---\n{text}", 4)),
    "as JSON": lambda text: config("addon.yaml", json.dumps(text)),
    "binary data": lambda text: config("addon.yaml", b64(text), part="binaryData"),
    "binary data, compressed": lambda text: config("addon.yaml", gz(text), part="binaryData"),
    "a file for a node": lambda text: (
        "kind: KubeadmConfig\nspec:\n  files:\n    - path: /etc/kubernetes/manifests/a.yaml\n"
        f"      content: {block(text, 8)}"
    ),
    "a compressed file for a node": lambda text: (
        f"kind: KubeadmConfig\nspec: {{files: [{{path: /a, encoding: gzip+base64, content: {gz(text)}}}]}}"
    ),
    "an inline manifest of Talos": lambda text: (
        f"cluster:\n  inlineManifests:\n    - name: a\n      contents: {block(text, 8)}"
    ),
    "a patch in a list": lambda text: f"patchesStrategicMerge:\n  - {block(text, 6)}",
    "a bundle in a ConfigMap": lambda text: config("b.yaml", block(bundle(block(text, 8)), 4)),
    "in a List": lambda text: json.dumps({"kind": "List", "items": [{"kind": "ConfigMap", "data": {"a": text}}]}),
}


@pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)
def test_a_manifest_in_a_text_is_judged_as_in_the_open(carrier) -> None:  # type: ignore[no-untyped-def]
    assert said(carrier(GOOD)) == []
    assert said(carrier(BAD)) == ["explicit-latest"]
    assert said(carrier(SECRET)) == ["secret-value"]
    assert "auto-upgrade-unset" in said(carrier("apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec: {driver: {}}\n"))
    release = (
        "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {chart: {spec: {chart: x, version: 1.x}}}\n"
    )
    assert said(carrier(release)) == ["chart-version-range"]


def test_what_was_last_applied_is_judged_too() -> None:
    applied = json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "eA=="}})
    for key, text in (
        ("kubectl.kubernetes.io/last-applied-configuration", applied),
        ("kapp.k14s.io/original", applied),
        ("objectset.rio.cattle.io/applied", gz(applied)),
    ):
        assert said(json.dumps({"kind": "Thing", "metadata": {"annotations": {key: text}}})) == ["secret-value"]


LATEST = ["explicit-latest"]
REPLACE = "- op: replace\n  path: /spec/template/spec/containers/0/image\n  value: r.example/a:"


@pytest.mark.parametrize(
    ("patch", "codes"),
    [
        ("spec:\n  template:\n    spec:\n      containers: [{name: c, image: 'r.example/a:latest'}]\n", LATEST),
        (f"{REPLACE}latest\n", LATEST),
        (f"{REPLACE}v1\n", []),
        ("- op: replace\n  path: /spec/replicas\n  value: 3\n", []),
    ],
)
@pytest.mark.parametrize(
    "holder", ["spec: {POST: [{kustomize: {patches: [{patch: TEXT}]}}]}", "patches: [{patch: TEXT}]"]
)
def test_a_patch_in_a_text_is_judged(holder: str, patch: str, codes: list[str]) -> None:
    kind = "kind: HelmRelease\n" if "POST" in holder else ""
    text = kind + holder.replace("POST", "postRenderers").replace("TEXT", json.dumps(patch))
    assert said(text) == codes
    assert said(patch) == codes, "in the open"


def test_a_finding_in_a_text_says_the_whole_way() -> None:
    text = config("addon.yaml", block(f"{GOOD}---\n{BAD}", 4))
    (found,) = reviewed(text).found
    assert found.finding.subject == "n/ConfigMap/addon"
    assert text.splitlines()[found.line - 1].strip() == "image: r.example/a:latest"
    assert found.finding.message == (
        "data.addon.yaml, line 15, n/Pod/x: spec.containers[0].image: 'r.example/a:latest' asks for latest"
    )


def test_a_text_that_is_not_written_as_it_stands_is_placed_at_its_line() -> None:
    for text in (
        bundle(gz(BAD), encoding="base64+gz"),
        bundle(json.dumps(BAD)),
        bundle(block(config("k", json.dumps(BAD)), 8)),
    ):
        (found,) = reviewed(text).found
        line = text.splitlines()[found.line - 1]
        assert line.strip().startswith(("content: ", "k: "))
        assert "line 7, n/Pod/x: spec.containers[0].image" in found.finding.message
    assert "spec.resources[0].content, line 5, n/ConfigMap/addon: data.k, line 7" in found.finding.message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (config("a.yaml", block(GOOD + "  bad: [\n", 4)), "syntax"),
        (bundle(block(GOOD.replace("r.example/a:v1", "{{ .Values.image }}"), 8)), "unknown-field"),
        (bundle(block("{{- if .x }}\n" + GOOD + "{{- end }}\n", 8)), "unknown-field"),
        (config("a.yaml", block(GOOD + "kind: Pod\n", 4)), "duplicate-key"),
        (config("a.yaml", json.dumps(GOOD + "a: !!str b\n")), "tag"),
        (bundle(gz(GOOD)[:-12], encoding="base64+gz"), "encoding"),
        (bundle("not base64!", encoding="base64+gz"), "encoding"),
        (bundle("aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=", encoding="gzip"), "encoding"),
        (config("a.yaml", gz(GOOD)[:-12], part="binaryData"), "encoding"),
        (bundle(block("a: [\n" + "# filled up to some length\n", 8), name="values.yaml"), "syntax"),
    ],
)
def test_a_text_meant_as_a_manifest_that_cannot_be_read_makes_the_answer_an_error(text: str, code: str) -> None:
    answer = reviewed(text)
    assert (answer.verdict, {found.finding.code for found in answer.found}) == ("error", {code})
    assert said(text + "\n---\n" + BAD)[-1] == "explicit-latest", "what follows is judged all the same"


SCRIPT = f"#!/bin/sh\nset -eu\ncat <<'EOF' | kubectl apply -f -\n{GOOD}EOF\n"
NOTHING = {
    "script": SCRIPT,
    "script without a first line": SCRIPT.removeprefix("#!/bin/sh\n"),
    "prose": f"# Notes\n\nApply this:\n\n```yaml\n{GOOD}```\n",
    "dashboard": json.dumps({"panels": [{"type": "graph", "kind": "line", "title": "a"}]}),
    "Prometheus": "global:\n  scrape_interval: 15s\nscrape_configs:\n  - job_name: kind\n    kind: x\n",
    "TOML": '[plugins]\n  kind = "image"\n  containers = "apiVersion"\n',
    "shell profile": "export kind=apiVersion\nexport image=containers\n",
    "device plugin": "version: v1\nflags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    resources: []\n",
    "scheduler": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: []\n",
    "HAMi devices": "nvidia:\n  resourceCountName: nvidia.com/gpu\n  deviceSplitCount: 10\n  knownMigGeometries: []\n",
    "nginx": "server {\n  image containers kind apiVersion;\n}\n",
    "certificate": "-----BEGIN CERTIFICATE-----\n" + "QUFB" * 40 + "\n-----END CERTIFICATE-----\n",
    "base64 of nothing": "eyJ" + "A" * 60,
    "Python": "import yaml\n\nPOD = {'apiVersion': 'v1', 'kind': 'Pod'}\n",
}


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_what_is_something_else_makes_no_noise(text: str) -> None:
    assert said(config("file", json.dumps(text))) == []
    assert said(config("file", b64(text), part="binaryData")) == []
    assert said(json.dumps({"kind": "Pod", "spec": {"containers": [{"image": "a:1", "args": ["-c", text]}]}})) == []


def test_a_binary_file_is_something_else() -> None:
    data = base64.b64encode(bytes(range(256))).decode()
    assert said(config("file", data, part="binaryData")) == []


def test_the_password_of_a_machine_in_cloud_init_is_a_secret() -> None:
    def machine(data: str) -> str:
        return json.dumps({"kind": "VirtualMachine", "spec": {"cloudInitNoCloud": {"userData": data}}})

    assert said(machine("#cloud-config\npassword: hunter2\n")) == ["secret-value"]
    assert said(machine("#cloud-config\nusers: [{name: a, ssh_authorized_keys: [ssh-ed25519 AAAA]}]\n")) == []
    assert said(machine("#cloud-config\n{{ template }}: [\n")) == [], "a template of cloud-init is no manifest"


TEMPLATES = {
    "Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
    "values.yaml": "image: {repository: r.example/a, tag: latest}\n",
    "templates/a.yaml": "{{- if .Values.on }}\n" + GOOD + "{{- end }}\n",
    "templates/b.yaml": GOOD.replace("r.example/a:v1", "'{{ .Values.image }}'"),
    "templates/plain.yaml": BAD,
    "charts/d/templates/c.yaml": '{{ include "d.pod" . }}: {kind: apiVersion}\nkind: Pod\napiVersion: v1\n',
}


@pytest.mark.parametrize("content", [False, True])
def test_a_chart_in_a_bundle_is_told_once_and_what_is_no_template_is_judged(content: bool) -> None:
    resources = [{"name": name, "content": text} for name, text in TEMPLATES.items()]
    bundled = {"apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Bundle", "spec": {"resources": resources}}
    packed = {"apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Content"}
    text = json.dumps(packed | {"content": gz(json.dumps({"resources": resources}))} if content else bundled)
    assert sorted(said(text)) == ["explicit-latest"] * 2 + ["not-rendered"] * 2
    assert reviewed(text).verdict == "error"


def test_what_looks_like_a_template_in_a_bundle_and_is_none_is_judged() -> None:
    alert = "apiVersion: v1\nkind: PrometheusRule\nspec: {description: 'on {{ $labels.node }}'}\n"
    assert said(bundle(block(alert, 8), name="alerts.yaml")) == []


def test_a_chart_in_an_object_cannot_be_judged() -> None:
    text = f"apiVersion: helm.cattle.io/v1\nkind: HelmChart\nspec:\n  chartContent: {gz('Chart.yaml')}\n"
    (one,) = reviewed(text).found
    assert (one.finding.code, one.finding.status, one.line) == ("not-rendered", "unknown", 4)


def test_a_template_of_a_secret_is_filled_in_elsewhere() -> None:
    text = "apiVersion: v1\nkind: Config\n{{ .token }}\n"
    template = {"template": {"data": {"config": text}}}
    assert said(json.dumps({"kind": "ExternalSecret", "spec": {"target": template}})) == []
    assert said(json.dumps({"kind": "Thing", "spec": {"target": template}})) == ["syntax"]


def test_examples_of_a_catalogue_are_not_applied() -> None:
    examples = json.dumps([{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": {"driver": {}}}])
    text = {"kind": "ClusterServiceVersion", "metadata": {"annotations": {"alm-examples": examples}}}
    assert said(json.dumps(text)) == []


def test_the_words_of_a_schema_are_no_manifests() -> None:
    text = json.dumps({"kind": "CustomResourceDefinition", "spec": {"description": BAD}})
    assert said(text) == []


VALUES = "driver: {upgradePolicy: {autoUpgrade: SWITCH}, kernelModuleType: open}\ntoolkit: {version: v1.19.1}\n"


def helm(more: str = "", values: str = "") -> str:
    said = f"    - name: values.yaml\n      content: {block(values, 8)}" if values else ""
    return (
        "apiVersion: fleet.cattle.io/v1alpha1\nkind: Bundle\nmetadata: {name: b}\nspec:\n"
        f"  helm: {{chart: 'oci://r.example/gpu-operator', version: v26.3.3{more}}}\n  resources:\n{said or '    []'}"
    )


def test_the_values_of_a_bundle_are_those_of_its_release() -> None:
    given = ", valuesFiles: [values.yaml]"
    assert said(helm(given, VALUES.replace("SWITCH", "false"))) == []
    assert said(helm(given, VALUES.replace("SWITCH", "true"))) == ["auto-upgrade-on"]
    assert said(helm(given)) == ["values-elsewhere"] * 2
    assert said(helm()) == ["auto-upgrade-unset", "kernel-module-type-unset"]
    inline = ", values: {driver: {kernelModuleType: auto, upgradePolicy: {autoUpgrade: false}}}"
    assert said(helm(inline)) == ["kernel-module-type-auto"]
    assert said(helm(values=VALUES.replace("SWITCH", "true"))) == [
        "auto-upgrade-unset",
        "kernel-module-type-unset",
        "auto-upgrade-on",
    ], "values that the release does not name are not its own, and are judged all the same"
    bad = "gfd: {repository: r.example, image: i, version: latest}\n"
    assert said(helm(given, VALUES.replace("SWITCH", "false") + bad)) == ["explicit-latest"]


FROM = (
    "kind: HelmRelease\nmetadata: {name: r, namespace: n}\nspec:\n"
    "  chart: {spec: {chart: gpu-operator, version: v26.3.3}}\n"
    "  valuesFrom: [{kind: ConfigMap, name: addon, valuesKey: KEY}]\n---\n"
)


@pytest.mark.parametrize("key", ["values.yaml", "gpu.yml", "base"])
def test_values_of_a_release_count_under_any_key(key: str) -> None:
    def both(values: str) -> list[str]:
        return said(FROM.replace("KEY", key) + config(key, block(values, 4)))

    assert both(VALUES.replace("SWITCH", "false")) == []
    assert both(VALUES.replace("SWITCH", "true")) == ["auto-upgrade-on"]
    bad = "gfd: {repository: r.example, image: i, version: latest}\n"
    assert both(VALUES.replace("SWITCH", "false") + bad) == ["explicit-latest"]
    assert sorted(both("driver: [\n")) == ["syntax", "values-elsewhere", "values-elsewhere"]


def test_values_in_a_configmap_are_judged_without_their_release() -> None:
    assert said(config("values.yaml", block(VALUES.replace("SWITCH", "true"), 4))) == ["auto-upgrade-on"]
    assert said(config("values.yaml", block("driver: {version: v1}\ntoolkit: {}\n", 4))) == ["values-elsewhere"] * 2


def test_a_finding_in_a_layer_of_values_stands_in_that_file() -> None:
    fleet = "helm: {chart: gpu-operator, repo: 'https://c.example', version: v26.3.3, valuesFiles: [values.yaml]}\n"
    values = "# ours\n" + VALUES.replace("SWITCH", "true")
    (found,) = review([("g/fleet.yaml", fleet.encode()), ("g/values.yaml", values.encode())]).found
    assert (found.file, found.line, found.finding.code) == ("g/values.yaml", 2, "auto-upgrade-on")
    (found,) = reviewed(FROM.replace("KEY", "values.yaml") + config("values.yaml", block(values, 4))).found
    assert (found.line, found.finding.subject) == (13, "n/HelmRelease/r")
    assert found.finding.message.startswith("data.values.yaml, line 2: ")


def test_texts_in_texts_end_somewhere() -> None:
    text = BAD
    for _ in range(20):
        text = config("a", json.dumps(text))
    assert said(text) == ["too-large"]


def test_what_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpurunbook.supply.manifests.LIMIT", 1 << 20)
    data = base64.b64encode(gzip.compress(GOOD.encode() + b"#" * (2 << 20), mtime=0)).decode()
    assert said(bundle(data, encoding="base64+gz")) == ["too-large"]
    many = "---\n".join(bundle(gz(GOOD + "# " + "x" * (300 << 10)), encoding="base64+gz") + "\n" for _ in range(5))
    assert "too-large" in said(many)


def test_small_alias_bombs_in_many_texts_are_one() -> None:
    small = "apiVersion: v1\nkind: X\na: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(4)
    )
    data = {f"k{n}": small for n in range(60)}
    assert set(said(json.dumps({"kind": "ConfigMap", "data": data}))) == {"alias"}


@pytest.mark.parametrize("text", ["\n" * 300_000, " " * 300_000, "{ " * 100_000, "- " * 100_000, "eyJ" + " " * 300_000])
def test_a_text_of_blanks_does_not_cost_its_square(text: str) -> None:
    words = "kind apiVersion image containers op path /image"
    for one in (text + words, words + text, text):
        assert said(config("file", json.dumps(one))) == []


HOLDERS = {
    "a list": lambda one: [one],
    "Helm values": lambda one: {"replicas": 1, "extraObjects": [one]},
    "ManifestWork": lambda one: {"kind": "ManifestWork", "spec": {"workload": {"manifests": [one]}}},
    "Crossplane": lambda one: {"kind": "Object", "spec": {"forProvider": {"manifest": one}}},
    "Kyverno": lambda one: {"kind": "Policy", "spec": {"rules": [{"generate": {"data": one}}]}},
    "Template": lambda one: {"kind": "Template", "metadata": {"name": "t"}, "objects": [one]},
    "twice": lambda one: {"kind": "A", "spec": {"b": {"apiVersion": "v1", "kind": "B", "spec": {"c": one}}}},
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_an_object_in_another_one_is_judged_as_if_it_stood_alone(holder) -> None:  # type: ignore[no-untyped-def]
    def both(kind: str, **parts: object) -> list[str]:
        one = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, **parts}
        if kind == "ClusterPolicy":
            one["apiVersion"] = "nvidia.com/v1"
        return said(json.dumps(holder(one)))

    assert both("Secret", stringData={"a": "b"}) == ["secret-value"]
    assert both("Secret", type="Opaque") == []
    assert both("Pod", spec={"containers": [{"image": "r.example/a:latest"}]}) == ["explicit-latest"]
    assert both("Pod", spec={"containers": [{"name": "a"}]}) == ["empty-reference"]
    assert both("ClusterPolicy", spec={"driver": {"enabled": False}}) == ["auto-upgrade-unset"]
    driver = {"enabled": False, "upgradePolicy": {"autoUpgrade": False}}
    assert both("ClusterPolicy", spec={"driver": driver, "toolkit": {"version": "latest"}}) == ["explicit-latest"]
    chart = {"chart": "x", "version": "1.x"}
    assert both("HelmRelease", spec={"chart": {"spec": chart}}) == ["chart-version-range"]
    release = {"chart": {"spec": {"chart": "gpu-operator", "version": "v1.2.3"}}, "values": {"driver": driver}}
    assert both("HelmRelease", spec=release) == []


def test_a_reference_to_an_object_is_none() -> None:
    owner = {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmChart", "name": "x"}
    assert said(json.dumps({"kind": "Thing", "metadata": {"ownerReferences": [owner]}, "spec": {"ref": owner}})) == []


def test_a_patch_need_not_name_the_image() -> None:
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}
    patch["spec"] = {"template": {"spec": {"containers": [{"name": "a", "args": ["-v"]}]}}}
    for text in (
        {"kind": "Kustomization", "spec": {"patches": [{"patch": json.dumps(patch)}]}},
        {"patchesStrategicMerge": [json.dumps(patch)]},
        {"kind": "Cluster", "spec": {"patches": [patch]}},
    ):
        assert said(json.dumps(text)) == []
        assert said(
            json.dumps(text)
            .replace("args", "image")
            .replace('[\\"-v\\"]', '\\"a:latest\\"')
            .replace('["-v"]', '"a:latest"')
        ) == ["explicit-latest"]
    for field in ("dispatch", "dispatchTemplate"):
        assert said(json.dumps({"kind": "Cluster", "spec": {field: [patch]}})) != [], field


def test_an_object_in_another_one_is_found_at_its_line() -> None:
    text = "kind: Work\nmetadata: {name: w}\nspec:\n  manifests:\n" + textwrap.indent(
        "- " + textwrap.indent(BAD, "  ")[2:], "    "
    )
    (found,) = reviewed(text).found
    assert text.splitlines()[found.line - 1].strip() == "image: r.example/a:latest"
    assert found.finding.subject == "Work/w"
    assert found.finding.message.startswith("spec.manifests[0], line 11, n/Pod/x: spec.containers[0].image: ")
