"""Images that are named in no manifest: in configuration of operators, scripts, units and files of nodes, annotations,
parameters of workflows, templates that an operator fills in.

Covered: each such place with a bad reference, found at its line, and with a good one; what only looks like a reference;
templates that can be judged as they stand and those that cannot; addresses that are their own content; schemas.
Not covered: charts (tests/tools).
"""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Callable
from urllib.parse import quote

import pytest

from gpurunbook.supply import references
from gpurunbook.supply.manifests import review

HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: 'IMAGE'}]}\n"
BAD, GOOD, BARE = "r.example/a/b:latest", "r.example/a/b:v1.2.3", "r.example/a/b"


def found(text: str, path: str = "rendered.yaml") -> list[tuple[str, int]]:
    return [(one.finding.code, one.line) for one in review([(path, text.encode())]).found]


def codes(text: str, path: str = "rendered.yaml") -> list[str]:
    return [code for code, _ in found(text, path)]


def config(text: str) -> str:
    return HEAD + "  file: |\n" + textwrap.indent(text, "    ")


def job(script: str) -> str:
    head = "kind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n      containers:\n"
    return f"{head}        - name: c\n          image: a:1\n          args:\n            - |\n" + textwrap.indent(
        script, " " * 14
    )


HEREDOC = """\
set -e
kubectl apply -f - <<EOF
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: c
      image: @
EOF
"""

TEXTS = {
    "YAML of an operator": "reset:\n  job:\n    imageConfig:\n      image: @\n",
    "YAML, quoted": 'reset:\n  image: "@"\n',
    "a key of its own": "resetJobImage: @\n",
    "JSON": '{\n  "image" : "@",\n  "limit": 1\n}\n',
    "JSON on one line": '{"a": 1, "image": "@"}\n',
    "JSON in JSON": '{"a": "{\\"image\\": \\"@\\"}"}\n',
    "TOML": '[job]\nsandbox_image = "@"\n',
    "properties": "reset.image=@\n",
    "environment": "export RESET_IMAGE=@\n",
    "PowerShell": '$Image = "@"\n',
    "an option": "kubectl run x --image=@ --restart=Never\n",
    "an option apart": "kubectl debug node/x --image @ -- sh\n",
    "a manifest in a script": HEREDOC,
}


@pytest.mark.parametrize("carry", [config, job])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_an_image_in_a_text_is_judged_at_its_line(text: str, carry: Callable[[str], str]) -> None:
    whole = carry(text)
    line = next(n for n, one in enumerate(whole.splitlines(), 1) if "@" in one)
    assert found(whole.replace("@", GOOD)) == []
    for bad, code in ((BAD, "explicit-latest"), (BARE, "implicit-latest"), (f"{BARE}:main", "floating-alias")):
        assert found(whole.replace("@", bad)) == [(code, line)]


@pytest.mark.parametrize(
    "text",
    [
        f"docker run --rm --gpus all {BAD} nvidia-smi\n",
        "podman run busybox:latest true\n",
        f"ExecStart=/usr/bin/podman run --privileged {BAD}\n",
        f"skopeo copy docker://{BAD} dir:/x\n",
        f"crane digest {BAD}@sha256:{'d5' * 32}\n",
        f"kubectl set image ds/x c={BAD}\n",
        f"pull: [{BAD}, {GOOD}]\n",
        f"A=1 # not the image\nB={BAD}  # nor this one\n",
    ],
)
def test_a_reference_that_moves_is_found_in_a_command_of_any_kind(text: str) -> None:
    assert codes(config(text)) == ["explicit-latest"]
    assert codes(job(text)) == ["explicit-latest"]


@pytest.mark.parametrize("tag", sorted(references.FLOATING_TAGS | {"Main", "v1-latest", "LATEST"}))
def test_every_tag_that_is_moved_is_found_in_a_text(tag: str) -> None:
    assert codes(config(f"podman run r.example/a/b:{tag} sh\n")) == ["floating-alias"]
    assert codes(HEAD + f"  anything: r.example/a/b:{tag}\n") == ["floating-alias"]
    assert codes(config(f"podman run r.example/a/b:{tag}ish sh\n")) == []


def test_every_image_that_a_command_takes_is_found() -> None:
    assert codes(config(f"docker save -o x.tar a:latest b:latest {BAD}\n")) == ["explicit-latest"] * 3


def test_a_bare_word_is_an_image_where_nothing_else_can_stand() -> None:
    assert codes(config("kubectl run x --image=busybox\n")) == ["implicit-latest"]
    assert codes(config(HEREDOC.replace("@", "busybox"))) == ["implicit-latest"]
    assert codes(config("image: busybox\n")) == []


