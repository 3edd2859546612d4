"""`gpurunbook doctor`: whether this environment can run runbooks, one line each with what to do."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click


@dataclass(frozen=True)
class Answer:
    """Of one question. status: pass, warn (a part of the product will not work) or fail."""

    question: str
    status: str
    seen: str
    remedy: str = ""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--cluster", default=None, metavar="CONTEXT", help="Ask this cluster too; '' is the current context.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def doctor(cluster: str | None, output: str) -> int:
    """Say whether runbooks can run here, and what to do where they cannot.

    Exit: 0 when nothing fails, 1 otherwise.
    """
    answers = [answer for question in QUESTIONS for answer in question()]
    answers += kubernetes(cluster)
    code = 1 if any(answer.status == "fail" for answer in answers) else 0
    if output == "json":
        said = {"verdict": "fail" if code else "pass", "answers": [asdict(answer) for answer in answers]}
        click.echo(json.dumps(said, sort_keys=True, indent=1))
        return code
    from gpurunbook.cli.answer import with_next
    from gpurunbook.shown.hostile import harmless
    from gpurunbook.shown.marks import plain

    colours = {"pass": "green", "warn": "yellow", "fail": "red"}
    for answer in answers:
        seen = " ".join(answer.seen.split())  # an exec plugin, say, complains in several lines
        line = f"{plain(answer.status):<7} {answer.question:<11} {harmless(seen, 600)}"
        click.secho(with_next(line, harmless(answer.remedy, 600)), fg=colours[answer.status])
    return code


def python() -> Iterator[Answer]:
    """Writes nothing. The interpreter."""
    seen = f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"
    yield Answer("python", "pass", seen)


def user() -> Iterator[Answer]:
    """Writes nothing. Whether JupyterLab starts for this user."""
    if os.geteuid() == 0:
        yield Answer("user", "warn", "root, for whom JupyterLab does not start", "`gpurunbook lab --allow-root` does.")


def packages() -> Iterator[Answer]:
    """Writes nothing. What the package declares, against what is installed."""
    from importlib.metadata import PackageNotFoundError, requires, version

    from packaging.requirements import Requirement

    wrong, good = [], 0
    for text in requires("gpurunbook") or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            wrong.append(f"{wanted.name} is missing")
            continue
        if wanted.specifier.contains(found, prereleases=True):
            good += 1
        else:
            wrong.append(f"{wanted.name} is {found}, wanted {wanted.specifier}")
    if wrong:
        yield Answer("packages", "fail", "; ".join(wrong), "`make run` or `pip install -r requirements.lock`.")
    else:
        yield Answer("packages", "pass", f"{good} as declared, gpurunbook {version('gpurunbook')}")


def kernelspec() -> Iterator[Answer]:
    """Writes nothing. Which Python a notebook gets in JupyterLab; headless runs always use this one."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    remedy = f"`{sys.executable} -m ipykernel install --sys-prefix`."
    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        yield Answer("kernel", "fail", "there is no kernel named python3", remedy)
        return
    first = spec.argv[0] if spec.argv else ""
    bare = "/" not in first and first.startswith("python")  # jupyter_client puts its own interpreter there
    runs = sys.executable if bare else first
    if _same(runs, sys.executable):
        yield Answer("kernel", "pass", f"python3 runs {runs}")
    else:
        where = spec.resource_dir
        yield Answer("kernel", "fail", f"python3 runs {runs or 'nothing'}, as {where} says", remedy)


def _same(one: str, other: str) -> bool:
    """Whether both start the same environment: a venv's python is a link, so the folder counts, not its target."""
    return bool(one) and Path(one).parent.resolve() == Path(other).parent.resolve()


def home() -> Iterator[Answer]:
    """Makes and removes one empty file in the folder of runs. The home, and whether runs can be kept."""
    from gpurunbook.errors import InputError
    from gpurunbook.folder import workspace

    try:
        found = workspace.find_home()
    except InputError as wrong:
        yield Answer("home", "fail", wrong.message, wrong.remedy)
        return
    count = len(list((found / "runbooks").glob("*.ipynb")))
    yield Answer("home", "pass" if count else "fail", f"{found} with {count} runbooks")
    out = workspace.runs_folder(found)
    probe = out / f".doctor-{os.getpid()}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as wrong:
        yield Answer("outputs", "fail", f"{out} cannot be written: {wrong.strerror}", "Set GPURUNBOOK_OUT to a folder.")
        return
    free = shutil.disk_usage(out).free >> 20
    status, remedy = ("warn", "Make room: evidence needs some megabytes a run.") if free < 500 else ("pass", "")
    yield Answer("outputs", status, f"{out} can be written, {free} MB free", remedy)


def tools() -> Iterator[Answer]:
    """Writes nothing. Programs that are called."""
    found = shutil.which("ssh-keygen")
    if found:
        yield Answer("ssh-keygen", "pass", found)
    else:
        remedy = "Install the OpenSSH client (Debian: openssh-client)."
        yield Answer("ssh-keygen", "warn", "not found: nothing can be approved or signed here", remedy)


def kubernetes(context: str | None) -> Iterator[Answer]:
    """Writes nothing. Whether the cluster answers; without a named one, only whether there is a configuration."""
    configs = os.environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")
    there = any(Path(part).is_file() for part in configs.split(os.pathsep) if part)
    if context is None and not there:
        seen = "no kubeconfig: only fixture clusters (embedded:DIR) can be used"
        yield Answer("cluster", "warn", seen, "Set KUBECONFIG, or go on with the fixture clusters.")
        return
    from gpurunbook.cli.answer import cluster
    from gpurunbook.errors import RunbookError

    name = context or ""
    try:
        identity = cluster(name).identify()
    except RunbookError as wrong:
        subject = f"{wrong.subject}: " if wrong.subject else ""
        yield Answer("cluster", "warn" if context is None else "fail", subject + wrong.message, wrong.remedy)
        return
    operator = identity.operator or "an unknown user: only dry runs"
    yield Answer(
        "cluster", "pass", f"{name or 'current context'}: uid {identity.uid}, {identity.version}, as {operator}"
    )


QUESTIONS: tuple[Callable[[], Iterator[Answer]], ...] = (python, user, packages, kernelspec, home, tools)
