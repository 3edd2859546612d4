"""How far the bundle of another run may be believed by this one, and what of it is the same here.

Source: design of the evidence: only an anchored or a signed bundle counts where one run consumes another's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Bundle, Consumed, Need, Object, Observed, Seen
from gpurunbook.supply.audit import identity

SOURCE = "GPU supply-chain policy, promotion steps 5 and 7"

_ANCHOR = "Give the manifest digest from the change ticket, or the file of those who may sign evidence."
_MAKE = "Take the bundle of the run that the change ticket names."


@dataclass(frozen=True)
class Wanted:
    """What a bundle must be. check: of the findings; word: `canary` or `approved`, with which codes begin."""

    check: str
    word: str
    runbook: str
    place: Bundle

    def needs(self) -> dict[str, Need]:
        """Writes nothing. The bundle, and this cluster to compare it with."""
        return {"bundle": self.place, "cluster": Object("/api/v1/namespaces/kube-system")}

    def found(self, status: Status, code: str, message: str, remedy: str = _MAKE) -> Finding:
        """Writes nothing. A finding about the bundle."""
        subject = self.place.path or not_given(self.word, "folder")[0]
        return Finding(self.check, subject, status, code, message, remedy, SOURCE)

    def believe(self, seen: Seen) -> tuple[Consumed | None, list[Finding]]:
        """Writes nothing. The bundle, and why it does not count; None where nothing of it was read."""
        observed, cluster = seen["bundle"], seen["cluster"]
        if not self.place.path:
            _, message, remedy = not_given(self.word, "folder of a sealed bundle")
            return None, [self.found(Status.UNKNOWN, "bundle-unreadable", message, remedy)]
        if observed.problem is not None:
            return None, [self.found(Status.UNKNOWN, "bundle-unreadable", observed.problem.message)]
        if cluster.problem is not None:
            return None, [self.found(Status.UNKNOWN, "cluster-unreadable", cluster.problem.message, "Try again.")]
        bundle: Consumed = observed.value
        return bundle, list(self._against(bundle, *identity(seen)))

    def _against(self, bundle: Consumed, uid: str | None, rehearsal: bool) -> Iterator[Finding]:
        told = "; ".join(bundle.told[:5])
        if bundle.strength == "altered":
            yield self.found(
                Status.FAIL, "bundle-altered", f"it is not what was sealed: {told}", "Find out who and why."
            )
            return
        if bundle.strength == "unsealed":
            yield self.found(Status.FAIL, "bundle-unsealed", f"it is no evidence: {told}")
            return
        if bundle.strength not in ("anchored", "signed"):
            message = f"it is only {bundle.strength}: whoever makes the whole bundle anew passes that"
            yield self.found(Status.FAIL, "bundle-only-consistent", message, _ANCHOR)
        if bundle.rehearsal and not rehearsal:
            message = f"run {bundle.run} is a rehearsal, and this cluster is live"
            yield self.found(Status.FAIL, f"{self.word}-rehearsal", message)
        if bundle.runbook != self.runbook:
            message = f"run {bundle.run} is of runbook {bundle.runbook!r:.80}, wanted {self.runbook!r}"
            yield self.found(Status.FAIL, f"{self.word}-other-runbook", message)
        if bundle.verdict != "pass":
            message = f"run {bundle.run} ended as {bundle.verdict!r:.40}, wanted pass"
            yield self.found(Status.FAIL, f"{self.word}-not-passed", message)
        if bundle.weaker:
            message = f"run {bundle.run} went past gates of its own: {', '.join(bundle.weaker)}"
            yield self.found(Status.FAIL, f"{self.word}-gate-overridden", message)
        if not uid or bundle.cluster != uid:
            message = f"run {bundle.run} was on cluster {bundle.cluster or 'unknown'}, this one is {uid or 'unknown'}"
            yield self.found(Status.FAIL, f"{self.word}-other-cluster", message)


def not_given(parameter: str, kind: str) -> tuple[str, str, str]:
    """Writes nothing. Subject, message and remedy where a parameter that must name a file or folder is empty."""
    return f"parameter {parameter!r}", f"no {kind} was given", f"Give it as the parameter `{parameter}`."


def problem(observed: Observed) -> str:
    """Writes nothing. Why something was not observed; "" when it was."""
    return observed.problem.message if observed.problem else ""
