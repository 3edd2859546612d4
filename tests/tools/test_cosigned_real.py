"""Evidence and approvals signed by the real cosign, by key and without a network.

Covered: seal and verify; a wrong key, an altered manifest, the bundle of another file, a signature over a statement, an
edited and an old bundle, no cosign, another version, a slow one; signing by hand; a consumed bundle; approvals, and who
may not give them. Not covered: keys in a key management service, keyless signing, transparency logs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpurunbook.cli import evidence, main
from gpurunbook.cli.changes import approve
from gpurunbook.errors import DeadlineError, EvidenceError, InputError, NotApproved
from gpurunbook.evidence import bundle, consumed, cosign
from gpurunbook.evidence.seal import seal
from gpurunbook.evidence.verify import Answer, verify
from gpurunbook.journal import JOURNAL, Journal, canonical, digest
from gpurunbook.plan import Bundle
from gpurunbook.runbook import approval
from gpurunbook.runbook.site import Site
from gpurunbook.sources import tools
from gpurunbook.sources.keys import fingerprint
from tests.unit import evidence_run as made

pytestmark = pytest.mark.tools

Tool = Callable[[str], Path]
DATA = b'{"format":"x"}\n'


@pytest.fixture(scope="module", autouse=True)
def path(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cosign alone is added to PATH; no configuration of the user's counts."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "cosign").symlink_to(tool("cosign"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        patch.setenv("HOME", str(folder))
        patch.setenv("COSIGN_PASSWORD", "")
        yield


@pytest.fixture(scope="module")
def keys(path: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("lead", "oncall", "stranger"):
        good("generate-key-pair", "--output-key-prefix", name, cwd=folder)
    return folder


def good(*line: str, cwd: Path) -> None:
    done = tools.run(["cosign", *line], timeout=60, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def sealed(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed run that lead has signed; tests work on copies."""
    folder = made.passed(tmp_path_factory.mktemp("sealed")).folder
    seal(folder, sign_key=keys / "lead.key")
    return folder


@pytest.fixture
def folder(sealed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sealed, tmp_path / "bundle"))


def code(data: bytes, signed: bytes, key: Path) -> tuple[str, str]:
    with pytest.raises(EvidenceError) as refusal:
        cosign.verify(data, signed, key)
    return refusal.value.code, refusal.value.message


def told(answer: Answer) -> list[tuple[str, str]]:
    return [(one.kind, one.name) for one in answer.differences]


# -- a bundle --------------------------------------------------------------------------------------------------------


def test_a_signed_manifest_is_signed_and_its_signer_is_the_key(folder: Path, keys: Path) -> None:
    answer = verify(folder, cosign_key=keys / "lead.pub")
    assert (answer.verdict, answer.differences) == ("signed", [])
    assert answer.signer == f"cosign key {fingerprint(keys / 'lead.pub')}"
    assert verify(folder).verdict == "consistent"


def test_another_key_is_altered_and_both_keys_are_named(folder: Path, keys: Path) -> None:
    answer = verify(folder, cosign_key=keys / "stranger.pub")
    assert (answer.verdict, told(answer)) == ("altered", [("signature", bundle.COSIGNED)])
    message = answer.differences[0].message
    assert all(fingerprint(keys / f"{name}.pub") in message for name in ("lead", "stranger"))


def test_an_altered_manifest_is_altered_and_both_digests_are_named(folder: Path, keys: Path) -> None:
    before = digest((folder / bundle.MANIFEST).read_bytes()).removeprefix("sha256:")
    manifest = json.loads((folder / bundle.MANIFEST).read_bytes())
    manifest["versions"]["papermill"] = "0.0.0"
    (folder / bundle.MANIFEST).write_text(json.dumps(manifest, sort_keys=True, indent=1) + "\n")
    answer = verify(folder, cosign_key=keys / "lead.pub")
    assert answer.verdict == "altered"
    (message,) = [one.message for one in answer.differences if one.name == bundle.COSIGNED]
    after = digest((folder / bundle.MANIFEST).read_bytes()).removeprefix("sha256:")
    assert before in message and after in message


def test_the_signature_of_another_file_is_altered(folder: Path, keys: Path) -> None:
    (folder / bundle.COSIGNED).write_bytes(cosign.sign(DATA, str(keys / "lead.key")))
    answer = verify(folder, cosign_key=keys / "lead.pub")
    assert (answer.verdict, told(answer)) == ("altered", [("signature", bundle.COSIGNED)])
    assert "over a file with SHA-256" in answer.differences[0].message


def test_without_a_signature_what_was_asked_for_is_not_met(folder: Path, keys: Path) -> None:
    (folder / bundle.COSIGNED).unlink()
    answer = verify(folder, cosign_key=keys / "lead.pub")
    assert (answer.verdict, told(answer)) == ("altered", [("signature", bundle.COSIGNED)])
    (folder / bundle.COSIGNED).symlink_to(keys / "lead.pub")
    assert verify(folder, cosign_key=keys / "lead.pub").verdict == "altered"


