"""Detached cosign signatures over bytes: one sigstore bundle of cosign 3, made and checked by cosign itself.

By key only, and without a transparency log: nothing is sent anywhere, and nothing of the network is needed to verify.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from gpurunbook.errors import EvidenceError, InputError
from gpurunbook.shown.hostile import harmless
from gpurunbook.sources import tools
from gpurunbook.sources.files import regular
from gpurunbook.sources.keys import fingerprint
from gpurunbook.supply import strictjson
from gpurunbook.supply.members import at

LIMIT = 64 * 1024
"""Bytes of a bundle. Real ones with a key are under 1 KB."""

_PUBLIC = b"-----BEGIN PUBLIC KEY-----"
_PRIVATE = (b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----", b"-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----")
_WAIT, _CHECK = 60.0, 20.0  # signing may ask a key management service
_MEDIA = re.compile(r"application/vnd\.dev\.sigstore\.bundle(?:\.v0\.[0-9]+\+json|\+json;version=0\.[0-9]+)")


def sign(data: bytes, key: str) -> bytes:
    """Writes nothing. A bundle with a signature over `data`.

    key: a private key file of cosign's, whose password cosign reads from COSIGN_PASSWORD, or the address of a key
    management service. Raises InputError when the key cannot sign.
    """
    _three(None)
    with tempfile.TemporaryDirectory(prefix="gpurunbook-") as folder:
        made, blob = Path(folder, "bundle"), Path(folder, "blob")
        blob.write_bytes(data)
        line = ["cosign", "sign-blob", "--key", key, "--bundle", str(made), "--yes"]
        # Without these it sends the signature to a public log (cosign sign-blob --help).
        done = tools.run([*line, "--use-signing-config=false", "--tlog-upload=false", str(blob)], timeout=_WAIT)
        if done.returncode or not made.is_file():
            raise InputError(
                f"cosign could not sign with it: {harmless(done.complaint)}",
                subject=key,
                remedy="Give the private key of `cosign generate-key-pair`, and its password in COSIGN_PASSWORD.",
            )
        return made.read_bytes()


def verify(data: bytes, bundle: bytes, key: Path) -> str:
    """Writes nothing. Who signed exactly `data`: `cosign key sha256:…`, the digest of the public key in DER.

    key: a public key in PEM. Raises EvidenceError when that key did not (`signature-untrusted`: another key did, as the
    bundle says; `signature-wrong`: other bytes; `signature-malformed`), InputError for a key that is none, and without
    cosign 3 (`tool-missing`, `tool-version`), DeadlineError when it gives no answer.
    """
    fingerprint(key)
    told = _read(bundle)
    with tempfile.TemporaryDirectory(prefix="gpurunbook-") as folder:
        # No setting, key or cache of the user's counts.
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": folder}
        _three(env)
        kept, blob, given = (Path(folder, name) for name in ("bundle", "blob", "key"))
        kept.write_bytes(bundle)
        blob.write_bytes(data)
        shutil.copyfile(key, given)
        name = fingerprint(given)  # of the very file that cosign reads
        line = ["cosign", "verify-blob", "--key", str(given), "--bundle", str(kept)]
        done = tools.run([*line, "--insecure-ignore-tlog=true", str(blob)], timeout=_CHECK, env=env)
    if done.returncode == 0:
        return f"cosign key {name}"
    raise _why(told, data, name, done.complaint)


def signs(key: str) -> bool:
    """Writes nothing. Whether cosign signs with it: a private key file of cosign's, or the address of a KMS."""
    return "://" in key or _head(Path(key)).startswith(_PRIVATE)


def is_key(path: Path) -> bool:
    """Writes nothing. Whether a file is a public key in PEM, and so no file of ssh signers."""
    return _head(path).startswith(_PUBLIC)


def _head(path: Path) -> bytes:
    try:
        with regular(path) as file:
            return file.read(64) if file else b""
    except (OSError, ValueError):
        return b""


def _three(env: dict[str, str] | None) -> None:
    """The bundle is that of cosign 3; an older one would read it differently, or not at all."""
    done = tools.run(["cosign", "version", "--json"], timeout=_CHECK, env=env)
    try:
        version = str(at(strictjson.loads(done.stdout), "gitVersion"))
    except InputError:
        version = harmless(done.complaint, 80)
    if done.returncode or not re.fullmatch(r"v?3\.[0-9]+\.[0-9]+.*", version):
        message = f"it says {version[:80]!r}, wanted version 3"
        raise InputError(message, subject="cosign", remedy=tools.GET["cosign"], code="tool-version")


def _read(bundle: bytes) -> Any:
    """The bundle as JSON: with a signature over a file, and not one over a statement about a file."""
    try:
        if len(bundle) > LIMIT:
            raise InputError(f"longer than {LIMIT} bytes")
        told = strictjson.loads(bundle)
        if not _MEDIA.fullmatch(str(at(told, "mediaType"))) or not isinstance(at(told, "messageSignature"), dict):
            raise InputError("no signature over a file in it")
    except (InputError, RecursionError) as wrong:
        raise EvidenceError(f"not a bundle of cosign 3: {wrong}", code="signature-malformed") from None
    return told


def _why(told: Any, data: bytes, name: str, complaint: str) -> EvidenceError:
    """What the bundle says of itself is not signed: it explains a refusal, and never takes one back."""
    about = _hex(at(told, "messageSignature", "messageDigest", "digest"))
    here = hashlib.sha256(data).hexdigest()
    by = _hex(at(told, "verificationMaterial", "publicKey", "hint"))
    if about and about != here:
        message = f"it is over a file with SHA-256 {about}, this one has {here}: altered, or the signature of another"
        return EvidenceError(message, code="signature-wrong")
    if by and f"sha256:{by}" != name:
        message = f"it was made with the key sha256:{by}, the given one is {name}"
        return EvidenceError(message, code="signature-untrusted")
    return EvidenceError(f"the signature does not hold: {harmless(complaint)}", code="signature-wrong")


def _hex(text: Any) -> str:
    try:
        return base64.b64decode(str(text), validate=True).hex() if text else ""
    except ValueError:
        return ""
