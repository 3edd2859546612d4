"""`gpurunbook seal`, `verify` and `report`: the evidence of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from gpurunbook.cli.answer import in_json, output_option
from gpurunbook.shown.hostile import harmless

_COLOURS = {
    **dict.fromkeys(("pass", "sealed", "consistent", "anchored", "signed"), "green"),
    **dict.fromkeys(("rejected", "blocked", "failed", "altered", "withheld"), "red"),
    **dict.fromkeys(("unknown", "unsealed"), "magenta"),
}
_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=_FOLDER)
@click.option("--notebook", type=_FILE, help="The executed notebook, when it was saved outside of the run folder.")
@click.option("--source", type=_FILE, help="The source notebook, when the run's home is not here any more.")
@click.option("--sign", "key", metavar="KEY", help="Sign the manifest: an ssh key, cosign's, or the address of a KMS.")
@output_option
def seal(run: Path, notebook: Path | None, source: Path | None, key: str | None, output: str | None) -> int:
    """Make the evidence of RUN, a run folder or its id, from its journal and its saved notebook.

    Exits 0 when it is sealed, 1 when it is withheld because something in it looks like a secret, 2 when it cannot
    be sealed. The verdict of the run is told, and not part of the exit code.
    """
    from gpurunbook.evidence import index
    from gpurunbook.evidence.seal import manifest_digest
    from gpurunbook.evidence.seal import seal as make
    from gpurunbook.folder import workspace

    folder = workspace.located(run)
    manifest = make(folder, notebook=notebook, sign_key=key, source=source)
    index.refresh(folder)
    told = ("run", "runbook", "verdict", "evidence", "lowered", "anomalies", "not_run", "withheld", "rehearsal")
    answer = {**{name: manifest[name] for name in told}, "folder": str(folder), "manifest": manifest_digest(folder)}
    withheld = manifest["evidence"] == "withheld"
    if in_json(output):
        _print(answer)
    else:
        _say(f"{manifest['evidence']}: run {manifest['run']} is {manifest['verdict']}", manifest["evidence"])
        _say(f"  manifest {answer['manifest']}")
        _each("  lowered, because: ", (f"{_where(entry)}{entry['detail']}" for entry in manifest["lowered"]), "unknown")
        _each("  ", (f"{entry['kind']}: {_where(entry)}{entry['detail']}" for entry in manifest["anomalies"]))
        for name, leaks in manifest["withheld"].items():
            _each(f"  looks like a secret: {name}: ", leaks, "withheld")
    if withheld:
        click.echo("Take it out at its origin, treat the secret as known, and run and seal again.", err=True)
    return 1 if withheld else 0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=_FOLDER)
@click.option("--manifest-digest", metavar="SHA", help="The manifest's digest as it is known from elsewhere.")
@click.option("--signers", type=_FILE, help="allowed_signers file of those who may sign evidence.")
@click.option("--cosign-key", type=_FILE, help="Public key of cosign's, of who may sign evidence.")
@output_option
def verify(
    folder: Path, manifest_digest: str | None, signers: Path | None, cosign_key: Path | None, output: str | None
) -> int:
    """Say whether the bundle in FOLDER is as it was sealed. Writes nothing.

    consistent: nothing was changed by halves. anchored: and its digest is the given one. signed: and one of the
    signers, or the key of cosign's, signed it. Exits 0 for these, 1 when it is altered or less than was asked for, 2
    when it is unsealed or cannot be judged: a program is missing, say.
    """
    from gpurunbook.evidence.verify import EXIT
    from gpurunbook.evidence.verify import verify as judge
    from gpurunbook.folder import workspace

    folder = workspace.located(folder)
    answer = judge(folder, manifest_digest=manifest_digest, signers=signers, cosign_key=cosign_key)
    told = answer.as_json()
    if in_json(output):
        _print(told)
        return EXIT[answer.verdict]
    _say(answer.verdict, answer.verdict)
    for name in ("run", "run_verdict", "evidence", "signer", "manifest_digest"):
        if told[name] is not None:
            _say(f"  {name.replace('_', ' ')}: {told[name]}")
    if answer.rehearsal:
        _say("  rehearsal: not evidence for a live cluster", "altered")
    _each("  ", (f"{d['kind']} {d['name']}: {d['message']}" for d in told["differences"]), answer.verdict)
    if len(answer.differences) > len(told["differences"]):
        _say(f"  and {len(answer.differences) - len(told['differences'])} more")
    return EXIT[answer.verdict]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=_FOLDER)
@click.option("--out", type=_FILE, help="Where the page is written. Default: RUN.html beside the folder.")
@output_option
def report(folder: Path, out: Path | None, output: str | None) -> int:
    """Write the executed notebook of FOLDER as one HTML page that needs neither scripts nor the network.

    The page says what `verify` says of the bundle, and so does the exit code: 0 consistent, 1 altered, 2 unsealed.
    """
    from gpurunbook.evidence.verify import EXIT, page
    from gpurunbook.evidence.verify import verify as judge
    from gpurunbook.folder import keep, workspace

    folder = workspace.located(folder)
    answer = judge(folder)
    name, text = page(folder, answer)
    # Not into the folder: a file more in a sealed one is a difference.
    out = out or folder.resolve().parent / f"{name}.html"
    keep.kept(out, text.encode())
    if in_json(output):
        _print({"path": str(out), "verdict": answer.verdict})
    else:
        _say(f"{answer.verdict}: {out}", answer.verdict)
    return EXIT[answer.verdict]


def _print(answer: Mapping[str, Any]) -> None:
    click.echo(json.dumps(answer, sort_keys=True, indent=1, allow_nan=False))


def _where(entry: Mapping[str, str]) -> str:
    return f"cell {entry['cell']}: " if entry["cell"] else ""


def _say(line: str, word: str = "") -> None:
    click.secho(harmless(line, 900), fg=_COLOURS.get(word))


def _each(head: str, lines: Iterable[str], word: str = "") -> None:
    for line in lines:
        _say(head + line, word)
