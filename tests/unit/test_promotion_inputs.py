"""What a promotion takes from elsewhere: another run's bundle, an approval of a digest, and a given time.

Covered: how far a bundle can be believed, that only what was sealed is read of it, what is kept; that an approval is
asked of the run; a given time. Not covered: verification (test_verify.py), the judging of approvals (test_approval.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from evidence_run import RUN, passed

from gpurunbook.errors import ParameterError
from gpurunbook.evidence.seal import manifest_digest, seal
from gpurunbook.folder import parameters
from gpurunbook.plan import Approval, Approved, Bundle, Consumed, Now, Observed
from gpurunbook.runbook.observe import Observer
from gpurunbook.sources.cluster import Cluster

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def no_cluster() -> Cluster:
    raise AssertionError("no cluster is asked")


def observer(root: Path, approved: Callable[[str], Approved] | None = None) -> Observer:
    return Observer(root / "run", root, no_cluster, lambda: NOON, {}, approved)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = passed(tmp_path).folder
    seal(folder)
    return folder


def consumed(observed: Observed) -> Consumed:
    assert isinstance(observed.value, Consumed), observed.problem
    return observed.value


def test_a_bundle_is_only_consistent_until_its_digest_is_known(tmp_path: Path, bundle: Path) -> None:
    seen = observer(tmp_path)({"bare": Bundle(str(bundle)), "known": Bundle(str(bundle), manifest_digest(bundle))})
    assert (consumed(seen["bare"]).strength, consumed(seen["known"]).strength) == ("consistent", "anchored")
    found = consumed(seen["known"])
    assert (found.run, found.runbook, found.verdict, found.rehearsal) == (RUN, "gpu_audit", "pass", False)
    assert found.cluster == "0b6ad2e2-43a5-4c1f-9f36-0d7e1f2a3b4c"
    assert found.steps == ("audit", "ready")


def test_its_files_are_read_as_they_were_sealed_and_kept_as_inputs(tmp_path: Path, bundle: Path) -> None:
    see = observer(tmp_path)
    name = "after/audit.json"
    found = consumed(see({"b": Bundle(str(bundle), files=(name, "after/none.json", "../secret"))})["b"])
    assert found.files == {name: (bundle / name).read_bytes()}
    kept = sorted(Path(path).name.partition("-")[2] for path in see.inputs)
    assert kept == [f"{RUN}-audit.json", f"{RUN}-manifest.json"]


def test_what_somebody_put_into_the_folder_is_sealed_and_proves_nothing(tmp_path: Path) -> None:
    """It lies in the bundle and holds, and no step of the run has kept it."""
    folder = passed(tmp_path).folder
    name = "after/canary.json"
    (folder / name).write_bytes(b'{"results": "all fine"}')
    seal(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert (manifest["verdict"], name in manifest["files"]) == ("pass", True)
    need = Bundle(str(folder), manifest_digest(folder), files=(name, "after/audit.json"))
    found = consumed(observer(tmp_path)({"b": need})["b"])
    assert (found.strength, list(found.files)) == ("anchored", ["after/audit.json"])


def test_an_altered_bundle_gives_nothing_but_what_was_altered(tmp_path: Path, bundle: Path) -> None:
    name = "after/audit.json"
    (bundle / name).write_bytes(b"{}")
    found = consumed(observer(tmp_path)({"b": Bundle(str(bundle), manifest_digest(bundle), files=(name,))})["b"])
    assert found.strength == "altered" and any(name in line for line in found.told)
    assert (found.files, found.verdict, found.rehearsal) == ({}, "", True)


def test_another_digest_is_an_alteration(tmp_path: Path, bundle: Path) -> None:
    found = consumed(observer(tmp_path)({"b": Bundle(str(bundle), "sha256:" + "0" * 64)})["b"])
    assert found.strength == "altered"


def test_what_is_no_bundle_is_a_problem_or_unsealed(tmp_path: Path, bundle: Path) -> None:
    (bundle / "manifest.json").unlink()
    seen = observer(tmp_path)(
        {"none": Bundle("nowhere"), "empty": Bundle(""), "bad": Bundle(str(bundle), "x"), "bare": Bundle(str(bundle))}
    )
    assert {name for name, one in seen.items() if one.problem} == {"none", "empty", "bad"}
    assert consumed(seen["bare"]).strength == "unsealed"


def test_an_approval_is_asked_of_the_run(tmp_path: Path) -> None:
    given = Approved(True, "approver", "2026-02-01T00:00:00Z")
    asked: list[str] = []

    def approve(digest: str) -> Approved:
        asked.append(digest)
        return given

    assert observer(tmp_path, approve)({"a": Approval("sha256:1")})["a"].value is given
    assert asked == ["sha256:1"]
    with pytest.raises(TypeError):
        observer(tmp_path)({"a": Approval("sha256:1")})


class Chosen(msgspec.Struct):
    now: str = ""


def test_a_given_time_is_judged_at_and_must_be_one() -> None:
    assert parameters.moment(Chosen("2026-01-31T13:00:00.5+01:00")) == NOON + timedelta(seconds=0.5)
    assert parameters.moment(Chosen()) is None
    with pytest.raises(ParameterError, match="RFC 3339"):
        parameters.moment(Chosen("2026-01-31"))
    assert observer(Path())({"now": Now()})["now"].value == NOON
