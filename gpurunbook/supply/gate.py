"""The evidence gate: for every digest that runs and each platform in use, signature, SBOM, scan and Security's answer.

Each file of the folder is joined to the images that it is about, by digest. What joins nothing is a finding; so is
every image that lacks something.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.supply import signatures, times
from gpurunbook.supply.calls import tail
from gpurunbook.supply.decisions import Decisions
from gpurunbook.supply.evidence import Named, Subject, join, same_platform
from gpurunbook.supply.evidence_files import AHEAD, charge, judge_database, judge_sbom, judge_scan, where
from gpurunbook.supply.exceptions import Exceptions, Place
from gpurunbook.supply.family import Family
from gpurunbook.supply.folder import File, Folder, Recorded
from gpurunbook.supply.gatecodes import CHECK, SOURCE, found
from gpurunbook.supply.ignores import judge_ignores
from gpurunbook.supply.members import at
from gpurunbook.supply.sboms import Sbom
from gpurunbook.supply.scans import Scan, Vulnerability
from gpurunbook.supply.signatures import Signature, Verification
from gpurunbook.supply.vex import Statement, judge_vex


@dataclass(frozen=True)
class Terms:
    """What is judged by. now, max_database_age, stabilisation: nanoseconds; platforms: in use, none when not known."""

    now: int
    max_database_age: int
    stabilisation: int
    platforms: tuple[str, ...] = ()


@dataclass
class Image:
    """One digest on one platform, with all that was found about it. calls: records whose outputs count for it."""

    place: Place
    signature: Signature
    sboms: list[tuple[File, Sbom]] = field(default_factory=list)
    scans: list[tuple[File, Scan, str]] = field(default_factory=list)
    inventories: list[File] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    calls: dict[str, Recorded] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def subject(self) -> Subject:
        """Writes nothing. The digest and platform."""
        return self.place.subject

    @property
    def name(self) -> str:
        """Writes nothing. `sha256:…/linux/amd64`, how findings name the image."""
        return f"{self.subject.digest}/{self.subject.platform}"


class Gate:
    """Judges once, when it is made: `images` and `findings` are the answer.

    ends: what the answer rests on for a time only, by the id of the acceptance or the repository that is not signed,
    and until when (nanoseconds).
    """

    def __init__(
        self,
        running: Mapping[str, Sequence[str]],
        folder: Folder,
        family: Family,
        decisions: Decisions,
        terms: Terms,
    ) -> None:
        self._folder, self._family, self._decisions, self._terms = folder, family, decisions, terms
        self._of: dict[str, list[Image]] = {}
        self._owners: dict[str, set[str]] = defaultdict(set)
        self.ends: dict[str, int] = {}
        self.findings: list[Finding] = list(folder.problems)
        for digest, repositories in sorted(running.items()):
            self._of[digest] = self._demanded(digest, repositories)
            for name in family.related(digest):
                self._owners[name].add(digest)
        self.images = [image for images in self._of.values() for image in images]
        self._exceptions = Exceptions(
            decisions.accepted,
            [image.place for image in self.images],
            dict(self._honoured()),
            [said for _, _, statements in folder.vexes for said in statements],
            now=terms.now,
            stabilisation=terms.stabilisation,
        )
        self._join()
        for image in self.images:
            self._lacking(image)
        self.findings += self._exceptions.leftover()
        self.findings += self._beside()

    def _demanded(self, digest: str, repositories: Sequence[str]) -> list[Image]:
        """The images that a digest must have evidence for: one per platform that it has and that is in use."""
        related = {digest, *self._family.holders(digest)}
        calls = [o for o in self._folder.calls if o.call.tool in ("cosign", "crane") and o.about]
        calls = [o for o in calls if o.about and o.about.digest in related]
        signature = self._signature(digest, repositories, [o for o in calls if o.call.tool == "cosign"])
        platforms, unknown = self._family.wanted(digest, self._terms.platforms)
        if unknown:
            self.findings.append(found("platforms-unknown", digest, unknown))
        places = [Place(self._family.subject(digest, platform), repositories) for platform in platforms]
        return [Image(place, signature, calls={o.file.name: o for o in calls}) for place in places]

    def _signature(self, digest: str, repositories: Sequence[str], calls: Sequence[Recorded]) -> Signature:
        printed, tried = self._folder.signatures, []
        for one in calls:
            there = [printed[sha256] for sha256 in one.call.outputs if sha256 in printed]
            if one.about is not None:
                whole = bool(there) or not one.call.outputs
                tried.append(Verification(one.call, one.about, there[0] if there else None, whole))
        made = signatures.judge(digest, repositories, tried, self._decisions, self._terms.now)
        if made.code:
            self.findings.append(found(made.code, digest, f"{made.state}: {made.message}"))
        elif made.digest not in ("", digest):
            self.findings.append(found("signed-by-index", digest, made.by))
        if made.unsigned is not None:
            name = f"signatures: {made.unsigned.repository}"
            self.ends[name] = made.unsigned.expires
            if made.unsigned.expires <= self._terms.now + self._terms.stabilisation:
                message = "that nobody signs it was recorded to an end inside the stabilisation window"
                self.findings.append(found("exception-expires-in-window", name, message))
        return made

    def _join(self) -> None:
        for file, sbom in self._folder.sboms:
            for image in self._placed(file, sbom.named, ""):
                self._tell(image, judge_sbom(sbom, image.subject), image.name, file)
                image.sboms.append((file, sbom))
        for file, inventory in self._folder.inventories:
            for image in self._placed(file, inventory.named, ""):
                image.inventories.append(file)
        for file, scan in self._folder.scans:
            images = self._placed(file, scan.named, scan.version)
            stamp, against = self._database(file) if images else ("", [])
            for image in images:
                self._tell(image, judge_scan(scan, image.subject), image.name, file)
                self._tell(image, against, image.name, file)
                image.scans.append((file, scan, stamp))
                self._vulnerabilities(image, scan)

    def _tell(self, image: Image, findings: Iterable[Finding], subject: str, file: File) -> None:
        told = [replace(f, check=CHECK, subject=subject, message=f"{f.message} ({file.name})") for f in findings]
        image.findings += told
        self.findings += told

    def _placed(self, file: File, named: Named, version: str) -> list[Image]:
        """The images that a file counts for; why it counts for no other is told."""
        one, made = self._recorded(file, version)
        about = one.about if one else None
        names = named.digests or named.image_ids
        owners = sorted(set().union(*(self._owners.get(name, ()) for name in names)))
        fitting: list[Image] = []
        if not names:
            message = "it names neither a manifest digest nor an image ID; a tag proves nothing"
            made.append(found("subject-unproven", file.name, message))
        elif not owners:
            message = f"it is about {', '.join(sorted(names))}, which does not run"
            made.append(found("evidence-not-running", file.name, message))
        elif about and not any(about.digest in self._family.known(digest) for digest in owners):
            message = f"the record asks for {about.digest}, the file is about {', '.join(owners)}"
            made.append(found("command-refused", file.name, message))
        elif two := self._two(named, owners):
            made.append(found("subject-ambiguous", file.name, f"it is about {two}: of which is not said"))
        else:
            asked = about.platform if about else ""
            fitting = [image for digest in owners for image in self._fitting(file, digest, named, asked)]
        self.findings += made
        for image in fitting:
            image.findings += made
            if one is not None:
                image.calls[one.file.name] = one
        return fitting

    def _two(self, named: Named, owners: Sequence[str]) -> str:
        """Digests of two images, or of two platforms of one, that a file names; "" when it is about one."""
        running = {name for name in named.digests if name in self._owners}
        for digest in owners:
            manifests = set(self._family.children(digest).values()) & named.digests
            if len(manifests) > 1 or running - self._family.known(digest):
                return ", ".join(sorted({digest, *manifests, *running}))
        return ""

    def _fitting(self, file: File, digest: str, named: Named, asked: str) -> list[Image]:
        children = self._family.children(digest)
        said = {p for p, child in children.items() if child in named.digests} or set(named.platforms)
        fitting = [
            image
            for image in self._of[digest]
            if all(f.status is Status.PASS for f in join(image.subject, named))
            and (not said or any(same_platform(p, image.subject.platform) for p in said))
        ]
        if not said and not self._family.single(digest) and digest in named.digests:
            if not asked:
                message = f"it names {digest}, which may be an index, and no platform; no record says which was asked"
                self.findings.append(found("platform-unproven", file.name, message))
                return []
            said = {asked}
            fitting = [image for image in fitting if same_platform(asked, image.subject.platform)]
        about, wanted = ", ".join(sorted(said)), ", ".join(i.subject.platform for i in self._of[digest])
        if asked and said and not any(same_platform(asked, p) for p in said):
            message = f"asked for {asked} of {digest}, it is about {about}"
            self.findings.append(found("platform-mismatch", file.name, message))
            return []
        if not fitting and wanted:
            unused = asked and not any(same_platform(asked, image.subject.platform) for image in self._of[digest])
            code = "platform-not-used" if unused else "platform-mismatch"
            self.findings.append(found(code, file.name, f"it is about {about} of {digest}; in use: {wanted}"))
        return fitting

    def _recorded(self, file: File, version: str) -> tuple[Recorded | None, list[Finding]]:
        """The record of the call that wrote a file, and what is against it."""
        one = self._folder.wrote(file.sha256)
        if one is None:
            message = "no record says which command wrote it, in which version"
            return None, [found("command-unrecorded", file.name, message)]
        if one.call.tool not in _WRITERS[file.kind]:
            message = f"{one.call.tool} is on record as having written it, wanted {' or '.join(_WRITERS[file.kind])}"
            return one, [found("command-refused", file.name, message)]
        if file.kind == "trivy" and one.about and one.about.options.get("--format") != "json":
            return one, [found("command-refused", file.name, "the record is of a call that writes no report in JSON")]
        if version and version != one.call.version:
            message = f"the report is of version {version}, the record of {one.call.version}"
            return one, [found("tool-version-mismatch", file.name, message)]
        return one, []

    def _database(self, file: File) -> tuple[str, list[Finding]]:
        """The date of the data that a scan was made with, and what is against it."""
        one = self._folder.wrote(file.sha256)
        call = one.call if one else None
        document = self._folder.databases.get(call.database) if call else None
        try:
            against = judge_database(document or {}, self._terms.now, self._terms.max_database_age)
        except InputError as wrong:
            return "", [_unknown(wrong.message)]
        stamp = at(document, "VulnerabilityDB", "UpdatedAt")
        if call is None or against:
            return "", against
        if (times.instant(stamp) or 0) > (times.instant(call.started) or 0) + AHEAD:
            against = [_unknown(f"the data are of {stamp}, after the scan of {call.started}: it used others")]
        version = at(document, "Version")
        if version != call.version:
            message = f"trivy {version} named the database, trivy {call.version} scanned"
            against = [*against, found("tool-version-mismatch", "", message)]
        return stamp, against

    def _vulnerabilities(self, image: Image, scan: Scan) -> None:
        once: dict[tuple[str, str, str, bool], Vulnerability] = {}
        for seen in scan.vulnerabilities:
            once.setdefault((seen.id, seen.package, seen.severity, seen.suppressed), seen)
        for seen in once.values():
            if (charged := charge(seen)) is None:
                continue
            subject = f"{image.name}/{seen.id}/{seen.package}"
            if accepted := self._exceptions.answer(image.place, seen):
                ids = [one.id for one in accepted]
                image.accepted.update(ids)
                self.ends.update((one.id, one.expires) for one in accepted)
                until = ", ".join(f"{one.id} of {one.owner} to {one.until}" for one in accepted)
                made = found(_ACCEPTED[seen.severity], subject, f"{where(seen)}: {until}")
            else:
                made = Finding(CHECK, subject, Status.FAIL, charged[0], where(seen), charged[1], SOURCE)
            image.findings.append(made)
            self.findings.append(made)

    def _lacking(self, image: Image) -> None:
        others = [one for one in self._of[image.subject.digest] if one is not image]
        if not image.sboms and not image.scans and any(one.sboms or one.scans for one in others):
            made = [found("platform-missing", image.name, "another platform has evidence, this one has none")]
        else:
            made = [] if image.sboms else [found("sbom-missing", image.name, "no SBOM in CycloneDX or SPDX")]
            made += [] if image.scans else [found("scan-missing", image.name, "no vulnerability scan")]
        image.findings += made
        self.findings += made

    def _honoured(self) -> Iterator[tuple[str, Sequence[Statement]]]:
        """OpenVEX documents that an acceptance may rest on; what is wrong with the others is told."""
        digests = {name: name for digest in self._of for name in {digest, *self._family.children(digest).values()}}
        cited = {one.vex for one in self._decisions.accepted}
        names = Counter(name for _, name, _ in self._folder.vexes)
        for file, name, statements in self._folder.vexes:
            against = judge_vex(statements, Subject("a digest that runs", "", digests))
            self.findings += [replace(f, check=CHECK, subject=f"{file.name}/{f.subject}") for f in against]
            if not name or name not in cited:
                message = f"{name or 'a document without @id'}: no exception or disposition rests on it"
                self.findings.append(found("vex-undated", file.name, message))
            elif names[name] > 1:
                message = f"{name} stands in {names[name]} files: which of them holds is not known"
                self.findings.append(found("vex-ambiguous", file.name, message))
            elif any(said.when is None or said.when > self._terms.now + AHEAD for said in statements):
                message = f"{name} has a statement without a time, or of a time to come"
                self.findings.append(found("vex-timestamp", file.name, message))
            elif not against:
                yield name, statements

    def _beside(self) -> Iterator[Finding]:
        """What is to be said about files that count for no image by themselves."""
        recorded = {sha256 for one in self._folder.calls for sha256 in (*one.call.outputs, one.call.database)}
        for file in self._folder.files:
            if file.kind in ("cosign", "trivy-version") and file.sha256 not in recorded:
                message = "no record says which command wrote it, or which scan it belongs to"
                yield found("command-unrecorded", file.name, message)
        known = {name for digest in self._of for name in self._family.known(digest)}
        for index in sorted(self._family.contradicted):
            yield found("relations-contradicted", index, "the relations name a manifest that the index does not hold")
        for file in self._folder.documents:
            if file.sha256 not in known:
                message = f"its SHA-256, {file.sha256}, is of nothing that runs"
                yield found("evidence-not-running", file.name, message)
        for one in self._folder.calls:
            if one.about and one.about.digest and one.about.digest not in known:
                message = f"{one.call.tool} was asked for {one.about.digest}, which does not run"
                yield found("evidence-not-running", one.file.name, message)
            elif one.call.tool != "cosign" and one.call.exit_code != 0:
                end = "did not end in time" if one.call.exit_code is None else f"ended with {one.call.exit_code}"
                message = f"{one.call.tool} {end}: {tail(one.call)}"
                yield found("command-failed", one.file.name, message)
        for file, entries in self._folder.ignores:
            for f in judge_ignores(entries, self._terms.now):
                yield replace(f, check=CHECK, subject=f"{file.name}/{f.subject}")


def _unknown(message: str) -> Finding:
    remedy = "Update Trivy's database and scan again."
    return Finding(CHECK, "", Status.FAIL, "database-unknown", message, remedy, SOURCE)


_WRITERS = {"sbom": ("syft", "trivy"), "syft": ("syft",), "trivy": ("trivy",)}
_ACCEPTED = {
    "CRITICAL": "critical-excepted",
    "HIGH": "high-dispositioned",
    "UNKNOWN": "unknown-severity-excepted",
}
