"""Review of manifests, and `gpurunbook review-manifests`.

Covered: chart versions in every kind of source, image references wherever they stand, the CUDA canary, auto-upgrade,
kernel module type and scheduler tag in policies and values, secrets and SOPS, YAML traps, aliases, lists, folders,
malformed input of every kind, a rendered fleet of some size, and that each code is documented.
Not covered: charts rendered by helm (tests/tools), and time and memory of a large fleet (tests/bench).
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.cli import main
from gpurunbook.leaks import SHAPES
from gpurunbook.supply.manifests import Review, review

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "d5" * 32
EXIT = {"pass": 0, "fail": 1, "error": 2}


def said(text: str, path: str = "rendered.yaml") -> list[str]:
    reviewed = review([(path, textwrap.dedent(text).encode())])
    return [found.finding.code for found in reviewed.found]


def pod(container: str, kind: str = "Pod", name: str = "x") -> str:
    head = f"kind: {kind}\nmetadata: {{name: {name}, namespace: n}}\nspec:\n"
    return f"{head}  containers:\n    - {{name: c, {container}}}\n"


def environment(name: str, value: str) -> str:
    return pod(f"image: a:1, env: [{{name: {name}, value: {value}}}]")


@pytest.mark.parametrize(
    ("image", "codes"),
    [
        ("nvcr.io/nvidia/driver:580.126.20", []),
        (f"nvcr.io/nvidia/driver@{DIGEST}", []),
        (f"nvcr.io/nvidia/driver:580.126.20@{DIGEST}", []),
        ("localhost:5000/driver", ["implicit-latest"]),
        ("nvcr.io/nvidia/driver", ["implicit-latest"]),
        ("nvcr.io/nvidia/driver:latest", ["explicit-latest"]),
        (f"nvcr.io/nvidia/driver:latest@{DIGEST}", ["explicit-latest"]),
        ("nvcr.io/nvidia/driver:main-latest", ["floating-alias"]),
        ("nvcr.io/nvidia/driver:main", ["floating-alias"]),
        ("nvcr.io/nvidia/driver@sha256:abc", ["bad-digest"]),
        ("nvcr.io/nvidia/driver@sha512:" + "a" * 128, ["bad-digest"]),
        ("nvcr.io/nvidia/driver:", ["invalid-reference"]),
        ("nvcr.io/nvidia/Driver:1", ["invalid-reference"]),
        ("nvcr.io/nvidia/driver:v1+k3s1", ["invalid-reference"]),
        ("", ["empty-reference"]),
        ("${REGISTRY}/driver:1", ["unresolved-variable"]),
        ("nvcr.io/nvidia/driver:$TAG", ["unresolved-variable"]),
        ("12345", ["implicit-latest"]),
    ],
)
@pytest.mark.parametrize("place", ["containers", "initContainers", "ephemeralContainers"])
def test_every_container_list_is_judged_by_the_reference_policy(image: str, codes: list[str], place: str) -> None:
    assert said(pod(f"image: '{image}'").replace("containers:", f"{place}:")) == codes


def test_a_number_as_an_image_is_a_trap() -> None:
    assert said(pod("image: 12345")) == ["yaml-trap"]


def test_a_container_without_an_image_is_none_in_a_workload_and_may_be_a_patch_elsewhere() -> None:
    assert said(pod("args: []")) == ["empty-reference"]
    assert said(pod("args: []", kind="Prometheus")) == []


@pytest.mark.parametrize(
    "text",
    [
        "kind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{image: a:latest}]}}}}}",
        "kind: Workflow\nspec: {templates: [{container: {image: a:latest}}]}",
        "kind: VirtualMachine\nspec: {template: {spec: {volumes: [{containerDisk: {image: a:latest}}]}}}",
        "kind: Prometheus\nspec: {image: a:latest}",
        "kind: Pod\nspec: {volumes: [{name: m, image: {reference: a:latest}}]}",
        environment("DRIVER_IMAGE", "a:latest"),
        "kind: CSV\nspec: {env: [{name: RELATED_IMAGE_driver, value: a:latest}]}",
        "kind: Deployment\nspec: {template: {spec: {containers: [{image: a:1, args: ['--canary-image=a:latest']}]}}}",
        "kind: ClusterPolicy2\nspec: {driver: {repository: r.example/n, image: driver, version: latest}}",
        "kind: Thing\nspec: {image: {registry: r.example, repository: n/d, tag: latest}}",
        "kind: Thing\nspec: {image: {repository: n/d, tag: 1, digest: x}}".replace("tag: 1", "tag: latest"),
        "kind: Plan\nspec: {version: latest, upgrade: {image: rancher/rke2-upgrade}}",
        "images: [{name: a, newTag: latest}]",
        "images: [{name: a, newName: r.example/a, newTag: latest}]",
        "kind: List\nitems: [{kind: Pod, spec: {containers: [{image: a:latest}]}}]",
        "kind: PodList\nitems: [{spec: {containers: [{image: a:latest}]}}]",
        "- op: replace\n  path: /spec\n  value: {image: a:latest}",
        "a: &i a:latest\nkind: Pod\nspec: {containers: [{image: *i}]}",
        "x: &c {image: a:latest}\nspec: {one: {<<: *c}}",
        "driver: {image: {repository: a, tag: latest}}",
        "driver: {tag: latest}",
        "driver: {version: latest}",
        "kind: ClusterPolicy\nspec: {toolkit: {version: latest}}",
        "kataManager: {config: {runtimeClasses: [{artifacts: {url: 'r.example/kata:latest', pullSecret: ''}}]}}",
        "image: a\ntag: latest",
        "kind: ClusterPolicy\nspec: {vgpuManager: {enabled: false, image: vgpu-manager, version: latest}}",
        "kind: GPUCluster\nspec: {draDriver: {version: latest}}",
        "kind: KubeVirt\nspec: {imageTag: latest}",
        "kind: DataVolume\nspec: {source: {registry: {url: 'docker://r.example/a/b:latest'}}}",
        "kind: Thing\nspec: {helperImage: 'busybox:latest'}",
        "kind: Deployment\nspec: {containers: [{image: a:1, args: ['--reloader=r.example/p/r:latest']}]}",
        "kind: Deployment\nspec: {containers: [{image: a:1, args: [--engine-image, 'r.example/e:latest']}]}",
        environment("HELPER", "r.example/busybox:latest"),
        environment("HELPER_IMG", "r.example/busybox:latest"),
        "- {op: replace, path: /spec/containers/0/image, value: 'r.example/a:latest'}",
        "kind: Application\nspec: {source: {chart: x, targetRevision: 1.2.3, helm: {parameters: "
        "[{name: toolkit.version, value: latest}]}}}",
        "kind: HelmChart\nspec: {chart: x, version: 1.2.3, set: {toolkit.version: latest}}",
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec: {rules: [{mutate: {patchStrategicMerge: {spec: "
        "{containers: [{name: side, image: 'r.example/side:latest'}]}}}}]}",
    ],
)
def test_latest_is_found_wherever_a_reference_stands(text: str) -> None:
    assert "explicit-latest" in said(text)


@pytest.mark.parametrize(
    "text",
    [
        "kind: ConfigMap\ndata: {image: ubuntu}",
        "kind: CustomResourceDefinition\nspec: {default: {image: ubuntu}, properties: {image: {type: string}}}",
        "kind: Pod\nmetadata: {labels: {image: ubuntu}, annotations: {image: ubuntu}}\nspec: {}",
        "kind: PersistentVolume\nspec: {rbd: {image: disk, pool: p}}",
        "kind: Pod\nstatus: {containerStatuses: [{image: a:latest}]}",
        "kind: Plan\nspec: {version: v1.35.3+rke2r3, upgrade: {image: rancher/rke2-upgrade}}",
        "kind: Prometheus\nspec: {image: r.example/p:v2.1.0, version: v2.1.0}",
        f"kind: Thing\nspec: {{driver: {{repository: r.example/n, image: driver, version: '{DIGEST}'}}}}",
        f"kind: Thing\nspec: {{image: {{repository: n/d, tag: v1, digest: '{DIGEST}'}}}}",
        "kind: Thing\nspec: {image: {repository: n/d, tag: v1}}",
        "kind: Thing\nspec: {driver: {repository: '', image: '', version: ''}}",
        "dependencies: [{name: a, repository: 'https://charts.example', version: 1.2.3}]",
        "operator: {image: {repository: n/d, tag: ''}}",
        "operator: {repository: r.example/n, image: op}",
        "images: [{name: a, newTag: v1.2.3}]",
        f"images: [{{name: a, digest: '{DIGEST}', newName: b}}]",
        "kind: Pod\nspec: {volumes: [{name: m, image: {reference: 'a:1'}}]}",
        environment("X_IMAGE", "''"),
        environment("X_IMAGE_PULL_POLICY", "Always"),
        environment("REGISTRY", "r.example:5000/a"),
        pod("image: a:1, args: [--helper-image=$(HELPER_IMAGE), --engine-image, 'r.example/e:v1', --no-image, --v=2]"),
        "kind: ImageRepository\nspec: {image: r.example/a/b}",
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec: {rules: [{validate: {pattern: {spec: {containers: "
        "[{image: '!*:latest'}]}}}}]}",
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec: {rules: [{mutate: {patchStrategicMerge: {spec: "
        "{containers: [{(name): '*', image: '{{ element.image }}'}]}}}}]}",
        "kind: Thing\nspec: {image: ~, backgroundImage: a.png, diskImage: /var/lib/a.img}",
    ],
)
def test_what_is_no_reference_or_a_good_one_passes(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("kind: T\nspec: {driver: {repository: r.example/n, image: driver}}", ["implicit-latest"]),
        ("kind: T\nspec: {driver: {repository: r.example/n, image: driver, version: ''}}", ["implicit-latest"]),
        ("kind: T\nspec: {driver: {repository: r.example/n, image: driver, version: v1.0+x}}", ["invalid-reference"]),
        ("kind: T\nspec: {driver: {repository: r.example/n, image: driver, version: 580}}", ["yaml-trap"]),
        ("kind: Thing\nspec: {image: {repository: n/d, tag: 1.10}}", ["yaml-trap"]),
        ("kind: Thing\nspec: {image: {repository: n/d, tag: 2026-08-18}}", ["yaml-trap"]),
        ("kind: Thing\nspec: {image: {repository: n/d, tag: 12e4}}", ["yaml-trap"]),
        ("kind: Thing\nspec: {image: {repository: n/d, tag: '1.10'}}", []),
        ("toolkit: {version: 1.19}", ["yaml-trap"]),
        ("toolkit: {version: v1.19.1}\nother: {version: 1.19}", []),
        ("dcgmExporter: {version: main-latest}", ["floating-alias"]),
        (f"dcgmExporter: {{version: '{DIGEST}'}}", []),
        ("kind: Thing\nspec: {image: {repository: n/d, digest: sha256:short}}", ["bad-digest"]),
        ("kind: Plan\nspec: {channel: stable, upgrade: {image: rancher/rke2-upgrade}}", ["implicit-latest"]),
        ("kind: GPUCluster\nspec: {draDriver: {enabled: false, image: dra-driver}}", []),
        ("kind: GPUCluster\nspec: {draDriver: {enabled: true, image: dra-driver}}", ["implicit-latest"]),
        ("kind: GPUCluster\nspec: {draDriver: {image: dra-driver}}", ["implicit-latest"]),
    ],
)  # fmt: skip
def test_a_reference_in_parts_is_judged_as_it_will_be_joined(text: str, codes: list[str]) -> None:
    assert said(text) == codes


CUDA = "nvcr.io/nvidia/cuda:12.9.1-base-ubuntu22.04"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (pod(f"image: {CUDA}"), ["canary-not-pinned"]),
        (pod(f"image: {CUDA}@{DIGEST}"), []),
        (pod("image: nvcr.io/nvidia/k8s/cuda-sample:v1"), ["canary-not-pinned"]),
        (pod("image: r.example/cudagraph:v1"), []),
        ("operator: {initContainer: {repository: r.example, image: cuda, version: 12.5.1-base-ubi8}}", []),
        (
            "kind: ClusterPolicy\nspec: {vfioManager: {repository: r.example, image: cuda, version: 12.5.1}, driver: "
            "{kernelModuleType: open, upgradePolicy: {autoUpgrade: false}}}",
            [],
        ),
        ("probe: {repository: r.example, image: cuda, tag: 12.5.1-base-ubi8}", ["canary-not-pinned"]),
        (pod("image: nvcr.io/nvidia/samples:vectoradd-cuda11.2.1"), ["canary-not-pinned"]),
        (pod("image: r.example/probe:v1", "CronJob", "hami-device-plugin-canary"), ["canary-not-pinned"]),
        (pod(f"image: r.example/probe@{DIGEST}", "CronJob", "hami-device-plugin-canary"), []),
        (pod("image: r.example/probe:v1", "CronJob", "probe"), []),
        ("canary: {image: {repository: r.example/probe, tag: v1}}", ["canary-not-pinned"]),
        ("canary: {image: 'r.example/probe:v1'}", ["canary-not-pinned"]),
        (f"canary: {{image: {{repository: r.example/probe, digest: '{DIGEST}'}}}}", []),
        (pod(f"image: {CUDA.replace('12.9.1', 'latest')}"), ["floating-alias"]),
    ],
)
def test_the_cuda_canary_is_pinned_by_digest(text: str, codes: list[str]) -> None:
    assert said(text) == codes


EXACT = ["1.2.3", "v26.3.3", "2.9.0", "1.0.0-rc.1", "1.2.3+build.5", "v1.2.3-alpha"]
RANGES = [
    ">=1.2.3", "~1.2", "^1.2.3", "1.2.x", "1.x", "x", "X", "*", "v1.x", "1.2", "v26.3", "1 - 2", ">1 <2", "1.0.0 || 1",
    "=1.2.3", " 1.2.3", "1.2.3 ", "1.2.3,1.2.4", "26.3.*", "１.2.3", "1.2.3\n",
]  # fmt: skip
ALIASES = ["latest", "stable", "main", "release-26.3"]


def flux(version: str) -> str:
    return f"kind: HelmRelease\nspec: {{chart: {{spec: {{chart: other, version: {version}}}}}}}"


@pytest.mark.parametrize(
    ("version", "codes"),
    [
        *((json.dumps(version), []) for version in EXACT),
        *((json.dumps(version), ["chart-version-range"]) for version in RANGES),
        *((json.dumps(version), ["chart-version-alias"]) for version in ALIASES),
        ("", ["chart-version-missing"]),
        ("''", ["chart-version-missing"]),
        ("' '", ["chart-version-missing"]),
        ("~", ["chart-version-missing"]),
        ("[1.2.3]", ["chart-version-range"]),
        ("26.3", ["yaml-trap"]),
        ("'${VERSION}'", ["unresolved-variable"]),
    ],
)
def test_a_chart_version_is_exactly_one(version: str, codes: list[str]) -> None:
    assert said(flux(version)) == codes


SOURCES = {
    "HelmRelease": "kind: HelmRelease\nspec: {chart: {spec: {chart: x, VERSION}}}",
    "Flux HelmChart": "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nspec: {chart: x, VERSION}",
    "RKE2 HelmChart": "kind: HelmChart\nspec: {chart: x, repo: 'https://c.example', VERSION}",
    "HelmChartProxy": "kind: HelmChartProxy\nspec: {chartName: x, VERSION}",
    "fleet.yaml": "helm: {chart: x, repo: 'https://c.example', VERSION}",
    "fleet.yaml by OCI": "helm: {chart: 'oci://c.example/x', VERSION}",
    "HelmOp": "kind: HelmOp\nspec: {helm: {chart: x, repo: 'https://c.example', VERSION}}",
    "kustomize": "helmCharts: [{name: x, repo: 'https://c.example', VERSION}]",
}


@pytest.mark.parametrize("text", SOURCES.values(), ids=SOURCES)
def test_every_source_of_a_chart_names_an_exact_version(text: str) -> None:
    assert said(text.replace("VERSION", "version: v1.2.3")) == []
    assert said(text.replace("VERSION", "version: '>=1.2.3'")) == ["chart-version-range"]
    assert said(text.replace("VERSION", "version: ''")) == ["chart-version-missing"]
    assert said(text.replace(", VERSION", "")) == ["chart-version-missing"]


OCI = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nspec: "
REPO = "repository: 'https://c.example'"


@pytest.mark.parametrize(
    ("text", "path", "codes"),
    [
        (f"dependencies: [{{name: a, version: ^1.0.0, {REPO}}}]", "Chart.yaml", ["chart-version-range"]),
        (f"dependencies: [{{name: a, version: 1.0.0, {REPO}}}]", "Chart.yaml", []),
        ("dependencies: [{name: a, repository: 'file://../a'}]", "Chart.yaml", []),
        ("kind: Application\nspec: {source: {chart: x, targetRevision: 1.*}}", "a.yaml", ["chart-version-range"]),
        ("kind: Application\nspec: {source: {chart: x}}", "a.yaml", ["chart-version-missing"]),
        ("kind: Application\nspec: {sources: [{chart: x, targetRevision: 1.2.3}, {path: y}]}", "a.yaml", []),
        (
            "kind: ApplicationSet\nspec: {template: {spec: {source: {chart: x, targetRevision: '{{v}}'}}}}",
            "a.yaml", ["unresolved-variable"],
        ),
        ("helm: {chart: ./local}", "fleet.yaml", []),
        ("helm: {chart: 'https://c.example/x-v1.2.3.tgz'}", "fleet.yaml", []),
        ("targetCustomizations: [{helm: {version: 1.x}}]", "fleet.yaml", ["chart-version-range"]),
        ("kind: HelmChart\nspec: {chart: 'https://c.example/x-1.2.3.tgz'}", "a.yaml", []),
        ("kind: HelmChart\nspec: {chartContent: H4sI}", "a.yaml", []),
        (
            "kind: HelmRelease\nspec: {chart: {spec: {chart: ./c, sourceRef: {kind: GitRepository, name: g}}}}",
            "a.yaml", [],
        ),
        (f"{OCI}{{ref: {{digest: '{DIGEST}'}}}}", "a.yaml", []),
        (OCI + "{ref: {digest: sha256:a}}", "a.yaml", ["bad-digest"]),
        (OCI + "{ref: {tag: v1.2.3}}", "a.yaml", []),
        (OCI + "{ref: {tag: latest}}", "a.yaml", ["chart-version-alias"]),
        (OCI + "{ref: {semver: '>=1'}}", "a.yaml", ["chart-version-range"]),
        (OCI + "{url: 'oci://x'}", "a.yaml", ["chart-version-missing"]),
    ],
)  # fmt: skip
def test_each_source_is_judged_as_its_reader_reads_it(text: str, path: str, codes: list[str]) -> None:
    assert said(text, path) == codes


REFERRING = "kind: HelmRelease\nmetadata: {name: r, namespace: n}\nspec: {chartRef: {kind: OCIRepository, name: o}}\n"
REFERRED = OCI + "{ref: {tag: 1.2.3}}\nmetadata: {name: o, namespace: n}\n"


def test_a_version_in_another_object_must_be_given_too() -> None:
    assert said(REFERRING) == ["chart-version-unknown"]
    assert said(REFERRING + "---\n" + REFERRED) == []
    assert said(REFERRED + "---\n" + REFERRING) == []
    assert said(REFERRING.replace("OCIRepository", "ExternalArtifact")) == ["chart-version-unknown"]


POLICY = {
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {"driver": {"upgradePolicy": {"autoUpgrade": False}, "kernelModuleType": "proprietary"}},
}


def policy(old: str = "", new: str = "") -> str:
    text = json.dumps(POLICY)
    assert old in text
    return text.replace(old, new) if old else text


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (policy(), []),
        (policy("false", "true"), ["auto-upgrade-on"]),
        (policy("false", '"false"'), ["yaml-trap"]),
        (policy("false", "no"), ["yaml-trap"]),
        (policy("false", "0"), ["yaml-trap"]),
        (policy("false", "null"), ["auto-upgrade-unset"]),
        (policy("false", "{}"), ["auto-upgrade-on"]),
        (policy('"autoUpgrade": false', ""), ["auto-upgrade-unset"]),
        (policy('"upgradePolicy": {"autoUpgrade": false}, ', ""), ["auto-upgrade-unset"]),
        (policy('"proprietary"', '"open"'), []),
        (policy('"proprietary"', '"auto"'), ["kernel-module-type-auto"]),
        (policy('"proprietary"', '"${TYPE}"'), ["unresolved-variable"]),
        (policy('"proprietary"', '""'), ["kernel-module-type-unset"]),
        (policy(', "kernelModuleType": "proprietary"', ""), ["kernel-module-type-unset"]),
        (policy('"kernelModuleType": "proprietary"', '"useNvidiaDriverCRD": true'), []),
        (policy('"kernelModuleType": "proprietary"', '"enabled": false'), []),
        ("kind: ClusterPolicy\n", ["auto-upgrade-unset", "kernel-module-type-unset"]),
        ("kind: ClusterPolicy\nspec: []\n", ["auto-upgrade-unset", "kernel-module-type-unset"]),
        ("kind: NVIDIADriver\nspec: {kernelModuleType: open}", []),
        ("kind: NVIDIADriver\nspec: {}", ["kernel-module-type-unset"]),
        ("kind: NVIDIADriver\nspec: {kernelModuleType: open, upgradePolicy: {autoUpgrade: true}}", ["auto-upgrade-on"]),
    ],
)
def test_a_policy_has_auto_upgrade_off_and_the_module_type_written_out(text: str, codes: list[str]) -> None:
    assert said(text) == codes


OPERATOR = "driver: {upgradePolicy: {autoUpgrade: false}, kernelModuleType: open}\ntoolkit: {version: v1.19.1}\n"
HAMI = "global: {imageTag: v2.9.0}\nscheduler: {kubeScheduler: {image: {tag: v1.35.3}}}\n"
UNSET = ["auto-upgrade-unset", "kernel-module-type-unset"]


def inline(values: str) -> str:
    return textwrap.indent(values, "    ")


ARGO = "kind: Application\nspec:\n  source:\n   targetRevision: v1.2.3\n"
CARRIERS = {
    "bare values": lambda chart, values: values,
    "HelmRelease": lambda chart, values: (
        f"kind: HelmRelease\nspec:\n  chart: {{spec: {{chart: {chart}, version: v1.2.3}}}}\n  values:\n{inline(values)}"
    ),
    "fleet.yaml": lambda chart, values: (
        f"helm:\n  chart: oci://c.example/{chart}\n  version: v1.2.3\n  values:\n{inline(values)}"
    ),
    "RKE2 HelmChart": lambda chart, values: (
        f"kind: HelmChart\nspec:\n  chart: {chart}\n  version: v1.2.3\n  valuesContent: |\n{inline(values)}"
    ),
    "HelmChartProxy": lambda chart, values: (
        f"kind: HelmChartProxy\nspec:\n  chartName: {chart}\n  version: v1.2.3\n  valuesTemplate: |\n{inline(values)}"
    ),
    "Argo values": lambda chart, values: (
        f"{ARGO}   chart: {chart}\n   helm:\n    values: |\n{textwrap.indent(values, '     ')}"
    ),
    "Argo valuesObject": lambda chart, values: (
        f"{ARGO}   chart: {chart}\n   helm:\n    valuesObject:\n{textwrap.indent(values, '     ')}"
    ),
    "umbrella": lambda chart, values: f"{chart}:\n{inline(values)}",
}  # fmt: skip


@pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)
def test_values_are_judged_wherever_they_are_carried(carrier: Any) -> None:
    assert said(carrier("gpu-operator", OPERATOR)) == []
    assert said(carrier("gpu-operator", OPERATOR.replace("autoUpgrade: false", "autoUpgrade: true"))) == [
        "auto-upgrade-on"
    ]
    assert said(carrier("gpu-operator", "toolkit: {version: v1.19.1}\ndriver: {version: 580.126.20}\n")) == UNSET
    assert "explicit-latest" in said(
        carrier("gpu-operator", OPERATOR + "gfd: {repository: r, image: i, version: latest}\n")
    )
    assert said(carrier("hami", HAMI)) == []
    assert said(carrier("hami", HAMI.replace("tag: v1.35.3", "tag: ''"))) == ["scheduler-tag-unset"]


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ("scheduler: {kubeScheduler: {imageTag: v1.35.3}}", ["scheduler-tag-ignored", "scheduler-tag-unset"]),
        ("scheduler: {kubeScheduler: {image: {tag: v1.35.3}, imageTag: v1.35.3}}", ["scheduler-tag-ignored"]),
        ("scheduler: {kubeScheduler: {image: {repository: a/kube-scheduler}}}", ["scheduler-tag-unset"]),
        ("scheduler: {kubeScheduler: {image: {tag: v1.35.3+k3s1}}}", ["invalid-reference"]),
        ("scheduler: {kubeScheduler: {image: {tag: latest}}}", ["explicit-latest"]),
        ("global: {imageTag: v2.9.0}\ndevicePlugin: {}", ["scheduler-tag-unset"]),
        ("something: {else: 1}", []),
    ],
)
def test_the_tag_of_hamis_scheduler_is_written_out(values: str, codes: list[str]) -> None:
    assert said(values) == codes


def test_a_driver_that_is_off_needs_no_module_type() -> None:
    off = "driver: {enabled: false, upgradePolicy: {autoUpgrade: false}}\ntoolkit: {version: v1.19.1}\n"
    assert said(off) == []
    assert said(off.replace("false", "true", 1)) == ["kernel-module-type-unset"]
    assert said(f"gpu-operator:\n{inline(off)}") == []


@pytest.mark.parametrize(
    "text",
    [
        "kind: HelmRelease\nspec: {chart: {spec: {chart: gpu-operator, version: v26.3.3, valuesFiles: [a.yaml]}}}",
        "kind: HelmChart\nspec: {chart: gpu-operator, version: v26.3.3, valuesSecrets: [{name: a}]}",
        "kind: Application\nspec: {source: {chart: gpu-operator, targetRevision: 1.2.3, helm: {valueFiles: [a.yaml]}}}",
        "kind: Application\nspec: {source: {chart: gpu-operator, targetRevision: 1.2.3, helm: {fileParameters: [{}]}}}",
    ],
)
def test_values_that_were_not_given_may_have_what_is_missing(text: str) -> None:
    assert said(text) == ["values-elsewhere"] * 2


def test_a_release_without_any_values_has_nothing_written_out() -> None:
    text = "kind: HelmRelease\nspec: {chart: {spec: {chart: gpu-operator, version: v26.3.3}}}"
    assert said(text) == UNSET


SET_ON = "[{name: driver.upgradePolicy.autoUpgrade, value: 'VALUE'}, {name: driver.kernelModuleType, value: open}]"


def test_what_is_set_one_by_one_counts_over_the_values() -> None:
    text = CARRIERS["Argo valuesObject"]("gpu-operator", OPERATOR).rstrip() + f"\n    parameters: {SET_ON}\n"
    assert said(text.replace("VALUE", "false")) == []
    assert said(text.replace("VALUE", "true")) == ["auto-upgrade-on"]
    single = "  set: {driver.upgradePolicy.autoUpgrade: 'VALUE'}\n"
    text = CARRIERS["RKE2 HelmChart"]("gpu-operator", OPERATOR) + single
    assert said(text.replace("VALUE", "false")) == []
    assert said(text.replace("VALUE", "true")) == ["auto-upgrade-on"]
    assert said(text.replace("'VALUE'", "~")) == ["auto-upgrade-unset"]


def test_a_later_layer_of_null_takes_away_what_was_set() -> None:
    target = "targetCustomizations: [{name: a, helm: {values: {driver: ~}}}]\n"
    assert together(g__fleet_yaml=FLEET % "" + target, g__values_yaml=OPERATOR) == [
        ("g/fleet.yaml", "auto-upgrade-unset"),
        ("g/fleet.yaml", "kernel-module-type-unset"),
    ]


def together(**files: str) -> list[tuple[str, str]]:
    reviewed = review([(path.replace("__", "/").replace("_", "."), text.encode()) for path, text in files.items()])
    return [(found.file, found.finding.code) for found in reviewed.found]


FLEET = "helm: {chart: gpu-operator, repo: 'https://c.example', version: v26.3.3, valuesFiles: [values.yaml]%s}\n"


def test_values_files_of_a_fleet_bundle_are_read_with_it() -> None:
    assert together(g__fleet_yaml=FLEET % "", g__values_yaml=OPERATOR) == []
    assert together(g__values_yaml=OPERATOR, g__fleet_yaml=FLEET % "") == []
    half = "driver: {upgradePolicy: {autoUpgrade: false}}\ntoolkit: {}\n"
    rest = ", values: {driver: {kernelModuleType: open}}"
    assert together(g__fleet_yaml=FLEET % rest, g__values_yaml=half) == []
    assert together(g__fleet_yaml=FLEET % "", g__values_yaml=half) == [("g/values.yaml", "kernel-module-type-unset")]
    assert together(h__fleet_yaml=FLEET % "", g__values_yaml=OPERATOR) == [("h/fleet.yaml", "values-elsewhere")] * 2


def test_a_target_of_a_fleet_bundle_may_not_turn_auto_upgrade_on() -> None:
    target = "targetCustomizations: [{name: a, helm: {values: {driver: {upgradePolicy: {autoUpgrade: true}}}}}]\n"
    assert together(g__fleet_yaml=FLEET % "" + target, g__values_yaml=OPERATOR) == [("g/fleet.yaml", "auto-upgrade-on")]


FROM_MAP = (
    "kind: HelmRelease\nmetadata: {name: r, namespace: n}\nspec:\n"
    "  chart: {spec: {chart: gpu-operator, version: v26.3.3}}\n  valuesFrom: [{kind: ConfigMap, name: v}]\n"
)
VALUES_MAP = "kind: ConfigMap\nmetadata: {name: v, namespace: n}\ndata:\n  values.yaml: |\n" + inline(OPERATOR)


def test_values_from_a_configmap_count_when_it_is_given() -> None:
    assert said(FROM_MAP + "---\n" + VALUES_MAP) == []
    assert said(FROM_MAP) == ["values-elsewhere", "values-elsewhere"]
    assert said(FROM_MAP + "---\n" + VALUES_MAP.replace("false", "true")) == ["auto-upgrade-on"]
    assert said(FROM_MAP.replace("ConfigMap", "Secret")) == ["values-elsewhere", "values-elsewhere"]
    assert "explicit-latest" in said(VALUES_MAP + "    gfd: {repository: r, image: i, version: latest}\n")


def test_a_template_in_values_is_told_and_leaves_the_settings_open() -> None:
    text = CARRIERS["HelmChartProxy"]("gpu-operator", "driver: {{ .x }}\n")
    assert said(text) == ["values-elsewhere", "values-elsewhere", "unknown-field"]


def test_lines_in_embedded_values_are_those_of_the_file() -> None:
    values = "toolkit:\n  version: v1\ngfd:\n  repository: r\n  image: i\n  version: latest\n"
    text = CARRIERS["RKE2 HelmChart"]("other", values)
    (found,) = review([("a.yaml", text.encode())]).found
    assert text.splitlines()[found.line - 1].strip() == "version: latest"


KEY = "-----BEGIN RSA PRIVATE KEY-----\\nMIIEow\\n-----END RSA PRIVATE KEY-----"
AUTH = base64.b64encode(b"user:password").decode()
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJleGFtcGxlIn0.c2lnbmF0dXJlLXNhbXBsZQ"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("kind: Secret\ndata: {a: eA==}", ["secret-value"]),
        ("kind: Secret\nstringData: {a: x, b: y}", ["secret-value"]),
        ("kind: Secret\ndata: {a: eA==}\nstringData: {b: y}", ["secret-value", "secret-value"]),
        ("kind: Secret\ndata: {a: ''}\nstringData: ~", []),
        ("kind: Secret\ntype: Opaque", []),
        ("kind: SecretList\nitems: [{data: {a: eA==}}]", ["secret-value"]),
        ("kind: List\nitems: [{kind: Secret, data: {a: eA==}}]", ["secret-value"]),
        (f'kind: ConfigMap\ndata: {{a: "{KEY}"}}', ["private-key"]),
        (f'kind: Deployment\nspec: {{list: ["{KEY}"]}}', ["private-key"]),
        (f"a: {{b: {{c: 'token {JWT} here'}}}}", ["known-token"]),
        ("a: hf_" + "a" * 34, ["known-token"]),
        ("a: nvapi-" + "a" * 40, ["known-token"]),
        ("a: https://user:hunter2@host.example/", ["known-token"]),
        ("a: https://user@host.example:80/@x", []),
        ("a: 'Authorization: Bearer abcdefgh12345678'", ["known-token"]),
        ("a: K10" + "a" * 64 + "::server:0123456789abcdef", ["known-token"]),
        ("a: " + base64.b64encode(JWT.encode()).decode(), ["known-token"]),
        ("a: AGE-SECRET-KEY-1" + "Q" * 40, ["private-key"]),
        ("a: ghp_" + "a" * 36, ["known-token"]),
        ("a: glpat-" + "a" * 20, ["known-token"]),
        ("a: AKIA" + "A" * 16, ["known-token"]),
        ("a: xoxb-" + "1" * 12, ["known-token"]),
        (f'a: \'{{"auths": {{"r.example": {{"auth": "{AUTH}"}}}}}}\'', ["registry-password"]),
        ("registry: {password: hunter2}", ["secret-value"]),
        ("registry: {password: 12345}", ["secret-value"]),
        ("registry: {password: ''}", []),
        ("registry: {password: ~}", []),
        ("registry: {password: '${PASSWORD}'}", []),
        ("registry: {password: 'p${a}ss$word'}", ["secret-value"]),
        ("registry: {existingSecretPassword: name, passwordKey: k, passwordSecretRef: {name: x}}", []),
        ("api_token: abc", ["secret-value"]),
        ("clientSecret: abc", ["secret-value"]),
        ("automountServiceAccountToken: false", []),
        ("bearerToken: /var/run/secrets/token", []),
        ("env: [{name: NGC_API_KEY, value: abc}]", ["secret-value"]),
        ("env: [{name: NGC_API_KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}]", []),
        ("env: [{name: ALLOW_EMPTY_PASSWORD, value: '1'}]", []),
        ("args: ['--password=hunter2', '--token', '--token-ttl=1h', '--password=$(PASSWORD)']", ["secret-value"]),
        ("args: ['--password', 'hunter2', '--token', '--token-ttl=1h']", ["secret-value"]),
        ("args: ['--password', '$(PASSWORD)', '--token', '/run/token', '--password-file', 'a']", []),
        ("args: ['-c', 'echo the --password']", []),
        ("secretGenerator: [{name: a, literals: [user=x, password=hunter2]}]", ["secret-value", "secret-value"]),
        ("secretGenerator: [{name: a, literals: [password=], files: [a.enc]}]", []),
        ("kind: ExternalSecret\nspec: {data: [{secretKey: password, token: name}]}", []),
        ("kind: ConfigMap\ndata: {client_configuration_token.tok: abc}", ["licence-token"]),
        ("driver: {licensingConfig: {secretName: lic, nlsEnabled: true}}", []),
        ("driver: {licensingConfig: {configMapName: lic}}", ["licensing-config"]),
        ("driver: {licensingConfig: {configMapName: ''}}", []),
        ("driver: {licensingConfig: {gridd.conf: FeatureType=1}}", ["licensing-config"]),
    ],
)
def test_no_secret_value_stands_in_what_is_reviewed(text: str, codes: list[str]) -> None:
    shaped = [code for code in said("kind: Thing\n" + text if "kind:" not in text else text) if "unset" not in code]
    assert shaped == codes


@pytest.mark.parametrize(
    "text",
    [
        f"kind: X\npassword: hunter2\nb: {JWT}\n",
        pod("image: 'https://robot:hunter2@r.example/a:1'"),
        pod(f"image: 'r.example/a:{JWT}'"),
        environment("X_IMAGE", base64.b64encode(JWT.encode()).decode()),
        "helm: {chart: 'oci://r.example/x', version: 'https://robot:hunter2@r.example'}\n",
        "kind: ClusterPolicy\nspec: {driver: {kernelModuleType: 'https://robot:hunter2@r.example'}}\n",
        "'https://robot:hunter2@r.example': 1\n'https://robot:hunter2@r.example': 1\n",
        "kind: X\nargs: ['--password', 'hunter2', '--token=hunter2']\n",
        "kind: Secret\nstringData: {a: hunter2}\n",
        "secretGenerator: [{literals: [a=hunter2]}]\n",
    ],
)
def test_a_secret_is_not_told_in_the_finding(text: str) -> None:
    found = [json.dumps(one.as_json()) for one in review([("a.yaml", text.encode())]).found]
    assert found
    for one in found:
        assert "hunter2" not in one and JWT not in one and base64.b64encode(JWT.encode()).decode() not in one


ENC = "ENC[AES256_GCM,data:eA==,iv:aXY=,tag:dGFn,type:str]"
WHOLE = f"sops: {{mac: '{ENC}', lastmodified: '2026-08-01T00:00:00Z', age: [{{recipient: age1x, enc: x}}]}}\n"
SOPS = WHOLE.replace("}]}", "}], encrypted_regex: ^(data|stringData)$}")
ENCRYPTED = f"kind: Secret\nmetadata: {{name: s}}\ndata: {{a: '{ENC}', b: ''}}\n{SOPS}"


@pytest.mark.parametrize(
    ("text", "path", "codes"),
    [
        (ENCRYPTED, "s.yaml", []),
        (ENCRYPTED, "s.sops.yaml", []),
        (ENCRYPTED.replace(f"a: '{ENC}'", "a: eA=="), "s.yaml", ["sops-not-encrypted"]),
        (ENCRYPTED.replace(f"a: '{ENC}'", f"a: '{ENC}', c: eA=="), "s.yaml", ["sops-not-encrypted"]),
        (ENCRYPTED.replace(f"a: '{ENC}'", "a: 'ENC[x]'"), "s.yaml", ["sops-not-encrypted"]),
        (ENCRYPTED.replace(f"a: '{ENC}', ", ""), "s.yaml", ["sops-not-encrypted"]),
        (ENCRYPTED.replace(f"mac: '{ENC}', ", ""), "s.yaml", ["sops-not-encrypted"]),
        (ENCRYPTED.replace("age: [{recipient: age1x, enc: x}]", "age: []"), "s.yaml", ["sops-not-encrypted"]),
        ("kind: Secret\ndata: {a: eA==}\nsops: {}\n", "s.yaml", ["sops-not-encrypted", "sops-not-encrypted"]),
        ("kind: Secret\ndata: {a: eA==}\n", "s.enc.yaml", ["sops-not-encrypted"]),
        ("a: 1\n", "values.sops.yaml", ["sops-not-encrypted"]),
        ("creation_rules: [{age: age1x}]\n", ".sops.yaml", []),
        (f"password: '{ENC}'\n{SOPS}", "v.yaml", []),
        (f"password: hunter2\nother: '{ENC}'\n{SOPS}", "v.yaml", ["secret-value"]),
        (f"a: '{ENC}'\nb: plain\n{WHOLE}", "v.yaml", ["sops-not-encrypted"]),
        (f"a: '{ENC}'\nb_unencrypted: x\n{WHOLE}", "v.yaml", []),
        (f"kind: '{ENC}'\ndata: {{a: '{ENC}'}}\n{WHOLE}", "v.yaml", []),
        (f"kind: Secret\ndata: {{a: '{ENC}'}}\n", "s.yaml", ["secret-value"]),
    ],
)  # fmt: skip
def test_sops_is_recognised_and_not_believed(text: str, path: str, codes: list[str]) -> None:
    assert said(text, path) == codes


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"# only a comment\n", "empty"),
        (b"---\n---\n", "empty"),
        (b"kind: Pod\n\xff", "encoding"),
        (b"kind: [", "syntax"),
        (b"kind: Pod\n---\n}{", "syntax"),
        (b"image: {{ .Values.image }}\n", "unknown-field"),
        (b'{{ include "x" . }}: 1\n', "unknown-field"),
        (b"kind: Pod\nkind: Job\n", "duplicate-key"),
        (b"kind: !!str Pod\n", "tag"),
        (b"kind: *undefined\n", "syntax"),
        (b"just text\n", "type"),
        (b"kind: List\nitems: [text]\n", "type"),
        (BOMB.encode(), "alias"),
        (b"[" * 100_000, "syntax"),
        (b"{a: " * 10_000, "syntax"),
        (b"\x00", "syntax"),
    ],
)
def test_what_cannot_be_read_makes_the_answer_an_error(data: bytes, code: str) -> None:
    reviewed = review([("a.yaml", data)])
    assert (reviewed.verdict, [found.finding.code for found in reviewed.found]) == ("error", [code])


def test_one_unreadable_file_among_good_and_bad_ones_makes_the_answer_an_error() -> None:
    reviewed = review([("a.yaml", b"kind: Pod"), ("b.yaml", pod("image: a:latest").encode()), ("c.yaml", b"a: [")])
    assert reviewed.verdict == "error"
    assert [(found.file, found.finding.code) for found in reviewed.found] == [
        ("b.yaml", "explicit-latest"),
        ("c.yaml", "syntax"),
    ]


def test_a_file_of_comments_among_others_is_passed_over() -> None:
    assert review([("a.yaml", b"# off\n"), ("b.yaml", b"kind: Pod\n")]).verdict == "pass"


def test_values_that_do_not_parse_inside_an_object_make_the_answer_an_error() -> None:
    text = "kind: HelmChart\nspec:\n  chart: x\n  version: v1.2.3\n  valuesContent: |\n    a: [\n"
    (found,) = review([("a.yaml", text.encode())]).found
    assert (found.finding.code, found.finding.status, found.line) == ("syntax", "unknown", 7)


def test_a_finding_names_file_line_object_field_and_what_to_do() -> None:
    text = "---\nkind: Pod\nmetadata: {name: x, namespace: n}\nspec:\n  initContainers:\n    - name: a\n"
    text += "      image: b:latest\n"
    (found,) = review([("d/a.yaml", text.encode())]).found
    assert found.as_json() == {
        "check": "manifests",
        "code": "explicit-latest",
        "file": "d/a.yaml",
        "line": 7,
        "message": "spec.initContainers[0].image: 'b:latest' asks for latest",
        "remedy": "Write the release tag or the digest; latest is refused even beside a digest.",
        "source": "GPU supply-chain policy, Reference policy; promotion step 3",
        "status": "fail",
        "subject": "n/Pod/x",
    }


def test_json_is_reviewed_as_yaml() -> None:
    assert said(json.dumps({"kind": "Pod", "spec": {"containers": [{"image": "a:latest"}]}}, indent="\t")) == [
        "explicit-latest"
    ]


def test_many_documents_and_one_large_list_are_judged_alike() -> None:
    pods = [
        {"kind": "Pod", "metadata": {"name": f"p{n}"}, "spec": {"containers": [{"image": "a:1"}]}} for n in range(300)
    ]
    pods[150]["spec"] = {"containers": [{"image": "a"}]}
    apart = "---\n".join(json.dumps(one) + "\n" for one in pods)
    together = json.dumps({"kind": "List", "items": pods})
    for text in (apart, together):
        (found,) = review([("a.yaml", text.encode())]).found
        assert (found.finding.code, found.finding.subject) == ("implicit-latest", "Pod/p150")


def _members(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in _members(item, (*path, key)))]


ODD = [
    POLICY,
    {"kind": "Secret", "data": {"a": "x"}, "sops": {"mac": "m", "age": [{"enc": "x"}]}},
    {"kind": "HelmRelease", "metadata": {"name": "r"}, "spec": {
        "chart": {"spec": {"chart": "gpu-operator", "version": "1.2.3", "sourceRef": {"kind": "HelmRepository"}}},
        "chartRef": {"kind": "OCIRepository", "name": "o"}, "values": POLICY["spec"],
        "valuesFrom": [{"kind": "ConfigMap", "name": "c", "valuesKey": "k"}]}},
    {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"values.yaml": "a: 1"}},
    {"kind": "HelmChart", "spec": {"chart": "hami", "version": "1.2.3", "valuesContent": "a: 1", "values": {}}},
    {"kind": "Application", "spec": {"source": {"chart": "x", "targetRevision": "1.2.3", "helm": {"values": "a: 1"}},
                                     "sources": [{"chart": "y", "helm": {"valuesObject": {}}}]}},
    {"helm": {"chart": "oci://x/hami", "version": "1.2.3", "values": {"scheduler": {"kubeScheduler": {}}},
              "valuesFiles": ["v.yaml"]}, "targetCustomizations": [{"helm": {"version": "1", "values": {}}}]},
    {"dependencies": [{"name": "a", "version": "1", "repository": "r"}], "helmCharts": [{"version": "1"}],
     "images": [{"name": "a", "newTag": "b", "digest": "c", "newName": "d"}]},
    {"kind": "Plan", "spec": {"version": "v1", "upgrade": {"image": "a/b"}}},
    {"kind": "DaemonSet", "spec": {"template": {"spec": {
        "containers": [{"name": "a", "image": "b:1", "args": ["-x"], "env": [{"name": "X_IMAGE", "value": "c:1"}]}],
        "volumes": [{"image": {"reference": "d:1"}}]}}}},
    {"driver": {"licensingConfig": {"configMapName": "x"}, "repository": "a", "image": "b", "version": "c"}},
    {"kind": "Bundle", "metadata": {"name": "b"}, "spec": {
        "helm": {"chart": "gpu-operator", "version": "1.2.3", "values": {"driver": {}}, "valuesFiles": ["values.yaml"]},
        "resources": [{"name": "values.yaml", "encoding": "base64+gz", "content": "H4sIAAAAAAAA"}],
        "targets": [{"helm": {"values": {}}}]}},
    {"kind": "ConfigMap", "data": {"a": "apiVersion: v1\nkind: Pod\n"}, "binaryData": {"a": "YXBpVmVyc2lvbjogdjE="}},
    {"kind": "HelmChart", "spec": {"chart": "gpu-operator", "version": "1.2.3", "set": {"driver.version": "x"}}},
    {"kind": "Application", "spec": {"source": {"chart": "gpu-operator", "targetRevision": "1.2.3", "helm": {
        "parameters": [{"name": "driver.version", "value": "x"}], "valueFiles": ["a"]}}}},
    {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "spec": {"containers": [{"image": "*"}]}},
    {"kind": "x", "sops": {"mac": "m", "age": [{"enc": "x"}], "encrypted_regex": "a", "encrypted_suffix": "b"}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", [7, "text", [7], {"a": 7}, None, True, [None], [[]], {"a": [{}]}, ""], ids=repr)
@pytest.mark.parametrize("original", ODD, ids=lambda one: str(one.get("kind", "values")))
def test_no_member_of_another_type_crashes_the_review(original: dict[str, Any], wrong: Any) -> None:
    for path in _members(original):
        document = json.loads(json.dumps(original))
        if not path:
            continue
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = wrong
        for name in ("fleet.yaml", "Chart.yaml", "a.sops.yaml"):
            assert review([(name, json.dumps(document).encode())]).verdict in EXIT


def test_a_review_that_was_given_nothing_is_an_error() -> None:
    assert Review().finish().verdict == "error"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as ended:
        main(["review-manifests", *arguments, "-o", "json"])
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_a_folder_is_reviewed_with_all_below_it_and_without_what_is_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "a/b/c.yaml": pod("image: a:latest"),
        "a/d.yml": pod("image: a"),
        "a/e.json": json.dumps({"kind": "Pod", "spec": {"containers": [{"image": "a@x"}]}}),
        "a/f.YAML": pod("image: a:main"),
        "a/g/Kustomization": "images: [{name: a, newTag: latest}]",
        "a/readme.txt": "a: [",
        ".git/x.yaml": "a: [",
        "a/.hidden.yaml": "a: [",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code, answer = run(capsys, str(tmp_path))
    assert (code, answer["verdict"], answer["files"], answer["documents"]) == (1, "fail", 5, 5)
    named = [f"{tmp_path}/{name}" for name in (".git/", "a/.hidden.yaml", "a/readme.txt")]
    assert answer["passed_over"] == named
    assert [(Path(found["file"]).name, found["code"]) for found in answer["findings"]] == [
        ("c.yaml", "explicit-latest"),
        ("d.yml", "implicit-latest"),
        ("e.json", "bad-digest"),
        ("f.YAML", "floating-alias"),
        ("Kustomization", "explicit-latest"),
    ]


@pytest.mark.parametrize("kind", ["missing", "link to a file", "link to a folder", "pipe"])
def test_what_is_no_plain_file_is_refused_and_not_passed_over(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.yaml").write_text("kind: Pod\n")
    odd = tmp_path / "odd.yaml"
    if kind == "link to a file":
        odd.symlink_to(tmp_path / "good.yaml")
    elif kind == "link to a folder":
        odd.symlink_to(tmp_path)
    elif kind == "pipe":
        os.mkfifo(odd)
    arguments = [str(tmp_path), str(odd)] if kind == "missing" else [str(tmp_path)]
    code, answer = run(capsys, *arguments)
    assert (code, answer["verdict"]) == (2, "error")
    assert [found["code"] for found in answer["findings"]] == ["unreadable"]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input_is_reviewed(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pod("image: a:latest").encode())))
    code, answer = run(capsys, *arguments)
    assert (code, [found["code"] for found in answer["findings"]]) == (1, ["explicit-latest"])


def test_people_get_lines_in_which_hostile_text_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(
        'kind: Pod\nmetadata: {name: "\\e[2Jx"}\nspec: {containers: [{image: "a:\\e[31m"}]}\n'
    )
    with pytest.raises(SystemExit) as ended:
        main(["review-manifests", str(tmp_path), "-o", "table"])
    out = capsys.readouterr().out
    assert ended.value.code == 1
    assert out.startswith("fail\ninvalid-reference: ") and "a.yaml:3 Pod/" in out
    assert "\x1b" not in out


def test_every_code_is_documented() -> None:
    section = (ROOT / "docs/codes.md").read_text().split("## Manifests\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"(?m)^\| `([a-z-]+)` \|", section))
    quoted = re.compile(r'"([a-z]+(?:-[a-z]+)*)"')
    source = "".join((ROOT / f"gpurunbook/supply/{name}.py").read_text() for name in MODULES)
    written = {word for word in quoted.findall(source) if "-" in word} - {"gpu-operator", "node-feature-discovery"}
    written -= {"alm-examples"}
    written -= {shape.kind for shape in SHAPES} - documented
    assert written <= documented
    tests = "".join(
        Path(__file__).with_name(f"test_{name}.py").read_text() for name in ("beside", "manifests", "packed", "sops")
    )
    assert documented <= set(quoted.findall(tests)), "a documented code that no test provokes"


MODULES = ("beside", "charts", "flaws", "images", "manifests", "packed", "releases", "secrets", "settings", "sops")
TESTS = ("beside", "manifests", "packed", "sops")
