"""Trivy's image report, SchemaVersion 2, as far as a gate needs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.supply.evidence import Named, digests_of
from gpurunbook.supply.members import flag, member, objects, text, texts, whole

_OTHERS = frozenset({"config", "custom", "license", "license-file", "secret"})
"""Classes of results in which no package was looked at (trivy/pkg/types/report.go)."""

SEVERITIES = ("UNKNOWN", "LOW", "MEDIUM", "HIGH", "CRITICAL")


@dataclass(frozen=True)
class Vulnerability:
    """One vulnerability in one package of one target. suppressed: an ignore file or VEX took it out of the report.

    severity is one of SEVERITIES: absent, or a word that Trivy does not have, is UNKNOWN.
    """

    id: str
    package: str
    installed: str
    purl: str
    target: str
    severity: str
    status: str
    suppressed: bool = False


@dataclass(frozen=True)
class Scan:
    """A report. results: in how many targets packages were looked at; end_of_life: the distribution is not fixed any
    more."""

    named: Named
    version: str
    results: int
    end_of_life: bool
    vulnerabilities: tuple[Vulnerability, ...]


def read_scan(document: Any) -> Scan:
    """Writes nothing. Raises InputError, `unknown-schema` for another SchemaVersion, else `unreadable`."""
    report = whole(document)
    schema = report.get("SchemaVersion")
    if type(schema) is not int or schema != 2:
        raise InputError(f"SchemaVersion is {schema!r}, wanted 2", subject="report", code="unknown-schema")
    metadata = member(report, "Metadata")
    config = member(metadata, "ImageConfig")
    machine = [text(config, name) for name in ("os", "architecture", "variant")]
    results = objects(report, "Results")
    image_id = text(metadata, "ImageID")
    return Scan(
        named=Named(
            digests_of(texts(metadata, "RepoDigests")),
            frozenset([image_id] if image_id else []),
            frozenset(["/".join(machine).rstrip("/")] if any(machine) else []),
        ),
        version=text(member(report, "Trivy"), "Version"),
        results=sum(text(result, "Class") not in _OTHERS for result in results),
        end_of_life=flag(member(metadata, "OS"), "EOSL"),
        vulnerabilities=tuple(found for result in results for found in _vulnerabilities(result)),
    )


def _vulnerabilities(result: dict[str, Any]) -> Iterator[Vulnerability]:
    target = text(result, "Target")
    for found in objects(result, "Vulnerabilities"):
        yield _vulnerability(found, target, suppressed=False)
    for modified in objects(result, "ExperimentalModifiedFindings"):
        yield _vulnerability(member(modified, "Finding"), target, suppressed=True)


def _vulnerability(found: dict[str, Any], target: str, *, suppressed: bool) -> Vulnerability:
    severity = text(found, "Severity")
    return Vulnerability(
        id=text(found, "VulnerabilityID"),
        package=text(found, "PkgName"),
        installed=text(found, "InstalledVersion"),
        purl=text(member(found, "PkgIdentifier"), "PURL"),
        target=target,
        severity=severity if severity in SEVERITIES else "UNKNOWN",
        status=text(found, "Status"),
        suppressed=suppressed,
    )
