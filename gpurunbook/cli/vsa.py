"""`gpurunbook vsa`: sign the verification summaries of an approved promotion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpurunbook.cli.answer import give, output_option

_SECONDS = 60.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(file_okay=False, path_type=Path))
@click.option("--key", required=True, help="Private key for cosign: a file, or a KMS address.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the bundles.")
@click.option("--manifest-digest", metavar="SHA", help="The run's manifest digest, from the change ticket.")
@click.option("--cosign", default="cosign", help="The program.")
@output_option
def vsa(run: Path, key: str, out: Path, manifest_digest: str | None, cosign: str, output: str | None) -> int:
    """Sign each summary of RUN, the sealed bundle of an approved promotion, with cosign.

    Writes OUT/sha256-….sigstore.json, one per released digest. The password of the key is read by cosign itself
    (COSIGN_PASSWORD). Nothing is sent to a transparency log. Verify with: cosign verify-blob-attestation --key PUB
    --bundle FILE --type https://slsa.dev/verification_summary/v1 --digest HEX --digestAlg sha256
    --insecure-ignore-tlog=true
    """
    from gpurunbook.errors import EvidenceError
    from gpurunbook.sources import tools

    out.mkdir(parents=True, exist_ok=True)
    signed: list[str] = []
    for name, path in sorted(_summaries(run, manifest_digest).items()):
        bundle = out / f"{name.removesuffix('.json')}.sigstore.json"
        argv = [cosign, "attest-blob", "--statement", str(path), "--key", key, "--bundle", str(bundle)]
        done = tools.run([*argv, "--use-signing-config=false", "--tlog-upload=false", "--yes"], timeout=_SECONDS)
        if done.returncode:
            raise EvidenceError(f"cosign did not sign it: {done.complaint}", subject=name, code="vsa-not-signed")
        signed.append(str(bundle))
    give({"verdict": "pass", "signed": signed}, [], output)
    return 0


def _summaries(run: Path, manifest_digest: str | None) -> dict[str, Path]:
    """The summaries of a bundle that holds, by file name. Raises EvidenceError for any other."""
    from gpurunbook.errors import EvidenceError
    from gpurunbook.evidence import bundle
    from gpurunbook.evidence.verify import verify
    from gpurunbook.supply import strictjson
    from gpurunbook.supply import vsa as rules

    answer = verify(run, manifest_digest=manifest_digest)
    good = answer.verdict in ("consistent", "anchored")
    if not good or (answer.runbook, answer.run_verdict) != ("promotion", "pass"):
        seen = f"{answer.runbook or 'no run'}, {answer.run_verdict or '-'}, {answer.verdict}"
        raise EvidenceError(f"not an approved promotion: {seen}", subject=str(run), code="vsa-not-approved")
    manifest: dict[str, Any] = strictjson.loads(bundle.read(run / bundle.MANIFEST, 32 << 20))
    names = [name for name in manifest["files"] if name.startswith("after/vsa/")]
    found = {Path(name).name: run / name for name in names}
    if not found:
        raise EvidenceError("it holds no summaries: phase admit writes none", subject=str(run), code="vsa-missing")
    wanted = rules.REHEARSAL if answer.rehearsal else rules.VERIFIER
    for name, path in found.items():
        by = strictjson.loads(bundle.read(path, 1 << 20))["predicate"]["verifier"]["id"]
        if by != wanted:
            message = f"its verifier is {by}, and the run is {'a rehearsal' if answer.rehearsal else 'none'}"
            raise EvidenceError(message, subject=name, code="vsa-other-verifier")
    return found