@pytest.mark.parametrize(
    "text",
    [
        f"# docker run {BAD}\n// image: {BAD}\nnvidia-smi  # image: {BAD}\n",
        'sum(container_memory{image="r.example/a", pod!="",image="r.example/b"}) by (image)\n',
        "image: logos/nvidia.png\nbackgroundImage: /var/lib/x.img\nimage: https://r.example/a:latest\n",
        "image: ubuntu\nimage=true\nimage: 5000:5000\nimages: a\nthe image of a/b\n",
        "echo 'the option --image is required'\n",
        'IMAGE="${REGISTRY}/a"\nimage: $IMAGE\nimage: $(IMAGE)\nimage: <registry>/a\n',
        "kubectl get pod -o jsonpath='{.spec.containers[0].image}'\n",
        "http://r.example/v2/a/manifests:latest\n/opt/a/b:main\nuser@host/a:latest\n",
        "if not endswith(image, ':latest') { deny }\n",
        'if [ "$IMAGE" = "r.example/a/b" ] || [ "$other_image" = r.example/a ]; then exit; fi\n',
        "git fetch origin +refs/heads/main:main refs/tags/latest:latest\n",
        '{"panels": [{"legendFormat": "{{image}}", "title": "image: latest"}]}\n',
    ],
)
def test_what_only_looks_like_a_reference_is_none(text: str) -> None:
    assert codes(config(text)) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HEAD + f"  queue-sidecar-image: {BAD}\n", ["explicit-latest"]),
        (HEAD + f"  queue-sidecar-image: {BARE}\n", ["implicit-latest"]),
        (HEAD + f"  queue-sidecar-image: {GOOD}\n", []),
        (HEAD + f"  anything: {BAD}\n", ["explicit-latest"]),
        (HEAD + f"  anything: {BAD}@sha256:{'d5' * 32}\n", ["explicit-latest"]),
        (HEAD + "  image: ubuntu\n  background-image: a.png\n", []),
        (f"kind: Pod\nmetadata: {{annotations: {{sidecar.example/proxyImage: '{BAD}'}}}}\n", ["explicit-latest"]),
        (f"kind: Pod\nmetadata: {{annotations: {{note: 'we do not use {BAD} here'}}}}\n", []),
        (
            f"kind: Application\nspec: {{source: {{kustomize: {{images: ['a/b={GOOD}', 'a/b={BAD}']}}}}}}\n",
            ["explicit-latest"],
        ),
        (f"kind: Thing\nspec: {{prepull: ['{GOOD}', '{BAD}']}}\n", ["explicit-latest"]),
        (f"kind: Thing\nspec: {{runtime: '{BAD}', description: 'see {BAD}'}}\n", ["explicit-latest"]),
        (f"apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec: {{message: 'no {BAD}', x: '{BAD}'}}\n", []),
        (f"kind: ConstraintTemplate\nspec: {{rego: 'x == \"{BAD}\"'}}\n", []),
        (f"$schema: 'http://json-schema.org/schema#'\nproperties: {{a: {{default: '{BAD}', image: {BARE}}}}}\n", []),
        (f"image: {{reference: {BARE}, tag: ''}}\n", []),
        (f"image: {{reference: {BARE}, tag: v1}}\n", []),
        (f"image: {{reference: {BARE}, tag: latest}}\n", ["explicit-latest"]),
        (f"image: {{reference: '{BAD}'}}\n", ["explicit-latest"]),
        ("basic: {controller_image_name: a/b, image_tag_version: latest}\n", ["explicit-latest"]),
        ("basic: {controller_image_name: a/b, image_tag_version: v1.2.3, image_registry: r.example}\n", []),
        (
            HEAD + "  image-tag: latest\n  other-image-version: 1.10\n  RESET_IMAGE_TAG: nightly\n",
            ["explicit-latest", "floating-alias"],
        ),
        (
            "kind: Pod\nspec: {containers: [{image: 'a:1', env: [{name: IMAGE_TAG, value: latest}]}]}\n",
            ["explicit-latest"],
        ),
        ("kind: Pod\nspec: {containers: [{image: 'a:1', env: [{name: IMAGE_TAG, value: v1.2.3}]}]}\n", []),
        ("a: {reloaderImageTag: main, operator-image-version: 1.10}\n", ["floating-alias", "yaml-trap"]),
        (f"images: {{tool: '{BARE}', other: '{GOOD}', third: '{BAD}'}}\n", ["explicit-latest", "implicit-latest"]),
        (f"images: {{registry: {BARE}, pullPolicy: Always, tool: a/b}}\n", []),
        (f"collector: {{imageRef: '{BARE}', other-image: '{BARE}'}}\n", ["implicit-latest"] * 2),
        (f"collector: {{imageRef: '{BARE}', tag: ''}}\n", []),
        (f"initContainers: [{{name: c, image: {{repository: {BARE}, tag: ''}}}}]\n", []),
        (f"initContainers: [{{name: c, image: {{repository: {BARE}, tag: latest}}}}]\n", ["explicit-latest"]),
        (f"kind: Pod\nspec: {{containers: [{{name: c, image: {{repository: {BARE}}}}}]}}\n", ["invalid-reference"]),
        (HEAD + '  a: |\n    {"image": ":v1.2.3", "otherImage": "r.example/a:"}\n', ["invalid-reference"] * 2),
        (HEAD + f"  _example: |\n    image: {BAD}\n", []),
        (f"suite: a\ntests: [{{it: b, set: {{image: '{BAD}'}}, asserts: [{{equal: {{value: '{BAD}'}}}}]}}]\n", []),
        (f"kind: Thing\nsuite: a\ntests: [{{image: '{BAD}'}}]\n", ["explicit-latest"]),
    ],
)
def test_a_reference_that_is_a_whole_text_is_judged_by_its_key_or_its_tag(text: str, wanted: list[str]) -> None:
    assert codes(text, "values.yaml" if "kind" not in text else "rendered.yaml") == wanted


