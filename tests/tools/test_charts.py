"""Charts of ours, rendered by the real helm and reviewed.

`charts/gpu-stack` has the structure of the GPU Operator's chart: an operator with images in its environment, init
containers, a ClusterPolicy with an image in three parts for each operand, NVIDIADriver and GPUCluster, CRDs, hooks, a
subchart for feature discovery, configuration in texts, a manifest in a ConfigMap, a canary. `charts/vgpu` has that of
HAMi's. `charts/operators` names images where operators of others do: in their configuration, in templates
that they fill in, in scripts, annotations, arguments, parameters of workflows, a file of a node. Covered: good values
pass rendered and as values; each kind of bad value is found at its line of what is rendered; no image of the
charts is missed, whichever is made bad. Not covered: charts that others wrote.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpurunbook.supply.manifests import Reviewed, review

pytestmark = pytest.mark.tools

CHARTS = Path(__file__).with_name("charts")
GOOD = {name: CHARTS / f"{name}-values.yaml" for name in ("gpu-stack", "vgpu", "operators")}
DIGEST = "sha256:" + "d5" * 32

Render = Callable[..., str]


@pytest.fixture(scope="module")
def render(tool: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Renders a chart with its good values and what is set over them."""
    home = tmp_path_factory.mktemp("helm")
    helm = tool("helm")

    def rendered(chart: str, *sets: str, good: bool = True) -> str:
        line = [helm, "template", "gpu", CHARTS / chart, "--namespace", "gpu-operator", "--include-crds"]
        line += ["--kube-version", "v1.35.3"]
        line += ["--values", GOOD[chart]] if good else []
        for one in sets:
            line += ["--set-json", one]
        env = {"HOME": str(home), "PATH": ""}
        done = subprocess.run([*map(str, line)], env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return rendered


def reviewed(text: str) -> Reviewed:
    return review([("rendered.yaml", text.encode())])


def found(text: str) -> list[tuple[str, str, str]]:
    """Code, subject and line of the rendered text, in order."""
    lines = text.splitlines()
    return [
        (one.finding.code, one.finding.subject.removeprefix("gpu-operator/"), lines[one.line - 1].strip())
        for one in reviewed(text).found
    ]


@pytest.mark.parametrize("chart", GOOD)
def test_a_chart_with_good_values_passes(render: Render, chart: str) -> None:
    text = render(chart)
    answer = reviewed(text)
    assert (answer.verdict, answer.found) == ("pass", ())
    assert answer.documents == sum(document is not None for document in yaml.safe_load_all(text))


def test_the_chart_has_every_part_of_the_structure(render: Render) -> None:
    kinds = {one["kind"] for one in yaml.safe_load_all(render("gpu-stack")) if one}
    wanted = {"ClusterPolicy", "CronJob", "CustomResourceDefinition", "DaemonSet", "Deployment", "Job", "Pod"}
    assert wanted | {"NodeFeatureRule", "ConfigMap", "ServiceAccount", "ClusterRole"} <= kinds


def test_the_makers_own_values_are_not_good_enough(render: Render) -> None:
    assert found(render("gpu-stack", good=False)) == [
        ("kernel-module-type-auto", "ClusterPolicy/cluster-policy", "kernelModuleType: auto"),
        ("auto-upgrade-on", "ClusterPolicy/cluster-policy", "autoUpgrade: true"),
    ]


POLICY = "ClusterPolicy/cluster-policy"
MANAGER = "registry.example/nvidia/cloud-native/k8s-driver-manager"
BAD: list[tuple[str, list[tuple[str, str, str]]]] = [
    ('driver.upgradePolicy.autoUpgrade="false"', [("yaml-trap", POLICY, 'autoUpgrade: "false"')]),
    ("driver.upgradePolicy.autoUpgrade=null", [("auto-upgrade-unset", POLICY, "upgradePolicy:")]),
    ("driver.upgradePolicy=null", [("auto-upgrade-unset", POLICY, "driver:")]),
    ('driver.kernelModuleType="auto"', [("kernel-module-type-auto", POLICY, "kernelModuleType: auto")]),
    ('driver.kernelModuleType=""', [("kernel-module-type-unset", POLICY, "driver:")]),
    (
        'operator.initContainer.image="registry.example/nvidia/wait-for:latest"',
        [("explicit-latest", "Deployment/gpu-operator", "image: registry.example/nvidia/wait-for:latest")],
    ),
    (
        'operator.initContainer.image="registry.example:5000/nvidia/wait-for"',
        [("implicit-latest", "Deployment/gpu-operator", "image: registry.example:5000/nvidia/wait-for")],
    ),
    (
        'canary.image="registry.example/nvidia/cuda:12.9.1"',
        [("canary-not-pinned", "CronJob/gpu-allocation-canary", "image: registry.example/nvidia/cuda:12.9.1")],
    ),
    (
        'feature-discovery.worker.initImage="registry.example/nfd/prepare:main"',
        [("floating-alias", "DaemonSet/gpu-nfd-worker", "image: registry.example/nfd/prepare:main")],
    ),
    ('driver.manager.version="v0.11"', []),
    ('gfd.version="sha256:abc"', [("bad-digest", POLICY, 'version: "sha256:abc"')]),
    (
        'driver.manager.image="k8s-driver-manager:latest"',
        [
            ("invalid-reference", "Deployment/gpu-operator", f'value: "{MANAGER}:latest:v0.11.0"'),
            ("invalid-reference", POLICY, 'version: "v0.11.0"'),
        ],
    ),
    (f'driver.version="{DIGEST}"', []),
    ('vgpuManager.enabled=true', [("implicit-latest", POLICY, "image: vgpu-manager")]),
    ('driver.licensingConfig.configMapName="licensing"', [("licensing-config", POLICY, "configMapName: licensing")]),
    (
        'driver.env=[{"name":"NGC_API_KEY","value":"c2VjcmV0LXZhbHVl"}]',
        [("secret-value", POLICY, "value: c2VjcmV0LXZhbHVl")],
    ),
    (
        'extraManifests=[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"pull"},"stringData":{"password":"x"}}]',
        [("secret-value", "Secret/pull", "password: x")],
    ),
    (
        'extraManifests=[{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","metadata":{"name":"r"},'
        '"spec":{"chart":{"spec":{"chart":"other","version":">=1.2.0"}}}}]',
        [("chart-version-range", "HelmRelease/r", "version: '>=1.2.0'")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "wanted"), BAD, ids=[bad[:60] for bad, _ in BAD])
def test_a_bad_value_is_found_at_its_line(render: Render, bad: str, wanted: list[tuple[str, str, str]]) -> None:
    assert found(render("gpu-stack", bad)) == wanted


def test_a_driver_of_its_own_kind_is_judged(render: Render) -> None:
    own = "driver.nvidiaDriverCRD.enabled=true"
    assert found(render("gpu-stack", own)) == []
    codes = [
        ("kernel-module-type-auto", "NVIDIADriver/default", "kernelModuleType: auto"),
    ]
    assert found(render("gpu-stack", own, 'driver.kernelModuleType="auto"')) == codes


def test_a_manifest_in_a_rendered_configmap_is_judged(render: Render) -> None:
    text = render("gpu-stack", 'helperPod.image="busybox"')
    line = "image: busybox"
    assert found(text) == [("implicit-latest", "ConfigMap/helper", line), ("implicit-latest", "Pod/gpu-ready", line)]


def _images(values: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every place of an image's version in values: the key to set, and a value that moves."""
    if isinstance(values, list):
        for n, item in enumerate(values):
            yield from _images(item, f"{path}[{n}]")
    if not isinstance(values, dict):
        return
    for key, value in values.items():
        whole = f"{path}.{key}".strip(".")
        if isinstance(value, str) and re.fullmatch(r"registry\.example/.*[:@].*", value):
            yield whole, "registry.example/moved:latest"
        elif key == "image" and "repository" in values:
            yield f"{path}.version", "latest"
        elif key == "tag" or key == "imageTag":
            yield whole, "latest"
        else:
            yield from _images(value, whole)


PLACES = [
    (chart, key, value)
    for chart in GOOD
    for key, value in _images(yaml.safe_load((CHARTS / chart / "values.yaml").read_text()))
]
ON = ("gpuCluster.deployCR=true", "driver.nvidiaDriverCRD.enabled=true", "operator.cleanupCRD=true")


@pytest.mark.parametrize(("chart", "key", "value"), PLACES, ids=[f"{chart} {key}" for chart, key, _ in PLACES])
def test_no_image_of_a_chart_is_missed(render: Render, chart: str, key: str, value: str) -> None:
    text = render(chart, *(ON if chart == "gpu-stack" else ()), f'{key}="{value}"')
    codes = {code for code, _, _ in found(text)}
    assert codes == {"explicit-latest"}, f"{key} is made latest, and that is not what is found"


def test_there_are_as_many_images_as_the_chart_has() -> None:
    assert len([one for one in PLACES if one[0] == "gpu-stack"]) == 27
    assert len([one for one in PLACES if one[0] == "vgpu"]) == 6
    assert len([one for one in PLACES if one[0] == "operators"]) == 10


# --- values


@pytest.mark.parametrize("chart", GOOD)
def test_good_values_pass_as_values(chart: str) -> None:
    assert review([("values.yaml", GOOD[chart].read_bytes())]).found == ()


VALUES = [
    ("gpu-stack", "kernelModuleType: proprietary", "kernelModuleType: auto", "kernel-module-type-auto"),
    ("gpu-stack", "kernelModuleType: proprietary", "usePrecompiled: false", "kernel-module-type-unset"),
    ("gpu-stack", "autoUpgrade: false", "autoUpgrade: true", "auto-upgrade-on"),
    ("gpu-stack", "autoUpgrade: false", "maxUnavailable: 1", "auto-upgrade-unset"),
    ("vgpu", 'tag: "v1.35.3"', 'tag: ""', "scheduler-tag-unset"),
    ("vgpu", 'tag: "v1.35.3"', "tag: latest", "explicit-latest"),
    ("vgpu", 'tag: "v1.35.3"', "tag: 1.35", "yaml-trap"),
    ("vgpu", "imageTag: v2.9.0", "imageTag: latest", "explicit-latest"),
]


@pytest.mark.parametrize(("chart", "old", "new", "code"), VALUES)
def test_bad_values_are_found_as_values(chart: str, old: str, new: str, code: str) -> None:
    text = GOOD[chart].read_text()
    assert old in text
    assert [one.finding.code for one in review([("values.yaml", text.replace(old, new).encode())]).found] == [code]


def test_a_chart_file_pins_its_dependencies() -> None:
    text = (CHARTS / "gpu-stack" / "Chart.yaml").read_text()
    assert review([("Chart.yaml", text.encode())]).found == ()
    for bad in (">=0.9.1", "0.9.x", "~0.9.1"):
        (one,) = review([("Chart.yaml", text.replace("version: 0.9.1", f'version: "{bad}"').encode())]).found
        assert one.finding.code == "chart-version-range"


# --- HAMi's structure


def test_an_empty_tag_of_the_scheduler_follows_the_cluster_and_is_found_in_the_values(render: Render) -> None:
    """What is rendered then names the version of the cluster that helm was told: only the values can tell."""
    text = render("vgpu", 'scheduler.kubeScheduler.image.tag=""')
    assert "kube-scheduler:v1.35.3" in text
    assert found(text) == []


@pytest.mark.parametrize(
    ("bad", "wanted"),
    [
        ('global.imageTag=""', [("invalid-reference", "image: registry.example/vgpu/vgpu:")] * 3),
        (
            'scheduler.patch.imageNew.tag="latest"',
            [("explicit-latest", "image: registry.example/certgen/webhook-certgen:latest")],
        ),
        (
            'global.imageRegistry="mirror.example:5000"',
            [],
        ),
    ],
)
def test_bad_values_of_the_scheduler_are_found(render: Render, bad: str, wanted: list[tuple[str, str]]) -> None:
    assert [(code, line.replace('"', "")) for code, _, line in found(render("vgpu", bad))] == wanted
