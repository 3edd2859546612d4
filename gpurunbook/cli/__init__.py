"""The command line. Each command's module is imported when it is called, so that `--help` stays quick."""

from __future__ import annotations

import errno
import importlib
import sys
from typing import Any

import click

COMMANDS = {
    "lint": ("gpurunbook.cli.lint:lint", "Judge the form of runbook notebooks; repair what is form only."),
    "audit": ("gpurunbook.cli.audit:audit", "Judge the images that run in the GPU namespaces."),
    "holders": ("gpurunbook.cli.holders:holders", "Say who holds the GPUs of a node, each with reasons."),
    "gate": ("gpurunbook.cli.gate:gate", "Judge signatures, SBOMs, scans and dispositions of images."),
    "run": ("gpurunbook.cli.run:run", "Run a runbook headlessly and seal its evidence; --all runs every scenario."),
    "new": ("gpurunbook.cli.run:new", "Make a run folder with a working copy of a runbook."),
    "lab": ("gpurunbook.cli.lab:lab", "Open JupyterLab on a new working copy of a runbook."),
    "doctor": ("gpurunbook.cli.doctor:doctor", "Say whether runbooks can run here, and what to do."),
    "approve": ("gpurunbook.cli.changes:approve", "Sign the plan of a dry run."),
    "leftovers": ("gpurunbook.cli.changes:leftovers", "List what runs have left in a cluster."),
    "release": ("gpurunbook.cli.changes:release", "Give a node back that a run of ours cordoned."),
    "adopt": ("gpurunbook.cli.changes:adopt", "Go on for a run that died, from the cluster's own marks."),
    "abort": ("gpurunbook.cli.changes:abort", "Undo what a run left in the cluster."),
    "resume": ("gpurunbook.cli.changes:resume", "Go on with a run of this machine, with its own parameters."),
    "qualify": ("gpurunbook.cli.qualify:qualify", "Judge an upgrade request by its record, and by what is live."),
    "seal": ("gpurunbook.cli.evidence:seal", "Make the evidence of a run from its journal and saved notebook."),
    "verify": ("gpurunbook.cli.evidence:verify", "Say whether a bundle is as it was sealed, and by whom."),
    "report": ("gpurunbook.cli.evidence:report", "Write a run's notebook as one HTML page, readable offline."),
    "vsa": ("gpurunbook.cli.vsa:vsa", "Sign the verification summaries of an approved promotion."),
    "review-manifests": (
        "gpurunbook.cli.manifests:review_manifests",
        "Review manifests and what they are rendered from.",
    ),
}
"""Name → where the click command stands, and its one line in `--help`."""


class Commands(click.Group):
    """A group that knows its commands' names and lines without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Writes nothing."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Writes nothing. Imports the one module that holds the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes nothing. The lines of `--help`, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpurunbook")
def group() -> None:
    """Runbooks for GPU clusters on Kubernetes, with evidence that can be believed."""


def main(argv: list[str] | None = None) -> Any:
    """Runs one command and ends the process with its exit code; a crash of ours ends with 2, never with 1."""
    from gpurunbook.cli.streams import prepare
    from gpurunbook.errors import RunbookError

    try:
        prepare()
        code = _ran(argv)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(2)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except RunbookError as wrong:
        from gpurunbook.shown.hostile import harmless

        click.echo(harmless(f"{wrong.code}: {wrong}", 4000, lines=True), err=True)
        sys.exit(2)
    except Exception as crash:
        import traceback

        traceback.print_exc()
        click.echo(f"internal error ({type(crash).__name__}): nothing can be said; this is a defect", err=True)
        sys.exit(2)
    sys.exit(code)


_SURROUNDINGS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE}
    | {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ESTALE, errno.ENOLCK}
)
"""What a file system refuses that is no defect of ours."""


def _ran(argv: list[str] | None) -> int:
    """The exit code that the command gives. Raises RunbookError for what the file system refused."""
    from gpurunbook.errors import RunbookError

    try:
        return group.main(args=argv, standalone_mode=False) or 0
    except OSError as wrong:
        if wrong.errno not in _SURROUNDINGS:
            raise
        raise RunbookError(
            f"the file system refused: {wrong.strerror}",
            subject=str(wrong.filename or ""),
            remedy="Make room, or make it readable and writable; then give the command again.",
            code="not-kept",
        ) from None
    except SystemExit:
        # click ends with 1, an answer of the policy, when whoever reads our output has gone (click/core.py, EPIPE).
        return 2
