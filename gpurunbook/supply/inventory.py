"""The images that run, compared with those that an earlier run proved: the canary's, or the approved ones.

Source: GPU supply-chain policy, promotion steps 5 and 8; Rollback and incident response.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Check, Judgement, Need, Object, Recorded, Seen
from gpurunbook.supply import admission
from gpurunbook.supply.audit import Scope, identity, judgement
from gpurunbook.supply.relations import Relations, digest, read_indexes

CHECK = "inventory"
SOURCE = "GPU supply-chain policy, promotion step 5"

_WORDS = {"canary": ("canary", "canary-audit.json"), "approved": ("tuple", "approved-audit.json")}
"""Whose digests are compared with → the step that kept them, and its file."""


def same_digests(against: str, namespaces: Sequence[str], relations: str = "", platforms: str = "") -> Check:
    """Writes nothing. The provenance audit of this moment, and whether exactly the proven digests run.

    against: `canary` or `approved`. A digest under an unchanged reference that is another one now is `digest-changed`;
    one that the earlier run did not have at all is refused too, and an image of which no registry digest is known.
    relations: typed, so that of an approved run only the same may be taken. Keeps `audit.json`. Raises as `provenance`.
    """
    scope = Scope(namespaces, baseline="the earlier audit", relations=relations, platforms=platforms)
    needs: dict[str, Need] = {
        **scope.needs(),
        "baseline": Recorded(*_WORDS[against]),
        "cluster": Object("/api/v1/namespaces/kube-system"),
    }
    if against == "approved" and relations:
        needs["run"] = Recorded("tuple", "approved-run.json")

    def judge(seen: Seen) -> Judgement:
        made = judgement(scope.report(seen, *identity(seen)))
        if made.facts["verdict"] != "pass":
            return made
        found = list(_compared(seen, made.files["audit.json"], against))
        return Judgement((*found, *made.findings), made.views, made.facts, made.files)

    return Check(f"Provenance audit, and the digests against the {against} ones", needs, judge)


def _compared(seen: Seen, audit: bytes, against: str) -> Iterator[Finding]:
    try:
        now, then = admission.images_of(audit), admission.images_of(seen["baseline"].value)
    except InputError as wrong:
        yield Finding(CHECK, "audit.json", Status.UNKNOWN, wrong.code, wrong.message, "Run the audit again.", SOURCE)
        return
    indexes = read_indexes(seen["relations"].value) if "relations" in seen else {}
    related = Relations(indexes)
    if "run" in seen and (seen["run"].problem or json.loads(seen["run"].value)["relations"] != digest(indexes)):
        message = "the relations are not those that the approved run was judged with"
        yield Finding(CHECK, "relations", Status.FAIL, "relations-not-approved", message, "Give the same file.", SOURCE)
    yield from _unproven(audit)
    for one in sorted(set(now) - set(then)):
        if not related.family(one) & set(then):
            message = f"{', '.join(now[one])} runs, and the {against} run did not have this digest"
            remedy = "Prove it in a canary, or take the workload out of the GPU namespaces."
            yield Finding(CHECK, one, Status.FAIL, f"digest-not-{against}", message, remedy, SOURCE)
    for one in sorted(set(then) - set(now)):
        if not related.family(one) & set(now):
            message = f"{', '.join(then[one])} ran in the {against} run, and runs no more"
            yield Finding(CHECK, one, Status.WARN, "digest-gone", message, "It is released as what runs now.", SOURCE)


def _unproven(audit: bytes) -> Iterator[Finding]:
    """An imported image passes the audit, and can be compared with nothing."""
    for record in json.loads(audit)["records"]:
        if not record["evidence"]:
            subject = "/".join(record[word] for word in ("namespace", "pod", "container"))
            message = f"{record['desired']} runs as {record['resolved'] or 'nothing that is named'} ({record['kind']})"
            remedy = "Pull it from a registry, so that a digest names it, or take it out of the GPU namespaces."
            yield Finding(CHECK, subject, Status.FAIL, "digest-unproven", message, remedy, SOURCE)
