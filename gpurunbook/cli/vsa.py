"""`gpurunbook vsa`: sign the verification summaries of an approved promotion."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from gpurunbook.cli.answer import give, output_option

_SECONDS = 60.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(file_okay=False, path_type=Path))
@click.option("--key", required=True, help="Private key for cosign: a file, or a KMS address.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the bundles.")
@click.option("--manifest-digest", required=True, metavar="SHA", help="The run's, from the change ticket.")
@click.option("--cosign", default="cosign", help="The program.")
@output_option
def vsa(run: Path, key: str, out: Path, manifest_digest: str, cosign: str, output: str | None) -> int:
    """Sign each summary of RUN, the sealed bundle of an approved promotion, with cosign.

    Writes OUT/sha256-….sigstore.json, one per released digest. The password of the key is read by cosign itself
    (COSIGN_PASSWORD). Nothing is sent to a transparency log. Verify with: cosign verify-blob-attestation --key PUB
    --bundle FILE --type https://slsa.dev/verification_summary/v1 --digest HEX --digestAlg sha256
    --insecure-ignore-tlog=true
    """
    from gpurunbook.errors import EvidenceError
    from gpurunbook.sources import tools

    summaries = _summaries(run, manifest_digest)
    out.mkdir(parents=True, exist_ok=True)
    signed: list[str] = []
    with tempfile.TemporaryDirectory() as own:  # what was verified is what is signed
        for name, data in sorted(summaries.items()):
            statement, bundle = Path(own) / name, out / f"{name.removesuffix('.json')}.sigstore.json"
            statement.write_bytes(data)
            argv = [cosign, "attest-blob", "--statement", str(statement), "--key", key, "--bundle", str(bundle)]
            done = tools.run([*argv, "--use-signing-config=false", "--tlog-upload=false", "--yes"], timeout=_SECONDS)
            if done.returncode:
                raise EvidenceError(f"cosign did not sign it: {done.complaint}", subject=name, code="vsa-not-signed")
            signed.append(str(bundle))
    give({"verdict": "pass", "signed": signed}, [], output)
    return 0


def _summaries(run: Path, manifest_digest: str) -> dict[str, bytes]:
    """The summaries of an anchored bundle, by file name. Raises EvidenceError for any other.

    A bundle that is only consistent may have been made anew as a whole, and a signature would make it believed.
    """
    from gpurunbook.errors import EvidenceError
    from gpurunbook.evidence import bundle, consumed
    from gpurunbook.evidence.verify import verify
    from gpurunbook.journal import digest
    from gpurunbook.supply import strictjson
    from gpurunbook.supply import vsa as rules

    answer = verify(run, manifest_digest=manifest_digest)
    if answer.verdict != "anchored" or (answer.runbook, answer.run_verdict) != ("promotion", "pass"):
        seen = f"{answer.runbook or 'no run'}, {answer.run_verdict or '-'}, {answer.verdict}"
        raise EvidenceError(f"not an approved promotion: {seen}", subject=str(run), code="vsa-not-approved")
    raw = bundle.read(run / bundle.MANIFEST, 32 << 20)
    manifest: dict[str, Any] = strictjson.loads(raw)
    kept = consumed.recorded(run, manifest)
    names = {name: wanted for name, wanted in kept.items() if name.startswith("after/vsa/")}
    found = {Path(name).name: bundle.read(run / name, 1 << 20) for name in names}
    changed = [name for name, wanted in names.items() if digest(found[Path(name).name]) != wanted]
    if digest(raw) != answer.manifest_digest or changed:
        raise EvidenceError("it changed while it was read", subject=str(run), code="vsa-not-approved")
    if not found:
        raise EvidenceError("it holds no summaries: phase admit writes none", subject=str(run), code="vsa-missing")
    wanted = rules.REHEARSAL if answer.rehearsal else rules.VERIFIER
    for name, data in found.items():
        by = strictjson.loads(data)["predicate"]["verifier"]["id"]
        if by != wanted:
            message = f"its verifier is {by}, and the run is {'a rehearsal' if answer.rehearsal else 'none'}"
            raise EvidenceError(message, subject=name, code="vsa-other-verifier")
    return found
