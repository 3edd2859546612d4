"""The runtime image provenance audit, as checks of a runbook."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from gpurunbook.errors import InputError, ParameterError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Check, Document, Figure, Judgement, Need, Object, Observed, Pages, Recorded, Seen, Table
from gpurunbook.supply import baseline, podlist, records, relations, strictjson
from gpurunbook.supply.auditcodes import FAILING, RECORD_CODES, SOURCE
from gpurunbook.supply.pods import Malformed, PodList
from gpurunbook.supply.records import Record
from gpurunbook.supply.report import CHECK, Report, judge, listed, recorded

DEFAULT_NAMESPACES = ("gpu-operator", "hami-system")
"""The scope of a live audit where none is named: the namespaces whose pods run with privilege on GPU nodes."""

REHEARSAL = "gpurunbook.io/rehearsal"
"""Label or annotation of namespace kube-system: what is seen there is no evidence for a live cluster."""

ROWS = 50
"""Failures that the notebook's table shows."""

FINDINGS = 500
"""Failing records that become a finding each; past that one finding per code says how many more."""

NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

_CLASSES = ("manifest", "local", "config", "mutable", "malformed", "unresolved", "never-started")


@dataclass(frozen=True)
class Scope:
    """What is audited, and with what. pod_json, baseline, relations, platforms: files, "" for none.

    namespaces: demanded of the file where one is given, else listed live. Raises ParameterError for a name that no
    namespace can have.
    """

    namespaces: Sequence[str] = ()
    pod_json: str = ""
    baseline: str = ""
    relations: str = ""
    platforms: str = ""
    tolerate_never_started: bool = False

    def __post_init__(self) -> None:
        for name in self.namespaces:
            if not isinstance(name, str) or not NAMESPACE.fullmatch(name):
                raise ParameterError(
                    f"{str(name)[:80]!r} is no name of a namespace",
                    subject="namespaces",
                    remedy="Give names such as gpu-operator.",
                )

    @property
    def chosen(self) -> tuple[str, ...]:
        """Writes nothing. The namespaces, each once."""
        return tuple(dict.fromkeys(self.namespaces)) or (() if self.pod_json else DEFAULT_NAMESPACES)

    def needs(self) -> dict[str, Need]:
        """Writes nothing. What must be observed: pods in pages, or files."""
        needs: dict[str, Need] = {}
        if self.pod_json:
            needs["pods"] = Document(self.pod_json)
        else:
            for name in self.chosen:
                needs[f"pods {name}"] = Pages(f"/api/v1/namespaces/{name}/pods", PodList, kept=records.page)
        for name in ("baseline", "relations", "platforms"):
            if path := getattr(self, name):
                needs[name] = Document(path)
        return needs

    def report(self, seen: Seen, cluster: str | None, rehearsal: bool) -> Report:
        """Writes nothing. Judges what was observed. A captured file is of no known cluster, and a rehearsal.

        A need `cluster` in seen that gives no uid makes the answer an error: nobody knows what the pods are of.
        """
        if self.pod_json:
            cluster, rehearsal = None, True
        problems: list[Finding] = []
        if "cluster" in seen and cluster is None:
            hidden = seen["cluster"].problem
            message = hidden.message if hidden else "namespace kube-system has no uid, so the cluster has no name"
            problems.append(listed("cluster-unreadable", "Namespace/kube-system", message))
        indexes = _input(seen, "relations", relations.read_indexes, problems) or {}
        nodes = _input(seen, "platforms", relations.read_nodes, problems) or {}
        live = not self.pod_json
        earlier = _input(seen, "baseline", lambda data: baseline.read(data, cluster, rehearsal, live), problems)
        return judge(
            [_live(n, seen[f"pods {n}"]) for n in self.chosen] if live else [self._file(seen["pods"])],
            relations=relations.Relations(indexes, nodes),
            baseline=earlier,
            tolerate_never_started=self.tolerate_never_started,
            problems=problems,
            cluster=cluster,
            rehearsal=rehearsal,
        )

    def _file(self, observed: Observed) -> podlist.Listing:
        if observed.problem is not None:
            return podlist.Listing(code="unreadable", message=observed.problem.message, subject=self.pod_json)
        listing = podlist.read(observed.value)
        return replace(listing, items=records.of(listing.items), subject=self.pod_json, demands=self.chosen)


