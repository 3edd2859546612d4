"""Evidence files one by one: joining, each kind's reasons, and `gpurunbook gate check-file`.

Covered: every case of tests/cases/evidence through the command line, every row of the joining table for Trivy,
CycloneDX and SPDX, every reason of every kind, malformed files of every kind, and that each code is documented.
Not covered: the whole gate over many digests.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.cli import main
from gpurunbook.errors import InputError
from gpurunbook.supply import times
from gpurunbook.supply.evidence import Subject, purl, read_subject, same_platform
from gpurunbook.supply.evidence_files import KINDS, check, verdict

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests/cases/evidence"
INDEX = json.loads((CASES / "index.json").read_text())
EXIT = {"pass": 0, "fail": 1, "error": 2}

SUBJECT = read_subject(INDEX["subject"])
ARM = Subject(SUBJECT.digest, "linux/arm64", SUBJECT.children, SUBJECT.config)
NOW = times.instant(INDEX["now"]) or 0
DAY = 24 * times.HOUR

DIGEST, CHILD, ARM_CHILD = SUBJECT.digest, SUBJECT.children["linux/amd64"], SUBJECT.children["linux/arm64"]
IMAGE_ID = SUBJECT.config["linux/amd64"]
OTHER = "sha256:" + "0" * 64


def check_file(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as ended:
        main(["gate", "check-file", "-o", "json", *arguments])
    out = capsys.readouterr().out
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(out) if out else {}


@pytest.mark.parametrize("case", INDEX["files"], ids=lambda case: case["file"])
def test_each_case_gets_its_answer(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = tmp_path / "subject.json"
    subject.write_text(json.dumps(INDEX["subject"]))
    code, answer = check_file(
        capsys, str(CASES / case["file"]), "--kind", case["kind"], "--subject", str(subject),
        "--now", INDEX["now"], "--max-database-age", INDEX["max_database_age"],
    )  # fmt: skip
    assert (answer["verdict"], answer["reasons"], code) == (case["expect"], case["reasons"], EXIT[case["expect"]])


def judged(kind: str, document: Any, subject: Subject = SUBJECT, max_age: int = 2 * DAY) -> tuple[str, list[str]]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    found = check(kind, data, subject, now=NOW, max_database_age=max_age)
    return verdict(found), sorted({one.code for one in found})


def load(name: str) -> Any:
    return json.loads((CASES / name).read_text())


def trivy(**metadata: Any) -> Any:
    report = load("trivy-clean.json")
    report["Metadata"].update(metadata)
    return report


def cyclonedx(**component: Any) -> Any:
    sbom = load("syft-cyclonedx.json")
    sbom["metadata"]["component"] = {"type": "container", "name": f"nvcr.io/nvidia/x@{DIGEST}", **component}
    return sbom


def spdx(**root: Any) -> Any:
    sbom = load("syft-spdx.json")
    sbom["packages"][1] = {"name": "x", "SPDXID": "SPDXRef-DocumentRoot-Image", **root}
    return sbom


def image_purl(digest: str, qualifiers: str = "") -> str:
    return f"pkg:oci/dcgm-exporter@{digest.replace(':', '%3A')}{qualifiers}"


def names_trivy(digest: str | None = None, image_id: str | None = None, arch: str | None = None) -> Any:
    config = {"os": "linux", "architecture": arch} if arch else {}
    return trivy(RepoDigests=[f"a/b@{digest}"] if digest else [], ImageID=image_id, ImageConfig=config)


def names_cyclonedx(digest: str | None = None, image_id: str | None = None, arch: str | None = None) -> Any:
    properties = [{"name": "aquasecurity:trivy:ImageID", "value": image_id}] if image_id else []
    location = f"pkg:oci/x@v1?arch={arch}" if arch else None
    return cyclonedx(version=digest or "4.4.1", properties=properties, purl=location)


def names_spdx(digest: str | None = None, image_id: str | None = None, arch: str | None = None) -> Any:
    references = [{"referenceType": "purl", "referenceLocator": f"pkg:oci/x@v1?arch={arch}"}] if arch else []
    return spdx(versionInfo=digest or "4.4.1", externalRefs=references)


JOINS = [
    ({"digest": DIGEST}, ("pass", [])),
    ({"digest": CHILD}, ("pass", ["matched-by-child"])),
    ({"digest": ARM_CHILD}, ("fail", ["platform-mismatch"])),
    ({"digest": OTHER}, ("fail", ["subject-mismatch"])),
    ({"digest": DIGEST.upper().replace("SHA", "sha")}, ("fail", ["subject-mismatch"])),
    ({"digest": "sha512:" + "a" * 128}, ("fail", ["subject-mismatch"])),
    ({}, ("fail", ["subject-unproven"])),
    ({"arch": "amd64"}, ("fail", ["subject-unproven"])),
    ({"digest": DIGEST, "arch": "arm64"}, ("fail", ["platform-mismatch"])),
    ({"digest": OTHER, "arch": "arm64"}, ("fail", ["platform-mismatch", "subject-mismatch"])),
    ({"digest": CHILD, "arch": "arm64"}, ("fail", ["matched-by-child", "platform-mismatch"])),
    ({"digest": CHILD, "arch": "amd64"}, ("pass", ["matched-by-child"])),
]
BY_IMAGE_ID = [
    ({"image_id": IMAGE_ID}, ("pass", ["matched-by-config"])),
    ({"image_id": OTHER}, ("fail", ["subject-mismatch"])),
    ({"image_id": CHILD}, ("fail", ["subject-mismatch"])),
    ({"digest": OTHER, "image_id": IMAGE_ID}, ("fail", ["subject-mismatch"])),
    ({"digest": DIGEST, "image_id": OTHER}, ("pass", [])),
]


@pytest.mark.parametrize(
    ("made", "named", "expected"),
    [
        *((made, *join) for made in (names_trivy, names_cyclonedx) for join in JOINS + BY_IMAGE_ID),
        *((names_spdx, *join) for join in JOINS),  # SPDX has no place for an image ID
    ],
)
def test_a_file_joins_by_what_it_names(
    made: Callable[..., Any], named: dict[str, str], expected: tuple[str, list[str]]
) -> None:
    assert judged("trivy" if made is names_trivy else "sbom", made(**named)) == expected


def test_an_image_id_of_a_platform_whose_config_is_not_known_does_not_join() -> None:
    assert judged("trivy", names_trivy(image_id=IMAGE_ID), ARM) == ("fail", ["subject-mismatch"])


def test_what_was_typed_is_no_proof() -> None:
    typed = f"nvcr.io/nvidia/x@{DIGEST}"
    report = {**names_trivy(), "ArtifactName": typed}
    report["Metadata"]["Reference"] = typed
    report["Metadata"]["RepoTags"] = ["nvcr.io/nvidia/x:4.4.1"]
    assert judged("trivy", report) == ("fail", ["subject-unproven"])
    assert judged("sbom", cyclonedx()) == ("fail", ["subject-unproven"])
    assert judged("sbom", spdx(name=typed)) == ("fail", ["subject-unproven"])


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (cyclonedx(purl=image_purl(DIGEST)), ("pass", [])),
        (cyclonedx(purl=image_purl(DIGEST, "?arch=amd64&repository_url=x%2Fy")), ("pass", [])),
        (cyclonedx(purl=image_purl(DIGEST, "?arch=arm64")), ("fail", ["platform-mismatch"])),
        (cyclonedx(purl=image_purl(DIGEST, "?arch=amd64&os=windows")), ("fail", ["platform-mismatch"])),
        (cyclonedx(purl=f"pkg:oci/x@{DIGEST}"), ("pass", [])),
        (cyclonedx(purl=image_purl(CHILD)), ("pass", ["matched-by-child"])),
        (cyclonedx(purl=image_purl(OTHER)), ("fail", ["subject-mismatch"])),
        (cyclonedx(purl=f"pkg:oci/x@v1?digest={DIGEST}"), ("fail", ["subject-unproven"])),
        (cyclonedx(purl=f"pkg:generic/x@{DIGEST}"), ("fail", ["subject-unproven"])),
        (cyclonedx(properties=[{"name": "aquasecurity:trivy:RepoDigest", "value": f"a@{DIGEST}"}]), ("pass", [])),
        (
            cyclonedx(properties=[{"name": "aquasecurity:trivy:DiffID", "value": DIGEST}]),
            ("fail", ["subject-unproven"]),
        ),
        (cyclonedx(version=OTHER, purl=image_purl(DIGEST)), ("pass", [])),
        (spdx(checksums=[{"algorithm": "SHA256", "checksumValue": DIGEST[7:]}]), ("pass", [])),
        (spdx(checksums=[{"algorithm": "SHA256", "checksumValue": CHILD[7:]}]), ("pass", ["matched-by-child"])),
        (spdx(checksums=[{"algorithm": "SHA1", "checksumValue": DIGEST[7:]}]), ("fail", ["subject-unproven"])),
        (spdx(versionInfo=DIGEST, checksums=[{"algorithm": "SHA256", "checksumValue": CHILD[7:]}]), ("pass", [])),
        (spdx(externalRefs=[{"referenceType": "purl", "referenceLocator": image_purl(DIGEST)}]), ("pass", [])),
        (
            spdx(externalRefs=[{"referenceType": "purl", "referenceLocator": image_purl(DIGEST, "?arch=arm64")}]),
            ("fail", ["platform-mismatch"]),
        ),
        ({**spdx(versionInfo=DIGEST), "relationships": []}, ("fail", ["subject-unproven"])),
    ],
)
def test_an_sbom_names_its_image_in_these_places(document: Any, expected: tuple[str, list[str]]) -> None:
    assert judged("sbom", document) == expected


def test_the_platform_of_a_package_is_not_that_of_the_image() -> None:
    sbom = load("syft-cyclonedx.json")
    sbom["components"][0]["purl"] = "pkg:deb/ubuntu/openssl@3?arch=all"
    assert judged("sbom", sbom) == ("pass", [])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("linux/amd64", "linux/amd64", True),
        ("linux/arm64", "linux/arm64/v8", True),
        ("linux/arm/v6", "linux/arm/v7", False),
        ("/amd64", "linux/amd64", True),
        ("windows/", "linux/amd64", False),
        ("linux/amd64", "linux/arm64", False),
    ],
)
def test_platforms_compare_by_the_parts_that_both_name(one: str, other: str, same: bool) -> None:
    assert same_platform(one, other) is same_platform(other, one) is same


def test_a_package_url_is_percent_decoded() -> None:
    assert purl(image_purl(DIGEST, "?arch=amd64&os=linux#sub")) == (DIGEST, "linux/amd64")
    assert purl("pkg:oci/x") == (None, "")
    assert purl("") == (None, "")


def vulnerability(severity: Any, **more: Any) -> dict[str, Any]:
    return {"VulnerabilityID": "CVE-2026-1", "PkgName": "openssl", "Severity": severity, **more}


def found(*severities: Any) -> Any:
    report = trivy()
    report["Results"][0]["Vulnerabilities"] = [vulnerability(severity) for severity in severities]
    return report


def suppressed(*severities: Any) -> Any:
    report = trivy()
    report["Results"][1]["ExperimentalModifiedFindings"] = [
        {"Type": "vulnerability", "Status": status, "Finding": vulnerability(severity)}
        for status, severity in zip(["ignored", "not_affected", "fixed"], severities, strict=False)
    ]
    return report


@pytest.mark.parametrize(
    ("report", "reasons"),
    [
        (found("LOW", "MEDIUM"), []),
        (found("CRITICAL"), ["critical"]),
        (found("HIGH", "HIGH"), ["high-undispositioned"]),
        (found("UNKNOWN"), ["unknown-severity"]),
        (found(""), ["unknown-severity"]),
        (found(None), ["unknown-severity"]),
        (found("critical"), ["unknown-severity"]),
        (found("LOW", "UNKNOWN", "HIGH", "CRITICAL"), ["critical", "high-undispositioned", "unknown-severity"]),
        (suppressed("LOW", "MEDIUM"), []),
        (suppressed("MEDIUM", "CRITICAL"), ["suppressed-critical"]),
        (suppressed("HIGH", "UNKNOWN", None), ["suppressed-high", "suppressed-unknown"]),
        (trivy(OS={"Family": "ubuntu", "Name": "16.04", "EOSL": True}), ["end-of-life-os"]),
        (trivy(OS={"Family": "ubuntu", "Name": "22.04", "EOSL": False}), []),
        ({**trivy(), "Results": []}, ["nothing-scanned"]),
        ({**trivy(), "Results": None}, ["nothing-scanned"]),
        ({**trivy(), "Results": [{}]}, []),
        ({**trivy(), "Metadata": None}, ["subject-unproven"]),
        ({"SchemaVersion": 2}, ["nothing-scanned", "subject-unproven"]),
    ],
)
def test_a_scan_fails_for_each_reason_and_all_are_collected(report: Any, reasons: list[str]) -> None:
    assert judged("trivy", report) == ("fail" if reasons else "pass", reasons)


def test_a_vendors_rating_is_not_judged() -> None:
    report = trivy()
    report["Results"][0]["Vulnerabilities"] = [vulnerability("LOW", VendorSeverity={"nvd": 4}, CVSS={"nvd": {}})]
    assert judged("trivy", report) == ("pass", [])


def test_each_package_of_a_vulnerability_has_its_finding() -> None:
    report = load("trivy-high.json")
    data = json.dumps(report).encode()
    said = check("trivy", data, SUBJECT, now=NOW, max_database_age=DAY)
    assert [(one.subject, one.message.split()[2]) for one in said] == [
        ("CVE-2026-10004", "libssl3"),
        ("CVE-2026-10004", "openssl"),
    ]


@pytest.mark.parametrize("schema", [1, 3, "2", 2.0, True, None, [2]])
def test_another_schema_is_an_error_alone(schema: Any) -> None:
    assert judged("trivy", {**found("CRITICAL"), "SchemaVersion": schema}) == ("error", ["unknown-schema"])


@pytest.mark.parametrize(
    ("database", "reasons"),
    [
        ({"UpdatedAt": "2026-08-20T07:00:00.123456789Z"}, []),
        ({"UpdatedAt": "2026-08-18T12:00:00Z"}, []),
        ({"UpdatedAt": "2026-08-18T11:59:59.999999999Z"}, ["database-stale"]),
        ({"UpdatedAt": "2026-08-20T12:05:00Z"}, []),
        ({"UpdatedAt": "2026-08-21T12:00:00Z"}, ["database-unknown"]),
        ({"UpdatedAt": "0001-01-01T00:00:00Z", "DownloadedAt": "2026-08-20T07:00:00Z"}, ["database-unknown"]),
        ({"UpdatedAt": "2026-08-20"}, ["database-unknown"]),
        ({"UpdatedAt": ""}, ["database-unknown"]),
        ({"UpdatedAt": 1755676800}, ["database-unknown"]),
        ({"DownloadedAt": "2026-08-20T07:00:00Z", "NextUpdate": "2026-08-21T07:00:00Z"}, ["database-unknown"]),
        ({}, ["database-unknown"]),
        (None, ["database-unknown"]),
    ],
)
def test_a_database_is_as_old_as_its_data(database: Any, reasons: list[str]) -> None:
    answer = {"Version": "0.72.0", "VulnerabilityDB": database, "JavaDB": {"UpdatedAt": "2020-01-01T00:00:00Z"}}
    assert judged("trivy-version", answer) == ("fail" if reasons else "pass", reasons)


METADATA = {"Version": 2, "UpdatedAt": "2026-08-20T07:00:00Z", "DownloadedAt": "2026-08-20T08:55:00Z"}
"""As `db/metadata.json` in Trivy's cache has it: about a database, but not what `trivy version` printed."""


