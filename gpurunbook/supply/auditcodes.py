"""The words of the audit: what each code means and what to do about it. docs/codes.md says the same for readers."""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "GPU supply-chain and image policy"


class Code(NamedTuple):
    """effect: `fail`, `note` (never fails) or `error` (nothing can be said); meaning and remedy: sentences."""

    effect: str
    meaning: str
    remedy: str


_PIN = "Name a release tag or a sha256 digest in Git, review it as one tuple, and roll it out."
_INVESTIGATE = (
    "Treat it as a supply-chain event: stop new creation, keep both digests, find out who pushed, "
    "then make new evidence or restore the approved tuple."
)
_CAPTURE = "Capture the list again with `kubectl get pods --namespace NS -o json`, or audit the live cluster."

RECORD_CODES = {
    "empty-reference": Code("fail", "no image is named", _PIN),
    "invalid-reference": Code("fail", "the reference is not a valid image reference", _PIN),
    "explicit-latest": Code("fail", "the tag latest is refused, also beside a digest", _PIN),
    "implicit-latest": Code("fail", "a reference without tag and digest means latest", _PIN),
    "floating-alias": Code("fail", "the tag is an alias that is moved, no immutable release tag", _PIN),
    "bad-digest": Code("fail", "what follows the @ is not sha256: and 64 lower-case hex digits", _PIN),
    "mutable-runtime": Code(
        "fail", "the runtime reports a name without a digest", "Pull the image again from its registry by digest."
    ),
    "malformed-runtime": Code(
        "fail", "the runtime's image ID is no sha256 digest", "Look at the node's runtime; recreate the pod."
    ),
    "unresolved": Code(
        "fail",
        "the container has no image ID: it has not started, or it ran and cannot be named",
        "Wait until it has started or put right why it cannot, then audit again.",
    ),
    "never-started": Code(
        "fail",
        "the pod has ended and this container never started",
        "Delete the leftover pod, or audit with --tolerate-never-started to report it apart.",
    ),
    "declared-digest-mismatch": Code(
        "fail",
        "the digest that runs is not the one that is pinned, and no relation proves them one image for this node",
        "Give the index's manifests with --relations and the node's platform with --platforms, or investigate.",
    ),
    "config-digest-only": Code(
        "note",
        "the runtime reports the config digest of an imported image: it cannot be pulled, signed or scanned by it",
        "Pull the image from a registry where it must carry evidence.",
    ),
    "local-import": Code(
        "note",
        "the repository is a name that containerd made up for an imported tarball: no registry serves it",
        "Pull the image from a registry where it must carry evidence.",
    ),
    "repository-alias": Code(
        "note", "the runtime reports another repository than was asked for; the digest is the identity", ""
    ),
    "branch-only-driver-tag": Code(
        "note",
        "a precompiled driver tag names the branch and the kernel, not the driver release",
        "Take the driver release from the manifest digest or the node's label.",
    ),
}
"""Codes that stand in a record's reasons."""

LIST_CODES = {
    "no-containers": Code(
        "fail", "no GPU runtime container exists", "Check that this is the right list of the right namespaces."
    ),
    "tag-divergence": Code("fail", "one tag runs with different digests", _INVESTIGATE),
    "digest-changed": Code("fail", "the digest changed under an unchanged reference", _INVESTIGATE),
    "incomplete-list": Code("error", "the list is one page of a longer one", _CAPTURE),
    "empty-scope": Code(
        "error",
        "a demanded namespace has no pod",
        "Correct the namespace, or put right why nothing runs there; an empty namespace is no pass.",
    ),
    "not-a-podlist": Code("error", "it is not one PodList or List", _CAPTURE),
    "not-json": Code("error", "it does not parse as JSON", _CAPTURE),
    "malformed-pod": Code("error", "an item of the list cannot be read as a pod", _CAPTURE),
    "unreadable": Code("error", "a file cannot be read", "Correct the path or its permissions."),
    "namespace-forbidden": Code(
        "error",
        "the pods of a namespace may not be listed",
        "Ask for `list pods` in that namespace; what was not read is no pass.",
    ),
    "namespace-unreadable": Code(
        "error", "the pods of a namespace could not be read in full", "Try again; what was not read is no pass."
    ),
    "cluster-unreadable": Code("error", "the cluster could not be reached or named", "Check the kubeconfig context."),
    "malformed-baseline": Code(
        "error", "the baseline is not the JSON of an audit", "Give the audit.json of an earlier audit."
    ),
    "incomplete-baseline": Code(
        "error",
        "the baseline is an audit that could not say anything, or names no digest",
        "Give an audit whose verdict is pass or fail.",
    ),
    "foreign-baseline": Code(
        "error",
        "the baseline is of another cluster, of a rehearsal, or the cluster cannot be named",
        "Give an audit of this cluster.",
    ),
    "malformed-relations": Code("error", "the relations cannot be read", "Give {index: [{digest, platform}]} as JSON."),
    "malformed-platforms": Code("error", "the platforms cannot be read", "Give {node: platform} as JSON."),
}
"""Codes of findings about the list as a whole or its inputs."""

FAILING = frozenset(code for code, known in RECORD_CODES.items() if known.effect == "fail")
"""Codes that fail a record; every other code of a record is a note."""
