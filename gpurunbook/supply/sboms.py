"""SBOMs as syft and trivy write them: CycloneDX and SPDX 2, in JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.supply.evidence import Named, digest_in_version, digests_of, purl
from gpurunbook.supply.members import member, objects, text, texts, whole

_NO_PACKAGE = frozenset({"operating-system", "file"})
"""What syft and trivy list also of an image in which they recognised no package."""


@dataclass(frozen=True)
class Sbom:
    """An SBOM. format: `CycloneDX 1.6`, `SPDX-2.3`; components: how many packages besides the image itself."""

    format: str
    named: Named
    components: int


def read_sbom(document: Any) -> Sbom:
    """Writes nothing. Raises InputError: `unknown-schema` for neither CycloneDX nor SPDX 2, else `unreadable`."""
    sbom = whole(document)
    if sbom.get("bomFormat") == "CycloneDX":
        return _cyclonedx(sbom)
    spdx = sbom.get("spdxVersion")
    if isinstance(spdx, str) and spdx.startswith("SPDX-2."):
        return _spdx(sbom)
    message = f"bomFormat {sbom.get('bomFormat')!r}, spdxVersion {spdx!r}; wanted CycloneDX or SPDX 2"
    raise InputError(message, code="unknown-schema")


def _named(versions: Iterable[str], purls: Iterable[str], repo_digests: Iterable[str], ids: Iterable[str]) -> Named:
    read = [purl(location) for location in purls]
    digests = {found for version in versions if (found := digest_in_version(version))}
    return Named(
        frozenset(digests | {digest for digest, _ in read if digest} | digests_of(repo_digests)),
        frozenset(image_id for image_id in ids if image_id),
        frozenset(platform for _, platform in read if platform),
    )


def _cyclonedx(sbom: dict[str, Any]) -> Sbom:
    root = member(member(sbom, "metadata"), "component")
    properties = [(text(found, "name"), text(found, "value")) for found in objects(root, "properties")]
    named = _named(
        [text(root, "version")],
        [text(root, "purl")],
        [value for name, value in properties if name.endswith(":RepoDigest")],
        [value for name, value in properties if name.endswith(":ImageID")],
    )
    counted = sum(text(found, "type") not in _NO_PACKAGE for found in objects(sbom, "components"))
    return Sbom(f"CycloneDX {text(sbom, 'specVersion')}".strip(), named, counted)


def _spdx(sbom: dict[str, Any]) -> Sbom:
    described = set(texts(sbom, "documentDescribes")) | {
        text(found, "relatedSpdxElement")
        for found in objects(sbom, "relationships")
        if text(found, "relationshipType") == "DESCRIBES"
    }
    packages = objects(sbom, "packages")
    roots = [package for package in packages if text(package, "SPDXID") in described]
    checksums = [
        f"sha256:{text(found, 'checksumValue')}"
        for root in roots
        for found in objects(root, "checksums")
        if text(found, "algorithm") == "SHA256"
    ]
    purls = [
        text(found, "referenceLocator")
        for root in roots
        for found in objects(root, "externalRefs")
        if text(found, "referenceType") == "purl"
    ]
    named = _named([*(text(root, "versionInfo") for root in roots), *checksums], purls, [], [])
    others = [package for package in packages if text(package, "SPDXID") not in described]
    counted = sum(text(package, "primaryPackagePurpose").lower() not in _NO_PACKAGE for package in others)
    return Sbom(text(sbom, "spdxVersion"), named, counted)