@pytest.mark.parametrize("answer", [{}, {"Version": "0.72.0"}, {"Version": None}, METADATA], ids=repr)
def test_without_a_database_its_age_is_unknown(answer: Any) -> None:
    assert judged("trivy-version", answer) == ("fail", ["database-unknown"])


@pytest.mark.parametrize(
    ("sbom", "expected"),
    [
        ({**load("syft-cyclonedx.json"), "components": None}, ("fail", ["sbom-empty"])),
        ({**cyclonedx(version="4.4.1"), "components": []}, ("fail", ["sbom-empty", "subject-unproven"])),
        ({**spdx(versionInfo=DIGEST), "packages": []}, ("fail", ["sbom-empty", "subject-unproven"])),
        ({**load("syft-spdx.json"), "packages": load("syft-spdx.json")["packages"][1:]}, ("fail", ["sbom-empty"])),
        ({**load("syft-spdx.json"), "spdxVersion": "SPDX-2.2"}, ("pass", [])),
        ({**load("syft-spdx.json"), "spdxVersion": "SPDX-3.0"}, ("error", ["unknown-schema"])),
        ({"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld"}, ("error", ["unknown-schema"])),
        ({"bomFormat": "cyclonedx"}, ("error", ["unknown-schema"])),
        ({}, ("error", ["unknown-schema"])),
        ({"bomFormat": "CycloneDX"}, ("fail", ["sbom-empty", "subject-unproven"])),
    ],
)
def test_an_sbom_of_nothing_or_of_another_format_is_none(sbom: Any, expected: tuple[str, list[str]]) -> None:
    assert judged("sbom", sbom) == expected


