"""Approvals, with real keys of ssh-keygen: every code, and the order in which they are told.

Covered: each way in which an approval is none, tampering with each signed field, keys that may not sign, keys of the
operator, time limits of the approval and of the key. Not covered: cosign (tests/tools/test_cosigned_real.py); the site
file's choice of runbooks that need one (tests/cluster/test_runs.py).
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.errors import InputError, NotApproved
from gpurunbook.evidence import signing
from gpurunbook.journal import canonical
from gpurunbook.runbook import approval
from gpurunbook.runbook.site import Site

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PLAN = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of three people; two may sign, and one of them is the operator."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("lead", "oncall", "stranger"):
        key = folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    public = {name: (folder / f"{name}.pub").read_text().strip() for name in ("lead", "oncall")}
    (folder / "signers").write_text("".join(f"{name} {key}\n" for name, key in public.items()))
    own = f"oncall {public['oncall']}\n"
    past = f'lead valid-before="20200101" {public["lead"]}\n{own}'
    (folder / "past").write_text(past)
    other = f'lead namespaces="gpurunbook-manifest" {public["lead"]}\n{own}'
    (folder / "manifests").write_text(other)
    return folder


SITE = Site(signers="signers", principals={"oncall@example.com": "oncall", "lead@example.com": "lead"})


def approved(home: Path, folder: Path, key: str = "lead", **more: Any) -> Path:
    given: dict[str, Any] = {"change_id": "CHG-1", "expires": NOON + timedelta(hours=4), "plan": PLAN, **more}
    return approval.approve(folder, key=home / key, **given)


def judge(home: Path, path: Path | None, site: Site = SITE, **more: Any) -> tuple[str, str]:
    given: dict[str, Any] = {
        "operator": "oncall@example.com",
        "change_id": "CHG-1",
        "plan": PLAN,
        "now": NOON,
        **more,
    }
    return approval.judge(path, site=site, home=home, **given)


def code(home: Path, path: Path | None, site: Site = SITE, **more: Any) -> str:
    with pytest.raises(NotApproved) as refused:
        judge(home, path, site, **more)
    assert refused.value.remedy
    return refused.value.code


def resigned(home: Path, folder: Path, data: bytes, namespace: str = signing.APPROVAL, key: str = "lead") -> Path:
    path = folder / approval.NAME
    path.write_bytes(data)
    (folder / f"{approval.NAME}.sig").write_bytes(signing.sign(data, home / key, namespace))
    return path


def test_a_valid_approval_names_approver_and_expiry(home: Path, tmp_path: Path) -> None:
    path = approved(home, tmp_path)
    assert judge(home, path) == ("lead", "2026-01-31T16:00:00Z")
    assert path.read_bytes() == (
        b'{"change_id":"CHG-1","expires":"2026-01-31T16:00:00Z","plan":"sha256:' + b"a" * 64 + b'"}\n'
    )


def test_none_is_told_as_none(home: Path, tmp_path: Path) -> None:
    assert code(home, None) == "no-approval"
    assert code(home, tmp_path / approval.NAME) == "no-approval"
    assert code(home, tmp_path) == "no-approval"


def test_an_approval_of_another_plan_or_change_does_not_count(home: Path, tmp_path: Path) -> None:
    path = approved(home, tmp_path)
    assert code(home, path, plan=OTHER) == "approval-other-plan"
    assert code(home, path, change_id="CHG-2") == "approval-other-change"


@pytest.mark.parametrize(("seconds", "expired"), [(-1, False), (0, True), (1, True), (3600, True)])
def test_it_expires_to_the_second(home: Path, tmp_path: Path, seconds: int, expired: bool) -> None:
    path = approved(home, tmp_path)
    now = NOON + timedelta(hours=4, seconds=seconds)
    assert (code(home, path, now=now) == "approval-expired") if expired else judge(home, path, now=now)


def test_the_operator_does_not_approve_himself(home: Path, tmp_path: Path) -> None:
    path = approved(home, tmp_path, key="oncall")
    assert code(home, path) == "approved-by-operator"
    assert judge(home, path, operator="lead@example.com")[0] == "oncall"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("* KEY", "approval-untrusted"),
        ("lea* KEY", "approval-untrusted"),
        ("!oncall,* KEY", "approval-untrusted"),
        ("lead,oncall KEY", "approved-by-operator"),
        ("lead,on* KEY", "approved-by-operator"),
        ("lead KEY\noncall KEY", "approved-by-operator"),
        ("lead KEY\n* KEY", "approved-by-operator"),
        ("lead,!oncall KEY", ""),
        ('lead KEY\noncall valid-before="20200101" KEY', ""),
        ('lead KEY\noncall namespaces="gpurunbook-manifest" KEY', ""),
    ],
)
def test_a_key_that_may_be_the_operators_under_any_name_does_not_count(
    home: Path, tmp_path: Path, line: str, wanted: str
) -> None:
    path = approved(home, tmp_path)
    keys = {name: (home / f"{name}.pub").read_text().strip() for name in ("lead", "oncall")}
    (tmp_path / "signers").write_text(f"{line.replace('KEY', keys['lead'])}\noncall {keys['oncall']}\n")
    site = Site(signers=str(tmp_path / "signers"), principals=SITE.principals)
    assert (code(home, path, site) if wanted else judge(home, path, site)[0]) == (wanted or "lead")


def test_an_operator_without_a_signer_or_without_a_name_cannot_be_approved(home: Path, tmp_path: Path) -> None:
    path = approved(home, tmp_path)
    assert code(home, path, operator="someone@example.com") == "operator-unmapped"
    assert code(home, path, operator="") == "operator-unknown"
    assert code(home, path, Site(signers="signers", principals={"": "oncall"}), operator="") == "operator-unknown"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("lead LEAD\noncal ONCALL", "operator-unmapped"),  # a slip in one of the two files
        ("lead LEAD\nOnCall ONCALL", "operator-unmapped"),
        ("lead LEAD\n# oncall ONCALL", "operator-unmapped"),
        ("\ufeffoncall ONCALL\nlead LEAD", "operator-unmapped"),  # as some editors begin a file
        ("on\u200bcall ONCALL\nlead LEAD", "operator-unmapped"),
        ("lead,!oncall,* LEAD\noncal ONCALL", "operator-unmapped"),
        ("lead LEAD\n\r\n  oncall ONCALL\r\n", ""),
        ('lead LEAD\n"a,on?all" ONCALL', ""),
        ("lead LEAD\n* cert-authority ONCALL", ""),  # the names are those of the certificates
        ('lead LEAD\noncall valid-before="20200101" ONCALL', ""),
        ("\ufefflead LEAD\noncall ONCALL", "approval-untrusted"),  # no name that anybody can read
    ],
)
def test_an_operator_whose_name_no_signer_has_cannot_be_approved(
    home: Path, tmp_path: Path, lines: str, wanted: str
) -> None:
    for name in ("lead", "oncall"):
        lines = lines.replace(name.upper(), (home / f"{name}.pub").read_text().strip())
    (tmp_path / "signers").write_bytes(lines.encode())
    site = Site(signers=str(tmp_path / "signers"), principals=SITE.principals)
    path = approved(home, tmp_path)
    assert (code(home, path, site) if wanted else judge(home, path, site)[0]) == (wanted or "lead")
    own = approved(home, tmp_path, key="oncall")
    assert code(home, own, site) in (wanted, "approved-by-operator", "approval-untrusted")


@pytest.mark.parametrize("options", ['namespaces="!gpurunbook-approval,*"', 'valid-after="20990101"', "cert-authority"])
def test_what_a_line_allows_for_other_things_approves_nothing(home: Path, tmp_path: Path, options: str) -> None:
    path = approved(home, tmp_path)
    keys = {name: (home / f"{name}.pub").read_text().strip() for name in ("lead", "oncall")}
    (tmp_path / "signers").write_text(f"lead {options} {keys['lead']}\noncall {keys['oncall']}\n")
    assert code(home, path, Site(signers=str(tmp_path / "signers"), principals=SITE.principals)) == "approval-untrusted"


@pytest.mark.parametrize(
    ("first", "second", "wanted"), [("lead", "oncall", ""), ("oncall", "lead", "approved-by-operator")]
)
def test_of_two_signatures_in_one_file_the_first_counts(
    home: Path, tmp_path: Path, first: str, second: str, wanted: str
) -> None:
    path = approved(home, tmp_path)
    data = path.read_bytes()
    both = b"".join(signing.sign(data, home / key, signing.APPROVAL) for key in (first, second))
    (tmp_path / f"{approval.NAME}.sig").write_bytes(both)
    assert (code(home, path) if wanted else judge(home, path)[0]) == (wanted or "lead")


@pytest.mark.parametrize("changed", [lambda raw: raw.replace(b"\n", b"\r\n"), lambda raw: b"\xef\xbb\xbf" + raw])
def test_a_signature_that_an_editor_or_a_checkout_rewrote_is_none(home: Path, tmp_path: Path, changed: Any) -> None:
    path = approved(home, tmp_path)
    signature = tmp_path / f"{approval.NAME}.sig"
    signature.write_bytes(changed(signature.read_bytes()))
    assert code(home, path) == "approval-untrusted"


@pytest.mark.parametrize("key", ["stranger"])
def test_a_key_that_is_not_allowed_approves_nothing(home: Path, tmp_path: Path, key: str) -> None:
    assert code(home, approved(home, tmp_path, key=key)) == "approval-untrusted"


def test_a_key_out_of_its_time_or_for_other_things_approves_nothing(home: Path, tmp_path: Path) -> None:
    path = approved(home, tmp_path)
    for signers in ("past", "manifests", "no-such-file", ""):
        site = Site(signers=signers, principals=SITE.principals)
        assert code(home, path, site) == "approval-untrusted"


@pytest.mark.parametrize(
    ("site", "told"),
    [
        ({"signers": "no-such-file"}, "no such file of a signer: no-such-file"),
        ({"signers": "no-such", "cosign_keys": {"oncall": "no-key"}}, "no such file of a signer: no-such, no-key"),
        ({"signers": ""}, "the site file names no signers"),
    ],
)
def test_a_site_whose_files_allow_nobody_to_sign_is_told_as_its_own_fault(
    home: Path, tmp_path: Path, site: dict[str, Any], told: str
) -> None:
    odd = Site(principals=SITE.principals, **site)
    for path in (approved(home, tmp_path), approved(home, tmp_path, expires=NOON)):  # also of one that has ended
        with pytest.raises(NotApproved, match=told) as wrong:
            judge(home, path, odd)
        assert (wrong.value.code, "site file" in wrong.value.remedy) == ("approval-untrusted", True)
    found = approval.obstacle(odd, home, "oncall@example.com")
    assert found is not None and found.message == told


def test_where_somebody_may_sign_nothing_stands_in_the_way_before_there_is_an_approval(home: Path) -> None:
    assert approval.obstacle(SITE, home, "oncall@example.com") is None
    for operator, wanted in (("", "operator-unknown"), ("someone@example.com", "operator-unmapped")):
        found = approval.obstacle(SITE, home, operator)
        assert found is not None and found.code == wanted


def test_a_signature_made_for_a_manifest_is_no_approval(home: Path, tmp_path: Path) -> None:
    data = approval.signed_bytes("CHG-1", "2026-01-31T16:00:00Z", PLAN)
    assert judge(home, resigned(home, tmp_path, data))[0] == "lead"
    assert code(home, resigned(home, tmp_path, data, signing.MANIFEST)) == "approval-untrusted"


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"CHG-1", b"CHG-9"), (b"16:00:00", b"23:00:00"), (b"aaaa", b"bbbb"), (b"2026", b"2027")],
)
def test_a_changed_field_breaks_the_signature(home: Path, tmp_path: Path, old: bytes, new: bytes) -> None:
    path = approved(home, tmp_path)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    found = approval.json.loads(path.read_bytes())
    assert code(home, path, plan=found["plan"], change_id=found["change_id"]) == "approval-untrusted"


@pytest.mark.parametrize("signature", [b"", b"no signature", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n"])
def test_a_signature_that_is_none(home: Path, tmp_path: Path, signature: bytes) -> None:
    path = approved(home, tmp_path)
    (tmp_path / f"{approval.NAME}.sig").write_bytes(signature)
    assert code(home, path) == "approval-untrusted"


def test_a_missing_signature_is_unreadable(home: Path, tmp_path: Path) -> None:
    path = approved(home, tmp_path)
    (tmp_path / f"{approval.NAME}.sig").unlink()
    assert code(home, path) == "approval-unreadable"


WHOLE = {"change_id": "CHG-1", "expires": "2026-01-31T16:00:00Z", "plan": PLAN}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b"[" * 100_000,
        b"\xff",
        canonical({}) + b"\n",
        canonical({"change_id": "CHG-1", "plan": PLAN}) + b"\n",
        canonical(WHOLE),  # without the newline
        canonical({**WHOLE, "more": 1}) + b"\n",
        canonical({**WHOLE, "expires": 7}) + b"\n",
        canonical({**WHOLE, "expires": "tomorrow"}) + b"\n",
        canonical({**WHOLE, "expires": "2026-13-31T16:00:00Z"}) + b"\n",
        canonical({**WHOLE, "expires": "2026-01-31T16:00:00+00:00"}) + b"\n",
        canonical({**WHOLE, "expires": "2026-01-31T16:00:00Z\n"}) + b"\n",
        canonical({**WHOLE, "expires": "٢026-01-31T16:00:00Z"}) + b"\n",
        b" " + canonical(WHOLE) + b"\n",
        canonical(WHOLE) + b"\r\n",
        b"\xef\xbb\xbf" + canonical(WHOLE) + b"\n",
        (canonical(WHOLE) + b"\n").decode().encode("utf-16"),
        (canonical(WHOLE) + b"\n") * 2,
        b'{"change_id":"CHG-0",' + canonical(WHOLE)[1:] + b"\n",
        canonical(WHOLE)[:-1] + b',"plan":"' + PLAN.encode() + b'"}\n',
    ],
)
def test_what_is_not_exactly_the_signed_bytes_is_unreadable_though_signed(
    home: Path, tmp_path: Path, data: bytes
) -> None:
    assert code(home, resigned(home, tmp_path, data)) == "approval-unreadable"


def test_a_key_that_cannot_sign_writes_nothing(home: Path, tmp_path: Path) -> None:
    for key in (home / "none", home / "signers"):
        with pytest.raises(InputError):
            approval.approve(tmp_path, change_id="CHG-1", expires=NOON, plan=PLAN, key=key)
    assert list(tmp_path.iterdir()) == []


def test_a_local_time_is_signed_in_utc(home: Path, tmp_path: Path) -> None:
    from datetime import timezone

    local = datetime(2026, 1, 31, 18, tzinfo=timezone(timedelta(hours=2)))
    assert judge(home, approved(home, tmp_path, expires=local))[1] == "2026-01-31T16:00:00Z"