@pytest.mark.parametrize("key", ["lead.key", "none.pub", "."])
def test_a_key_that_is_no_public_key_is_no_answer(folder: Path, keys: Path, key: str) -> None:
    for there in (True, False):
        if not there:
            (folder / bundle.COSIGNED).unlink()
        with pytest.raises(InputError):
            verify(folder, cosign_key=keys / key)


def test_the_command_answers_in_the_same_words(folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, code, verdict in (("lead", 0, "signed"), ("stranger", 1, "altered")):
        with pytest.raises(SystemExit) as ended:
            main(["verify", str(folder), "--cosign-key", str(keys / f"{key}.pub"), "-o", "json"])
        assert (ended.value.code, json.loads(capsys.readouterr().out)["verdict"]) == (code, verdict)


def test_both_kinds_of_signature_go_with_their_manifest(keys: Path, tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    done = CliRunner().invoke(evidence.seal, [str(run.folder), "--sign", str(keys / "lead.key"), "-o", "json"])
    assert done.exit_code == 0, done.output
    signed = (run.folder / bundle.COSIGNED).read_bytes()
    seal(run.folder)
    assert (run.folder / bundle.COSIGNED).read_bytes() == signed
    run.cell("close")["outputs"].append(made.shows({"text/plain": "later"}))
    run.save()
    seal(run.folder)
    assert not (run.folder / bundle.COSIGNED).exists()


def test_a_key_that_cannot_sign_leaves_nothing_sealed(keys: Path, tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    for key in (keys / "lead.pub", keys / "none.key", "nokms://key"):
        with pytest.raises(InputError, match=r"could not sign|no such key"):
            seal(run.folder, sign_key=key)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InputError, match="COSIGN_PASSWORD"):
        patch.setenv("COSIGN_PASSWORD", "wrong")
        seal(run.folder, sign_key=keys / "lead.key")
    assert not (run.folder / bundle.MANIFEST).exists()


def test_a_bundle_made_by_hand_counts(folder: Path, keys: Path) -> None:
    (folder / bundle.COSIGNED).unlink()
    words = ("--use-signing-config=false", "--tlog-upload=false", "--yes", "--key", str(keys / "oncall.key"))
    good("sign-blob", *words, "--bundle", bundle.COSIGNED, bundle.MANIFEST, cwd=folder)
    assert verify(folder, cosign_key=keys / "oncall.pub").verdict == "signed"
    assert verify(folder, cosign_key=keys / "lead.pub").verdict == "altered"


def test_another_run_may_consume_it_by_its_key(folder: Path, keys: Path) -> None:
    for key, strength in (("lead", "signed"), ("stranger", "altered")):
        found, _ = consumed.consume(Bundle(str(folder), signers=str(keys / f"{key}.pub")), Path("/nowhere"))
        assert found.strength == strength


# -- signatures over bytes -------------------------------------------------------------------------------------------


def test_a_statement_about_a_file_is_no_signature_over_it(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(DATA)
    (tmp_path / "predicate").write_text("{}")
    words = ["--use-signing-config=false", "--tlog-upload=false", "--yes", "--key", str(keys / "lead.key")]
    more = ["--predicate", "predicate", "--type", "https://example.com/rejected/v1", "--bundle", "made"]
    good("attest-blob", *words, *more, "blob", cwd=tmp_path)
    assert code(DATA, (tmp_path / "made").read_bytes(), keys / "lead.pub")[0] == "signature-malformed"


@pytest.mark.parametrize(
    "change",
    [
        {"messageSignature": {"messageDigest": {"algorithm": "SHA2_256", "digest": "AAAA"}, "signature": "AAAA"}},
        {"verificationMaterial": {}},
        {"verificationMaterial": {"publicKey": {"hint": "AAAA"}}, "messageSignature": {}},
        {"messageSignature": {"signature": 7}},
    ],
)
def test_a_bundle_that_was_edited_never_passes(keys: Path, change: dict[str, Any]) -> None:
    whole = json.loads(cosign.sign(DATA, str(keys / "lead.key")))
    for data, key in ((DATA, "stranger"), (DATA + b" ", "lead")):
        assert code(data, json.dumps({**whole, **change}).encode(), keys / f"{key}.pub")[0].startswith("signature-")


def test_a_digest_that_was_written_anew_does_not_make_another_file_pass(keys: Path) -> None:
    whole = json.loads(cosign.sign(DATA, str(keys / "lead.key")))
    other = json.loads(cosign.sign(DATA + b" ", str(keys / "lead.key")))
    whole["messageSignature"]["messageDigest"] = other["messageSignature"]["messageDigest"]
    assert code(DATA + b" ", json.dumps(whole).encode(), keys / "lead.pub")[0] == "signature-wrong"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{}",
        b"[]",
        b"-----BEGIN SSH SIGNATURE-----\n",
        b'{"base64Signature":"AAAA"}',
        b"[" * 100_000,
        b" " * 70_000,
    ],
)
def test_what_is_no_bundle_is_malformed(keys: Path, garbage: bytes) -> None:
    assert code(DATA, garbage, keys / "lead.pub")[0] == "signature-malformed"


# -- the program -----------------------------------------------------------------------------------------------------


def fake(folder: Path, script: str, patch: pytest.MonkeyPatch) -> None:
    (folder / "cosign").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "cosign").chmod(0o755)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_without_cosign_nothing_is_said_and_how_to_get_it_is(
    folder: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(folder), "--cosign-key", str(keys / "lead.pub"), "-o", "json"])
    out = capsys.readouterr()
    assert (ended.value.code, out.out) == (2, "")
    assert "tool-missing" in out.err and "make tools" in out.err