def signature(digest: Any) -> dict[str, Any]:
    return {"critical": {"image": {"docker-manifest-digest": digest}}, "optional": None}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"null", ("fail", ["no-signature"])),
        (b"\nnull\n", ("fail", ["no-signature"])),
        (b"[]", ("fail", ["no-signature"])),
        ([signature(DIGEST), signature(DIGEST)], ("pass", [])),
        ([signature(DIGEST), signature(OTHER)], ("fail", ["subject-mismatch"])),
        ([signature(CHILD)], ("fail", ["subject-mismatch"])),
        ([{"critical": {"image": {}}}], ("error", ["unreadable"])),
        ([{}], ("error", ["unreadable"])),
        ([None], ("error", ["unreadable"])),
        ([signature(1)], ("error", ["unreadable"])),
        (signature(DIGEST), ("error", ["unreadable"])),
        ("text", ("error", ["unreadable"])),
        (0, ("error", ["unreadable"])),
        (False, ("error", ["unreadable"])),
        (b"", ("error", ["unreadable"])),
        (b"[][]", ("error", ["unreadable"])),
        (b"Error: no matching signatures", ("error", ["unreadable"])),
    ],
)
def test_a_signature_must_be_there_and_over_this_digest(answer: Any, expected: tuple[str, list[str]]) -> None:
    assert judged("cosign", answer) == expected


