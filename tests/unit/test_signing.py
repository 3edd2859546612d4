"""Detached ssh signatures, with the real ssh-keygen.

Covered: who signed, and what each form of a line of signers says of that; other bytes, another namespace, another
principal, a key that is not allowed, an expired key, garbage; a missing key, file of signers and program; a slow
program. Not covered: agents, hardware keys, passphrases.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpurunbook.errors import DeadlineError, EvidenceError, InputError
from gpurunbook.evidence.signing import APPROVAL, MANIFEST, sign, verify
from gpurunbook.sources import tools

DATA = b'{"change_id":"CHG-7"}\n'


def make_key(folder: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder / name


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    lines = []
    for name in ("alice", "bob", "mallory"):
        make_key(folder, name)
        if name != "mallory":
            lines.append(f"{name}@example.com {(folder / f'{name}.pub').read_text()}")
    (folder / "signers").write_text("".join(lines))
    return folder


def test_a_signature_names_who_signed(keys: Path) -> None:
    for name in ("alice", "bob"):
        signature = sign(DATA, keys / name, MANIFEST)
        assert verify(DATA, signature, keys / "signers", MANIFEST) == f"{name}@example.com"
        assert verify(DATA, signature, keys / "signers", MANIFEST, f"{name}@example.com") == f"{name}@example.com"


def refused(keys: Path, data: bytes, signature: bytes, namespace: str = MANIFEST, principal: str = "") -> str:
    with pytest.raises(EvidenceError) as refusal:
        verify(data, signature, keys / "signers", namespace, principal)
    return refusal.value.code


def test_a_signature_holds_for_exactly_these_bytes_this_namespace_and_this_principal(keys: Path) -> None:
    signature = sign(DATA, keys / "alice", MANIFEST)
    assert refused(keys, DATA + b" ", signature) == "signature-wrong"
    assert refused(keys, DATA, signature, APPROVAL) == "signature-wrong"
    assert refused(keys, DATA, signature, MANIFEST, "bob@example.com") == "signature-wrong"
    assert refused(keys, DATA, signature, MANIFEST, "-Overify-time=20000101") == "signature-wrong"


def test_a_key_that_is_not_allowed_does_not_count(keys: Path) -> None:
    assert refused(keys, DATA, sign(DATA, keys / "mallory", MANIFEST)) == "signature-untrusted"


def test_a_key_whose_time_is_over_does_not_count(keys: Path, tmp_path: Path) -> None:
    public = (keys / "alice.pub").read_text()
    (tmp_path / "signers").write_text(f'alice@example.com valid-before="20200101" {public}')
    with pytest.raises(EvidenceError, match="expired"):
        verify(DATA, sign(DATA, keys / "alice", MANIFEST), tmp_path / "signers", MANIFEST)


def test_a_key_allowed_for_another_namespace_only_does_not_count(keys: Path, tmp_path: Path) -> None:
    public = (keys / "alice.pub").read_text()
    (tmp_path / "signers").write_text(f'alice@example.com namespaces="{APPROVAL}" {public}')
    with pytest.raises(EvidenceError):
        verify(DATA, sign(DATA, keys / "alice", MANIFEST), tmp_path / "signers", MANIFEST)


def who(signature: bytes, signers: Path) -> str:
    """The name of who signed, or the code of the refusal."""
    try:
        return verify(DATA, signature, signers, MANIFEST)
    except EvidenceError as refusal:
        return refusal.code


WHO = {
    # of one line or more, with KEY for alice's: who signed, or the code
    "a name": ("alice KEY", "alice"),
    "everybody": ("* KEY", "signature-unnamed"),
    "a pattern": ("ops-* KEY", "signature-unnamed"),
    "one character": ("alice? KEY", "signature-unnamed"),
    "everybody but one": ("!bob,* KEY", "signature-unnamed"),
    "a list": ("alice,bob KEY", "alice"),
    "a list with a pattern": ("*,alice KEY", "alice"),
    "a name and a negation": ("alice,!bob KEY", "alice"),
    "a pattern before the name": ("# a comment\n* KEY\n\nalice KEY", "alice"),
    "another purpose before this one": (f'bob namespaces="x" KEY\nalice namespaces="{MANIFEST}" KEY', "alice"),
    "two patterns": ("* KEY\nali* KEY", "signature-unnamed"),
    "a blank in a name": ('"alice bob" KEY', "signature-unnamed"),
    "over": ('alice valid-before="20200101" KEY', "signature-untrusted"),
    "not begun": ('alice valid-after="20990101" KEY', "signature-untrusted"),
    "over, and another": ('bob valid-before="20200101" KEY\nalice KEY', "alice"),
    "this purpose": (f'alice namespaces="{MANIFEST}" KEY', "alice"),
    "a pattern of purposes": ('alice namespaces="gpurunbook-*" KEY', "alice"),
    "all purposes but this": (f'alice namespaces="*,!{MANIFEST}" KEY', "signature-wrong"),
    "an authority, and the key signs itself": ("alice cert-authority KEY", "signature-untrusted"),
    "an unknown option": ("alice never KEY", "signature-untrusted"),
    "nothing": ("# KEY", "signature-untrusted"),
}


@pytest.mark.parametrize("case", WHO)
def test_only_a_line_with_a_name_says_who_signed(keys: Path, tmp_path: Path, case: str) -> None:
    line, wanted = WHO[case]
    signers = tmp_path / "signers"
    signers.write_text(line.replace("KEY", " ".join((keys / "alice.pub").read_text().split()[:2])) + "\n")
    signature = sign(DATA, keys / "alice", MANIFEST)
    assert who(signature, signers) == wanted


@pytest.mark.parametrize(
    ("line", "principals", "wanted"),
    [
        ("* cert-authority CA", "alice,ops-7", "alice"),
        ("ops-* cert-authority CA", "alice,ops-7", "ops-7"),
        ("bob cert-authority CA", "alice", "signature-untrusted"),
        ("* cert-authority CA", "*", "signature-unnamed"),
        ("* cert-authority CA", "", "signature-untrusted"),
        ("* CA", "alice", "signature-untrusted"),
    ],
)
def test_a_certificate_names_its_holder_whatever_pattern_allows_the_authority(
    keys: Path, tmp_path: Path, line: str, principals: str, wanted: str
) -> None:
    make_key(tmp_path, "holder")
    named = ["-n", principals] if principals else []
    subprocess.run(["ssh-keygen", "-q", "-s", keys / "bob", "-I", "id", *named, tmp_path / "holder.pub"], check=True)
    signers = tmp_path / "signers"
    signers.write_text(line.replace("CA", " ".join((keys / "bob.pub").read_text().split()[:2])) + "\n")
    signature = sign(DATA, tmp_path / "holder-cert.pub", MANIFEST)
    assert who(signature, signers) == wanted


@pytest.mark.parametrize("garbage", [b"", b"-----BEGIN PGP SIGNATURE-----\n", b"x" * 100])
def test_what_is_no_signature_is_refused(keys: Path, garbage: bytes) -> None:
    assert refused(keys, DATA, garbage) == "signature-malformed"


def test_a_cut_or_huge_signature_is_refused(keys: Path) -> None:
    whole = sign(DATA, keys / "alice", MANIFEST)
    assert refused(keys, DATA, whole[:120]).startswith("signature-")
    assert refused(keys, DATA, whole + b"A" * 100_000) == "signature-malformed"


def test_a_missing_key_or_file_of_signers_is_an_input_error(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such key file"):
        sign(DATA, tmp_path / "none", MANIFEST)
    with pytest.raises(InputError, match="could not sign"):
        sign(DATA, keys / "signers", MANIFEST)
    with pytest.raises(InputError, match="allowed signers"):
        verify(DATA, sign(DATA, keys / "alice", MANIFEST), tmp_path / "none", MANIFEST)


def test_a_missing_program_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="openssh-client") as refusal:
        sign(DATA, keys / "alice", MANIFEST)
    assert refusal.value.code == "tool-missing"


def test_a_program_gets_its_input_and_gives_its_exit_code() -> None:
    done = tools.run(["sh", "-c", "cat; echo oops >&2; exit 3"], input=b"in")
    assert (done.returncode, done.stdout, done.stderr, done.complaint) == (3, b"in", b"oops\n", "oops")


def test_a_slow_program_is_ended() -> None:
    with pytest.raises(DeadlineError):
        tools.run(["sleep", "30"], timeout=0.1)
