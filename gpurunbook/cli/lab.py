"""`gpurunbook lab`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from gpurunbook.cli.run import given_options, make


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True},
    options_metavar="[RUNBOOK] [OPTIONS]",
)
@given_options
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[JUPYTER OPTIONS]...")
def lab(
    files: tuple[Path, ...],
    sets: tuple[str, ...],
    cluster: str,
    out: Path | None,
    run_id: str,
    words: tuple[str, ...],
) -> None:
    """Open JupyterLab; with RUNBOOK, on a new working copy of it.

    What is not known here is passed on to `jupyter lab`, such as --no-browser, or --allow-root for root. The sources in
    runbooks/ and the files of sealed runs cannot be saved there.
    """
    from gpurunbook.declared.runbooks import names
    from gpurunbook.folder import workspace

    # JupyterLab ends with that only after the working copy was made.
    if os.geteuid() == 0 and not any("allow-root" in word or "allow_root" in word for word in words):
        raise click.UsageError("JupyterLab does not start as root; be another user, or give --allow-root as well")
    home = workspace.find_home()
    copy = None
    runbook = named(words, names())
    if runbook:
        copy = make(runbook, files, sets, cluster, out, run_id)
        click.echo(f"working copy: {copy}", err=True)
    elif files or sets or cluster or run_id:
        raise click.UsageError("parameters need a runbook")
    root = home if copy is None or copy.is_relative_to(home) else copy.parent.parent
    os.environ.pop("GPURUNBOOK_RUN_DIR", None)
    os.environ["GPURUNBOOK_HOME"] = str(home)
    sys.stderr.flush()
    jupyter = tuple(word for word in words if word != runbook)
    os.execv(sys.executable, command(root, copy, jupyter))  # noqa: S606


def named(words: tuple[str, ...], known: list[str]) -> str:
    """Writes nothing. The word that is meant as the runbook, "" for none; a later word may be an option's value."""
    first = "" if not words or words[0].startswith("-") else words[0]
    return next((word for word in words if word in known), first)


def command(root: Path, copy: Path | None, jupyter: tuple[str, ...]) -> list[str]:
    """Writes nothing. The command that starts JupyterLab of this Python on the root folder."""
    from urllib.parse import quote

    # An address and not a file as argument: it is printed as well, for those who open the browser themselves.
    opened = [f"--LabApp.default_url=/lab/tree/{quote(str(copy.relative_to(root)))}"] if copy else []
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={root}",
        "--FileContentsManager.pre_save_hook=gpurunbook.cli.lab.keep",
        *opened,
        *jupyter,
    ]


def keep(model: dict[str, Any], path: str, contents_manager: Any, **_: Any) -> None:
    """Writes nothing. Lets JupyterLab refuse to save a source notebook, and anything in the folder of a sealed run.

    Runs are made on copies of the sources. Evidence that is saved again, if only by the autosave of somebody who reads
    it, no longer verifies; a run that went on after its seal is to be saved and sealed again. A file mode would not do:
    root writes whatever the mode, and a checkout must stay editable.
    """
    from tornado.web import HTTPError

    from gpurunbook.evidence import seal

    root = Path(contents_manager.root_dir).resolve()
    target = (root / path.strip("/")).resolve()
    if target.is_relative_to(Path(os.environ["GPURUNBOOK_HOME"]) / "runbooks") and model.get("type") != "directory":
        raise HTTPError(
            403,
            f"{target.name} is a source and stays as it is: `gpurunbook new {target.stem}` makes a copy to work on",
        )
    sealed = next((folder for folder in target.parents if folder.is_relative_to(root) and seal.current(folder)), None)
    if sealed is not None:
        raise HTTPError(
            403,
            f"run {sealed.name} is sealed, and its files stay as they are: `gpurunbook new` makes a copy to work on; "
            "to go on with this run, run its start cell first",
        )
