"""Commands around changes: approve, leftovers, release, adopt, abort, resume."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpurunbook.cli.run import given_options

if TYPE_CHECKING:
    from gpurunbook.nodes.leftovers import Leftover
    from gpurunbook.plan import Problem
    from gpurunbook.sources.cluster import Cluster

_HELP = {"help_option_names": ["-h", "--help"]}
_UNITS = {"m": 60, "h": 3600, "d": 86400}


@click.command(context_settings=_HELP)
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--key", required=True, help="Private ssh key, the .pub of an agent, a key of cosign's, or the address of a KMS."
)
@click.option("--change-id", required=True, help="Change ticket that is approved.")
@click.option("--replace", is_flag=True, help="Put this approval in the place of one that is there.")
@click.option("--expires", default="4h", show_default=True, help="30m, 4h, 2d, or an RFC 3339 time in UTC.")
def approve(plan: Path, key: str, change_id: str, replace: bool, expires: str) -> int:
    """Sign the plan of a dry run, or the proposal of a promotion: the file, the run folder or the run's id.

    Writes approval.json and its signature into the run folder, and shows what was signed. The change id must be that
    of the run, and an approval that is there is kept unless --replace is given.
    """
    from gpurunbook.errors import InputError
    from gpurunbook.folder import workspace
    from gpurunbook.journal import canonical, digest
    from gpurunbook.runbook import approval, authority
    from gpurunbook.shown.hostile import harmless

    if not authority.CHANGE_ID.fullmatch(change_id):
        raise click.BadParameter(f"{change_id!r:.80} is no change id that an apply can have", param_hint="--change-id")
    until = _until(expires, datetime.now(UTC))
    path, folder = _to_sign(plan if plan.is_file() else workspace.located(plan))
    try:
        document = json.loads(path.read_bytes())
        told = _told(document)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as wrong:
        raise InputError(f"neither the plan of a dry run nor a proposal: {wrong}", subject=str(path)) from None
    wanted = digest(canonical(document))
    if (folder / approval.NAME).exists() and not replace:
        raise InputError(
            "an approval is there already, and nothing was signed",
            subject=str(folder / approval.NAME),
            remedy="Read it; --replace puts another one in its place.",
            code="approval-exists",
        )
    start = _asked(folder, change_id)
    name = start.get("cluster", {}).get("name") or "of the current context"
    lines = (
        f"plan {wanted}",
        f"cluster {document.get('cluster') or start.get('cluster', {}).get('uid')}",
        f"named {name}",
        *told,
        f"change {change_id}",
        f"reason {_reason(start['parameters'])}",
        f"until {until:%Y-%m-%dT%H:%M:%SZ}",
    )
    made = approval.approve(folder, change_id=change_id, expires=until, plan=wanted, key=key)
    for line in lines:
        click.echo(harmless(line, 2000))
    click.echo(str(made))
    return 0


def _reason(given: Mapping[str, Any]) -> str:
    from gpurunbook.folder.parameters import BLANK

    reason = str(given.get("reason", ""))
    return "not given yet" if reason.strip() in ("", BLANK) else reason


def _asked(folder: Path, change_id: str) -> dict[str, Any]:
    """How the run started that asks for the approval. Raises InputError unless the change is its own."""
    from gpurunbook.errors import InputError
    from gpurunbook.journal import JOURNAL, read, replay

    path = folder / JOURNAL
    start = replay(read(path)).start if path.is_file() else {}
    if not start:
        raise InputError(
            "no journal of its run lies beside it, so that nobody can say for which change it was made",
            subject=str(folder),
            remedy="Sign it in the run folder: `gpurunbook approve outputs/RUN`.",
            code="no-run-folder",
        )
    own = str(start["parameters"].get("change_id") or "")
    if own not in ("", change_id):
        raise InputError(
            f"it was made for change {own!r:.80}, and you approve {change_id!r}",
            subject=f"run {start.get('run')}",
            remedy="Approve the change that it was made for, or ask for a run of yours.",
            code="approval-other-change",
        )
    return start


def _to_sign(given: Path) -> tuple[Path, Path]:
    """The file whose digest is signed, and the folder for the signature."""
    from gpurunbook.runbook import plans

    proposal = Path("after", "proposal.json")
    if given.is_dir():
        plan = given / plans.NAME
        return (plan if plan.exists() or not (given / proposal).exists() else given / proposal), given
    return given, given.parent.parent if given.parts[-2:] == proposal.parts else given.parent


def _told(document: dict[str, Any]) -> list[str]:
    """What is signed, in words: each mutation of a plan, or the summary that a proposal carries itself."""
    if "summary" in document:
        return [f"{line}" for line in document["summary"]]
    from gpurunbook.runbook import changing, plans

    said: list[str] = []
    for step, entry in _entries(document):
        said.append(f"{step['step']}: {entry['verb']} {entry['target']['kind']} {entry['target']['name']}")
        said += [f"  {line}" for line in changing.lines(plans.mutation(entry))]
    return said


def _entries(document: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(step, mutation) for step in document["steps"] for mutation in step["mutations"]]


def _until(text: str, now: datetime) -> datetime:
    found = re.fullmatch(r"([0-9]{1,4})([mhd])", text)
    try:
        if found:
            until = now + timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        else:
            until = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        until = now
    if until <= now:
        wanted = "wanted 30m, 4h, 2d or a time to come such as 2036-01-31T12:00:00Z"
        raise click.BadParameter(f"{text!r}: {wanted}", param_hint="--expires")
    return until


@click.command(context_settings=_HELP)
@click.option("--cluster", default="", metavar="CONTEXT", help="embedded:DIR, or a kubeconfig context.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def leftovers(cluster: str, output: str) -> int:
    """List what runs have left in a cluster: cordons and leases with their owners.

    Writes nothing. Exit: 0 all could be listed, 2 something could not: that is never nothing.
    """
    from gpurunbook.cli.answer import cluster as opened
    from gpurunbook.shown.hostile import harmless

    found, problems = _left(opened(cluster), cluster)
    if output == "json":
        said = {
            "verdict": "unknown" if problems else "pass",
            "leftovers": [left.as_json() for left in found],
            "problems": [problem.message for problem in problems],
        }
        click.echo(json.dumps(said, sort_keys=True, indent=1))
    else:
        for left in found:
            click.echo(f"{left.kind:<7} {harmless(left.name)}: {left.state}, run {harmless(left.run or 'unknown')}")
            click.echo(f"        since {harmless(left.since or 'unknown')}; next: {harmless(left.next)}")
        if not found and not problems:
            click.echo("nothing is left")
    for problem in problems:
        click.echo(f"could not be listed: {harmless(problem.message, 900)}", err=True)
    return 2 if problems else 0


def _left(source: Cluster, name: str) -> tuple[list[Leftover], list[Problem]]:
    from gpurunbook.nodes import leftovers as rules

    return rules.leftovers({name: source.observe(need) for name, need in rules.needs().items()}, name)


def _change(runbook: str, more: list[str], **options: Any) -> int:
    from gpurunbook.cli.run import _run_one

    given = (*more, *options.pop("sets"))
    return _run_one(
        runbook, options["files"], given, options["cluster"], options["out"], options["run_id"], None, None, "table"
    )


@click.command(context_settings=_HELP)
@click.argument("node")
@given_options
def release(node: str, **options: Any) -> int:
    """Give a node back that a run of ours cordoned: runbook node_cordon with action=release.

    A dry run unless --set apply=true with the plan digest. Only a Ready node without holders is uncordoned.
    """
    return _change("node_cordon", [f"node={node}", "action=release"], **_with_its_cluster(options))


@click.command(context_settings=_HELP)
@click.argument("node")
@given_options
def adopt(node: str, **options: Any) -> int:
    """Go on for a run that died: runbook node_cordon with action=adopt.

    The node is observed anew and its cordon gets this run as owner. A dry run unless --set apply=true.
    """
    return _change("node_cordon", [f"node={node}", "action=adopt"], **_with_its_cluster(options))


@click.command(context_settings=_HELP)
@click.argument("run")
@given_options
def abort(run: str, **options: Any) -> int:
    """Undo what a run left in the cluster: each node that it cordoned is released, its lease is taken and given back.

    A dry run unless --set apply=true; with several nodes, one after the other, until one is not released. Exit 1 also
    when the run left something that this does not undo, such as the lease of a node that another run has cordoned.
    It goes to the cluster where the run worked, whatever the current context is; another one is refused.
    """
    from gpurunbook.errors import InputError
    from gpurunbook.folder import workspace
    from gpurunbook.shown.hostile import harmless

    run = workspace.checked_run_id(Path(run).resolve().name if len(Path(run).parts) > 1 else run)
    source = _of_run(run, options)
    expected = [] if _given(options).get("expect_cluster") else [f"expect_cluster={source.uid}"]
    options["cluster"] = source.name
    found, problems = _left(source, source.name)
    if problems:
        raise InputError(f"not everything could be listed: {problems[0].message}", subject=run)
    mine = [left for left in found if left.run == run]
    if not mine:
        if not (_folder(run, options["out"]) / workspace.RECORD).is_file():
            raise InputError(
                f"no run of this id is known here, and nothing in cluster {source.name or source.uid} is its",
                subject=f"run {run}",
                remedy="Ids are the folder names under outputs/; `gpurunbook leftovers` lists what a cluster shows.",
                code="run-unknown",
            )
        click.echo(f"run {run} left nothing in cluster {harmless(source.name or source.uid)}")
        return 0
    theirs = {left.target for left in found if left.kind == "cordon" and left.run != run}
    nodes = sorted({left.target.removeprefix("node/") for left in mine if _on_node(left) and left.target not in theirs})
    held = {left.target.removeprefix("node/") for left in mine if left.kind == "lease"}
    for node in nodes:
        taken = [f"take_over={run}"] if node in held else []
        code = _change("node_cordon", [f"node={node}", "action=release", *taken, *expected], **dict(options))
        if code:
            return code
    others = [left for left in mine if not _on_node(left) or left.target in theirs]
    for left in others:
        what = f"{left.kind} {harmless(left.name)} of {harmless(left.target)}"
        click.echo(f"not undone by this command: {what}; next: {harmless(left.next)}", err=True)
    return 1 if others else 0


def _folder(run: str, out: Path | None) -> Path:
    from gpurunbook.folder import workspace

    return (out or workspace.runs_folder(workspace.find_home())) / run


def _of_run(run: str, options: dict[str, Any]) -> Cluster:
    """The cluster that is asked for; else the one where the run worked, as long as the kubeconfig has that; else the
    current one. Raises InputError when it is another than the run's."""
    from gpurunbook.cli.answer import cluster
    from gpurunbook.errors import InputError
    from gpurunbook.journal import JOURNAL, read, replay

    asked, out = str(_given(options).get("cluster", "")), options["out"]
    was = replay(read(_folder(run, out) / JOURNAL, cut=True)).start.get("cluster") or {}
    source = None
    if was.get("name") and not asked:
        with contextlib.suppress(InputError):
            source = cluster(was["name"], out)
    source = source or cluster(asked, out)
    if was.get("uid") and was["uid"] != source.uid:
        raise InputError(
            f"it worked on cluster {was.get('name') or 'of the current context then'} with uid {was['uid']}, and "
            f"{source.name or 'the current one'} has {source.uid}",
            subject=f"run {run}",
            remedy="Name its cluster with --cluster.",
            code="run-of-another-cluster",
        )
    return source


