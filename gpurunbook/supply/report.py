"""The answer of an audit: verdict, findings, records and the digests that run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec

from gpurunbook.findings import Finding, Status
from gpurunbook.supply.auditcodes import LIST_CODES, RECORD_CODES, SOURCE
from gpurunbook.supply.baseline import Baseline, Change, changes
from gpurunbook.supply.podlist import Listing
from gpurunbook.supply.pods import Malformed
from gpurunbook.supply.records import Record, Seen, settle
from gpurunbook.supply.relations import Relations

CHECK = "provenance"

_NAMED = 5
"""Pods that one message names; all stand in the records."""

_LONGEST = 2000
"""Characters of one message: names come from the cluster and may be of any length."""


_LINE = msgspec.json.Encoder()


class Digest(msgspec.Struct, gc=False):
    """A manifest digest that runs. repositories: as reported, normalised and sorted; records: how many."""

    digest: str
    records: int
    repositories: list[str]


class Report(msgspec.Struct):
    """An audit. Fields in the order of their names, which is the order of the JSON.

    findings: about the list and its inputs; what concerns one record stands in its reasons. evidence_ready: passed, and
    every image that ran has a registry manifest digest.
    """

    cluster: str | None
    digests: list[Digest]
    evidence_ready: bool
    findings: list[Finding]
    records: list[Record]
    rehearsal: bool
    verdict: str

    def as_json(self) -> bytes:
        """Writes nothing. The JSON of the command line, keys sorted, one line."""
        findings = [dict(sorted(f.as_json().items())) for f in self.findings]
        whole = {name: getattr(self, name) for name in self.__struct_fields__} | {"findings": findings}
        return _LINE.encode_lines([whole])


def listed(code: str, subject: str, message: str) -> Finding:
    """Writes nothing. A finding about the list as a whole or one of its inputs."""
    known = LIST_CODES[code]
    status = Status.UNKNOWN if known.effect == "error" else Status.FAIL
    return Finding(CHECK, _encoded(subject), status, code, _encoded(message[:_LONGEST]), known.remedy, SOURCE)


def _encoded(text: str) -> str:
    """The text with lone surrogates, as in a file's name that is no UTF-8, as escapes: JSON has no place for them."""
    return text.encode(errors="backslashreplace").decode()


def recorded(record: Record, code: str) -> Finding:
    """Writes nothing. A finding about one record, for one of its failing codes."""
    known = RECORD_CODES[code]
    message = (
        f"{record.kind} {record.container[:100]!r} asks for {record.desired[:300]!r}, runs {record.resolved[:300]!r}: "
        f"{known.meaning}"
    )
    return Finding(CHECK, f"{record.namespace}/Pod/{record.pod}", Status.FAIL, code, message, known.remedy, SOURCE)


def judge(
    listings: Sequence[Listing],
    *,
    relations: Relations | None = None,
    baseline: Baseline | None = None,
    tolerate_never_started: bool = False,
    problems: Sequence[Finding] = (),
    cluster: str | None = None,
    rehearsal: bool = False,
) -> Report:
    """Writes nothing. Judges lists of pods, whose items are PodRecords or Malformed; they are consumed.

    problems: findings that stand already, such as inputs that could not be read. cluster: uid, or None for a file.
    """
    related = relations or Relations()
    findings = list(problems)
    seen: list[Seen] = []
    whole = bool(listings)
    for listing in listings:
        namespaces: set[str | None] = set()
        for item in listing.items:
            if isinstance(item, Malformed):
                namespaces.add(item.metadata.namespace)
                findings.append(_malformed(listing.subject, item))
                whole = False
            else:
                namespaces.add(item.namespace)
                seen += item.seen
        if listing.code:
            findings.append(listed(listing.code, listing.subject, listing.message))
        if listing.code not in ("", "incomplete-list"):
            whole = False
            continue
        findings += [
            listed("empty-scope", f"Namespace/{namespace}", f"namespace {namespace!r} has no pod in the list")
            for namespace in dict.fromkeys(listing.demands)
            if namespace not in namespaces
        ]
    if whole and not seen:
        findings.append(listed("no-containers", "", "the list holds no container and no image volume"))
    for one in seen:
        if one.reading.contested or tolerate_never_started:
            settle(one, related, tolerate_never_started)
    seen.sort(key=_PLACE)
    findings += _divergences(seen, related)
    if baseline is not None:
        findings += map(_changed, changes(seen, baseline, related))
    findings.sort(key=_gravity)
    return _report(seen, findings, cluster, rehearsal)


def _report(seen: list[Seen], findings: list[Finding], cluster: str | None, rehearsal: bool) -> Report:
    verdict = "pass"
    if any(one.record.audit == "fail" for one in seen) or findings:
        verdict = "error" if any(f.status is Status.UNKNOWN for f in findings) else "fail"
    ran = (one.reading.runtime for one in seen if one.record.evidence)
    repositories: dict[str, dict[str, int]] = defaultdict(dict)
    for (digest, repository), count in Counter((r.digest, r.repository) for r in ran).items():
        repositories[digest][repository] = count
    started = [one.record.evidence for one in seen if one.record.runtime_class != "never-started"]
    return Report(
        cluster=cluster,
        digests=[Digest(d, sum(counts.values()), sorted(counts)) for d, counts in sorted(repositories.items())],
        evidence_ready=verdict == "pass" and bool(started) and all(started),
        findings=findings,
        records=[one.record for one in seen],
        rehearsal=rehearsal,
        verdict=verdict,
    )


_PLACE = attrgetter(*(f"record.{name}" for name in ("namespace", "pod", "kind", "container", "desired", "resolved")))
_CODES = list(LIST_CODES)


def _gravity(finding: Finding) -> tuple[bool, int, str, str]:
    return finding.status is not Status.UNKNOWN, _CODES.index(finding.code), finding.subject, finding.message


def _malformed(subject: str, item: Malformed) -> Finding:
    meta = item.metadata
    name = f" ({meta.namespace or '?'}/{meta.name or '?'})" if meta.namespace or meta.name else ""
    return listed("malformed-pod", subject, f"items[{item.item}]{name}: {item.why}")


def _divergences(seen: list[Seen], relations: Relations) -> Iterator[Finding]:
    """One tag, several manifests: the tag was pushed again, or the nodes take different children of one index."""
    runs: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for one in seen:
        reference = one.reading.desired.reference
        if one.reading.runtime.word == "manifest" and reference is not None and not reference.pinned:
            runs[reference.identity][one.reading.runtime.digest].append(one)
    for tag, digests in runs.items():
        if len(digests) < 2 or relations.one_image({(d, one.node) for d, ones in digests.items() for one in ones}):
            continue
        ways = "; ".join(f"{d} in {_pods([one.record for one in ones])}" for d, ones in sorted(digests.items()))
        yield listed("tag-divergence", tag, f"one tag runs with {len(digests)} digests: {ways}")


def _changed(change: Change) -> Finding:
    namespace, container, reference = change.place
    pods = _some(change.pods)
    return listed(
        "digest-changed",
        f"{namespace}/{change.pods[0]}/{container}",
        f"{reference} ran {', '.join(change.before)} in the baseline and runs {', '.join(change.now)} now, "
        f"in container {container!r} of pod {pods} in namespace {namespace!r}: a digest change under an "
        "unchanged reference is a supply-chain event",
    )


def _pods(ones: Iterable[Record]) -> str:
    return _some(sorted({f"{r.namespace}/{r.pod}/{r.container}" for r in ones}))


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
