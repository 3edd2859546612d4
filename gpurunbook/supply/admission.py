"""Admission of a release: which images may run in the GPU namespaces, as a policy that the API server enforces.

A ValidatingAdmissionPolicy reads the released images from a ConfigMap: one key per digest, and under it the exact
references that the audit saw running with that digest. An image is admitted by a released digest, whatever its
repository, or by an exact released reference. Admission resolves no tag: what a tag that was pushed again would run is
found by the audit (`digest-changed`), not here. Pods are judged, not the templates of workloads.
Source: GPU supply-chain policy, Released pilot tuple, and Rollback and incident response.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.supply import strictjson
from gpurunbook.supply.references import desired, is_digest

NAME = "gpurunbook-released-images"
"""Of the ConfigMap, the policy and the binding."""

NAMESPACE = "kube-system"
"""Of the ConfigMap: whoever may write it decides what runs, so it lies where only administrators write."""

API_VERSION = "admissionregistration.k8s.io/v1"

# Labels and annotations, as upstream spells them, and ours.
NAMESPACE_NAME = "kubernetes.io/metadata.name"
MANAGED_BY = "app.kubernetes.io/managed-by"
MIRROR = "kubernetes.io/config.mirror"
TUPLES = {"current": "gpurunbook.io/current-tuple", "rollback": "gpurunbook.io/rollback-tuple"}

ACTIONS = {"warn": ("Warn", "Audit"), "deny": ("Deny", "Audit")}
"""Enforcement → validationActions. The API server refuses Deny together with Warn."""

LIMIT = 1 << 20
"""Bytes that the API server takes of a ConfigMap's data (MaxSecretSize, of ConfigMaps too)."""

Images = Mapping[str, Sequence[str]]
"""Digest (`sha256:…`) → references that ran with it, as they were written."""


@dataclass(frozen=True)
class Release:
    """What may run: the images of the released tuple, and of the one before it, to which a rollback leads.

    current_tuple, rollback_tuple: field → value, written beside the images for whoever reads them.
    """

    current: Images
    rollback: Images
    current_tuple: Mapping[str, str]
    rollback_tuple: Mapping[str, str]
    namespaces: Sequence[str]


class _Record(msgspec.Struct):
    audit: str
    desired: str
    resolved: str
    runtime_class: str


class _Audited(msgspec.Struct):
    verdict: str
    records: list[_Record]


def images_of(audit: bytes) -> dict[str, list[str]]:
    """Writes nothing. The images of an audit's JSON: digest → exact references recorded with it, both sorted.

    An image whose registry digest is not known (an imported one, a container that never started) is left out.
    Raises InputError: `unreadable` for another file, `audit-not-passed`, `no-digests`.
    """
    try:
        found = strictjson.typed(strictjson.loads(audit), _Audited)
    except InputError as wrong:
        raise InputError(f"not the JSON of an audit: {wrong}", code="unreadable") from None
    if found.verdict != "pass" or any(record.audit != "pass" for record in found.records):
        raise InputError(f"an audit with verdict {found.verdict[:40]!r} releases nothing", code="audit-not-passed")
    images: dict[str, set[str]] = defaultdict(set)
    for record in found.records:
        if record.runtime_class == "manifest":
            wanted, digest = desired(record.desired), record.resolved.rpartition("@")[2]
            if wanted.codes or wanted.reference is None or not is_digest(digest):
                message = f"a record that no audit passes: {record.desired[:120]!r} runs as {record.resolved[:120]!r}"
                raise InputError(message, code="unreadable")
            images[digest].add(record.desired)
    if not images:
        raise InputError("the audit names no registry digest", code="no-digests")
    return {digest: sorted(images[digest]) for digest in sorted(images)}


def admits(release: Release, image: str) -> bool:
    """Writes nothing. Whether the policy admits an image string; what its CEL says, in Python."""
    sets = (release.current, release.rollback)
    if pin := desired(image).pin:
        return any(pin in images for images in sets)
    return any(image in references for images in sets for references in images.values())


def manifests(release: Release, *, enforcement: str = "warn", namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Writes nothing. ConfigMap, policy and binding, in the order in which they are applied.

    enforcement: `warn` lets everything through with a warning and an audit annotation, `deny` refuses. In both, a
    ConfigMap that is missing denies every pod of the namespaces: it is applied first and removed last.
    """
    return [config_map(release, namespace), policy(), binding(release.namespaces, enforcement, namespace)]


def config_map(release: Release, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Writes nothing. The parameters. To revoke an image, remove the key of its digest: its references go with it."""
    lines: dict[str, list[str]] = defaultdict(list)
    for word, images in (("current", release.current), ("rollback", release.rollback)):
        for digest, references in images.items():
            lines[key_of(digest)] += [f"{word} {reference}" for reference in references]
    tuples = {TUPLES["current"]: release.current_tuple, TUPLES["rollback"]: release.rollback_tuple}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **_metadata(namespace),
            "annotations": {name: json.dumps(dict(values), sort_keys=True) for name, values in tuples.items()},
        },
        "data": {key: "\n".join(sorted(set(lines[key]))) for key in sorted(lines)},
    }


