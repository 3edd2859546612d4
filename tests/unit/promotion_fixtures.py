"""Makes what the scenarios of the promotion take from elsewhere: evidence of images, and bundles of earlier runs.

    python tests/unit/promotion_fixtures.py evidence     evidence/, evidence-other-sbom/, evidence-other-platform/
    python tests/unit/promotion_fixtures.py canary       canary/: a sealed bundle of a canary run that never was
    python tests/unit/promotion_fixtures.py approved RUN approved/: the same of the approving run whose folder is given
    python tests/unit/promotion_fixtures.py alerts       data/alerts*.json, data/alert-rules*.json

Everything is invented: no image, key, vulnerability or run of these is real. A bundle that is made anew has another
manifest digest; put it into the scenarios.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpurunbook.evidence.seal import manifest_digest, seal
from gpurunbook.findings import Finding, Status
from gpurunbook.journal import Journal, canonical, digest
from gpurunbook.shown import cards
from gpurunbook.shown.scraps import CLOSING, MIME, payload
from gpurunbook.supply.canary import FORMAT, RESULTS

HERE = Path(__file__).parents[2] / "parameters" / "promotion"
AUDIT = (HERE / "canary" / "after" / "audit.json").read_bytes()
"""An audit of the fixture cluster promotion-canary. After a change of the fixture, put a new one there."""

STARTED = "2026-08-22T08:00:00Z"
VERSIONS = {"cosign": "3.0.4", "syft": "1.57.0", "trivy": "0.74.0"}
PLATFORM = "linux/amd64"
KEYLESS = ["--certificate-identity", "krel-trust@k8s-releng-prod.iam.gserviceaccount.com"]
KEYLESS += ["--certificate-oidc-issuer", "https://accounts.google.com"]
FOUND = {
    "hami": [{"VulnerabilityID": "CVE-2026-1001", "PkgName": "libssl3", "Severity": "CRITICAL"}],
    "gpu-operator": [{"VulnerabilityID": "CVE-2026-2002", "PkgName": "stdlib", "Severity": "HIGH"}],
}
SUPPRESSED = {"container-toolkit": {"VulnerabilityID": "CVE-2026-3003", "PkgName": "libc6", "Severity": "CRITICAL"}}


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1).encode() + b"\n"


# -- evidence --------------------------------------------------------------------------------------------------------


def evidence() -> None:
    for wrong in ("", "-other-sbom", "-other-platform"):
        folder = HERE / f"evidence{wrong}"
        shutil.rmtree(folder, ignore_errors=True)
        database = {
            "Version": VERSIONS["trivy"],
            "VulnerabilityDB": {"Version": 2, "UpdatedAt": "2026-08-22T06:00:00Z"},
        }
        keep(folder / "trivy-version.json", text(database))
        for image in json.loads(AUDIT)["digests"]:
            here = wrong if image["repositories"][0].endswith("/hami") else ""
            image_evidence(folder, image["repositories"][0], image["digest"], sha(text(database)), here)


def image_evidence(folder: Path, repository: str, image: str, database: str, wrong: str) -> None:
    name, at = repository.rpartition("/")[2], f"{repository}@{image}"
    place = folder / f"{name}-{image[7:15]}"
    about = sha(b"another image") if wrong == "-other-sbom" else image
    machine = "arm64" if wrong == "-other-platform" else "amd64"
    root = {"type": "container", "name": repository, "version": about}
    sbom = {"bomFormat": "CycloneDX", "specVersion": "1.6", "metadata": {"component": root}}
    sbom["components"] = [{"type": "library", "name": "libssl3", "version": "3.0.2"}]
    call(place, "sbom", sbom, ["syft", "scan", f"registry:{at}", "--platform", PLATFORM, "-o", "cyclonedx-json"])
    result: dict[str, Any] = {"Target": name, "Class": "os-pkgs", "Type": "ubuntu"}
    if name in FOUND:
        result["Vulnerabilities"] = [{"InstalledVersion": "1.0", "Status": "affected", **one} for one in FOUND[name]]
    if name in SUPPRESSED:
        hidden = {"Type": "vulnerability", "Status": "not_affected", "Source": "vex", "Finding": SUPPRESSED[name]}
        result["ExperimentalModifiedFindings"] = [hidden]
    scan = {
        "SchemaVersion": 2,
        "Trivy": {"Version": VERSIONS["trivy"]},
        "Metadata": {"RepoDigests": [at], "ImageConfig": {"os": "linux", "architecture": machine}},
        "Results": [result],
    }
    argv = ["trivy", "image", "--platform", PLATFORM, "--format", "json", "--show-suppressed", "--skip-db-update", at]
    call(place, "scan", scan, argv, database=database)
    signed = {"identity": {"docker-reference": repository}, "image": {"docker-manifest-digest": image}}
    printed = [{"critical": {**signed, "type": "cosign container image signature"}, "optional": None}]
    if repository.startswith("nvcr.io/"):
        argv = [
            "cosign",
            "verify",
            "--key",
            "nvidia.pub",
            "--insecure-ignore-tlog=true",
            "--private-infrastructure",
            at,
        ]
        call(place, "signature", printed, argv, key=sha(b"a public key"))
    elif repository.startswith("registry.k8s.io/"):
        call(place, "signature", printed, ["cosign", "verify", *KEYLESS, at])
    else:
        argv = ["cosign", "verify", "--key", "hami.pub", at]
        call(place, "signature", None, argv, key=sha(b"another key"), exit_code=10, stderr="no signatures found\n")


def call(place: Path, name: str, output: Any, argv: list[str], **more: Any) -> None:
    outputs = [] if output is None else [sha(text(output))]
    record = {
        "record": "gpurunbook.io/tool-call/v1",
        "tool": argv[0],
        "version": VERSIONS[argv[0]],
        "argv": argv,
        "started": STARTED,
        "seconds": 1.5,
        "exit_code": 0,
        "stderr": "",
        "outputs": outputs,
        **more,
    }
    keep(place / f"{name}-call.json", text(record))
    if output is not None:
        keep(place / f"{name}.json", text(output))


def keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# -- alerts ----------------------------------------------------------------------------------------------------------


def alerts() -> None:
    begin = int(datetime(2026, 8, 22, 12, tzinfo=UTC).timestamp())
    whole = range(begin, begin + 24 * 3600 + 1, 600)
    elsewhere = {"namespace": "tenant-07", "severity": "warning"}
    series = [
        ("Watchdog", {"severity": "none"}, whole),
        ("KubePodNotReady", elsewhere, range(begin, begin + 3600, 600)),
    ]
    fired = ("KubeDcGPUXidError", {"severity": "critical", "node": "gpu-0000"}, range(begin + 7200, begin + 9000, 600))
    for name, listed in (("alerts", series), ("alerts-firing", [*series, fired])):
        result = [
            {
                "metric": {"__name__": "ALERTS", "alertname": alert, "alertstate": "firing", **labels},
                "values": [[stamp, "1"] for stamp in stamps],
            }
            for alert, labels, stamps in listed
        ]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        keep(HERE / "data" / f"{name}.json", json.dumps(answer, sort_keys=True).encode() + b"\n")


def rules() -> None:
    for name, listed in (
        ("alert-rules", ["KubeDcGPUXidError", "KubeDcHamiSchedulerUnavailable"]),
        ("alert-rules-none", []),
    ):
        made = [
            {
                "type": "alerting",
                "name": rule,
                "health": "ok",
                "state": "inactive",
                "lastEvaluation": "2026-08-23T12:04:31.123456789Z",
            }
            for rule in ["Watchdog", "KubePodNotReady", *listed]
        ]
        answer = {"status": "success", "data": {"groups": [{"name": "platform", "rules": made}]}}
        keep(HERE / "data" / f"{name}.json", json.dumps(answer, sort_keys=True).encode() + b"\n")


# -- bundles ---------------------------------------------------------------------------------------------------------


def canary() -> None:
    audit = json.loads(AUDIT)
    report = {
        "format": FORMAT,
        "tuple": components(HERE.parent / "tuples" / "proposed.yaml"),
        "nodes": ["gpu-0000"],
        "hardware": ["10de:2330/10de:16c1"],
        "completed_at": "2026-08-21T09:30:00Z",
        "results": dict.fromkeys(RESULTS, True),
    }
    files = {"canary.json": text(report), "audit.json": AUDIT}
    steps = {
        "upgrade": "the node runs the proposed tuple",
        "rollback": "rolled back and forward again",
        "audit": "kept",
    }
    run = "20260821t081500z-canary_upgrade-c0de"
    bundle(
        HERE / "canary", run, "canary_upgrade", steps, files, audit["cluster"], datetime(2026, 8, 21, 10, tzinfo=UTC)
    )


def approved(source: Path) -> None:
    names = ("approved.json", "proposal.json", "audit.json", "digests.json")
    files = {name: (source / "after" / name).read_bytes() for name in names}
    steps = {
        step["id"]: "as in the scenario approve" for step in json.loads((source / "verdict.json").read_bytes())["steps"]
    }
    run, uid = "20260822t120000z-promotion-a11d", json.loads(files["proposal.json"])["cluster"]
    bundle(HERE / "approved", run, "promotion", steps, files, uid, datetime(2026, 8, 22, 12, tzinfo=UTC))


def components(path: Path) -> dict[str, str]:
    from gpurunbook.supply.tuple import read_tuple

    return dict(read_tuple(path.read_bytes(), "proposed").values)


def bundle(
    target: Path,
    run: str,
    runbook: str,
    steps: dict[str, str],
    files: dict[str, bytes],
    uid: str,
    when: datetime,
    unrecorded: Collection[str] = (),
) -> None:
    """unrecorded: files that lie there, and that no step has kept."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name, data in files.items():
        keep(target / "after" / name, data)
    about = {"run": run, "runbook": runbook, "created": "2026-08-21T09:00:00.000000Z", "home": "/srv/gpurunbook"}
    (target / "run.json").write_bytes(canonical(about) + b"\n")
    cells = [code("start", f'run = rb.start("{runbook}")')]
    cells += [code(step, f'run.check("{step}", …)') for step in steps] + [code("close", "run.close()")]
    source = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    journal = Journal.open(target / "journal.jsonl", ticking(when))
    with tempfile.TemporaryDirectory() as folder:
        origin = Path(folder) / f"{runbook}.ipynb"
        origin.write_bytes(text(source))
        start(journal, run, runbook, digest(origin.read_bytes()), uid)
        cells[0]["execution_count"] = 1
        for number, (step, told) in enumerate(steps.items(), 2):
            last = number == len(steps) + 1
            kept = {f"after/{name}": digest(data) for name, data in files.items() if name not in unrecorded}
            judged = step_record(step, told, kept if last else {})
            journal.append("step", {"step": step})
            journal.append("judged", judged)
            show(
                cells[number - 1],
                number,
                f"gpurunbook.step.{step}",
                {k: judged[k] for k in ("status", "passed", "facts")},
            )
        closing = {"verdict": "pass", "code": "all-steps-passed", "step": "close"}
        more = {"message": "Every step passed.", "next": "", "left_behind": []}
        head = journal.append("close", {**closing, **more})["hash"]
        told_close = {"run": run, "runbook": runbook, **closing, "head": head, "rehearsal": True}
        show(cells[-1], len(cells), CLOSING, told_close)
        (target / f"{runbook}.ipynb").write_bytes(text(source))
        seal(target, source=origin)
    print(target.name, manifest_digest(target))


