"""A made-up image for two platforms with all evidence that the gate asks for, to be altered by tests.

Digests are real: every document is content-addressed as a registry has it, so that a test alters one thing and sees
what the gate makes of it.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from gpurunbook.plan import Problem
from gpurunbook.supply import times
from gpurunbook.supply.calls import FORM
from gpurunbook.supply.gate import Terms
from gpurunbook.supply.gatereport import Given, Report, decide

NOW = "2026-08-20T12:00:00Z"
STARTED = "2026-08-20T09:00:00Z"
UPDATED = "2026-08-20T07:00:00Z"
REPOSITORY = "nvcr.io/nvidia/k8s/dcgm-exporter"
KEY = "sha256:" + hashlib.sha256(b"a public key").hexdigest()
PLATFORMS = ("linux/amd64", "linux/arm64")
VERSIONS = {"cosign": "3.0.4", "crane": "0.20.7", "syft": "1.57.0", "trivy": "0.74.0"}


def text(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def vulnerability(cve: str, package: str, severity: str, **more: Any) -> dict[str, Any]:
    return {"VulnerabilityID": cve, "PkgName": package, "InstalledVersion": "1.0", "Severity": severity, **more}


@dataclass
class Evidence:
    """Documents by name; `call` keeps a record beside each output. Alter `docs` and `calls`, then `report`."""

    platforms: tuple[str, ...] = PLATFORMS
    repository: str = REPOSITORY
    docs: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    raw: dict[str, bytes | Problem] = field(default_factory=dict)
    audit: Any = None
    exceptions: dict[str, Any] | bytes | None = None

    def __post_init__(self) -> None:
        children = []
        for platform in self.platforms:
            system, machine = platform.split("/")
            config = {"architecture": machine, "os": system, "rootfs": {"type": "layers", "diff_ids": [machine]}}
            manifest = {"schemaVersion": 2, "config": {"digest": sha(text(config))}, "layers": []}
            self.docs[f"config-{machine}"], self.docs[f"manifest-{machine}"] = config, manifest
            children.append(
                {"digest": sha(text(manifest)), "platform": {"os": system, "architecture": machine}},
            )
        attestation = {"digest": sha(b"attestation"), "platform": {"os": "unknown", "architecture": "unknown"}}
        self.docs["index"] = {"schemaVersion": 2, "manifests": [*children, attestation]}
        self.digest = sha(text(self.docs["index"]))
        self.child = {f"{c['platform']['os']}/{c['platform']['architecture']}": c["digest"] for c in children}
        self.docs["database"] = {"Version": VERSIONS["trivy"], "VulnerabilityDB": {"Version": 2, "UpdatedAt": UPDATED}}
        image = f"{self.repository}@{self.digest}"
        signed = {"identity": {"docker-reference": self.repository}, "image": {"docker-manifest-digest": self.digest}}
        self.docs["cosign"] = [{"critical": {**signed, "type": "cosign container image signature"}, "optional": None}]
        verify = ["cosign", "verify", "--key", "nvidia.pub", "--insecure-ignore-tlog=true", "--private-infrastructure"]
        self._call("cosign", [*verify, image], ["cosign"], key=KEY)
        for platform in self.platforms:
            self._platform(platform, image)
        self.audit = {
            "cluster": None,
            "digests": [{"digest": self.digest, "records": 1, "repositories": [self.repository]}],
            "evidence_ready": True,
            "findings": [],
            "records": [{"resolved": image, "evidence": True, "audit": "pass"}],
            "rehearsal": False,
            "verdict": "pass",
        }
        self.exceptions = decisions(signatures=[signer(repository=self.repository)])

    def _platform(self, platform: str, image: str) -> None:
        system, machine = platform.split("/")
        root = {"type": "container", "name": self.repository, "version": self.digest}
        libraries = [{"type": "library", "name": "openssl", "version": "1.0"}]
        self.docs[f"sbom-{machine}"] = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": machine,
            "metadata": {"component": root},
            "components": libraries,
        }
        metadata = {
            "repoDigests": [image],
            "manifestDigest": self.child[platform],
            "imageID": self.docs[f"manifest-{machine}"]["config"]["digest"],
            "os": system,
            "architecture": machine,
        }
        self.docs[f"syft-{machine}"] = {
            "artifacts": [{"name": "openssl", "version": "1.0"}],
            "source": {"type": "image", "metadata": metadata},
            "descriptor": {"name": "syft", "version": VERSIONS["syft"]},
        }
        outputs = ["-o", "cyclonedx-json=cyclonedx.json", "-o", "syft-json=syft.json"]
        argv = ["syft", "scan", f"registry:{image}", "--platform", platform, *outputs]
        self._call(f"syft-{machine}", argv, [f"sbom-{machine}", f"syft-{machine}"])
        self.docs[f"trivy-{machine}"] = {
            "SchemaVersion": 2,
            "Trivy": {"Version": VERSIONS["trivy"]},
            "Metadata": {
                "RepoDigests": [image],
                "ImageID": metadata["imageID"],
                "ImageConfig": {"os": system, "architecture": machine},
                "OS": {"Family": "debian", "Name": "12"},
            },
            "Results": [{"Target": "debian 12", "Class": "os-pkgs", "Vulnerabilities": []}],
        }
        line = ["trivy", "image", "--format", "json", "--platform", platform, "--show-suppressed"]
        self._call(f"trivy-{machine}", [*line, image], [f"trivy-{machine}"], database="database")

    def _call(self, name: str, argv: list[str], outputs: list[str], **more: str) -> None:
        tool = argv[0]
        made = {"record": FORM, "tool": tool, "version": VERSIONS[tool], "argv": argv, "started": STARTED}
        self.calls[name] = {**made, "seconds": 1.5, "exit_code": 0, "stderr": "", "outputs": outputs, **more}

    def vulnerabilities(self, *found: dict[str, Any], machine: str = "amd64") -> None:
        self.docs[f"trivy-{machine}"]["Results"][0]["Vulnerabilities"] = list(found)

    def suppressed(self, *found: dict[str, Any], machine: str = "amd64") -> None:
        hidden = [{"Type": "vulnerability", "Status": "ignored", "Source": ".trivyignore", "Finding": f} for f in found]
        self.docs[f"trivy-{machine}"]["Results"][0]["ExperimentalModifiedFindings"] = hidden

    def files(self) -> dict[str, bytes | Problem]:
        """The folder. Names say nothing: they are digests of the content, but for what `raw` names."""
        named = {
            name: document if isinstance(document, bytes) else text(document) for name, document in self.docs.items()
        }
        sums = {name: sha(data) for name, data in named.items()}
        records = []
        for call in copy.deepcopy(list(self.calls.values())):
            call["outputs"] = [sums.get(name, name) for name in call["outputs"]]
            if "database" in call:
                call["database"] = sums.get(call["database"], call["database"])
            records.append(text(call))
        whole = {base64.b32encode(hashlib.sha1(d).digest()).decode(): d for d in [*named.values(), *records]}
        return {**whole, **self.raw}

    def given(self, **more: Any) -> Given:
        terms = {
            "now": times.instant(NOW),
            "max_database_age": 48 * times.HOUR,
            "stabilisation": 24 * times.HOUR,
            "platforms": self.platforms,
        }
        terms.update({name: more.pop(name) for name in list(more) if name in terms})
        said = self.exceptions
        return Given(
            images=self.audit if isinstance(self.audit, bytes | Problem) else text(self.audit),
            files=self.files().items(),
            exceptions=said if said is None or isinstance(said, bytes) else text(said),
            relations=more.pop("relations", {}),
            terms=Terms(**terms),
            **more,
        )

    def report(self, **more: Any) -> Report:
        return decide(self.given(**more))


def decisions(**sections: Any) -> dict[str, Any]:
    """Security's file; JSON is YAML."""
    return {"apiVersion": "gpurunbook.io/v1", "kind": "SecurityDecisions", **sections}


def signer(**more: Any) -> dict[str, Any]:
    return {"repository": REPOSITORY, "key": KEY, "transparency_log": False, **more}


def exception(**more: Any) -> dict[str, Any]:
    base = {
        "id": "SEC-1",
        "cve": "CVE-2026-0001",
        "package": "openssl",
        "repository": REPOSITORY,
        "owner": "Platform Security",
        "reason": "not reachable",
        "expires": "2026-09-20",
    }
    return {key: value for key, value in {**base, **more}.items() if value is not None}


def disposition(**more: Any) -> dict[str, Any]:
    grounds = {"exploitability": "local only", "privileges": "runs as root", "mitigation": "network policy"}
    return exception(**{"reason": None, **grounds, **more})