def size(release: Release) -> int:
    """Writes nothing. Bytes of the parameters' data, as the API server counts them: values without keys."""
    return sum(len(text.encode()) for text in config_map(release)["data"].values())


def key_of(digest: str) -> str:
    """Writes nothing. The key of a digest in the ConfigMap, whose keys have no colon."""
    return digest.replace(":", "-", 1)


def _metadata(namespace: str = "") -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {"name": NAME, **place, "labels": {MANAGED_BY: "gpurunbook"}}


def _placed(pod: str) -> str:
    """CEL: where each image of a pod stands, one list for all four places."""
    lists = [
        f"(has({pod}.spec.{field}) ? {pod}.spec.{field} : [])"
        f".map(c, {{'where': '{word} ' + c.name, 'image': string(c.?image.orValue(''))}})"
        for word, field in (
            ("container", "containers"),
            ("init container", "initContainers"),
            ("ephemeral container", "ephemeralContainers"),
        )
    ]
    volumes = f"(has({pod}.spec.volumes) ? {pod}.spec.volumes : []).filter(v, has(v.image))"
    lists.append(
        f"{volumes}.map(v, {{'where': 'image volume ' + v.name, 'image': string(v.image.?reference.orValue(''))}})"
    )
    return "\n+ ".join(lists)


VARIABLES = {
    "placed": _placed("object"),
    "standing": f"oldObject == null ? [] : (\n{_placed('oldObject')})",
    "released": "has(params.data) ? params.data : {}",
    "references": r"variables.released.map(k, variables.released[k]).join('\n').split('\n')",
    # A digest decides alone: beside it the runtime ignores the tag, and a revoked one must not come back by its name.
    "refused": """\
variables.placed.filter(p, !(p in variables.standing)).filter(p, !(
  p.image.contains('@')
  ? p.image.matches('@sha256:[0-9a-f]{64}$')
    && ('sha256-' + p.image.substring(size(p.image) - 64)) in variables.released
  : ('current ' + p.image) in variables.references || ('rollback ' + p.image) in variables.references))""",
}
"""CEL by name, in order. On an update what stood at the same place before is not judged again."""


def policy() -> dict[str, Any]:
    """Writes nothing. The policy; it names no image and no namespace, so it changes with this package only.

    Fails closed: an error of the expressions, one over the cost limit among them, counts as a refusal. The kubelet's
    mirror of a static pod is let through: to refuse the mirror stops nothing on the node, and would hide the pod from
    the audit.
    """
    mirror = f"has(object.metadata.annotations) && '{MIRROR}' in object.metadata.annotations"
    pods = {"apiGroups": [""], "apiVersions": ["v1"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": _metadata(),
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {
                "resourceRules": [
                    {**pods, "operations": ["CREATE", "UPDATE"], "resources": ["pods"]},
                    {**pods, "operations": ["UPDATE"], "resources": ["pods/ephemeralcontainers"]},
                ]
            },
            "matchConditions": [
                {
                    "name": "not-a-kubelets-mirror",
                    "expression": f"!({mirror} && 'system:nodes' in request.userInfo.groups)",
                }
            ],
            "variables": [{"name": name, "expression": text} for name, text in VARIABLES.items()],
            "validations": [
                {
                    "expression": "variables.refused.size() == 0",
                    "reason": "Forbidden",
                    "message": "an image is not of the released or the rollback set",
                    "messageExpression": "'not of the released or the rollback set: '"
                    " + variables.refused.map(r, r.where + ' ' + r.image).join(', ')",
                }
            ],
        },
    }


def binding(namespaces: Iterable[str], enforcement: str = "warn", namespace: str = NAMESPACE) -> dict[str, Any]:
    """Writes nothing. What binds the policy to the GPU namespaces, by the label that the API server itself sets."""
    chosen = {"key": NAMESPACE_NAME, "operator": "In", "values": sorted(set(namespaces))}
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": _metadata(),
        "spec": {
            "policyName": NAME,
            "paramRef": {"name": NAME, "namespace": namespace, "parameterNotFoundAction": "Deny"},
            "validationActions": list(ACTIONS[enforcement]),
            "matchResources": {"namespaceSelector": {"matchExpressions": [chosen]}},
        },
    }


def as_yaml(objects: Iterable[Mapping[str, Any]]) -> bytes:
    """Writes nothing. The objects as YAML documents; texts of several lines stand as they are read."""
    import yaml  # only where a proposal is written

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (PyYAML's signature)
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    made: str = yaml.dump_all(list(objects), Dumper=Dumper, sort_keys=False, width=1000)
    return made.encode()
