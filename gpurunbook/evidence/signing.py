"""Detached ssh signatures over bytes, made and checked by ssh-keygen.

A signature is bound to a namespace, so that one made for an approval never counts for a manifest.
Who may sign is an allowed_signers file (ssh-keygen(1), ALLOWED SIGNERS).
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpurunbook.errors import EvidenceError, InputError
from gpurunbook.shown.hostile import harmless
from gpurunbook.sources import tools

MANIFEST = "gpurunbook-manifest"
APPROVAL = "gpurunbook-approval"

ARMOUR = b"-----BEGIN SSH SIGNATURE-----\n"
LIMIT = 64 * 1024
"""Bytes of a signature. Real ones are under 2 KB."""

_WAIT = 60.0  # a passphrase, or a touch on a hardware key
_CHECK = 20.0
_NAMESPACE = re.compile(r"[a-z0-9@.-]{1,64}")
_NAME = re.compile(r"[^\s*?!,\"\x00-\x1f\x7f]{1,256}")


def sign(data: bytes, key: Path, namespace: str) -> bytes:
    """Writes nothing. An armoured signature over `data`.

    key: a private key file, or a public one whose private half an agent holds. Raises InputError when the key
    cannot sign.
    """
    _known(namespace)
    if not key.is_file():
        raise InputError("no such key file", subject=str(key), remedy="Give the private key, or the .pub of an agent.")
    done = tools.run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace], input=data, timeout=_WAIT)
    if done.returncode or not done.stdout.startswith(ARMOUR):
        raise InputError(
            f"ssh-keygen could not sign with it: {harmless(done.complaint)}",
            subject=str(key),
            remedy="The key must be mode 0600 and its passphrase known, or its .pub given and the key in an agent.",
        )
    return done.stdout


def verify(data: bytes, signature: bytes, signers: Path, namespace: str, principal: str = "") -> str:
    """Writes nothing. The principal of `signers` who signed exactly `data` in exactly this namespace.

    principal: the only one that counts; empty: any that the file allows by name. Raises EvidenceError when nobody did
    (`signature-untrusted`: the key is not in the file, or not at this time; `signature-unnamed`: only a pattern allows
    it; `signature-wrong`: other bytes, another namespace or principal; `signature-malformed`), InputError when the file
    of signers cannot be read.
    """
    _known(namespace)
    if not signers.is_file():
        raise InputError("no such file of allowed signers", subject=str(signers))
    if not signature.startswith(ARMOUR) or len(signature) > LIMIT:
        raise EvidenceError("not an ssh signature", code="signature-malformed")
    with tempfile.TemporaryDirectory(prefix="gpurunbook-") as folder:
        file = Path(folder, "sig")
        file.write_bytes(signature)
        complaint = ""
        for name in [principal] if principal else _names(file, signers):
            done = tools.run(
                ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", name, "-n", namespace, "-s", str(file)],
                input=data,
                timeout=_CHECK,
            )
            if done.returncode == 0:
                return name
            complaint = done.complaint
    raise EvidenceError(f"the signature does not hold: {harmless(complaint)}", code="signature-wrong")


def _names(file: Path, signers: Path) -> Iterator[str]:
    """Names that the lines with the key give, each once.

    ssh-keygen finds the principals of the first line with the key only, whatever its purpose, and gives them as they
    stand there; of a certificate it gives the certificate's own. So one line after the other is asked.
    """
    told = _principals(file, signers)
    given = {name: None for name in told if is_name(name)}
    yield from given
    line = file.with_name("line")
    for text in signers.read_bytes().splitlines(keepends=True):
        line.write_bytes(text)
        with contextlib.suppress(EvidenceError):
            more = {name: None for name in _principals(file, line) if is_name(name) and name not in given}
            given |= more
            yield from more
    if not given:
        raise EvidenceError(
            f"{harmless(', '.join(told))} of {signers} allows the key, and is nobody's name", code="signature-unnamed"
        )


def _principals(file: Path, signers: Path) -> list[str]:
    done = tools.run(["ssh-keygen", "-Y", "find-principals", "-s", str(file), "-f", str(signers)], timeout=_CHECK)
    names = [line for line in done.stdout.decode(errors="replace").splitlines() if line]
    if done.returncode or not names:
        why = "; ".join(done.stderr.decode(errors="replace").split("\n")).strip("; ")  # which line is expired, say
        raise EvidenceError(
            f"the key that signed is not allowed by {signers}: {harmless(why)}", code="signature-untrusted"
        )
    return names


def is_name(principal: str) -> bool:
    """Writes nothing. Whether a principal is one name, all of it visible, and no pattern, list or negation
    (ssh_config(5), PATTERNS)."""
    return _NAME.fullmatch(principal) is not None and principal.isprintable()


def lists(signers: Path, principal: str) -> bool:
    """Writes nothing. Whether a line of the file of signers is for this principal, whatever its key may sign.

    `ssh-keygen -Y match-principals` would say so, but OpenSSH has it only since 8.9. Raises InputError.
    """
    try:
        lines = signers.read_bytes().decode(errors="replace").split("\n")
    except OSError as wrong:
        raise InputError(f"cannot be read: {wrong.strerror}", subject=str(signers)) from None
    first = [line.split()[0].strip('"') for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return any(_matches(patterns, principal) for patterns in first)


def _matches(patterns: str, name: str) -> bool:
    """Whether a list of patterns is for the name: one of them, and none that is negated."""
    hit = {one.startswith("!") for one in patterns.split(",") if re.fullmatch(_like(one.removeprefix("!")), name)}
    return hit == {False}


def _like(pattern: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", pattern))


def _known(namespace: str) -> None:
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"not a namespace: {namespace!r}")
