"""A promotion that needs another person's approval, from the refusal to the approved release, as it is run headlessly.

Covered: blocked without an approval; the approval binds this proposal, so that a change in between needs
another one; the operator cannot approve; the manifest names the approver; admitting on the bundle of that very run.
Not covered: each way in which an approval is none (tests/unit/test_approval.py), the other scenarios.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpurunbook.cli.changes import approve
from gpurunbook.declared.runbooks import declared
from gpurunbook.evidence.seal import manifest_digest
from gpurunbook.headless import execute, fixture, throwaway
from gpurunbook.headless.execute import Outcome
from gpurunbook.journal import digest
from gpurunbook.runbook import approval, given
from gpurunbook.runbook.site import load
from gpurunbook.supply.promotion import digest_of

ROOT = Path(__file__).parents[2]
SITE = "parameters/promotion/data/site.yaml"


class Desk:
    """A home of its own, with the scenario that needs an approval."""

    def __init__(self, home: Path) -> None:
        for name in ("runbooks", "parameters"):
            shutil.copytree(ROOT / name, home / name)
        self.home, self.out = home, home / "outputs"
        self.promotion = home / "parameters" / "promotion"
        self.values = self.given("approval-demanded")

    def given(self, scenario: str) -> dict[str, Any]:
        values = given.gather(declared("promotion"), [self.promotion / f"{scenario}.yaml"])
        inside = {
            k: str(self.home / v) for k, v in values.items() if isinstance(v, str) and v.startswith("parameters/")
        }
        return {**values, **{k: v for k, v in inside.items() if k != "site"}}

    def run(self, run_id: str = "", values: dict[str, Any] | None = None) -> Outcome:
        return execute.run("promotion", values or self.values, home=self.home, out=self.out, run_id=run_id)

    def sign(self, run: Path, who: str) -> None:
        key = throwaway.key(self.home, load(self.home, SITE), who)
        arguments = [str(run), "--key", str(key), "--change-id", "CHG-2077", "--replace"]
        done = CliRunner().invoke(approve, arguments)
        assert done.exit_code == 0, done.output


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    clusters = tmp_path / "clusters"
    monkeypatch.setenv("GPURUNBOOK_CLUSTERS", str(clusters))
    yield Desk(tmp_path / "home")
    fixture.stop(clusters)


def test_another_person_approves_this_proposal_and_the_release_is_admitted_on_that_run(desk: Desk) -> None:
    first = desk.run()
    assert (str(first.verdict), first.code) == ("blocked", "no-approval")
    asked = f"`gpurunbook approve outputs/{first.run_dir.name} --key KEY --change-id CHG-2077`"
    assert asked in first.next
    assert asked not in first.message
    desk.sign(first.run_dir, "operator")
    assert desk.run(first.run_dir.name).code == "approved-by-operator"
    desk.sign(first.run_dir, "approver")
    second = desk.run(first.run_dir.name)
    assert (str(second.verdict), second.code, second.evidence) == ("pass", "all-steps-passed", "sealed")
    manifest = json.loads((second.run_dir / "manifest.json").read_bytes())
    assert (manifest["approver"], manifest["rehearsal"]) == ("approver", True)
    assert "judged at a given time" in manifest["rehearsal_reasons"]
    later = desk.given("admit") | {
        "site": SITE,
        "approved": str(second.run_dir),
        "approved_manifest": manifest_digest(second.run_dir),
    }
    admitted = desk.run(values=later)
    assert (str(admitted.verdict), admitted.code) == ("pass", "all-steps-passed")


def test_a_run_whose_change_is_not_named_cannot_be_approved_and_says_how_another_is_made(desk: Desk) -> None:
    blocked = desk.run(values={**desk.values, "change_id": "…"})
    assert (str(blocked.verdict), blocked.code) == ("blocked", "change-id-missing")
    given, words = re.search(r"`gpurunbook new promotion (.+) --set change_id=…`", blocked.next), {"change_id=…"}
    assert given is not None
    assert words.isdisjoint(shlex.split(given[1]))
    assert f"record={desk.values['record']}" in shlex.split(given[1])


def test_what_changes_after_the_signature_needs_another_one(desk: Desk) -> None:
    first = desk.run()
    desk.sign(first.run_dir, "approver")
    (folder,) = desk.promotion.glob("evidence/node-feature-discovery-*")
    scanned_anew(folder / "scan.json", folder / "scan-call.json")
    assert desk.run(first.run_dir.name).code == "approval-other-plan"


def scanned_anew(scan: Path, call: Path) -> None:
    """The same findings in another file, with its record."""
    scan.write_text(json.dumps(json.loads(scan.read_bytes())))
    call.write_text(json.dumps(json.loads(call.read_bytes()) | {"outputs": [digest(scan.read_bytes())]}))


def test_an_approval_ends(desk: Desk) -> None:
    first = desk.run()
    proposal = json.loads((first.run_dir / "after" / "proposal.json").read_bytes())
    key = throwaway.key(desk.home, load(desk.home, SITE), "approver")
    ended = datetime.now(UTC) - timedelta(minutes=1)
    approval.approve(first.run_dir, change_id="CHG-2077", expires=ended, plan=digest_of(proposal), key=key)
    assert desk.run(first.run_dir.name).code == "approval-expired"