def _given(options: dict[str, Any]) -> dict[str, Any]:
    from gpurunbook.declared.runbooks import declared
    from gpurunbook.runbook import given

    return given.gather(declared("node_cordon"), options["files"], options["sets"], options["cluster"])


def _with_its_cluster(options: dict[str, Any]) -> dict[str, Any]:
    """The options; whoever takes over from a run that is known here goes to its cluster and to no other."""
    from gpurunbook.folder import workspace

    taken = str(_given(options).get("take_over", ""))
    if not taken or not (_folder(workspace.checked_run_id(taken), options["out"]) / workspace.RECORD).is_file():
        return options
    return {**options, "cluster": _of_run(taken, options).name}


def _on_node(left: Leftover) -> bool:
    return left.target.startswith("node/")


@click.command(context_settings=_HELP)
@click.argument("run")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of runs. Default: outputs/")
def resume(run: str, out: Path | None) -> int:
    """Go on with a run of this machine that died or was stopped, with its own parameters.

    A run that closed pass or planned is refused: going on would take its verdict and its evidence back.
    """
    from gpurunbook.errors import InputError
    from gpurunbook.findings import EXIT
    from gpurunbook.folder import workspace
    from gpurunbook.journal import JOURNAL, read, replay
    from gpurunbook.runbook.changing import APPLY

    folder = workspace.located(Path(run), out).resolve()
    run = folder.name
    runbook = str(workspace.record(folder)["runbook"])
    verdict = replay(read(folder / JOURNAL, cut=True)).verdict
    if EXIT[verdict] == 0:
        plan = folder / APPLY
        applies = f"`gpurunbook run {runbook} --parameters {plan}` applies its plan; " if plan.is_file() else ""
        raise InputError(
            f"it closed {verdict}: there is nothing to go on with",
            subject=f"run {run}",
            remedy=f"{applies}`gpurunbook new {runbook}` starts another one.",
            code="run-closed",
        )
    return _change(runbook, [], files=(), sets=(), cluster="", out=folder.parent, run_id=run)
