"""`gpurunbook holders`: who holds the GPUs of a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from gpurunbook.cli.answer import cluster as opened
from gpurunbook.cli.answer import in_json, output_option
from gpurunbook.errors import InputError
from gpurunbook.nodes.claims import by_key as claims_by_key
from gpurunbook.nodes.discovery import node_object
from gpurunbook.nodes.holders import Around, Report, follow, needs, report
from gpurunbook.nodes.holders import holders as judge
from gpurunbook.nodes.operands import NAMESPACES
from gpurunbook.nodes.shapes import Claim, Pod
from gpurunbook.supply import strictjson

EXIT = {"none": 0, "held": 1, "unknown": 2}
LARGEST = 1 << 30


@click.command()
@click.option("--node", required=True, help="Name of the node.")
@click.option(
    "--pod-json",
    type=click.Path(path_type=Path),
    help="Judge this list (kubectl get pods -A -o json) instead of a cluster.",
)
@click.option("--claims", type=click.Path(path_type=Path), help="With --pod-json: the list of ResourceClaims.")
@click.option("--cluster", default="", help="kubeconfig context, in-cluster, embedded:DIR; default: current context.")
@click.option("--operator-namespace", multiple=True, help="Where the GPU Operator runs, if not in its usual place.")
@output_option
def holders(
    node: str,
    pod_json: Path | None,
    claims: Path | None,
    cluster: str,
    operator_namespace: tuple[str, ...],
    output: str | None,
) -> int:
    """Say who holds the GPUs of a node, each with reasons.

    Writes nothing. Exit 0: none; 1: held; 2: unknown, which is never good.
    """
    if claims and not pod_json:
        raise click.UsageError("--claims goes with --pod-json; on a cluster the claims are read from it")
    node_object(node)
    namespaces = operator_namespace or NAMESPACES
    if pod_json:
        answer = captured(node, pod_json, claims, namespaces)
    else:
        answer = live(node, cluster, namespaces)
    if in_json(output):
        click.echo(json.dumps(answer.as_json(), indent=2, sort_keys=True))
    else:
        show(answer)
    return EXIT[answer.verdict]


def captured(node: str, pod_json: Path, claims: Path | None, operator: tuple[str, ...]) -> Report:
    """Writes nothing. Judges files; what cannot be read whole makes the answer unknown unless a pod surely holds."""
    problems: list[str] = []
    pods: list[Pod] = _items(pod_json, "Pod", _Pods, problems) or []
    found: list[Claim] | None = _items(claims, "ResourceClaim", _Claims, problems) if claims else None
    if pods and not any(p.spec.nodeName == node for p in pods):
        click.echo(f"warning: {pod_json} lists {len(pods)} pods and none of them is on {node}", err=True)
    by_key = None if found is None else claims_by_key(found)
    return judge(node, pods, Around(claims=by_key, operator=operator), problems)


class _Meta(msgspec.Struct):
    more: str | None = msgspec.field(default=None, name="continue")
    remainingItemCount: int | None = None


class _Pods(msgspec.Struct):
    items: list[Pod]
    kind: str = ""
    metadata: _Meta | None = None


class _Claims(msgspec.Struct):
    items: list[Claim]
    kind: str = ""
    metadata: _Meta | None = None


def _items(path: Path, kind: str, shape: type[_Pods] | type[_Claims], problems: list[str]) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise ValueError(f"larger than {LARGEST} bytes")
        whole = msgspec.json.decode(raw, type=shape)
        strictjson.unambiguous(raw)  # msgspec takes the last of two equal keys: a holder may stand under the first
        if whole.kind not in ("List", f"{kind}List"):
            raise ValueError(f"it is a {whole.kind or 'list without a kind'}, wanted a {kind}List")
        if alien := sorted({i.kind for i in whole.items if i.kind not in (None, "", kind)}):
            raise ValueError(f"it lists {', '.join(map(str, alien))}, wanted only {kind}")
    except OSError as wrong:
        problems.append(f"{path}: cannot be read: {wrong.strerror}")
        return None
    except (msgspec.MsgspecError, InputError, ValueError, RecursionError) as wrong:
        problems.append(f"{path}: not a list of {kind}: {wrong}")
        return None
    if whole.metadata and (whole.metadata.more or whole.metadata.remainingItemCount):
        problems.append(f"{path}: the list goes on (metadata.continue): it is one page, not the whole")
    return whole.items


def live(node: str, name: str, operator: tuple[str, ...]) -> Report:
    """Writes nothing. Reads the cluster of that name, then judges."""
    source = opened(name)
    seen = {name: source.observe(need) for name, need in needs(node).items()}
    seen |= {name: source.observe(need) for name, need in follow(seen).items()}
    return report(node, seen, operator)


def show(answer: Report) -> None:
    """Writes a table to the terminal. Names and annotations are hostile text and come out harmless."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gpurunbook.shown.hostile import harmless

    console = Console()
    colour = {"none": "green", "held": "red", "unknown": "yellow"}[answer.verdict]
    console.print(Text(f"GPUs of {harmless(answer.node)}: {answer.verdict}", style=f"bold {colour}"))
    if answer.holders:
        table = Table("pod", "owner", "status", "reasons", "seen")
        for holder in answer.holders:
            status = "operator" if holder.operator_owned else ("held" if holder.sure else "unknown")
            seen = "\n".join(harmless(r.detail) for r in holder.reasons if r.detail)
            cells = (harmless(holder.pod), harmless(holder.owner or holder.kind), status, "\n".join(holder.words))
            table.add_row(*(Text(c) for c in cells), Text(seen))
        console.print(table)
    for problem in answer.problems:
        click.echo(f"unknown: {harmless(problem)}", err=True)
    for pod, why in sorted(answer.doubts.items()):
        click.echo(f"warning: {harmless(pod)} {harmless(why)}", err=True)
