"""OpenVEX: which vulnerabilities of which image somebody says do not matter, and why."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding
from gpurunbook.supply import times
from gpurunbook.supply.evidence import Subject, failing
from gpurunbook.supply.members import items, objects, text, whole

JUSTIFICATIONS = frozenset(
    {
        "component_not_present",
        "vulnerable_code_not_present",
        "vulnerable_code_not_in_execute_path",
        "vulnerable_code_cannot_be_controlled_by_adversary",
        "inline_mitigations_already_exist",
    }
)
STATUSES = frozenset({"not_affected", "affected", "fixed", "under_investigation"})

_PRODUCT_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Product:
    """A product. digest: that its `@id` names, or None; packages: names of its subcomponents, none for all of it."""

    id: str
    digest: str | None
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Statement:
    """One statement. when: nanoseconds since 1970, its own or the document's; None where neither has a time."""

    vulnerability: str
    status: str
    justification: str
    impact: str
    action: str
    products: tuple[Product, ...]
    when: int | None = None

    def about(self, digests: Collection[str], package: str) -> bool:
        """Writes nothing. Whether it speaks of the package in an image that has one of the digests."""
        return any(p.digest in digests and (not p.packages or package in p.packages) for p in self.products)


def read_vex(document: Any) -> tuple[Statement, ...]:
    """Writes nothing. The statements, the latest last, since a later one takes an earlier one back; of the same time in
    the order of the file. Raises InputError (`unreadable`).
    """
    vex = whole(document)
    if not text(vex, "@context").startswith("https://openvex.dev/ns"):
        raise InputError(f"@context is {vex.get('@context')!r}, wanted that of OpenVEX", code="unreadable")
    if not isinstance(vex.get("statements"), list):
        raise InputError("no list of statements", code="unreadable")
    issued = _moment(vex)
    made = [_statement(found, issued) for found in objects(vex, "statements")]
    return tuple(sorted(made, key=lambda said: said.when or 0))


def _moment(holder: dict[str, Any]) -> int | None:
    stamp = text(holder, "timestamp")
    moment = times.instant(stamp) if stamp else None
    if stamp and moment is None:
        raise InputError(f"the timestamp {stamp[:80]!r} is not RFC 3339 with T and zone", code="unreadable")
    return moment


def _statement(found: dict[str, Any], issued: int | None) -> Statement:
    own = _moment(found)
    name = found.get("vulnerability")
    vulnerability = (text(name, "name") or text(name, "@id")) if isinstance(name, dict) else name
    status = text(found, "status")
    if not isinstance(vulnerability, str) or not vulnerability.strip():
        raise InputError("a statement names no vulnerability", code="unreadable")
    if status not in STATUSES:
        raise InputError(f"{vulnerability}: the status is {status!r}", code="unreadable")
    return Statement(
        vulnerability,
        status,
        text(found, "justification").strip(),
        text(found, "impact_statement").strip(),
        text(found, "action_statement").strip(),
        tuple(_products(found)),
        issued if own is None else own,
    )


def _products(found: dict[str, Any]) -> list[Product]:
    # Before 0.2.0 a product was its identifier alone.
    given = [{"@id": item} if isinstance(item, str) else whole(item) for item in items(found, "products")]
    return [_product(item) for item in given or [{}]]


def _product(item: dict[str, Any]) -> Product:
    name = text(item, "@id")
    return Product(name, _digest(name), tuple(_package(text(part, "@id")) for part in objects(item, "subcomponents")))


def _package(purl: str) -> str:
    """The name in a package URL; what is none stays as it is."""
    path = purl.partition("#")[0].partition("?")[0]
    return unquote(path.rpartition("/")[2].partition("@")[0]) if path.startswith("pkg:") else purl


def _digest(product: str) -> str | None:
    path = unquote(product.partition("#")[0].partition("?")[0])
    match = _PRODUCT_DIGEST.fullmatch(path[path.rfind("@") :]) if "@" in path else None
    return match[1] if match else None


def judge_vex(statements: tuple[Statement, ...], subject: Subject) -> list[Finding]:
    """Writes nothing. What keeps a VEX document from being honoured."""
    found: list[Finding] = []
    own = {subject.digest, *subject.children.values()}
    for said in statements:
        justified = said.justification in JUSTIFICATIONS or said.impact
        if said.status == "not_affected" and not justified:
            message = f"not_affected with justification {said.justification!r} and no impact statement"
            found.append(failing("vex-unjustified", said.vulnerability, message, "Have its author say why."))
        if said.status == "affected" and not said.action:
            message = "affected without an action statement"
            found.append(failing("vex-unjustified", said.vulnerability, message, "Have its author say what to do."))
        for product in said.products:
            if product.digest is None:
                message = f"the product {product.id!r} names no digest, so it covers every release"
                found.append(failing("vex-unscoped", said.vulnerability, message, "Scope it to a digest."))
            elif product.digest not in own:
                message = f"the product is {product.digest}, wanted {subject.digest} or a child of it"
                found.append(failing("subject-mismatch", said.vulnerability, message))
    return found