PRODUCT = f"pkg:oci/dcgm-exporter@{DIGEST.replace(':', '%3A')}?repository_url=nvcr.io%2Fx"


def statement(**more: Any) -> dict[str, Any]:
    base = {
        "vulnerability": {"name": "CVE-2026-1"},
        "products": [{"@id": PRODUCT}],
        "status": "not_affected",
        "justification": "component_not_present",
    }
    return {key: value for key, value in {**base, **more}.items() if value is not ...}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (statement(), ("pass", [])),
        (statement(justification=...), ("fail", ["vex-unjustified"])),
        (statement(justification="  "), ("fail", ["vex-unjustified"])),
        (statement(justification="trust me"), ("fail", ["vex-unjustified"])),
        (statement(justification=..., impact_statement="not shipped"), ("pass", [])),
        (statement(justification=..., impact_statement=" "), ("fail", ["vex-unjustified"])),
        (statement(status="affected"), ("fail", ["vex-unjustified"])),
        (statement(status="affected", action_statement="update to 4.4.2"), ("pass", [])),
        (statement(status="fixed", justification=...), ("pass", [])),
        (statement(status="under_investigation", justification=...), ("pass", [])),
        (statement(products=[{"@id": "pkg:oci/dcgm-exporter"}]), ("fail", ["vex-unscoped"])),
        (statement(products=[{"@id": "pkg:oci/dcgm-exporter@4.4.1"}]), ("fail", ["vex-unscoped"])),
        (statement(products=[{"@id": f"pkg:oci/x?checksum={DIGEST}"}]), ("fail", ["vex-unscoped"])),
        (statement(products=[{"@id": PRODUCT[:60]}]), ("fail", ["vex-unscoped"])),
        (statement(products=[{}]), ("fail", ["vex-unscoped"])),
        (statement(products=[]), ("fail", ["vex-unscoped"])),
        (statement(products=...), ("fail", ["vex-unscoped"])),
        (statement(products=[{"@id": image_purl(CHILD)}, {"@id": image_purl(ARM_CHILD)}]), ("pass", [])),
        (statement(products=[{"@id": PRODUCT}, {"@id": image_purl(OTHER)}]), ("fail", ["subject-mismatch"])),
        (statement(products=[PRODUCT]), ("pass", [])),
        (
            statement(justification=..., products=[{"@id": "x"}, {"@id": image_purl(OTHER)}]),
            ("fail", ["subject-mismatch", "vex-unjustified", "vex-unscoped"]),
        ),
        (statement(status="none"), ("error", ["unreadable"])),
        (statement(status=...), ("error", ["unreadable"])),
        (statement(vulnerability=...), ("error", ["unreadable"])),
        (statement(vulnerability={}), ("error", ["unreadable"])),
        (statement(vulnerability="CVE-2026-1"), ("pass", [])),
        (statement(products="x"), ("error", ["unreadable"])),
        (statement(products=[1]), ("error", ["unreadable"])),
        ("text", ("error", ["unreadable"])),
    ],
)
def test_vex_is_honoured_only_with_a_reason_and_for_a_digest(said: Any, expected: tuple[str, list[str]]) -> None:
    assert judged("openvex", {"@context": "https://openvex.dev/ns/v0.2.0", "statements": [said]}) == expected


