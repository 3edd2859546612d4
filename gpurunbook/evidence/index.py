"""`outputs/index.html`: all runs on one page, without scripts, for whoever opens the folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpurunbook.errors import InputError, JournalError
from gpurunbook.evidence import bundle
from gpurunbook.folder import keep, workspace
from gpurunbook.journal import JOURNAL, digest, read, replay
from gpurunbook.shown.hostile import escaped
from gpurunbook.shown.marks import badge

NAME = "index.html"

_CHECKED = (JOURNAL, bundle.VERDICT)
"""Files whose digests are compared with the manifest on each writing of the page; `verify` compares all."""

_STYLE = """
body{font:15px/1.4 system-ui,sans-serif;margin:2em;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:6px 10px;border-bottom:1px solid #ccc;vertical-align:top}
th{background:#f2f2f2}
td.n{text-align:right;white-space:nowrap}
a{color:#0b57d0}
td{overflow-wrap:anywhere}
@media(max-width:60em){body{margin:1em}table,tbody,tr,td{display:block}thead{display:none}
td{border:0;padding:2px 0}td.n{text-align:left}tr{border-bottom:1px solid #ccc;padding:8px 0}td:empty{display:none}}
"""


@dataclass(frozen=True)
class Row:
    """One run, as the page shows it. seconds: from start to the closing record, None while open."""

    run: str
    runbook: str
    scenario: str
    verdict: str
    code: str
    cluster: str
    rehearsal: bool
    started: str
    seconds: float | None
    evidence: str
    files: tuple[str, ...]


def row(run_dir: Path) -> Row:
    """Writes nothing. What one run folder holds. Raises InputError when it is none."""
    record = workspace.record(run_dir)
    sealed = _sealed(run_dir)
    started, seconds, verdict, code, about = record.get("created", ""), None, "unknown", "", {}
    try:
        records = read(run_dir / JOURNAL)
        state = replay(records)
        verdict, about = str(state.verdict), state.start
        if state.closing is not None:
            code = str(state.closing["data"].get("code", "died"))
            seconds = _between(records[0]["time"], state.closing["time"])
        elif records:
            code = "not-closed"
        else:
            code = "not-started"
        started = records[0]["time"] if records else started
    except JournalError as wrong:
        code = wrong.code
    except (AttributeError, KeyError, TypeError, ValueError):  # a journal whose hashes hold can still say anything
        verdict, code, about = "unknown", "journal", {}
    if sealed:
        verdict = str(sealed.get("verdict", "unknown"))
    cluster = about.get("cluster")
    cluster = cluster if isinstance(cluster, dict) else {}
    typed = about.get("parameters")
    typed = typed.get("cluster", "") if isinstance(typed, dict) else ""
    names = (f"{record['runbook']}.html", f"{record['runbook']}.ipynb", bundle.MANIFEST, JOURNAL)
    return Row(
        run=run_dir.name,
        runbook=record["runbook"],
        scenario=str(record.get("scenario", "")),
        verdict=verdict,
        code=code,
        cluster=str(cluster.get("name") or cluster.get("uid") or typed),
        # A run whose cluster was not identified is no evidence of any.
        rehearsal=bool(sealed.get("rehearsal", True) if sealed else about.get("rehearsal", True)),
        started=str(started),
        seconds=seconds,
        evidence=str(sealed.get("evidence", "sealed")) if sealed else "unsealed",
        files=tuple(name for name in names if (run_dir / name).is_file()),
    )


def _sealed(run_dir: Path) -> dict[str, Any]:
    """verdict.json, when it and the journal are still those that the manifest names, and it says the same."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        manifest = json.loads((run_dir / bundle.MANIFEST).read_bytes())
        for name in _CHECKED:
            if manifest["files"][name] != digest((run_dir / name).read_bytes()):
                return {}
        said = json.loads((run_dir / bundle.VERDICT).read_bytes())
        if all(manifest[name] == said[name] for name in ("run", "verdict", "evidence", "rehearsal")):
            return dict(said)
    return {}


def _between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def write(out: Path) -> Path:
    """Replaces `<out>/index.html` by a page of all runs there, newest first. Gives its path."""
    rows = []
    for run_dir in out.iterdir():
        if (run_dir / workspace.RECORD).is_file() and not run_dir.name.startswith("."):
            with contextlib.suppress(InputError):
                rows.append(row(run_dir))
    rows.sort(key=lambda r: (r.started, r.run), reverse=True)
    path = out / NAME
    keep.write(path, page(rows).encode())
    return path


def refresh(run_dir: Path) -> None:
    """Replaces the page of runs that a run belongs to: beside it, where there is one or where its home keeps runs.

    A page that cannot be written is left as it is: the evidence stands without it.
    """
    with contextlib.suppress(OSError, InputError):
        out = run_dir.resolve().parent
        if (out / NAME).is_file() or out == workspace.runs_folder(Path(workspace.record(run_dir)["home"])).resolve():
            write(out)


def page(rows: list[Row]) -> str:
    """Writes nothing. The page of the rows, in their order."""
    heads = ("Verdict", "Runbook", "Scenario", "Cluster", "Started (UTC)", "Took", "Evidence", "Read")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "\n".join(map(_row, rows)) or f'<tr><td colspan="{len(heads)}">No runs yet.</td></tr>'
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Runs</title><style>{_STYLE}</style></head><body>\n<h1>Runs</h1>\n"
        "<p>Of each run: what it came to, and whether its evidence is sealed. "
        "<code>gpurunbook verify DIR</code> computes a bundle again; this page only compares journal and verdict "
        f"with the manifest.</p>\n<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>\n"
        "</body></html>\n"
    )


_LABELS: Mapping[str, str] = {".html": "page", ".ipynb": "notebook", ".json": "manifest", ".jsonl": "journal"}


def _row(found: Row) -> str:
    links = " · ".join(
        f'<a href="{quote(found.run)}/{quote(name)}">{_LABELS[Path(name).suffix]}</a>' for name in found.files
    )
    rehearsal = f" {badge('rehearsal')}" if found.rehearsal else ""
    took = "" if found.seconds is None else f"{found.seconds:.1f} s"
    cells = (
        f"{badge(found.verdict)}<br><small>{escaped(found.code)}</small>",
        f"{escaped(found.runbook)}<br><small>{escaped(found.run)}</small>",
        escaped(found.scenario),
        f"{escaped(found.cluster)}{rehearsal}",
        escaped(found.started[:19].replace("T", " ")),
        took,
        badge(found.evidence),
        links,
    )
    return f'<tr id="{escaped(found.run)}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