def _live(namespace: str, observed: Observed) -> podlist.Listing:
    subject = f"Namespace/{namespace}"
    if observed.problem is not None:
        code = "namespace-forbidden" if observed.problem.code == "forbidden" else "namespace-unreadable"
        return podlist.Listing(code=code, message=observed.problem.message, subject=subject)
    items = (
        msgspec.structs.replace(i, item=n) if isinstance(i, Malformed) else i for n, i in enumerate(observed.value)
    )
    return podlist.Listing(items, subject=subject, demands=(namespace,))


_T = TypeVar("_T")


def _input(seen: Seen, name: str, reader: Callable[[bytes], _T], problems: list[Finding]) -> _T | None:
    if name not in seen:
        return None
    observed = seen[name]
    path = getattr(observed.need, "path", name)
    if observed.problem is not None:
        problems.append(listed("unreadable", path, f"the {name} cannot be read: {observed.problem.message}"))
        return None
    try:
        return reader(observed.value)
    except InputError as wrong:
        problems.append(listed(wrong.code, path, wrong.message))
        return None


def provenance(
    namespaces: Sequence[str],
    *,
    pod_json: str = "",
    baseline: str = "",
    relations: str = "",
    platforms: str = "",
    tolerate_never_started: bool = False,
) -> Check:
    """Writes nothing. Judges every image of the pods in the namespaces, live or of a captured list.

    A namespace that cannot be read in full, or has no pod, makes the answer unknown. Keeps the answer of the command
    line as `audit.json`. Raises ParameterError for a name that no namespace can have.
    Source: GPU supply-chain and image policy, Runtime provenance audit.
    """
    scope = Scope(namespaces, pod_json, baseline, relations, platforms, tolerate_never_started)
    system: dict[str, Need] = {} if pod_json else {"cluster": Object("/api/v1/namespaces/kube-system")}

    def concluded(seen: Seen) -> Judgement:
        return judgement(scope.report(seen, *identity(seen)))

    return Check("Runtime image provenance", {**system, **scope.needs()}, concluded)


def identity(seen: Seen) -> tuple[str | None, bool]:
    """Writes nothing. Uid and rehearsal mark of the cluster, from the need `cluster`: namespace kube-system."""
    try:
        system = strictjson.typed(seen["cluster"].value or {} if "cluster" in seen else {}, _System).metadata
    except InputError:
        return None, False
    marks = {**(system.annotations or {}), **(system.labels or {})}
    return system.uid or None, REHEARSAL in marks