def test_another_version_is_not_asked(
    folder: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ('{"gitVersion":"v2.6.1"}', '{"gitVersion":"devel"}', "", "{}"):
        fake(tmp_path, f"echo '{version}'", monkeypatch)
        with pytest.raises(InputError) as refused:
            verify(folder, cosign_key=keys / "lead.pub")
        assert refused.value.code == "tool-version"


def test_a_slow_cosign_is_ended(folder: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, 'case $1 in version) echo \'{"gitVersion":"v3.1.3"}\';; *) exec sleep 30;; esac', monkeypatch)
    monkeypatch.setattr(cosign, "_CHECK", 0.3)
    with pytest.raises(DeadlineError):
        verify(folder, cosign_key=keys / "lead.pub")


# -- approvals -------------------------------------------------------------------------------------------------------

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PLAN = "sha256:" + "a" * 64
USERS = {"oncall@example.com": "oncall", "lead@example.com": "lead"}


def approved(folder: Path, key: Path) -> Path:
    until = NOON + timedelta(hours=4)
    return approval.approve(folder, change_id="CHG-1", expires=until, plan=PLAN, key=key)


def judged(path: Path, home: Path, keys: dict[str, str], operator: str = "oncall@example.com") -> str:
    """The approver, or the code of the refusal."""
    site = Site(cosign_keys=keys, principals=USERS)
    given: dict[str, Any] = {"operator": operator, "change_id": "CHG-1", "plan": PLAN, "now": NOON}
    try:
        return approval.judge(path, site=site, home=home, **given)[0]
    except NotApproved as refused:
        return refused.code


KEYS = {"lead": "lead.pub", "oncall": "oncall.pub"}


def test_an_approval_by_cosign_names_the_principal_of_its_key(keys: Path, tmp_path: Path) -> None:
    path = approved(tmp_path, keys / "lead.key")
    assert judged(path, keys, KEYS) == "lead"
    assert judged(path, keys, KEYS, "lead@example.com") == "approved-by-operator"
    path.write_bytes(path.read_bytes().replace(b"16:00:00", b"23:00:00"))
    assert judged(path, keys, KEYS) == "approval-untrusted"


def test_who_may_not_approve_by_cosign(keys: Path, tmp_path: Path) -> None:
    path = approved(tmp_path, keys / "oncall.key")
    assert judged(path, keys, KEYS) == "approved-by-operator"
    assert judged(path, keys, {"lead": "oncall.pub", "oncall": "oncall.pub"}) == "approved-by-operator"
    assert judged(path, keys, {"lead": "lead.pub"}) == "approval-untrusted"
    assert judged(path, keys, {}) == "approval-untrusted"
    assert judged(path, keys, {"lead": "gone.pub", "oncall": "oncall.pub"}) == "approval-untrusted"
    assert judged(approved(tmp_path, keys / "stranger.key"), keys, KEYS) == "approval-untrusted"


def test_the_command_approves_by_cosign_and_replaces_another_signature(keys: Path, tmp_path: Path) -> None:
    document = {"format": "x", "cluster": "c", "runbook": "r", "summary": ["release"]}
    (tmp_path / "after").mkdir()
    (tmp_path / "after" / "proposal.json").write_bytes(canonical(document))
    (tmp_path / "approval.json.sig").write_text("of before")
    started = {"run": "run", "runbook": "r", "parameters": {"change_id": "CHG-1", "reason": "release"}}
    Journal.open(tmp_path / JOURNAL).append("start", started)
    line = [str(tmp_path), "--change-id", "CHG-1", "--key", str(keys / "lead.key")]
    done = CliRunner().invoke(approve, line)
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in tmp_path.glob("approval*")) == ["approval.json", "approval.json.sigstore.json"]
    data, signed = ((tmp_path / name).read_bytes() for name in ("approval.json", "approval.json.sigstore.json"))
    assert digest(canonical(document)).encode() in data
    assert fingerprint(keys / "lead.pub") in cosign.verify(data, signed, keys / "lead.pub")