@pytest.mark.parametrize(
    "document", [{}, {"statements": []}, {"@context": "https://openvex.dev/ns/v0.2.0"}, {"@context": 1}, [], None]
)
def test_what_is_no_openvex_is_unreadable(document: Any) -> None:
    assert judged("openvex", document) == ("error", ["unreadable"])


ENTRY = "  - id: CVE-2026-1\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"vulnerabilities:\n{ENTRY}    expired_at: 2026-08-21\n    statement: SEC-1\n", ("pass", [])),
        (f"vulnerabilities:\n{ENTRY}    expired_at: '2026-08-21'\n    statement: SEC-1\n", ("pass", [])),
        (
            f"vulnerabilities:\n{ENTRY}    expired_at: 2026-08-20\n    statement: SEC-1\n",
            ("fail", ["exception-expired"]),
        ),
        (
            f"vulnerabilities:\n{ENTRY}    expired_at: 2026-08-20T23:00:00Z\n    statement: SEC-1\n",
            ("fail", ["exception-expired"]),
        ),
        (
            f"vulnerabilities:\n{ENTRY}    expired_at: 2026-08-21T01:00:00+10:00\n    statement: SEC-1\n",
            ("fail", ["exception-expired"]),
        ),
        (f"vulnerabilities:\n{ENTRY}    statement: SEC-1\n", ("fail", ["exception-undated"])),
        (f"vulnerabilities:\n{ENTRY}    expired_at: ~\n    statement: SEC-1\n", ("fail", ["exception-undated"])),
        (f"vulnerabilities:\n{ENTRY}    expired_at: 2026-09-01\n", ("fail", ["exception-unstated"])),
        (
            f"vulnerabilities:\n{ENTRY}    expired_at: 2026-09-01\n    statement: ' '\n",
            ("fail", ["exception-unstated"]),
        ),
        (f"vulnerabilities:\n{ENTRY}", ("fail", ["exception-undated", "exception-unstated"])),
        (f"misconfigurations:\n{ENTRY}", ("fail", ["exception-undated", "exception-unstated"])),
        (f"secrets:\n{ENTRY}licenses:\n{ENTRY}", ("fail", ["exception-undated", "exception-unstated"])),
        ("vulnerabilities: []\n", ("pass", [])),
        ("{}\n", ("pass", [])),
        (f"vulnerabilities:\n{ENTRY}    expired_at: soon\n    statement: x\n", ("error", ["unreadable"])),
        (f"vulnerabilities:\n{ENTRY}    expired_at: 2026-02-30\n    statement: x\n", ("error", ["unreadable"])),
        (f"vulnerabilities:\n{ENTRY}    path: [a]\n", ("error", ["unreadable"])),
        (f"vulnerabilities:\n{ENTRY}    paths: a\n", ("error", ["unreadable"])),
        (f"vulnerabilities:\n{ENTRY}    id: CVE-2026-2\n", ("error", ["unreadable"])),
        ("vulnerabilities:\n  - expired_at: 2026-09-01\n    statement: x\n", ("error", ["unreadable"])),
        ("vulnerabilities:\n  - CVE-2026-1\n", ("error", ["unreadable"])),
        ("vulnerabilities: {a: 1}\n", ("error", ["unreadable"])),
        ("vulnerability: []\n", ("error", ["unreadable"])),
        ("CVE-2026-1 exp:2027-01-01\n", ("error", ["unreadable"])),
        ("", ("error", ["unreadable"])),
        ("a: [", ("error", ["unreadable"])),
        ("{}\n---\n{}\n", ("error", ["unreadable"])),
        ("a: &a [*a]\n", ("error", ["unreadable"])),
    ],
)
def test_an_ignored_vulnerability_is_dated_and_stated(text: str, expected: tuple[str, list[str]]) -> None:
    assert judged("trivyignore", text.encode()) == expected


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"trivyignore"}))
@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[1,", b"<xml/>", b"SPDXVersion: SPDX-2.3\n", b"\xff\xfe{}", b'{"a": "\xff"}', b"{}{}", b"text",
        b'{"SchemaVersion": 2, "SchemaVersion": 2}', b'{"a": NaN}', b'{"a": Infinity}', b"[" * 200_000,
        b'{"a": ' * 200_000, b"1" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_json_is_unreadable(kind: str, data: bytes) -> None:
    assert judged(kind, data) == ("error", ["unreadable"])


def _members(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in _members(item, (*path, key)))]


