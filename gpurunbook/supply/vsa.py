"""Verification summaries: what was verified about one digest, for whoever deploys it without reading a notebook.

One in-toto statement v1 per released digest, with the SLSA verification summary v1 as its predicate. A consumer checks
the signature, the verifier's id and the result; a rehearsal has another verifier, whom nobody should trust.
Source: https://slsa.dev/spec/v1.1/verification_summary
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from gpurunbook.supply.admission import key_of

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/verification_summary/v1"
VERIFIER = "https://gpurunbook.io/promotion"
REHEARSAL = "https://gpurunbook.io/promotion/rehearsal"
"""Verifier of what was judged on a fixture or at a given time: never in anybody's list of trusted verifiers."""

POLICY = "https://gpurunbook.io/policies/gpu-supply-chain"
LEVELS = ("GPU_SUPPLY_CHAIN_POLICY", "SLSA_BUILD_LEVEL_UNEVALUATED")
"""What was verified: the policy. Of the SLSA build track nothing is said, since the publishers attest nothing."""


PLATFORMS = "gpurunbook.io/platforms"
"""Annotation of the subject: of an index only the manifests for these were looked at."""


def summaries(gate: Mapping[str, Any], proposal: str, when: str, rehearsal: bool) -> dict[str, bytes]:
    """Writes nothing. File name → statement, one per digest of the evidence gate's answer.

    gate: `gate.json` that passed; proposal: digest of the approved proposal; when: RFC 3339.
    """
    made: dict[str, list[Mapping[str, Any]]] = {}
    for image in gate["images"]:
        made.setdefault(image["digest"], []).append(image)
    return {
        f"vsa/{key_of(digest)}.json": _file(_statement(digest, images, proposal, when, rehearsal))
        for digest, images in sorted(made.items())
    }


def _file(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def _statement(
    digest: str, images: list[Mapping[str, Any]], proposal: str, when: str, rehearsal: bool
) -> dict[str, Any]:
    repository = min(name for image in images for name in image["repositories"])
    platforms = sorted({image["platform"] for image in images})
    return {
        "_type": STATEMENT,
        "subject": [{"name": repository, "digest": _digest(digest), "annotations": {PLATFORMS: platforms}}],
        "predicateType": PREDICATE,
        "predicate": {
            "verifier": {"id": REHEARSAL if rehearsal else VERIFIER},
            "timeVerified": when,
            "resourceUri": purl(repository, digest),
            "policy": {"uri": POLICY},
            "inputAttestations": [{"uri": "proposal.json", "digest": _digest(proposal)}, *_inputs(images)],
            "verificationResult": "PASSED",
            "verifiedLevels": list(LEVELS),
            "slsaVersion": "1.1",
        },
    }


def purl(repository: str, digest: str) -> str:
    """Writes nothing. The package URL of an image by digest."""
    name = repository.rpartition("/")[2]
    return f"pkg:oci/{name}@{quote(digest, safe='')}?repository_url={quote(repository, safe='/')}"


def _inputs(images: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    files = {one["file"]: one["sha256"] for image in images for kind in ("sboms", "scans") for one in image[kind]}
    for name, sha256 in sorted(files.items()):
        yield {"uri": name, "digest": _digest(sha256)}


def _digest(text: str) -> dict[str, str]:
    algorithm, _, value = text.partition(":")
    return {algorithm: value}
