"""The site file. Covered: defaults, every field, every way to be none, aliases of clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpurunbook.errors import InputError
from gpurunbook.runbook.site import Site, cluster_uid, load

TEXT = """
clusters:
  prod-a: 90ecf57b-27bd-4954-8c2d-0ad29619de1a
signers: parameters/allowed_signers
principals:
  oncall@example.com: oncall
  "system:serviceaccount:ci:runner": ci
approval: [canary_upgrade]
break_glass: true
lease_namespace: gpu-leases
"""


def written(home: Path, text: str, name: str = "parameters/site.yaml") -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Site()
    assert Site() == Site(
        clusters={},
        signers="",
        cosign_keys={},
        principals={},
        approval=[],
        break_glass=False,
        lease_namespace="gpu-operator",
    )


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n"])
def test_a_file_that_may_have_lost_what_it_said_is_no_default(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    for name in ("", str(path)):
        with pytest.raises(InputError, match="is empty") as refused:
            load(tmp_path, name)
        assert ("remove it" in refused.value.remedy) == (not name)  # one that is named and gone is refused as well


def test_a_file_that_decides_nothing_is_the_defaults(tmp_path: Path) -> None:
    written(tmp_path, "# nothing decided yet\n")
    assert load(tmp_path, "") == Site()


def test_every_field_is_read_and_a_named_file_wins(tmp_path: Path) -> None:
    written(tmp_path, "approval: [node_cordon]\n")
    path = written(tmp_path, TEXT, "elsewhere/site.yaml")
    site = load(tmp_path, "elsewhere/site.yaml")
    assert site == load(tmp_path, str(path))
    assert site.principals == {"oncall@example.com": "oncall", "system:serviceaccount:ci:runner": "ci"}
    assert (site.approval, site.break_glass, site.lease_namespace) == (["canary_upgrade"], True, "gpu-leases")
    assert (site.signers, list(site.clusters)) == ("parameters/allowed_signers", ["prod-a"])
    assert load(tmp_path, "").approval == ["node_cordon"]


@pytest.mark.parametrize("name", ["*", "ops-*", "lead,oncall", "!oncall", "lead oncall", "", "lead\\n"])
def test_a_user_is_mapped_to_one_name_and_to_no_pattern(tmp_path: Path, name: str) -> None:
    written(tmp_path, f'principals: {{oncall@example.com: "{name}"}}\n')
    with pytest.raises(InputError, match="names nobody"):
        load(tmp_path, "")


@pytest.mark.parametrize(
    "text",
    [
        "approvals: [node_cordon]",
        "approval: node_cordon",
        "break_glass: 'yes'",
        "break_glass: yes",
        "clusters: [a]",
        "clusters: {a: 7}",
        "principals: {oncall: }",
        "- approval",
        "just text",
        "{",
        "approval: [node_cordon]\napproval: []",
        "principals: {a: b, a: c}",
        "a: &x [1]\nb: *x",
        "signers: 1\n---\nsigners: 2",
    ],
)
def test_what_is_no_site_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)
    with pytest.raises((InputError, ValueError), match=r"site\.yaml"):
        load(tmp_path, "")


def test_a_file_that_is_named_and_missing_is_no_default(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such site file"):
        load(tmp_path, "site-b.yaml")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"site\.yaml"):
        load(tmp_path, "")


def test_an_alias_means_its_uid_and_everything_else_itself(tmp_path: Path) -> None:
    written(tmp_path, TEXT)
    site = load(tmp_path, "")
    assert cluster_uid(site, "prod-a") == "90ecf57b-27bd-4954-8c2d-0ad29619de1a"
    for other in ("prod-b", "", "90ecf57b-27bd-4954-8c2d-0ad29619de1a"):
        assert cluster_uid(site, other) == other