def test_a_bad_reference_is_told_once() -> None:
    text = (
        f"kind: Pod\nspec: {{containers: [{{image: '{BAD}', args: ['--x-image={BAD}', '{BAD}']}}], myImage: '{BAD}'}}"
    )
    assert sorted(one.finding.message.split(":")[0] for one in review([("a.yaml", text.encode())]).found) == [
        "spec.containers[0].args[0]",
        "spec.containers[0].args[1]",
        "spec.containers[0].image",
        "spec.myImage",
    ]


# --- parameters of workflows

WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
spec:
  arguments: {parameters: [{name: tool, value: 'VALUE'}, {name: node}]}
  templates:
    - script: {image: '{{workflow.parameters.tool}}', command: [sh], source: 'echo {{workflow.parameters.node}}'}
"""
TASK = """\
apiVersion: tekton.dev/v1
kind: Task
spec:
  params: [{name: tool, default: 'VALUE'}]
  steps: [{image: '$(params.tool)'}]
"""


@pytest.mark.parametrize("text", [WORKFLOW, TASK])
def test_an_image_that_is_a_parameter_is_judged_where_its_value_stands(text: str) -> None:
    assert codes(text.replace("VALUE", GOOD)) == []
    assert codes(text.replace("VALUE", BARE)) == ["implicit-latest"]
    assert set(codes(text.replace("VALUE", BAD))) == {"explicit-latest"}
    assert codes(text.replace("VALUE", "busybox")) == ["implicit-latest"]
    assert codes(text.replace("name: tool", "name: other").replace("VALUE", GOOD)) == ["unresolved-variable"]


def test_a_parameter_that_names_itself_ends() -> None:
    assert codes(WORKFLOW.replace("VALUE", "{{workflow.parameters.tool}}")) == ["unresolved-variable"]


def test_a_parameter_that_is_asked_for_again_and_again_is_told_once() -> None:
    many = 3000
    given = "".join(f"      - {{name: tool, value: r.example/a{n}}}\n" for n in range(many))
    steps = "    - script: {image: '{{workflow.parameters.tool}}'}\n" * many
    head = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec:\n"
    text = f"{head}  arguments:\n    parameters:\n{given}  templates:\n{steps}"
    assert found(text) == [("implicit-latest", n) for n in range(6, 6 + many)]


def test_a_canary_that_is_a_parameter_is_pinned() -> None:
    task = TASK.replace("spec:\n", "metadata: {name: canary}\nspec:\n").replace("steps:", "containers:")
    assert codes(task.replace("VALUE", GOOD)) == ["canary-not-pinned"]
    assert codes(task.replace("VALUE", f"{GOOD}@sha256:{'d5' * 32}")) == []


def test_the_parameter_of_something_else_stays_a_variable() -> None:
    assert codes(WORKFLOW.replace("argoproj.io/v1alpha1", "v1").replace("VALUE", GOOD)) == ["unresolved-variable"]


# --- templates that an operator fills in

TEMPLATE = """\
{{- /* of a
       remedy */ -}}
apiVersion: batch/v1
kind: KIND
metadata:
  generateName: reset-{{ .Node }}-
spec:
  {{- if eq .Action "reset" }}
  type: {{ if .Hard }}hard{{ else }}soft{{ end }}
  {{- end }}
  {{- range .Tolerations }}
  {{- $a := . }}
  {{- end }}
  template:
    spec:
      nodeName: {{ .Node }}
      containers:
        - name: c
          image: IMAGE
          env: [{name: API_TOKEN, value: "{{ .Token }}"}]