def start(journal: Journal, run: str, runbook: str, source: str, uid: str) -> None:
    package = {"version": "0.1.0", "digest": "sha256:" + "0" * 64}
    process = {"host": "fixture", "pid": 1}
    begun = {"run": run, "runbook": runbook, "parameters": {"change_id": "CHG-2077", "reason": "fixture"}}
    journal.append("start", {**begun, "package": package, "source": source, "process": process})
    cluster = {"name": "embedded:clusters/promotion-canary", "uid": uid, "version": "v1.35.3+rke2r3"}
    reasons = {"rehearsal": True, "rehearsal_reasons": ["a fixture"]}
    journal.append("cluster", {"cluster": cluster, "operator": {"name": "oncall@example.com"}, **reasons})


def step_record(step: str, told: str, files: dict[str, str]) -> dict[str, Any]:
    finding = Finding(step, step, Status.PASS, "fixture", told).as_json()
    return {
        "step": step,
        "title": step,
        "status": "pass",
        "passed": True,
        "findings": [finding],
        "files": files,
        "facts": {},
    }


def code(name: str, source: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": name, "metadata": {"tags": []}, "source": [source]}
    return {**cell, "execution_count": None, "outputs": []}


def show(cell: dict[str, Any], count: int, name: str, data: Any) -> None:
    about = {"scrapbook": {"name": name, "data": True, "display": False}}
    card = {"output_type": "display_data", "data": cards.state_line(name, "pass"), "metadata": {}}
    scrap = {"output_type": "display_data", "data": {MIME: payload(name, data)}, "metadata": about}
    cell["execution_count"], cell["outputs"] = count, [scrap, card]


def ticking(when: datetime) -> Any:
    state = {"now": when}

    def tick() -> datetime:
        state["now"] += timedelta(seconds=1)
        return state["now"]

    return tick


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["evidence"]:
            evidence()
        case ["canary"]:
            canary()
        case ["alerts"]:
            alerts()
            rules()
        case ["approved", folder]:
            approved(Path(folder))
        case _:
            sys.exit(__doc__)
