"""The evidence gate: what joins to what, what is missing, who signed, what Security accepted.

Covered: the audit that it stands on, platforms, joining by digest, records of calls, signatures in all four answers,
databases, exceptions and dispositions with their own faults, VEX and ignore files, registry documents, foreign and
malformed files, that every code is documented. Not covered: collecting (tests/tools/test_collect.py), the command line
and the check of a runbook (test_gate_command.py), single files (test_evidence_files.py).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.findings import Status
from gpurunbook.plan import Problem
from gpurunbook.supply import times
from gpurunbook.supply.calls import settings
from gpurunbook.supply.gatecodes import CODES
from gpurunbook.supply.gatereport import Report, decide
from gpurunbook.supply.relations import Child
from tests.unit.gate_evidence import (
    KEY,
    NOW,
    PLATFORMS,
    REPOSITORY,
    Evidence,
    decisions,
    disposition,
    exception,
    sha,
    signer,
    text,
    vulnerability,
)

OTHER = "sha256:" + "0" * 64
REGISTRY = ("index", "manifest-amd64", "manifest-arm64", "config-amd64", "config-arm64")
ROOT = Path(__file__).parents[2]
Alter = Callable[[Evidence], Any]


def codes(report: Report, *statuses: Status) -> list[str]:
    """Codes of the findings that are against it, or of these statuses; each once."""
    wanted = statuses or (Status.FAIL, Status.UNKNOWN)
    return sorted({found.code for found in report.findings if found.status in wanted})


def judged(*alterations: Alter, **more: Any) -> Report:
    evidence = Evidence()
    for alter in alterations:
        alter(evidence)
    return evidence.report(**more)


def put(path: str, value: Any) -> Alter:
    """Sets `a.b.0.c` of the documents, calls, audit or exceptions; None takes it away."""

    def alter(evidence: Evidence) -> None:
        head, *steps = path.split("/")
        holder: Any = getattr(evidence, head)
        for step in steps[:-1]:
            holder = holder[int(step) if isinstance(holder, list) else step]
        last = int(steps[-1]) if isinstance(holder, list) else steps[-1]
        if value is None and isinstance(holder, dict):
            holder.pop(last)
        else:
            holder[last] = value

    return alter


def drop(*names: str) -> Alter:
    """Takes documents away, and calls of the same name."""

    def alter(evidence: Evidence) -> None:
        for name in names:
            evidence.docs.pop(name, None)
            evidence.calls.pop(name, None)

    return alter


def argv(name: str, *words: str, without: tuple[str, ...] = ()) -> Alter:
    """Puts words before the image of a call, and takes others out."""

    def alter(evidence: Evidence) -> None:
        line = [word for word in evidence.calls[name]["argv"] if word not in without]
        evidence.calls[name]["argv"] = [*line[:-1], *words, line[-1]]

    return alter


def test_whole_evidence_passes_and_is_recorded() -> None:
    report = judged()
    assert (report.verdict, codes(report, *Status)) == ("pass", ["evidence-complete"])
    answer = report.as_json()
    assert [(one["platform"], one["verdict"]) for one in answer["images"]] == [(p, "pass") for p in PLATFORMS]
    for image in answer["images"]:
        assert image["signature"]["state"] == "verified"
        assert KEY in image["signature"]["by"]
        assert [s["format"] for s in image["sboms"]] == ["CycloneDX 1.6"]
        assert [s["database"] for s in image["scans"]] == ["2026-08-20T07:00:00Z"]
        assert {c["tool"]: c["version"] for c in image["commands"]} == {
            "cosign": "3.0.4",
            "syft": "1.57.0",
            "trivy": "0.74.0",
        }
        assert all(c["argv"] and c["exit_code"] == 0 and c["outputs"] for c in image["commands"])
    assert json.loads(report.as_bytes()) == json.loads(json.dumps(answer))


# --- the audit


@pytest.mark.parametrize(
    ("alter", "verdict", "expected"),
    [
        (put("audit/verdict", "fail"), "fail", ["audit-failed"]),
        (put("audit/verdict", "error"), "error", ["audit-unknown"]),
        (put("audit/evidence_ready", False), "fail", ["evidence-not-ready"]),
        (put("audit/records", None), "pass", []),
        (put("audit/rehearsal", None), "pass", []),
        (put("audit/verdict", "ok"), "error", ["audit-malformed"]),
        (put("audit/verdict", None), "error", ["audit-malformed"]),
        (put("audit/evidence_ready", "true"), "error", ["audit-malformed"]),
        (put("audit/digests", None), "error", ["audit-malformed"]),
        (put("audit/digests", []), "error", ["audit-malformed"]),
        (put("audit/digests/0/digest", OTHER), "error", ["audit-malformed"]),
        (put("audit/digests/0/digest", "sha256:1"), "error", ["audit-malformed"]),
        (put("audit/digests/0/repositories", []), "error", ["audit-malformed"]),
        (put("audit/digests/0/repositories", ["UPPER"]), "error", ["audit-malformed"]),
        (put("audit/records/0/resolved", f"x/y@{OTHER}"), "error", ["audit-malformed"]),
        (lambda e: e.audit["digests"].append(e.audit["digests"][0]), "error", ["audit-malformed"]),
        (lambda e: setattr(e, "audit", b"{"), "error", ["audit-malformed"]),
        (lambda e: setattr(e, "audit", b'{"verdict": "pass", "verdict": "fail"}'), "error", ["audit-malformed"]),
        (lambda e: setattr(e, "audit", Problem("unreadable", "no such file")), "error", ["unreadable"]),
    ],
)
def test_the_audit_must_have_passed_and_name_every_image(alter: Alter, verdict: str, expected: list[str]) -> None:
    report = judged(alter)
    assert (report.verdict, codes(report)) == (verdict, expected)


def test_a_rehearsed_audit_makes_a_rehearsed_answer() -> None:
    assert judged(put("audit/rehearsal", True)).as_json()["rehearsal"] is True
    assert judged().as_json()["rehearsal"] is False


def test_a_digest_without_any_evidence_lacks_everything() -> None:
    def alter(evidence: Evidence) -> None:
        evidence.audit["digests"].append({"digest": OTHER, "repositories": ["x.example/y"]})
        evidence.audit["records"].append({"resolved": f"x.example/y@{OTHER}", "evidence": True})

    report = judged(alter)
    assert codes(report) == ["sbom-missing", "scan-missing", "signature-not-checked"]
    assert {f.subject for f in report.findings if f.code == "sbom-missing"} == {f"{OTHER}/{p}" for p in PLATFORMS}
    assert [i["verdict"] for i in report.as_json()["images"]] == ["fail", "fail", "pass", "pass"]


# --- platforms


def test_platforms_come_from_the_index_where_nobody_names_them() -> None:
    assert judged(platforms=()).verdict == "pass"


def test_unknown_platforms_are_never_guessed() -> None:
    report = judged(drop(*REGISTRY), platforms=())
    assert (report.verdict, codes(report)) == ("error", ["platforms-unknown"])


def test_without_the_index_the_records_say_which_platform_was_asked() -> None:
    assert judged(drop(*REGISTRY)).verdict == "pass"


def test_a_platform_that_the_index_has_not_needs_no_evidence() -> None:
    assert judged(platforms=(*PLATFORMS, "linux/riscv64")).verdict == "pass"


def test_platforms_that_no_image_is_for_are_contradicted() -> None:
    report = judged(platforms=("linux/riscv64",))
    assert (report.verdict, codes(report)) == ("error", ["platforms-unknown"])


@pytest.mark.parametrize("used", ["linux/arm64", "linux/arm64/v8"])
def test_evidence_of_one_platform_clears_no_other(used: str) -> None:
    report = judged(drop("sbom-arm64", "syft-arm64", "trivy-arm64"), platforms=("linux/amd64", used))
    assert codes(report) == ["platform-missing"]
    assert judged(drop("sbom-arm64", "syft-arm64", "trivy-arm64"), platforms=("linux/amd64",)).verdict == "pass"


def test_evidence_of_a_platform_that_is_not_used_is_told_and_harmless() -> None:
    report = judged(platforms=("linux/amd64",))
    assert (report.verdict, codes(report, Status.WARN)) == ("pass", ["platform-not-used"])


@pytest.mark.parametrize("known", [True, False])
def test_a_scan_of_another_platform_than_asked_clears_nothing(known: bool) -> None:
    def alter(evidence: Evidence) -> None:
        evidence.docs["trivy-amd64"]["Metadata"]["ImageConfig"]["architecture"] = "arm64"
        if not known:
            drop(*REGISTRY)(evidence)

    report = judged(alter)
    assert codes(report) == ["platform-mismatch", "scan-missing"]


def test_syft_saying_another_platform_than_asked_is_a_mismatch() -> None:
    report = judged(put("docs/syft-amd64/source/metadata/architecture", "arm64"))
    assert "platform-mismatch" in codes(report)


def test_an_sbom_by_index_digest_needs_a_record_of_the_platform() -> None:
    report = judged(argv("syft-amd64", without=("--platform", "linux/amd64")))
    assert codes(report) == ["platform-unproven", "sbom-missing"]


def test_an_image_of_one_platform_needs_no_platform_on_record() -> None:
    def alter(evidence: Evidence) -> None:
        child = evidence.child["linux/amd64"]
        for name in ("syft-amd64", "trivy-amd64", "cosign"):
            evidence.calls[name]["argv"] = [w.replace(evidence.digest, child) for w in evidence.calls[name]["argv"]]
        evidence.docs = json.loads(json.dumps(evidence.docs).replace(evidence.digest, child))
        evidence.audit = json.loads(json.dumps(evidence.audit).replace(evidence.digest, child))
        drop("index", "sbom-arm64", "syft-arm64", "trivy-arm64", "manifest-arm64", "config-arm64")(evidence)
        argv("syft-amd64", without=("--platform", "linux/amd64"))(evidence)

    report = judged(alter)
    assert (report.verdict, [i.subject.platform for i in report.images]) == ("pass", ["linux/amd64"])


# --- joining


@pytest.mark.parametrize(
    ("alter", "expected"),
    [
        (put("docs/trivy-amd64/Metadata/RepoDigests", [f"x/y@{OTHER}"]), ["evidence-not-running", "scan-missing"]),
        (put("docs/trivy-amd64/Metadata", {}), ["scan-missing", "subject-unproven"]),
        (put("docs/sbom-amd64/metadata/component/version", OTHER), ["evidence-not-running", "sbom-missing"]),
        (put("docs/sbom-amd64/metadata/component/version", "4.4.1"), ["sbom-missing", "subject-unproven"]),
        (put("docs/sbom-amd64/components", []), ["sbom-empty"]),
        (put("docs/trivy-amd64/Results", []), ["nothing-scanned"]),
        (put("docs/trivy-amd64/Results/0/Class", "secret"), ["nothing-scanned"]),
        (put("docs/sbom-amd64/components/0/type", "operating-system"), ["sbom-empty"]),
        (put("docs/sbom-amd64/components/0/type", "file"), ["sbom-empty"]),
        (put("docs/trivy-amd64/Metadata/OS/EOSL", True), ["end-of-life-os"]),
        (put("docs/syft-amd64/source/metadata/repoDigests", []), []),
        (drop("sbom-amd64", "syft-amd64", "sbom-arm64", "syft-arm64"), ["sbom-missing"]),
        (drop("trivy-amd64", "trivy-arm64"), ["command-unrecorded", "scan-missing"]),
    ],
)
def test_a_file_counts_only_for_the_image_that_it_names(alter: Alter, expected: list[str]) -> None:
    assert codes(judged(alter)) == expected


def test_a_scan_by_the_platforms_own_digest_joins_and_is_noted() -> None:
    def alter(evidence: Evidence) -> None:
        child = evidence.child["linux/amd64"]
        evidence.docs["trivy-amd64"]["Metadata"]["RepoDigests"] = [f"{REPOSITORY}@{child}"]
        evidence.calls["trivy-amd64"]["argv"][-1] = f"{REPOSITORY}@{child}"

    report = judged(alter)
    assert (report.verdict, codes(report, Status.PASS)) == ("pass", ["evidence-complete", "matched-by-child"])
    without = judged(alter, drop("index"))
    assert codes(without) == ["evidence-not-running", "scan-missing"]
    family = Evidence().child
    related = {Evidence().digest: [Child(digest, platform) for platform, digest in family.items()]}
    assert judged(alter, drop("index"), relations=related).verdict == "pass"


def test_what_an_index_proves_outweighs_a_file_of_relations() -> None:
    lie = {Evidence().digest: [Child(OTHER, "linux/amd64"), Child(OTHER, "linux/s390x")]}
    assert codes(judged(relations=lie)) == ["relations-contradicted"]
    assert "platform-missing" in codes(judged(drop(*REGISTRY), relations=lie, platforms=("linux/amd64", "linux/s390x")))
    truth = {Evidence().digest: [Child(digest, platform) for platform, digest in Evidence().child.items()]}
    assert codes(judged(relations=truth)) == []


def test_what_is_only_said_of_an_index_leaves_no_platform_out() -> None:
    """A file of relations is typed: it may add a platform, and take none away that nodes have."""
    said = {Evidence().digest: [Child(Evidence().child["linux/amd64"], "linux/amd64")]}
    arm = drop("sbom-arm64", "syft-arm64", "trivy-arm64")
    assert codes(judged(arm, drop("index"), relations=said)) == ["evidence-not-running", "platform-missing"]
    assert codes(judged(arm, drop(*REGISTRY), relations=said, platforms=("linux/amd64",))) == []


def test_a_signature_over_an_index_needs_the_index_to_prove_its_manifest() -> None:
    def child(evidence: Evidence) -> None:
        only = evidence.child["linux/amd64"]
        evidence.audit = json.loads(json.dumps(evidence.audit).replace(evidence.digest, only))
        for name in ("syft-amd64", "trivy-amd64"):
            evidence.calls[name]["argv"] = [w.replace(evidence.digest, only) for w in evidence.calls[name]["argv"]]
            evidence.docs = {
                key: json.loads(json.dumps(doc).replace(evidence.digest, only)) if key[-6:] == "-amd64" else doc
                for key, doc in evidence.docs.items()
            }
        drop("sbom-arm64", "syft-arm64", "trivy-arm64", "manifest-arm64", "config-arm64")(evidence)

    said = {Evidence().digest: [Child(Evidence().child["linux/amd64"], "linux/amd64")]}
    assert judged(child, platforms=("linux/amd64",)).verdict == "pass"
    typed = judged(child, drop("index"), platforms=("linux/amd64",), relations=said)
    assert "signature-not-checked" in codes(typed)


def test_one_file_counts_for_one_image() -> None:
    """What names two images, or two platforms of one, would be counted twice."""

    def both(evidence: Evidence) -> None:
        names = [f"{REPOSITORY}@{digest}" for digest in evidence.child.values()]
        evidence.docs["trivy-amd64"]["Metadata"].update(RepoDigests=names, ImageConfig={})

    assert codes(judged(both)) == ["scan-missing", "subject-ambiguous"]

    def another(evidence: Evidence) -> None:
        evidence.audit["digests"].append({"digest": OTHER, "repositories": ["x.example/y"]})
        evidence.audit["records"].append({"resolved": f"x.example/y@{OTHER}", "evidence": True})
        evidence.docs["trivy-amd64"]["Metadata"]["RepoDigests"].append(f"x.example/y@{OTHER}")

    assert {"scan-missing", "subject-ambiguous"} <= set(codes(judged(another)))


def test_a_scan_by_image_id_joins_through_the_manifest() -> None:
    report = judged(put("docs/trivy-amd64/Metadata/RepoDigests", []))
    assert (report.verdict, codes(report, Status.PASS)) == ("pass", ["evidence-complete", "matched-by-config"])
    without = judged(put("docs/trivy-amd64/Metadata/RepoDigests", []), drop("manifest-amd64"))
    assert "scan-missing" in codes(without)


def test_a_child_that_runs_beside_its_index_is_an_image_of_its_own() -> None:
    def alter(evidence: Evidence) -> None:
        child = evidence.child["linux/arm64"]
        evidence.audit["digests"].append({"digest": child, "repositories": [REPOSITORY]})
        evidence.audit["records"].append({"resolved": f"{REPOSITORY}@{child}", "evidence": True})
        evidence.docs["trivy-arm64"]["Metadata"]["RepoDigests"] = [f"{REPOSITORY}@{child}"]
        evidence.calls["trivy-arm64"]["argv"][-1] = f"{REPOSITORY}@{child}"

    report = judged(alter)
    images = {(i.subject.digest, i.subject.platform): (len(i.scans), i.signature.state) for i in report.images}
    child = Evidence().child["linux/arm64"]
    # The scan of the child is one of the index on that platform; the signature over the index covers the child.
    assert images[child, "linux/arm64"] == (1, "verified")
    assert images[Evidence().digest, "linux/arm64"] == (1, "verified")
    assert "signed-by-index" in codes(report, Status.PASS)


def test_registry_documents_of_nothing_that_runs_are_told() -> None:
    report = judged(put("docs/index/manifests/0/digest", OTHER))
    assert "evidence-not-running" in codes(report)


# --- records


def swap(evidence: Evidence, name: str, writer: str) -> None:
    """Says that another tool wrote what `name` wrote."""
    evidence.calls[writer]["outputs"] += evidence.calls.pop(name)["outputs"]


@pytest.mark.parametrize(
    ("alter", "expected"),
    [
        (lambda e: e.calls.pop("trivy-amd64"), ["command-unrecorded", "database-unknown"]),
        (lambda e: e.calls.pop("cosign"), ["command-unrecorded", "signature-not-checked"]),
        (lambda e: e.calls.pop("syft-amd64"), ["command-unrecorded", "platform-unproven", "sbom-missing"]),
        (put("calls/trivy-amd64/version", "0.73.0"), ["tool-version-mismatch"]),
        (lambda e: e.calls["trivy-amd64"].update(outputs=[]), ["command-unrecorded", "database-unknown"]),
        (lambda e: swap(e, "trivy-amd64", "syft-amd64"), ["command-refused", "database-unknown"]),
        (put("calls/trivy-amd64/exit_code", 1), ["command-failed"]),
        (put("calls/syft-amd64/exit_code", -9), ["command-failed"]),
        (lambda e: e.calls["syft-amd64"].update(exit_code=None), ["command-failed"]),
        (argv("trivy-amd64", "--severity", "HIGH,CRITICAL"), ["command-refused"]),
        (argv("trivy-amd64", "--ignore-unfixed"), ["command-refused"]),
        (argv("trivy-amd64", "--ignore-status=will_not_fix"), ["command-refused"]),
        (argv("trivy-amd64", "--scanners", "secret"), ["command-refused"]),
        (argv("trivy-amd64", without=("--show-suppressed",)), ["command-refused"]),
        (argv("trivy-amd64", "--show-suppressed=false", without=("--show-suppressed",)), ["command-refused"]),
        (argv("trivy-amd64", "--show-suppressed=false"), ["command-refused"]),
        (argv("trivy-amd64", "--platform", "linux/arm64"), ["command-refused"]),
        (argv("syft-amd64", "--exclude", "./usr/**"), ["command-refused", "platform-unproven", "sbom-missing"]),
        (argv("syft-amd64", "x/y@" + OTHER), ["command-refused", "platform-unproven", "sbom-missing"]),
        (argv("cosign", "--check-claims=false"), ["command-refused", "signature-not-checked"]),
        (argv("cosign", "--certificate-identity", "x"), ["command-refused", "signature-not-checked"]),
        (argv("cosign", without=("--key", "nvidia.pub")), ["command-refused", "signature-not-checked"]),
        (put("calls/cosign/argv/1", "triangulate"), ["command-refused", "signature-not-checked"]),
        (put("calls/cosign/argv/6", f"{REPOSITORY}:1.0"), ["command-refused", "signature-not-checked"]),
        (put("calls/trivy-amd64/argv/7", f"{REPOSITORY}@{OTHER}"), ["command-refused", "scan-missing"]),
    ],
)
def test_evidence_counts_with_the_command_that_wrote_it(alter: Alter, expected: list[str]) -> None:
    assert [code for code in codes(judged(alter)) if code != "evidence-not-running"] == expected


def test_a_short_option_is_the_long_one_and_neither_hides_the_other() -> None:
    """`trivy image --format cyclonedx -f json` writes a report, without what was suppressed."""
    hidden = ("--format", "json", "--show-suppressed")
    twice = argv("trivy-amd64", "--format", "cyclonedx", "-f", "json", without=hidden)
    assert codes(judged(twice)) == ["command-refused"]
    sbom = argv("trivy-amd64", "--format", "cyclonedx", without=hidden)
    assert codes(judged(sbom)) == ["command-refused"]
    short = argv("trivy-amd64", "-f", "json", "--show-suppressed", without=hidden)
    assert codes(judged(short)) == []


def test_syft_counts_with_settings_that_leave_nothing_out() -> None:
    config: Alter = lambda e: e.calls["syft-amd64"]["argv"].extend(["--config", "syft.yaml"])  # noqa: E731
    refused = ["command-refused", "platform-unproven", "sbom-missing"]
    assert codes(judged(config)) == refused
    assert codes(judged(config, put("calls/syft-amd64/settings", OTHER))) == refused
    assert codes(judged(config, put("calls/syft-amd64/settings", sha(settings(http=False))))) == []


def test_trivy_may_make_the_sbom_too() -> None:
    def alter(evidence: Evidence) -> None:
        image = evidence.calls["trivy-amd64"]["argv"][-1]
        line = ["trivy", "image", "--format", "cyclonedx", "--platform", "linux/amd64", image]
        evidence.calls["syft-amd64"] |= {"tool": "trivy", "version": "0.74.0", "argv": line}
        evidence.calls["syft-amd64"]["outputs"].remove("syft-amd64")
        evidence.docs.pop("syft-amd64")

    assert judged(alter).verdict == "pass"


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": []},
        {"argv": "cosign verify"},
        {"tool": ""},
        {"started": "yesterday"},
        {"outputs": ["sha256:1"]},
        {"exit_code": "0"},
        {"key": "nvidia.pub"},
        {"more": 1},
        {"record": "gpurunbook.io/tool-call/v2"},
    ],
    ids=repr,
)
def test_a_malformed_record_is_refused(wrong: dict[str, Any]) -> None:
    report = judged(lambda e: e.calls["cosign"].update(wrong))
    assert report.verdict == "error"
    assert codes(report, Status.UNKNOWN) in (["unreadable"], ["unknown-file"])


def test_a_file_that_was_altered_after_its_call_has_no_record() -> None:
    evidence = Evidence()
    evidence.calls["trivy-amd64"]["outputs"] = [sha(text(evidence.docs["trivy-amd64"]))]
    evidence.docs["trivy-amd64"]["Results"][0]["Vulnerabilities"] = [vulnerability("CVE-2026-0009", "curl", "LOW")]
    assert codes(evidence.report()) == ["command-unrecorded", "database-unknown"]


# --- signatures


def unsigned(**more: Any) -> dict[str, Any]:
    base = {"repository": "nvcr.io/nvidia/*", "does_not_sign": "no signature published", "owner": "Security"}
    return {**base, "expires": "2027-01-01", **more}


def signers(*entries: dict[str, Any]) -> Alter:
    return lambda e: e.exceptions.update(signatures=list(entries))


def lost(name: str) -> Alter:
    """Takes a document away that a call still names."""

    def alter(evidence: Evidence) -> None:
        digest = sha(text(evidence.docs.pop(name)))
        for call in evidence.calls.values():
            call["outputs"] = [digest if one == name else one for one in call["outputs"]]
            call.update({"database": digest} if call.get("database") == name else {})

    return alter


def ended(code: int | None, stderr: str = "") -> Alter:
    def alter(evidence: Evidence) -> None:
        evidence.calls["cosign"].update(exit_code=code, stderr=stderr, outputs=[])
        evidence.docs.pop("cosign")

    return alter


def keyless(evidence: Evidence) -> None:
    line = ["--certificate-identity", "https://ci.example/b@refs/tags/v1", "--certificate-oidc-issuer", "https://t.ex"]
    evidence.calls["cosign"]["argv"] = ["cosign", "verify", *line, evidence.calls["cosign"]["argv"][-1]]
    evidence.calls["cosign"].pop("key")
    evidence.docs["cosign"][0]["optional"] = {"Subject": line[1], "Issuer": line[3]}


UNLOGGED, PRIVATE = "--insecure-ignore-tlog", "--private-infrastructure"
IDENTITY = {"repository": REPOSITORY, "identity": "https://ci.example/b@refs/tags/v1", "issuer": "https://t.ex"}


@pytest.mark.parametrize(
    ("alterations", "state", "expected"),
    [
        ([], "verified", []),
        ([signers(signer(repository="nvcr.io/*"))], "verified", []),
        ([signers(signer(repository="nvcr.io/nvidia/k8s/*"), unsigned())], "verified", []),
        ([signers()], "not-checked", ["signature-not-checked"]),
        ([signers(signer(repository="nvcr.io/nvidia/driver"))], "not-checked", ["signature-not-checked"]),
        ([signers(signer(repository="nvcr.io/nvidia/k8s"))], "not-checked", ["signature-not-checked"]),
        ([signers(signer(key=OTHER))], "failed", ["wrong-signer"]),
        ([signers(signer(transparency_log=True))], "not-checked", ["signature-not-checked"]),
        ([drop("cosign")], "not-checked", ["signature-not-checked"]),
        ([ended(1)], "not-checked", ["signature-not-checked"]),
        ([ended(1, "GET https://x/v2/: UNAUTHORIZED")], "not-checked", ["signature-not-checked"]),
        ([ended(11)], "not-checked", ["signature-not-checked"]),
        ([ended(None)], "not-checked", ["signature-not-checked"]),
        ([ended(10)], "failed", ["signature-failed"]),
        ([ended(12)], "failed", ["signature-failed"]),
        ([ended(13)], "failed", ["signature-failed"]),
        ([ended(12), signers(signer(key=OTHER))], "not-checked", ["signature-not-checked"]),
        ([ended(0)], "failed", ["signature-failed"]),
        ([put("docs/cosign", [])], "failed", ["signature-failed"]),
        ([put("docs/cosign/0/critical/image/docker-manifest-digest", OTHER)], "failed", ["signature-failed"]),
        ([lost("cosign")], "not-checked", ["signature-not-checked"]),
        ([put("calls/cosign/key", None)], "failed", ["wrong-signer"]),
        ([keyless, signers(IDENTITY)], "verified", []),
        ([keyless, signers({**IDENTITY, "issuer": "https://other"})], "failed", ["wrong-signer"]),
        ([keyless, signers(signer())], "failed", ["wrong-signer"]),
        ([keyless, signers(IDENTITY), put("docs/cosign/0/optional/Subject", "x")], "failed", ["wrong-signer"]),
        ([keyless, signers(IDENTITY), put("docs/cosign/0/optional", None)], "verified", []),
        ([keyless, signers(IDENTITY), put("docs/cosign/0/optional", ["Subject"])], "verified", []),
        ([keyless, argv("cosign", UNLOGGED), signers(IDENTITY)], "not-checked", ["signature-not-checked"]),
        ([keyless, argv("cosign", PRIVATE), signers(IDENTITY)], "not-checked", ["signature-not-checked"]),
        ([argv("cosign", without=(f"{UNLOGGED}=true",)), signers(signer(transparency_log=True))], "not-checked",
         ["signature-not-checked"]),
        ([drop("cosign"), signers(unsigned())], "publisher-does-not-sign", []),
        ([ended(10), signers(unsigned())], "publisher-does-not-sign", []),
        ([ended(1), signers(unsigned())], "publisher-does-not-sign", []),
        ([signers(unsigned())], "failed", ["signature-contradicted"]),
        ([ended(12), signers(unsigned())], "failed", ["signature-contradicted"]),
        ([ended(13), signers(unsigned())], "failed", ["signature-contradicted"]),
        ([drop("cosign"), signers(unsigned(expires="2026-08-20"))], "not-checked", ["signature-not-checked"]),
    ],
)  # fmt: skip
def test_a_signature_has_four_answers_of_which_two_pass(
    alterations: list[Alter], state: str, expected: list[str]
) -> None:
    report = judged(*alterations)
    assert {image.signature.state for image in report.images} == {state}
    assert codes(report) == expected
    assert {image["verdict"] for image in report.as_json()["images"]} == {"fail" if expected else "pass"}


def test_what_is_recorded_as_not_signed_must_outlast_the_window() -> None:
    ends = [judged(drop("cosign"), signers(unsigned(expires=f"2026-08-{day}"))) for day in (21, 22)]
    assert [codes(one) for one in ends] == [["exception-expires-in-window"], []]
    assert ends[1].as_json()["ends"] == {"signatures: nvcr.io/nvidia/*": "2026-08-22T00:00:00Z"}


def test_no_exit_of_cosign_is_read_as_unsigned_but_its_own() -> None:
    for code in (-9, *range(16), 126, 127, 255):
        report = judged(ended(code))
        state = {0: "failed", 10: "failed", 12: "failed", 13: "failed"}.get(code, "not-checked")
        assert {image.signature.state for image in report.images} == {state}


def test_the_last_verification_for_a_signer_counts() -> None:
    def again(code: int, started: str) -> Alter:
        def alter(evidence: Evidence) -> None:
            evidence.calls["again"] = {**evidence.calls["cosign"], "exit_code": code, "started": started, "outputs": []}

        return alter

    assert judged(again(12, "2026-08-20T08:00:00Z")).verdict == "pass"
    assert codes(judged(again(12, "2026-08-20T10:00:00Z"))) == ["signature-failed"]
    assert codes(judged(again(1, "2026-08-20T10:00:00Z"))) == ["signature-not-checked"]


def test_a_verification_of_another_signer_beside_the_right_one_does_no_harm() -> None:
    def alter(evidence: Evidence) -> None:
        evidence.calls["other"] = {**evidence.calls["cosign"], "key": OTHER, "exit_code": 12, "outputs": []}

    assert judged(alter).verdict == "pass"


def test_one_repository_with_a_signer_must_be_verified_whatever_its_mirror_says() -> None:
    def alter(evidence: Evidence) -> None:
        evidence.audit["digests"][0]["repositories"].append("mirror.example/dcgm-exporter")

    mirror = unsigned(repository="mirror.example/*")
    assert judged(alter, signers(signer(), mirror)).verdict == "pass"
    assert codes(judged(alter, drop("cosign"), signers(signer(), mirror))) == ["signature-not-checked"]


# --- the database of a scan


def unlinked(evidence: Evidence) -> None:
    for call in evidence.calls.values():
        call.pop("database", None)


@pytest.mark.parametrize(
    ("alterations", "expected"),
    [
        ([put("docs/database/VulnerabilityDB/UpdatedAt", "2026-08-18T12:00:00Z")], []),
        ([put("docs/database/VulnerabilityDB/UpdatedAt", "2026-08-18T11:59:59Z")], ["database-stale"]),
        ([put("docs/database/VulnerabilityDB/UpdatedAt", "2026-08-20T11:00:00Z")], ["database-unknown"]),
        ([put("docs/database/VulnerabilityDB", None)], ["database-unknown"]),
        ([put("docs/database/Version", "0.73.0")], ["tool-version-mismatch"]),
        ([lost("database")], ["database-unknown"]),
        ([unlinked], ["command-unrecorded", "database-unknown"]),
        ([put("calls/trivy-amd64/database", OTHER)], ["database-unknown"]),
    ],
)  # fmt: skip
def test_a_scan_counts_with_the_date_of_the_data_that_it_used(alterations: list[Alter], expected: list[str]) -> None:
    assert codes(judged(*alterations)) == expected


# --- exceptions and dispositions

CRITICAL = vulnerability("CVE-2026-0001", "openssl", "CRITICAL")
HIGH = vulnerability("CVE-2026-0001", "openssl", "HIGH")
UNRATED = vulnerability("CVE-2026-0001", "openssl", "UNKNOWN")


def found_in(*found: dict[str, Any], machine: str = "amd64") -> Alter:
    return lambda e: e.vulnerabilities(*found, machine=machine)


def decided(**sections: Any) -> Alter:
    return lambda e: e.exceptions.update(sections)


def test_the_level_of_a_finding_decides_what_it_needs() -> None:
    for level in ("LOW", "MEDIUM"):
        assert judged(found_in(vulnerability("CVE-2026-0001", "openssl", level))).verdict == "pass"
    assert codes(judged(found_in(CRITICAL))) == ["critical"]
    assert codes(judged(found_in(HIGH))) == ["high-undispositioned"]
    assert codes(judged(found_in(UNRATED))) == ["unknown-severity"]


@pytest.mark.parametrize(
    ("found", "sections", "expected"),
    [
        (CRITICAL, {"exceptions": [exception()]}, []),
        (UNRATED, {"exceptions": [exception()]}, []),
        (HIGH, {"dispositions": [disposition()]}, []),
        (CRITICAL, {"dispositions": [disposition()]}, ["critical"]),
        (UNRATED, {"dispositions": [disposition()]}, ["unknown-severity"]),
        (HIGH, {"exceptions": [exception()]}, ["high-undispositioned"]),
        (CRITICAL, {"exceptions": [exception(repository=None, digest=Evidence().digest)]}, []),
        (CRITICAL, {"exceptions": [exception(repository=None, digest=Evidence().child["linux/amd64"])]}, []),
        (CRITICAL, {"exceptions": [exception(repository=None, digest=Evidence().child["linux/arm64"])]}, ["critical"]),
        (CRITICAL, {"exceptions": [exception(repository=None, digest=OTHER)]}, ["critical"]),
        (CRITICAL, {"exceptions": [exception(repository="nvcr.io/nvidia/driver")]}, ["critical"]),
        (CRITICAL, {"exceptions": [exception(cve="CVE-2026-0002")]}, ["critical"]),
        (CRITICAL, {"exceptions": [exception(package="openssl-libs")]}, ["critical"]),
        (CRITICAL, {"exceptions": [exception(expires="2026-08-20")]}, ["critical", "exception-expired"]),
        (CRITICAL, {"exceptions": [exception(expires=NOW)]}, ["critical", "exception-expired"]),
        (CRITICAL, {"exceptions": [exception(expires="2026-08-20T12:00:01Z")]}, ["exception-expires-in-window"]),
        (CRITICAL, {"exceptions": [exception(expires="2026-08-21T12:00:00Z")]}, ["exception-expires-in-window"]),
        (CRITICAL, {"exceptions": [exception(expires="2026-08-21T12:00:01Z")]}, []),
        (HIGH, {"dispositions": [disposition(expires="2026-08-01")]}, ["exception-expired", "high-undispositioned"]),
        (CRITICAL, {"exceptions": [exception(), exception(id="SEC-2")]}, ["exception-overlap"]),
        (CRITICAL, {"exceptions": [exception(), exception(id="SEC-2", expires="2026-08-01")]}, []),
        (
            CRITICAL,
            {"exceptions": [exception(), exception(id="SEC-2", repository=None, digest=Evidence().digest)]},
            ["exception-overlap"],
        ),
        (HIGH, {"dispositions": [disposition(), disposition(id="SEC-2")]}, ["exception-overlap"]),
        (HIGH, {"dispositions": [disposition()], "exceptions": [exception(id="SEC-2")]}, []),
    ],
)
def test_a_finding_is_cleared_only_by_its_own_dated_answer(
    found: dict[str, Any], sections: dict[str, Any], expected: list[str]
) -> None:
    report = judged(found_in(found), decided(**sections))
    assert codes(report) == expected
    assert report.images[0].accepted == (
        set()
        if {"critical", "high-undispositioned", "unknown-severity"} & set(expected)
        else {"SEC-1"} | ({"SEC-2"} if "exception-overlap" in expected else set())
    )


def test_each_package_of_one_vulnerability_needs_its_own_disposition() -> None:
    two = found_in(HIGH, vulnerability("CVE-2026-0001", "libssl3", "HIGH"))
    assert codes(judged(two, decided(dispositions=[disposition()]))) == ["high-undispositioned"]
    both = [disposition(), disposition(id="SEC-2", package="libssl3")]
    assert judged(two, decided(dispositions=both)).verdict == "pass"


def test_an_acceptance_of_one_platform_clears_no_other() -> None:
    both = [found_in(CRITICAL), found_in(CRITICAL, machine="arm64")]
    one = exception(repository=None, digest=Evidence().child["linux/amd64"])
    report = judged(*both, decided(exceptions=[one]))
    assert [(i["platform"], i["verdict"]) for i in report.as_json()["images"]] == [
        ("linux/amd64", "pass"),
        ("linux/arm64", "fail"),
    ]
    other = exception(id="SEC-2", repository=None, digest=Evidence().child["linux/arm64"])
    assert judged(*both, decided(exceptions=[one, other])).verdict == "pass"


def test_an_acceptance_that_fits_nothing_is_told() -> None:
    report = judged(decided(exceptions=[exception(), exception(id="SEC-2", expires="2026-01-01", package="curl")]))
    unused = [f.subject for f in report.findings if f.code == "exception-unused"]
    assert (report.verdict, unused) == ("pass", ["SEC-1", "SEC-2"])


def test_what_was_suppressed_counts_like_what_is_open() -> None:
    for found, code in ((CRITICAL, "suppressed-critical"), (HIGH, "suppressed-high"), (UNRATED, "suppressed-unknown")):
        hidden: Alter = lambda e, found=found: e.suppressed(found)  # noqa: E731
        report = judged(hidden)
        assert codes(report) == [code]
        assert report.as_json()["images"][0]["scans"][0]["vulnerabilities"]["suppressed"] == 1
        answered = decided(exceptions=[exception()], dispositions=[disposition(id="SEC-2")])
        assert judged(hidden, answered).verdict == "pass"


# --- VEX and ignore files


def vex(evidence: Evidence, *statements: dict[str, Any], name: str = "https://security.example/vex/1") -> None:
    product = f"pkg:oci/dcgm-exporter@{evidence.digest.replace(':', '%3A')}"
    base = {
        "vulnerability": {"name": "CVE-2026-0001"},
        "products": [{"@id": product}],
        "status": "not_affected",
        "justification": "component_not_present",
    }
    said = [{**base, **statement} for statement in statements]
    head = {"@context": "https://openvex.dev/ns/v0.2.0", "@id": name, "timestamp": "2026-08-19T00:00:00Z"}
    evidence.docs["vex"] = {**head, "statements": said}


def another(status: str, day: int, **more: Any) -> Alter:
    """A later word about the same, in another document."""

    def alter(evidence: Evidence) -> None:
        vex(evidence, {**dated(status, day), **more}, name="https://vendor.example/vex/9")
        evidence.docs["other"] = evidence.docs.pop("vex")
        vex(evidence, {})

    return alter


def dated(status: str, day: int) -> dict[str, Any]:
    return {"status": status, "timestamp": f"2026-08-{day}T09:00:00Z"}


def both(*alterations: Alter) -> Alter:
    return lambda evidence: [alter(evidence) for alter in alterations]  # type: ignore[return-value]


def twice(name: str) -> Alter:
    """Another document of the same name, of an earlier version."""
    return lambda evidence: evidence.docs.update(again={**evidence.docs[name], "version": 1})


RESTS = exception(vex="https://security.example/vex/1")
PARTS = [{"@id": "pkg:deb/debian/openssl@1.0"}]


@pytest.mark.parametrize(
    ("alter", "expected"),
    [
        (lambda e: vex(e, {}), []),
        (lambda e: vex(e, {"status": "fixed"}), []),
        (lambda e: None, ["critical", "vex-unproven"]),
        (lambda e: vex(e, {}, name="https://security.example/vex/2"), ["critical", "vex-unproven"]),
        (lambda e: vex(e, {"status": "under_investigation"}), ["critical", "vex-unproven"]),
        (lambda e: vex(e, {}, {"status": "affected", "action_statement": "update"}), ["critical", "vex-unproven"]),
        (lambda e: vex(e, {"status": "under_investigation"}, {}), []),
        (lambda e: vex(e, dated("under_investigation", 18), dated("not_affected", 17)), ["critical", "vex-unproven"]),
        (lambda e: vex(e, dated("not_affected", 18), dated("under_investigation", 17)), []),
        (lambda e: vex(e, dated("under_investigation", 20), {}), ["critical", "vex-unproven"]),
        (lambda e: vex(e, dated("not_affected", 21)), ["critical", "vex-timestamp", "vex-unproven"]),
        (another("under_investigation", 20), ["critical", "vex-unproven"]),
        (another("under_investigation", 18), []),
        (another("fixed", 20), []),
        (another("under_investigation", 20, vulnerability={"name": "CVE-2026-0002"}), []),
        (both(lambda e: vex(e, {}), put("docs/vex/timestamp", None)), ["critical", "vex-timestamp", "vex-unproven"]),
        (both(lambda e: vex(e, {}), put("docs/vex/timestamp", "August")), ["critical", "unreadable", "vex-unproven"]),
        (both(lambda e: vex(e, {}), twice("vex")), ["critical", "vex-ambiguous", "vex-unproven"]),
        (lambda e: vex(e, {"vulnerability": {"name": "CVE-2026-0002"}}), ["critical", "vex-unproven"]),
        (lambda e: vex(e, {"justification": ""}), ["critical", "vex-unjustified", "vex-unproven"]),
        (lambda e: vex(e, {"products": [{"@id": "pkg:oci/x"}]}), ["critical", "vex-unproven", "vex-unscoped"]),
        (
            lambda e: vex(e, {"products": [{"@id": f"pkg:oci/x@{OTHER}"}]}),
            ["critical", "subject-mismatch", "vex-unproven"],
        ),
        (lambda e: vex(e, {"products": [{"@id": f"pkg:oci/x@{e.digest}", "subcomponents": PARTS}]}), []),
        (
            lambda e: vex(e, {"products": [{"@id": f"pkg:oci/x@{e.child['linux/arm64']}"}]}),
            ["critical", "vex-unproven"],
        ),
        (
            lambda e: vex(e, {"products": [{"@id": f"pkg:oci/x@{e.digest}", "subcomponents": [{"@id": "pkg:deb/a"}]}]}),
            ["critical", "vex-unproven"],
        ),
    ],
)
def test_an_exception_that_rests_on_a_vex_needs_it(alter: Alter, expected: list[str]) -> None:
    assert codes(judged(found_in(CRITICAL), decided(exceptions=[RESTS]), alter)) == expected


def test_a_vex_alone_clears_nothing_for_it_has_no_date() -> None:
    report = judged(found_in(CRITICAL), lambda e: vex(e, {}))
    assert (codes(report), codes(report, Status.WARN)) == (["critical"], ["vex-undated"])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("    expired_at: 2026-09-01\n    statement: SEC-1\n", []),
        ("    statement: SEC-1\n", ["exception-undated"]),
        ("    expired_at: 2026-08-20\n    statement: SEC-1\n", ["exception-expired"]),
        ("    expired_at: 2026-09-01\n", ["exception-unstated"]),
    ],
)
def test_an_ignore_file_is_dated_and_stated_and_clears_nothing(written: str, expected: list[str]) -> None:
    file = f"vulnerabilities:\n  - id: CVE-2026-0001\n{written}".encode()
    ignored: Alter = lambda e: e.raw.update({".trivyignore.yaml": file})  # noqa: E731
    assert codes(judged(ignored)) == expected
    hidden = judged(ignored, lambda e: e.suppressed(CRITICAL))
    assert codes(hidden) == sorted([*expected, "suppressed-critical"])


# --- files that are something else


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "unknown-file"),
        (b" \n", "unknown-file"),
        (b"null", "unknown-file"),
        (b"[]", "unknown-file"),
        (b"# Notes\n", "unknown-file"),
        (b"CVE-2026-0001 exp:2027-01-01\n", "unknown-file"),
        (b"\x89PNG\r\n", "unknown-file"),
        (b"{}", "unknown-file"),
        (b'{"Results": []}', "unknown-file"),
        (b"[1]", "unknown-file"),
        (b"{", "unreadable"),
        (b'{"a": 1, "a": 2}', "unreadable"),
        (b"[" * 100_000, "unreadable"),
        (b'{"SchemaVersion": 3}', "unknown-schema"),
        (b'{"SchemaVersion": 2, "Results": {}}', "unreadable"),
        (b'{"spdxVersion": "SPDX-3.0"}', "unknown-schema"),
        (b'{"bomFormat": "CycloneDX", "components": 1}', "unreadable"),
        (b'{"schemaVersion": 2}', "unreadable"),
        (b'{"schemaVersion": 2, "manifests": [{"digest": "x"}]}', "unreadable"),
        (b"vulnerabilities: [1]\n", "unreadable"),
        (b'{"@context": "https://openvex.dev/ns/v0.2.0"}', "unreadable"),
        (b'{"artifacts": [], "source": [], "descriptor": {}}', "unreadable"),
        (Problem("unreadable", "a symbolic link"), "unreadable"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_no_file_is_passed_over(data: bytes | Problem, expected: str) -> None:
    report = judged(lambda e: e.raw.update({"some/file": data}))
    told = [(f.code, f.subject) for f in report.findings if f.status is not Status.PASS]
    assert (report.verdict, told) == ("error", [(expected, "some/file")])


def test_old_ignore_files_and_notes_are_named_with_what_they_are() -> None:
    report = judged(lambda e: e.raw.update({"a.json": b'{"x": [1,\n2'}))
    (told,) = (f.message for f in report.findings if f.status is Status.UNKNOWN)
    assert "line 2" in told


def test_the_same_file_twice_is_one_piece_of_evidence() -> None:
    evidence = Evidence()
    evidence.vulnerabilities(CRITICAL)
    evidence.raw["copy"] = text(evidence.docs["trivy-amd64"])
    assert [f.code for f in evidence.report().findings if f.status is Status.FAIL] == ["critical"]


# --- the exceptions file


def entries(text: str) -> bytes:
    return f"apiVersion: gpurunbook.io/v1\nkind: SecurityDecisions\n{text}".encode()


NO_MITIGATION = "exploitability: e, privileges: p"
KEYED = f"repository: a.example/b, key: '{OTHER}'"
FULL = "id: S, cve: CVE-1-1, package: p, repository: a.example/b, owner: o, reason: r, expires: 2027-01-01"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1"),
        (b"[]", "line 1"),
        (b"exceptions: []\n", "apiVersion"),
        (b"apiVersion: gpurunbook.io/v2\nkind: SecurityDecisions\n", "gpurunbook.io/v2"),
        (b"apiVersion: gpurunbook.io/v1\nkind: Exceptions\n", "Exceptions"),
        (entries("exception: []\n"), "line 3"),
        (entries("exceptions: {}\n"), "line 3"),
        (entries("exceptions: [a]\n"), "line 3"),
        (entries("exceptions:\n - {}\n"), "line 4"),
        *(
            (entries("exceptions:\n - {" + FULL.replace(before, after) + "}\n"), says)
            for before, after, says in [
                ("id: S, ", "", "no id"),
                ("cve: CVE-1-1", "cve: '*'", "the id of one vulnerability"),
                ("cve: CVE-1-1, ", "", "no cve"),
                ("package: p", "package: '*'", "the name of one package"),
                ("repository: a.example/b, ", "", "either digest or repository"),
                ("repository: a.example/b", "repository: a.example/*", "reference"),
                ("repository: a.example/b", "repository: 'a.example/b:1'", "without tag"),
                ("repository: a.example/b", "digest: sha256:1", "64 lower-case"),
                ("repository: a.example/b", f"repository: a.example/b, digest: '{OTHER}'", "either digest"),
                ("owner: o", "owner: ' '", "no owner"),
                ("reason: r", "reason: ''", "no reason"),
                ("expires: 2027-01-01", "expires: never", "wanted YYYY-MM-DD"),
                ("expires: 2027-01-01", "expires: 2027-02-30", "wanted YYYY-MM-DD"),
                (", expires: 2027-01-01", "", "no expires"),
                ("owner: o", "owner: o, approver: x", "approver"),
                ("owner: o", "owner: [o]", "where text is due"),
                ("owner: o", "owner: &o o", "anchor"),
            ]
        ),
        (entries("exceptions:\n - {" + FULL + "}\n - {" + FULL + "}\n"), "stands already at line 4"),
        (entries("dispositions:\n - {" + FULL + "}\n"), "reason"),
        (entries("dispositions:\n - {" + FULL.replace("reason: r", NO_MITIGATION) + "}\n"), "mitigation"),
        (entries("signatures:\n - {repository: a.example/b}\n"), "wanted one of key"),
        (entries(f"signatures:\n - {{{KEYED}, identity: x}}\n"), "wanted one of key"),
        (entries("signatures:\n - {repository: a.example/b, identity: x}\n"), "no issuer"),
        (entries("signatures:\n - {repository: a.example/b, does_not_sign: x, owner: y}\n"), "no expires"),
        (entries("signatures:\n - {repository: a.example/b, does_not_sign: x, expires: 2027-01-01}\n"), "no owner"),
        (entries(f"signatures:\n - {{{KEYED}, issuer: x}}\n"), "does not belong"),
        (entries(f"signatures:\n - {{{KEYED}, transparency_log: 'false'}}\n"), "true or false"),
        (entries(f"signatures:\n - {{repository: '*', key: '{OTHER}'}}\n"), "reference"),
        (b"# \xff", "UTF-8"),
        (entries("exceptions: []\n---\n"), "second document"),
    ],
    ids=lambda value: str(value)[-50:],
)  # fmt: skip
def test_a_malformed_exceptions_file_is_refused_whole_with_its_line(data: bytes, says: str) -> None:
    report = judged(lambda e: setattr(e, "exceptions", data), names=("audit.json", "exceptions.yaml"))
    assert (report.verdict, codes(report), report.images) == ("error", ["exceptions-malformed"], ())
    (told,) = report.findings
    assert says in f"{told.subject} {told.message}"
    assert re.match(r"exceptions\.yaml, (line [0-9]+|file)", told.subject)


def test_without_an_exceptions_file_nobody_is_a_signer() -> None:
    report = judged(lambda e: setattr(e, "exceptions", None))
    assert codes(report) == ["signature-not-checked"]


def test_repositories_of_signers_are_compared_in_their_long_form() -> None:
    evidence = Evidence(repository="docker.io/library/busybox")
    for written in ("busybox", "docker.io/busybox", "index.docker.io/library/busybox", "docker.io/*"):
        evidence.exceptions = decisions(signatures=[signer(repository=written)])
        assert evidence.report().verdict == "pass", written
    evidence.exceptions = decisions(signatures=[signer(repository="busybox/*")])
    assert codes(evidence.report()) == ["signature-not-checked"]


# --- everything at once


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in _paths(item, (*path, key)))]


@pytest.mark.parametrize("wrong", [7, "text", None, [], {}, [None]], ids=repr)
@pytest.mark.parametrize("part", ["docs", "calls", "audit", "exceptions"])
def test_no_member_of_another_type_crashes_or_is_answered_without_a_finding(part: str, wrong: Any) -> None:
    whole = Evidence()
    whole.vulnerabilities(CRITICAL, vulnerability("CVE-2026-0002", "curl", "HIGH"))
    whole.exceptions = decisions(
        exceptions=[exception()],
        dispositions=[disposition(id="SEC-2", cve="CVE-2026-0002", package="curl")],
        signatures=[signer()],
    )
    assert whole.report().verdict == "pass"
    for path in _paths(getattr(whole, part)):
        if not path or (part == "docs" and "Results" not in path and len(path) > 4):
            continue
        evidence = copy.deepcopy(whole)
        holder = getattr(evidence, part)
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = wrong
        try:
            given = evidence.given()
        except (AttributeError, TypeError, KeyError):
            continue  # what was altered is what the folder is made from
        report = decide(given)
        assert report.findings
        assert report.verdict in ("pass", "fail", "error")


def test_every_code_is_documented_and_no_other() -> None:
    section = (ROOT / "docs/codes.md").read_text().split("## Evidence gate\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"(?m)^\| `([a-z-]+)` \|", section))
    assert documented == set(CODES)


def test_times_are_those_of_the_terms() -> None:
    answer = judged().as_json()
    assert (answer["now"], answer["max_database_age_seconds"]) == (NOW, 172_800)
    assert judged(now=(times.instant(NOW) or 0) + 48 * times.HOUR).verdict == "fail"