"""


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        (GOOD, []),
        (BAD, [("explicit-latest", 24)]),
        (BARE, [("implicit-latest", 24)]),
        ("{{ .Image }}", [("unresolved-variable", 24)]),
        ("r.example/a:{{ .Tag }}", [("unresolved-variable", 24)]),
    ],
)
def test_a_template_that_is_filled_in_later_is_judged_as_it_stands(image: str, wanted: list[tuple[str, int]]) -> None:
    assert found(config(TEMPLATE.replace("KIND", "Job").replace("IMAGE", image))) == wanted


def test_all_rules_hold_in_such_a_template() -> None:
    secret = "apiVersion: v1\nkind: Secret\n{{- if .x }}\nstringData: {a: b}\n{{- end }}\n"
    assert codes(config(secret)) == ["secret-value"]
    policy = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec:\n  {{- if .x }}\n  driver: {kernelModuleType: auto,"
    policy += " upgradePolicy: {autoUpgrade: true}}\n  {{- end }}\n"
    assert sorted(codes(config(policy))) == ["auto-upgrade-on", "kernel-module-type-auto"]


@pytest.mark.parametrize(
    "line",
    [
        '{{ include "c.containers" . }}',
        "{{- toYaml .containers | nindent 6 }}",
        '- {{ template "c" . }}',
        "{{ .Extra }}{{ .More }}",
        "a: [\n",
    ],
)
def test_a_template_that_puts_in_whole_lines_cannot_be_judged(line: str) -> None:
    text = (
        TEMPLATE.replace("KIND", "Job").replace("IMAGE", GOOD).replace("template:\n", f"x: 1\n  {line}\n  template:\n")
    )
    reviewed = review([("a.yaml", config(text).encode())])
    assert reviewed.verdict == "error"


@pytest.mark.parametrize("line", ["{{- /* a", "{{ if x", "{{ if x }}", "{{", "/* {{"])
def test_what_opens_again_and_again_in_a_template_does_not_cost_its_square(line: str) -> None:
    text = "apiVersion: v1\nkind: Pod\n" + f"{line}\n" * 100_000 + "{{ x\n"
    assert review([("a.yaml", config(text).encode())]).verdict == "error"


@pytest.mark.parametrize(
    "word", ["image: ", "aImage", "a_b-c.", "a/b:1/", "docker run a ", "ctr ", "--image ", "{image=", "\\"]
)
def test_a_long_text_does_not_cost_its_square(word: str) -> None:
    assert codes(HEAD + f"  a: 'image :latest {word * (600_000 // len(word))}'\n") == []


# --- content in an address


def ignition(source: str, more: str = "") -> str:
    head = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: m}\nspec:\n"
    return f"{head}  config:\n    storage:\n      files:\n        - path: /etc/x\n          contents:\n            {more}source: {json.dumps(source)}\n"  # noqa: E501


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (POD.replace("IMAGE", BAD), ["explicit-latest"]),
        (POD.replace("IMAGE", GOOD), []),
        (f"[Service]\nExecStart=/usr/bin/podman run {BAD}\n", ["explicit-latest"]),
        ("nothing\n", []),
        ("-----BEGIN PRIVATE KEY-----\n" + "QUJD" * 20 + "\n-----END PRIVATE KEY-----\n", ["private-key"]),
        ("machine r.example\nnvapi-" + "a1B2" * 8, ["known-token"]),
        (json.dumps({"kind": "Thing", "apiVersion": "v1", "password": "hunter22"}), ["secret-value"]),
    ],
)
def test_what_stands_in_an_address_is_judged(content: str, wanted: list[str]) -> None:
    encoded = base64.b64encode(content.encode()).decode()
    for source in (
        f"data:,{quote(content)}",
        f"data:text/plain;charset=utf-8,{quote(content, safe='')}",
        f"data:;base64,{encoded}",
        f"data:text/plain;charset=utf-8;base64,{quote(encoded)}",
    ):
        assert codes(ignition(source)) == wanted, source


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("data:;base64,!!!!!!!!!!!!!!!!!!!!!!!!", ["encoding"]),
        ("data:application/octet-stream;base64," + base64.b64encode(bytes(range(128, 200))).decode(), []),
        ("data: a, b and whatever else is written here", []),
        ("https://r.example/a?data:,x", []),
        ("data:,", []),
    ],
)
def test_an_address_of_another_kind_makes_no_noise(source: str, wanted: list[str]) -> None:
    assert codes(ignition(source)) == wanted
