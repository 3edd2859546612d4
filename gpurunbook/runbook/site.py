"""The site file: what this site has decided, in one place. `parameters/site.yaml` unless a parameter names another."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.evidence import signing
from gpurunbook.runbook import given

DEFAULT = "parameters/site.yaml"


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """clusters: alias → uid of namespace kube-system. signers: the allowed_signers file, relative to the home.

    cosign_keys: principal → public key of cosign's, relative to the home. principals: API user → principal in either.
    approval: runbooks whose apply needs one. break_glass: whether an apply may go on without one, red everywhere.
    lease_namespace: where leases are kept.
    """

    clusters: dict[str, str] = {}
    signers: str = ""
    cosign_keys: dict[str, str] = {}
    principals: dict[str, str] = {}
    approval: list[str] = []
    break_glass: bool = False
    lease_namespace: str = "gpu-operator"


def load(home: Path, name: str) -> Site:
    """Writes nothing. The site file; without one, the defaults of `Site`.

    Raises InputError when a file that was named is missing, and when one is empty or holds something else than the
    fields above; a name that stands twice, and a value that YAML 1.1 and 1.2 read differently, are refused as in
    parameter files.
    """
    path = home / (name or DEFAULT)
    if not path.is_file():
        if name:
            raise InputError("there is no such site file", subject=str(path), remedy="Correct parameter 'site'.")
        return Site()
    if not path.read_bytes().strip():
        raise InputError(
            "is empty: what this site has decided, its approvals too, does not stand there",
            subject=str(path),
            remedy="Write it again." if name else "Write it again, or remove it: without a file the defaults hold.",
        )
    try:
        site = msgspec.convert(given.from_file(path), Site, strict=True)
    except msgspec.ValidationError as wrong:
        raise InputError(
            f"not a site file: {wrong}", subject=str(path), remedy="docs/site.md names its fields."
        ) from None
    if odd := sorted(name for name in (*site.principals.values(), *site.cosign_keys) if not signing.is_name(name)):
        message = f"principal {odd[0]!r:.120} is not one name: a pattern, a list or a blank names nobody"
        raise InputError(message, subject=str(path), remedy="Map each API user to one name of the file of signers.")
    return site


def cluster_uid(site: Site, expected: str) -> str:
    """Writes nothing. The uid that `expect_cluster` means: an alias of the site file, or the uid itself."""
    return site.clusters.get(expected, expected)