@pytest.mark.parametrize("wrong", [7, "text", [7], {"a": 7}, None, True, [None], [[]]], ids=repr)
@pytest.mark.parametrize(
    "case", [case for case in INDEX["files"] if case["file"].endswith(".json")], ids=lambda c: c["file"]
)
def test_no_member_of_another_type_crashes_or_turns_red_into_green(case: dict[str, Any], wrong: Any) -> None:
    original = load(case["file"])
    for path in _members(original):
        document = copy.deepcopy(original)
        if path:
            holder = document
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = wrong
        else:
            document = wrong
        said, reasons = judged(case["kind"], document)
        assert said in EXIT and (reasons or said == "pass")
        assert said != "error" or len(reasons) == 1
        if case["expect"] == "error":
            assert said == "error" or path == ("SchemaVersion",)


def test_a_byte_order_mark_before_json_is_read_over() -> None:
    assert judged("trivy", b"\xef\xbb\xbf" + json.dumps(trivy()).encode()) == ("pass", [])


SUBJECTS: list[Any] = [
    None,
    [],
    {},
    {"digest": DIGEST},
    {"platform": "linux/amd64"},
    {"digest": DIGEST[:-1], "platform": "linux/amd64"},
    {"digest": DIGEST.upper(), "platform": "linux/amd64"},
    {"digest": DIGEST, "platform": "amd64"},
    {"digest": DIGEST, "platform": "linux/amd64\n"},
    {"digest": DIGEST, "platform": "linux/amd64", "children": []},
    {"digest": DIGEST, "platform": "linux/amd64", "children": {"linux/amd64": "x"}},
    {"digest": DIGEST, "platform": "linux/amd64", "config": {"linux/amd64": None}},
    {"digest": DIGEST, "platform": "linux/amd64", "repository": 1},
]


