"""`gpurunbook lint`: does each notebook have the form of a runbook?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from gpurunbook.cli.answer import in_json, output_option
from gpurunbook.shown.hostile import harmless

_EXIT = {"ok": 0, "error": 1, "unreadable": 2}


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--fix", is_flag=True, help="Repair what is form only: canonical JSON, outputs, metadata.")
@output_option
def lint(paths: tuple[Path, ...], fix: bool, output: str | None) -> int:
    """Judge the form of runbook notebooks: files or folders, runbooks/ if none is given. Writes only with --fix.

    Exits 0 when clean, 1 with findings, 2 when a file cannot be read.
    """
    from gpurunbook.lint.lint import answer

    said = answer(paths or (Path("runbooks"),), repair=fix)
    if in_json(output):
        click.echo(json.dumps(said, indent=1, sort_keys=True))
        return _EXIT[said["verdict"]]
    for file in said["fixed"]:
        click.echo(f"{harmless(file)}: repaired", err=True)
    for broken in said["unreadable"]:
        click.secho(f"unreadable: {harmless(broken['message'], 900)}", fg="magenta")
    for flaw in said["findings"]:
        where = ":".join(filter(None, (flaw["file"], flaw["cell"], str(flaw["line"] or ""))))
        line = f"{harmless(where)}: {flaw['rule']}: {harmless(flaw['message'], 600)}. {harmless(flaw['remedy'], 600)}"
        click.secho(line, fg="red")
    click.echo(f"{said['verdict']}: {said['files']} notebooks, {len(said['findings'])} findings")
    return _EXIT[said["verdict"]]
