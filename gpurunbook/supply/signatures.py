"""Is an image signed by whom it should be? Four answers, of which two can pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.supply.calls import Asked, Call, tail
from gpurunbook.supply.decisions import Decisions, Signer
from gpurunbook.supply.evidence_files import judge_signatures
from gpurunbook.supply.members import at

VERIFIED = "verified"
DOES_NOT_SIGN = "publisher-does-not-sign"
FAILED = "failed"
NOT_CHECKED = "not-checked"

# cosign/cmd/cosign/errors: only signatures in the old form end with these; with v3 bundles every failure is 1, and so
# is a refused login, so that 1 says nothing about the image.
_ENDS = {
    10: "the image has no signature",
    12: "none of its signatures matches",
    13: "its signature carries no certificate",
}


_WITHOUT_LOG = ("--insecure-ignore-tlog", "--private-infrastructure")
"""Both leave the transparency log out (cosign/cmd/cosign/cli/options/verify.go)."""


@dataclass(frozen=True)
class Signature:
    """state: one of the four; code: of its finding, "" for none; by: what it rests on; digest: what is signed.

    unsigned: the entry of Security's by which nobody signs, which has an end.
    """

    state: str
    code: str
    message: str
    by: str = ""
    digest: str = ""
    unsigned: Signer | None = None


@dataclass(frozen=True)
class Verification:
    """A call of `cosign verify`, and what it printed. there: whether that is in the folder."""

    call: Call
    about: Asked
    printed: Any
    there: bool

    def asks(self, signer: Signer) -> bool:
        """Writes nothing. Whether it was run for this signer's key or identity."""
        return self._for() == (signer.key, signer.identity, signer.issuer)

    def who(self) -> str:
        """Writes nothing. For whom it was run."""
        key, identity, issuer = self._for()
        return f"{identity} of {issuer}" if identity else f"key {key or 'without fingerprint'}"

    def _for(self) -> tuple[str, str, str]:
        options = self.about.options
        key = self.call.key if "--key" in options else ""
        return key, options.get("--certificate-identity", ""), options.get("--certificate-oidc-issuer", "")


def judge(
    digest: str, repositories: Sequence[str], tried: Iterable[Verification], decisions: Decisions, now: int
) -> Signature:
    """Writes nothing. The signature of one digest.

    tried: verifications of the digest, or of an index that is proven to hold it. Content is the same in every
    repository, so that one verified signature is enough, and nobody signs only where no repository has a signer.
    """
    calls = list(tried)
    signers = list(dict.fromkeys(filter(None, map(decisions.signer, repositories))))
    named = [one for one in signers if not one.reason]
    if not signers:
        return _open(f"nothing says who signs {', '.join(repositories) or 'it'}")
    if not named:
        return _unsigned(signers[0], calls, now)
    answers = [answer for signer in named for answer in _answers(signer, calls, digest)]
    ranks = (VERIFIED, FAILED, NOT_CHECKED)
    otherwise = _open(f"cosign was not run for it; {', '.join(sorted({_who(one) for one in named}))} must sign it")
    return min(answers, key=lambda one: ranks.index(one.state), default=otherwise)


def _answers(signer: Signer, calls: Sequence[Verification], digest: str) -> list[Signature]:
    """What the last call for this signer says, per digest; without one, whom the image was verified for instead."""
    ours = {one.about.digest: one for one in calls if one.asks(signer)}
    others = [one for one in calls if not one.asks(signer)]
    wrong = [
        Signature(FAILED, "wrong-signer", f"verified for {one.who()}, wanted {_who(signer)}")
        if one.call.exit_code == 0
        else _open(f"cosign was run for {one.who()}, wanted {_who(signer)}")
        for one in others
    ]
    return [_verified(one, signer, digest) for one in ours.values()] or wrong


def _open(message: str) -> Signature:
    return Signature(NOT_CHECKED, "signature-not-checked", message)


def _who(signer: Signer) -> str:
    return f"key {signer.key}" if signer.key else f"{signer.identity} of {signer.issuer}"


def _unsigned(signer: Signer, calls: list[Verification], now: int) -> Signature:
    for one in calls:
        if one.call.exit_code in (0, 12, 13):
            said = _ENDS.get(one.call.exit_code, "cosign verified a signature")
            message = f"{signer.repository} is recorded as not signed, but {said}"
            return Signature(FAILED, "signature-contradicted", message)
    if signer.expires <= now:
        return _open(f"that {signer.repository} is not signed was recorded by {signer.owner}, and has ended")
    return Signature(DOES_NOT_SIGN, "", signer.reason, f"{signer.owner}: {signer.reason}", unsigned=signer)


def _verified(one: Verification, signer: Signer, digest: str) -> Signature:
    call, who = one.call, _who(signer)
    if call.exit_code is None:
        return _open("cosign did not end in time")
    if call.exit_code in _ENDS:
        return Signature(FAILED, "signature-failed", f"{_ENDS[call.exit_code]}, by {who}")
    if call.exit_code != 0:
        return _open(f"cosign ended with {call.exit_code}, which does not tell unsigned from unreachable: {tail(call)}")
    if signer.log and any(one.about.options.get(name, "false") != "false" for name in _WITHOUT_LOG):
        return _open("the transparency log was left out, though the exceptions file does not say that it is not used")
    if not one.there:
        return _open("what cosign printed is not in the folder")
    try:
        against = judge_signatures(one.printed, one.about.digest)
    except InputError as wrong:
        return _open(f"what cosign printed cannot be read: {wrong.message}")
    if against:
        return Signature(FAILED, "signature-failed", f"{against[0].code}: {against[0].message}")
    for signed in one.printed:
        for word, wanted in (("Subject", signer.identity), ("Issuer", signer.issuer)):
            seen = at(signed, "optional", word)  # v3 bundles print none of it
            if wanted and seen not in (None, wanted):
                return Signature(FAILED, "wrong-signer", f"{word} is {seen!r}, wanted {wanted}")
    by = f"{who}{'' if one.about.digest == digest else ', over the index ' + one.about.digest}"
    return Signature(VERIFIED, "", f"verified {call.started}", by, one.about.digest)