@pytest.mark.parametrize("document", SUBJECTS, ids=repr)
def test_a_subject_of_another_shape_is_an_error(
    document: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError):
        read_subject(document)
    subject = tmp_path / "subject.json"
    subject.write_text(json.dumps(document))
    arguments = [str(CASES / "cosign-key.json"), "--kind", "cosign", "--subject", str(subject)]
    code, answer = check_file(capsys, *arguments)
    assert (code, answer["verdict"], answer["reasons"]) == (2, "error", ["subject"])


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, " " * ((1 << 20) + 1)])
def test_a_subject_that_is_no_json_is_an_error(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = tmp_path / "subject.json"
    subject.write_text(text)
    code, answer = check_file(capsys, str(CASES / "cosign-key.json"), "--kind", "cosign", "--subject", str(subject))
    assert (code, answer["reasons"]) == (2, ["subject"])


@pytest.mark.parametrize(("kind", "needed"), [("sbom", True), ("cosign", True), ("trivyignore", False)])
def test_a_subject_may_be_left_out_only_where_none_is_judged(
    kind: str, needed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("{}")
    code, answer = check_file(capsys, str(file), "--kind", kind)
    assert (code, answer["reasons"]) == ((2, ["subject"]) if needed else (0, []))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_file_that_cannot_be_opened_is_an_error(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = tmp_path / "subject.json"
    subject.write_text(json.dumps(INDEX["subject"]))
    for path in (tmp_path / "none", tmp_path):
        code, answer = check_file(capsys, str(path), "--kind", kind, "--subject", str(subject))
        assert (code, answer["verdict"], answer["reasons"]) == (2, "error", ["unreadable"])


@pytest.mark.parametrize("case", INDEX["files"], ids=lambda case: case["file"])
def test_a_link_is_judged_as_the_file_that_it_names(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject, link = tmp_path / "subject.json", tmp_path / "link"
    subject.write_text(json.dumps(INDEX["subject"]))
    link.symlink_to(CASES / case["file"])
    code, answer = check_file(
        capsys, str(link), "--kind", case["kind"], "--subject", str(subject),
        "--now", INDEX["now"], "--max-database-age", INDEX["max_database_age"],
    )  # fmt: skip
    assert (answer["verdict"], answer["reasons"], code) == (case["expect"], case["reasons"], EXIT[case["expect"]])


@pytest.mark.parametrize(
    "more",
    [
        ["--now", "yesterday"],
        ["--now", "2026-08-20"],
        ["--max-database-age", "2 days"],
        ["--max-database-age", "0"],
        ["--max-database-age", "-48h"],
        ["--kind", "grype"],
    ],
)
def test_a_malformed_option_ends_with_2(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(capsys, str(CASES / "trivy-version.json"), "--kind", "trivy-version", *more)[0] == 2


def test_the_maximum_age_of_the_database_is_a_duration(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(CASES / "trivy-version.json"), "--kind", "trivy-version", "--now", INDEX["now"]]
    assert check_file(capsys, *arguments, "--max-database-age", "5h")[0] == 0
    code, answer = check_file(capsys, *arguments, "--max-database-age", "4h59m59.9s")
    assert (code, answer["reasons"], answer["rehearsal"]) == (1, ["database-stale"], True)


def test_every_code_is_documented() -> None:
    section = (ROOT / "docs/codes.md").read_text().split("## Evidence files\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"(?m)^\| `([a-z-]+)` \|", section))
    source = "".join((ROOT / "gpurunbook/supply").joinpath(f"{name}.py").read_text() for name in MODULES)
    used = set(re.findall(r'(?:failing|note)\(\s*"([a-z-]+)"', source)) | set(re.findall(r'code="([a-z-]+)"', source))
    used |= {"critical", "high-undispositioned", "unknown-severity"}
    used |= {"suppressed-critical", "suppressed-high", "suppressed-unknown"}
    assert documented == used


MODULES = ("evidence", "evidence_files", "scans", "sboms", "vex", "ignores", "members", "strictjson")