class _Metadata(msgspec.Struct):
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _System(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def judgement(report: Report) -> Judgement:
    """Writes nothing. A report as findings, views, facts, and the file `audit.json`."""
    from gpurunbook.digests import digest  # the command line does without

    failed = [r for r in report.records if r.audit == "fail"]
    digests = [d.digest for d in report.digests]
    return Judgement(
        findings=tuple(_findings(report, failed)),
        views=(_failures(failed), _classes(report)),
        facts={
            "verdict": report.verdict,
            "evidence_ready": report.evidence_ready,
            "records": len(report.records),
            "failing": len(failed),
            "digests": len(digests),
            "inventory": digest("\n".join(digests).encode()),
            "desired": dict(sorted(Counter(r.desired_class for r in report.records).items())),
            "runtime": dict(sorted(Counter(r.runtime_class for r in report.records).items())),
        },
        files={"audit.json": report.as_json()},
    )


def _findings(report: Report, failed: list[Record]) -> Iterator[Finding]:
    yield from report.findings
    for record in failed[:FINDINGS]:
        yield from (recorded(record, code) for code in record.reasons if code in FAILING)
    beyond = Counter(code for record in failed[FINDINGS:] for code in record.reasons if code in FAILING)
    for code, count in sorted(beyond.items()):
        known = RECORD_CODES[code]
        message = f"{count} more records: {known.meaning}; all stand in audit.json"
        yield Finding(CHECK, "", Status.FAIL, code, message, known.remedy, SOURCE)
    passed = (r for r in report.records if r.audit == "pass")
    notes = Counter(code for record in passed for code in record.reasons)
    for code, count in sorted(notes.items()):
        known = RECORD_CODES[code]
        yield Finding(CHECK, "", Status.WARN, code, f"{count} records: {known.meaning}", known.remedy, SOURCE)
    if report.verdict == "pass":
        message = f"{len(report.records)} records of {len(report.digests)} digests keep to the policy"
        yield Finding(CHECK, "", Status.PASS, "provenance-kept", message, "", SOURCE)


def _failures(failed: list[Record]) -> Table:
    rows = [
        (r.audit, r.namespace, r.pod, r.kind, r.container, r.desired, r.resolved, ", ".join(r.reasons))
        for r in failed[:ROWS]
    ]
    columns = ("audit", "namespace", "pod", "kind", "container", "desired", "resolved", "reasons")
    return Table("Records that fail", columns, rows, total=len(failed), status="audit")


def _classes(report: Report) -> Figure:
    images: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in report.records:
        images[record.desired_class, record.runtime_class].add(record.resolved or record.desired)
    wanted = sorted({desired for desired, _ in images})
    series = {d: [len(images.get((d, word), ())) for word in _CLASSES] for d in wanted}
    return Figure("Distinct images by runtime class, and by class of the desired reference", _CLASSES, series, "images")


class _Audited(msgspec.Struct):
    verdict: str
    evidence_ready: bool
    records: list[Record]


def evidence_ready() -> Check:
    """Writes nothing. Whether every image of the step `audit` has a registry digest to bind evidence to.

    Warns where one has none: the audit stands, and the evidence gate will refuse that image.
    Source: GPU supply-chain and image policy, SBOM, signature, and vulnerability gate.
    """
    return Check("Digests usable as evidence", {"audit": Recorded("audit", "audit.json")}, _ready)


def _ready(seen: Seen) -> Judgement:
    def one(status: Status, code: str, message: str, remedy: str = "") -> Finding:
        return Finding("evidence-ready", "audit.json", status, code, message, remedy, SOURCE)

    observed = seen["audit"]
    if observed.problem is not None:
        return Judgement((one(Status.UNKNOWN, "unreadable", observed.problem.message, "Run the audit's cell again."),))
    try:
        audited = msgspec.json.decode(observed.value, type=_Audited)
    except msgspec.DecodeError as wrong:
        message = f"it is not the answer of an audit: {wrong}"
        return Judgement((one(Status.UNKNOWN, "unreadable", message, "Run the audit's cell again."),))
    lacking = Counter(r.runtime_class for r in audited.records if not r.evidence)
    facts = {"evidence_ready": audited.evidence_ready, "lacking": dict(sorted(lacking.items()))}
    if audited.verdict == "error":
        found = one(Status.UNKNOWN, "audit-unknown", "the audit could not say anything", "Put right what it names.")
    elif audited.verdict != "pass":
        found = one(
            Status.FAIL, "audit-failed", "the audit failed, so nothing of it is evidence", "Put it right first."
        )
    elif audited.evidence_ready:
        found = one(Status.PASS, "evidence-ready", "every image that ran has a registry manifest digest")
    else:
        counts = ", ".join(f"{count} {word}" for word, count in sorted(lacking.items())) or "nothing ran"
        found = one(
            Status.WARN,
            "evidence-not-ready",
            f"records without a registry manifest digest: {counts}",
            "The evidence gate will refuse these images; pull them from a registry where they must carry evidence.",
        )
    return Judgement((found,), facts=facts)
