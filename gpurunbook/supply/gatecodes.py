"""The words of the evidence gate: each code's status and what to do next. docs/codes.md says the same for readers.

Codes of single files (`critical`, `sbom-empty`, `database-stale`, …) are those of `gate check-file`.
"""

from __future__ import annotations

from gpurunbook.findings import Finding, Status

CHECK = "evidence-gate"
SOURCE = "GPU supply-chain policy, SBOM, signature and vulnerability gate"

_ERROR, _FAIL, _WARN, _NOTE = Status.UNKNOWN, Status.FAIL, Status.WARN, Status.PASS

_COLLECT = "Collect it again with `gpurunbook gate collect`."
_AUDIT = "Run the audit again and put right what it names."
_RENEW = "Have Security renew it, or fix the finding."
_OUT = "Find out what it is; take it out of the folder, or collect it again."

CODES: dict[str, tuple[Status, str]] = {
    "audit-malformed": (_ERROR, "Give the JSON of `gpurunbook audit -o json`."),
    "audit-unknown": (_ERROR, _AUDIT),
    "exceptions-malformed": (_ERROR, "Put the file right; nothing in it counts until then."),
    "foreign-audit": (_ERROR, "Audit this cluster, and give that audit."),
    "malformed-relations": (_ERROR, "Give a JSON object of index digest to manifests with digest and platform."),
    "malformed-platforms": (_ERROR, "Give a JSON object of node name to platform."),
    "platforms-unknown": (_ERROR, "Name each platform in use: --platform linux/amd64, or --platforms."),
    "unknown-file": (_ERROR, _OUT),
    "unknown-schema": (_ERROR, _OUT),
    "unreadable": (_ERROR, _OUT),
    "audit-failed": (_FAIL, _AUDIT),
    "evidence-not-ready": (_FAIL, "Pull those images from a registry, so that a digest names them."),
    "command-failed": (_FAIL, "Read its stderr in the record, put it right, and collect again."),
    "command-refused": (_FAIL, _COLLECT),
    "command-unrecorded": (_FAIL, "Collect with `gpurunbook gate collect`, or keep a record (docs/gate.md)."),
    "evidence-not-running": (_FAIL, "Find out when the digest changed; collect for what runs into a new folder."),
    "exception-expired": (_FAIL, _RENEW),
    "exception-expires-in-window": (_FAIL, _RENEW),
    "exception-overlap": (_FAIL, "Keep one of them, so that one owner and one date hold."),
    "platform-left-out": (_FAIL, "Name it too: an image that has it may be started there at any time."),
    "platform-mismatch": (_FAIL, _COLLECT),
    "platform-missing": (_FAIL, "Collect for that platform as well."),
    "platform-unproven": (_FAIL, "Collect with --platform and keep the record, or by the platform's own digest."),
    "relations-contradicted": (_FAIL, "Take the relations from the index itself; find out who wrote the others."),
    "sbom-missing": (_FAIL, _COLLECT),
    "scan-missing": (_FAIL, _COLLECT),
    "signature-contradicted": (_FAIL, "There is a signature: name its key or identity, and have it verified."),
    "signature-failed": (_FAIL, "Do not run this image; ask the publisher."),
    "signature-not-checked": (_FAIL, "Say who signs it in the exceptions file, and collect again."),
    "subject-ambiguous": (_FAIL, _COLLECT),
    "subject-unproven": (_FAIL, _COLLECT),
    "tool-version-mismatch": (_FAIL, _COLLECT),
    "vex-ambiguous": (_FAIL, "Keep one document of this @id in the folder."),
    "vex-timestamp": (_FAIL, "Have its author date it; of two statements the later one holds."),
    "vex-unproven": (_FAIL, "Put the OpenVEX document into the folder, or take the reference out."),
    "wrong-signer": (_FAIL, "Do not run this image; find out who signed it."),
    "exception-unused": (_WARN, "Take it out of the file, or find out why it no longer fits."),
    "platform-not-used": (_WARN, ""),
    "vex-undated": (_WARN, "A VEX has no end: only an exception or disposition that names it clears a finding."),
    "critical-excepted": (_NOTE, ""),
    "evidence-complete": (_NOTE, ""),
    "high-dispositioned": (_NOTE, ""),
    "signed-by-index": (_NOTE, ""),
    "unknown-severity-excepted": (_NOTE, ""),
}
"""Code → status and next step."""


def found(code: str, subject: str, message: str) -> Finding:
    """Writes nothing. A finding of the gate; code: a key of CODES."""
    status, remedy = CODES[code]
    return Finding(CHECK, subject, status, code, message[:2000], remedy, SOURCE)
