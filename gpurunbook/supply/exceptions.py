"""Which findings Security has accepted, under which id, and what is wrong with an acceptance itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpurunbook.findings import Finding
from gpurunbook.supply.decisions import Acceptance
from gpurunbook.supply.evidence import Subject
from gpurunbook.supply.gatecodes import found
from gpurunbook.supply.scans import Vulnerability
from gpurunbook.supply.vex import Statement

CLEARS = frozenset({"not_affected", "fixed"})
"""Statuses of OpenVEX on which an acceptance can rest."""


@dataclass(frozen=True)
class Place:
    """One image on one platform, with the repositories that it runs from."""

    subject: Subject
    repositories: Sequence[str]

    def within(self, one: Acceptance) -> bool:
        """Writes nothing. Whether an acceptance is about this image."""
        return one.repository in self.repositories if one.repository else one.digest in self.digests()

    def digests(self) -> set[str]:
        """Writes nothing. The digests of the image and of its manifest for the platform."""
        child = self.subject.child()
        return {self.subject.digest, *([child] if child else [])}


class Exceptions:
    """Answers for one vulnerability after another, then for the acceptances themselves.

    now, stabilisation: nanoseconds; vexes: `@id` → statements of the documents that are honoured; said: statements of
    all documents, of which a later one may speak against an acceptance.
    """

    def __init__(
        self,
        accepted: Sequence[Acceptance],
        places: Sequence[Place],
        vexes: Mapping[str, Sequence[Statement]],
        said: Sequence[Statement] = (),
        *,
        now: int,
        stabilisation: int,
    ) -> None:
        self._places = places
        self._vexes, self._said = vexes, said
        self._now, self._end = now, now + stabilisation
        self._accepted = accepted
        self._by: dict[tuple[str, str, str], list[Acceptance]] = defaultdict(list)
        for one in accepted:
            self._by[one.kind, one.cve, one.package].append(one)
        self._used: set[str] = set()
        self._failed: dict[str, Finding] = {}

    def answer(self, place: Place, seen: Vulnerability) -> list[Acceptance]:
        """Writes nothing. The acceptances that hold for a vulnerability in an image; High is dispositioned, all else
        excepted."""
        kind = "disposition" if seen.severity == "HIGH" else "exception"
        fitting = [one for one in self._by[kind, seen.id, seen.package] if place.within(one)]
        holding = [one for one in fitting if self._holds(one, place)]
        self._used |= {one.id for one in holding}
        if not holding:
            for one in fitting:
                self._failed.setdefault(one.id, self._refusal(one))
        return holding

    def _holds(self, one: Acceptance, place: Place) -> bool:
        return one.expires > self._now and (not one.vex or self._stated(one, place))

    def _stated(self, one: Acceptance, place: Place) -> bool:
        about, others = (
            [s for s in said if s.vulnerability == one.cve and s.about(place.digests(), one.package)]
            for said in (self._vexes.get(one.vex, ()), self._said)
        )
        if not about or about[-1].status not in CLEARS:  # a later statement takes an earlier one back
            return False
        last = about[-1].when or 0
        return not any(s.status not in CLEARS and (s.when is None or s.when > last) for s in others)

    def _refusal(self, one: Acceptance) -> Finding:
        if one.expires <= self._now:
            return found("exception-expired", one.id, f"{_words(one)} ended {one.until}; it clears nothing")
        message = (
            f"{_words(one)} rests on the VEX {one.vex}, which is not in the folder, does not say so, or was taken back"
        )
        return found("vex-unproven", one.id, message)

    def leftover(self) -> Iterator[Finding]:
        """Writes nothing. What is to be said about the acceptances, once every vulnerability was answered."""
        for one in self._accepted:
            if one.id in self._used:
                if one.expires <= self._end:
                    message = f"{_words(one)} ends {one.until}, inside the stabilisation window"
                    yield found("exception-expires-in-window", one.id, message)
            elif one.id in self._failed:
                yield self._failed[one.id]
            else:
                yield found("exception-unused", one.id, f"{_words(one)}, to {one.until}, fits no finding")
        for group in self._by.values():
            yield from self._overlaps([one for one in group if one.expires > self._now])

    def _overlaps(self, group: Iterable[Acceptance]) -> Iterator[Finding]:
        for one, other in combinations(group, 2):
            same = (one.digest, one.repository) == (other.digest, other.repository)
            if same or any(place.within(one) and place.within(other) for place in self._places):
                ids = " and ".join(sorted((one.id, other.id)))
                lines = f"lines {one.line} and {other.line}"
                yield found("exception-overlap", ids, f"both are about {_words(one)} ({lines})")


def _words(one: Acceptance) -> str:
    return f"the {one.kind} for {one.place}"
