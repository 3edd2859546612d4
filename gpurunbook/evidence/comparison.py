"""A bundle against its manifest and against itself: everything is computed again, and every difference is named.

The bundle is hostile: names come from the folder, never from the manifest, so nothing outside is read; what cannot be
read or makes no sense is a difference, never a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpurunbook.errors import EvidenceError, InputError, JournalError
from gpurunbook.evidence import bundle, executed, facts, report
from gpurunbook.journal import JOURNAL, Record, digest, parse
from gpurunbook.supply import strictjson

SHOWN = 500
"""Differences told; a folder may hold a hundred thousand files."""

_LARGE = 512 << 20


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it was sealed. kind: anchor, cell, file, finding, html, journal, manifest, notebook,
    parameter, run, signature, verdict, withheld; name: which one.
    """

    kind: str
    name: str
    message: str


class _Shown(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    sha256: str
    cells: list[dict[str, str]]


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    kind: str
    sha256: str
    parameters: bool


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str | None
    cells: list[_Outline] | None


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """What a manifest must hold for the comparison; `core` fields are compared by name and not typed here."""

    format: str
    run: str
    runbook: str
    verdict: str
    evidence: str
    rehearsal: bool
    withheld: dict[str, list[str]]
    files: dict[str, str]
    source: _Source
    package: dict[str, Any]
    versions: dict[str, str | None]
    renderer: str
    notebook: _Shown
    journal: list[str]
    parameters: dict[str, Any]
    exit: int
    closed: dict[str, str]
    lowered: list[dict[str, str]]
    anomalies: list[dict[str, str]]
    not_run: list[str]
    steps: list[dict[str, Any]]
    cluster: dict[str, Any] | None
    operator: dict[str, Any] | None
    rehearsal_reasons: list[str]
    change_id: str
    reason: str
    approver: str
    break_glass: bool
    overrides: list[Any]
    left_behind: list[str]
    start: str
    end: str
    head: str


class Comparison:
    """One bundle against its manifest, and against itself. found: the differences, files first."""

    def __init__(self, folder: Path, manifest: Manifest, whole: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.whole = whole
        self.found: list[Difference] = []
        self._paths: Mapping[str, Path] = {}
        self._digests: dict[str, str] = {}

    def say(self, kind: str, name: str, message: str) -> None:
        """Notes one difference, once."""
        made = Difference(kind, name, message)
        if made not in self.found[-SHOWN:]:
            self.found.append(made)

    def run(self) -> list[Difference]:
        """Writes nothing. All that is found."""
        if self.manifest.format != bundle.FORMAT:
            self.say("manifest", "format", f"is {self.manifest.format}, wanted {bundle.FORMAT}")
            return self.found
        try:
            lying = bundle.walk(self.folder)
        except InputError as wrong:
            self.say("file", wrong.subject, wrong.message)
            return self.found
        self._paths = lying.files
        for name, what in lying.odd.items():
            self.say("file", name, f"is {what}")
        self._files()
        notebook, records = self._notebook(), self._journal()
        self._copies()
        if notebook is not None and records is not None:
            self._meaning(records, notebook)
        return self.found

    def _files(self) -> None:
        listed = self.manifest.files
        for name, path in self._paths.items():
            try:
                self._digests[name] = bundle.file_digest(path)
            except InputError as wrong:
                self.say("file", name, wrong.message)
                continue
            if name not in listed:
                self.say("file", name, "was added after the seal")
            elif self._digests[name] != listed[name]:
                self.say("file", name, "was altered")
        for name in listed:
            if name not in self._paths:
                self.say("file", name, "is missing")
        book = self.manifest.runbook
        for name in (f"{book}.ipynb", f"{book}.html", JOURNAL, bundle.VERDICT, bundle.FINDINGS):
            if name not in listed:
                self.say("manifest", "files", f"does not list {name}")

    def _bytes(self, name: str, limit: int) -> bytes | None:
        if name not in self._paths:
            return None  # told already
        try:
            return bundle.read(self._paths[name], limit)
        except InputError as wrong:
            self.say("file", name, wrong.message)
            return None

    def _json(self, name: str) -> Any:
        raw = self._bytes(name, _LARGE)
        try:
            return None if raw is None else strictjson.loads(raw)
        except InputError as wrong:
            self.say("file", name, wrong.message)
            return None

    def _notebook(self) -> executed.Notebook | None:
        name = f"{self.manifest.runbook}.ipynb"
        if self.manifest.notebook.path != name:
            self.say("manifest", "notebook", f"is {self.manifest.notebook.path}, wanted {name}")
        raw = self._bytes(name, _LARGE)
        if raw is None:
            return None
        try:
            notebook = executed.read(raw, name)
        except (InputError, RecursionError) as wrong:
            self.say("notebook", name, str(wrong))
            return None
        now = {cell["id"]: cell["sha256"] for cell in facts.shown(notebook)["cells"]}
        sealed = {cell.get("id", ""): cell.get("sha256") for cell in self.manifest.notebook.cells}
        for id in now:
            if id not in sealed:
                self.say("cell", id, "was added after the seal")
            elif now[id] != sealed[id]:
                self.say("cell", id, "was altered after the seal: its text, its outputs, or whether it ran")
        for id in sealed:
            if id not in now:
                self.say("cell", id, "is missing")
        if now == sealed and list(now) != list(sealed):
            self.say("notebook", name, "its cells stand in another order")
        elif now == sealed and self._digests.get(name) != self.manifest.files.get(name):
            self.say("notebook", name, "cells and outputs are as sealed; its metadata is not")
        return notebook

    def _journal(self) -> list[Record] | None:
        raw = self._bytes(JOURNAL, _LARGE)
        if raw is None:
            return None
        sealed = self.manifest.journal
        try:
            records = parse(raw, JOURNAL)
        except JournalError as wrong:
            self.say("journal", wrong.subject, wrong.message)
            return None
        except (ValueError, RecursionError) as wrong:
            self.say("journal", JOURNAL, f"cannot be read: {wrong}")
            return None
        now = [record["hash"] for record in records]
        at = next((i for i, (one, other) in enumerate(zip(now, sealed, strict=False)) if one != other), None)
        if at is not None:
            self.say("journal", f"{JOURNAL} line {at + 1}", "is not the line that was sealed")
        elif len(now) != len(sealed):
            self.say("journal", JOURNAL, f"has {len(now)} lines, {len(sealed)} were sealed")
        return records

    def _copies(self) -> None:
        """verdict.json repeats the manifest."""
        told = self._json(bundle.VERDICT)
        if told is None:
            return
        if not isinstance(told, dict):
            self.say("verdict", bundle.VERDICT, "is no object")
            return
        own = {*(f.name for f in msgspec.structs.fields(Manifest)), "format"} - facts.OF_THE_BUNDLE
        wanted = {**{name: self.whole[name] for name in own}, "format": "gpurunbook.verdict/v1"}
        if "bound" in told:  # the first seals had none
            wanted["bound"] = facts.bound(self.whole)
        self._fields(bundle.VERDICT, told, wanted, "the manifest")

    def _fields(self, where: str, told: Mapping[str, Any], wanted: Mapping[str, Any], than: str) -> None:
        for name in sorted({*told, *wanted}):
            one, other = told.get(name), wanted.get(name)
            if _same(one, other):
                continue
            if name == "parameters" and isinstance(one, dict) and isinstance(other, dict):
                for key in sorted({*one, *other}):
                    if not _same(one.get(key), other.get(key)):
                        self.say(
                            "parameter", key, f"{where} has {_short(one.get(key))}, {than} {_short(other.get(key))}"
                        )
            elif name == "anomalies" and isinstance(one, list) and isinstance(other, list):
                self._anomalies(where, than, one, other)
            else:
                kind = "verdict" if where == bundle.VERDICT or name == "verdict" else "manifest"
                self.say(kind, name, f"{where} has {_short(one)}, {than} {_short(other)}")

    def _anomalies(self, where: str, than: str, one: list[Any], other: list[Any]) -> None:
        ones, others = ({json.dumps(entry, sort_keys=True): entry for entry in told} for told in (one, other))
        for word, (has, lacks) in {than: (others, ones), where: (ones, others)}.items():
            for key in has.keys() - lacks.keys():
                entry = has[key] if isinstance(has[key], dict) else {}
                kind = entry["kind"] if entry.get("kind") in ("file", "parameter") else "cell"
                self.say(kind, str(entry.get("cell")), f"only {word} says: {entry.get('kind')}: {entry.get('detail')}")

    def _meaning(self, records: list[Record], notebook: executed.Notebook) -> None:
        """What the journal and the notebook say, computed again."""
        try:
            findings = facts.findings(records)
            self._findings(findings)
            core = facts.conclude(records, notebook, self.whole["source"], self._digests)
            page = report.render(notebook, {**core, "evidence": "sealed"}, findings["findings"])
            package = records[0]["data"]["package"]
        except EvidenceError as wrong:
            self.say("run", wrong.subject or self.manifest.run, wrong.message)
            return
        except Exception as wrong:  # A journal whose hashes hold can still say anything at all.
            self.say("journal", JOURNAL, f"its records are not those of a run: {type(wrong).__name__}: {wrong}")
            return
        self._fields(bundle.MANIFEST, {name: self.whole[name] for name in core}, core, "the journal")
        self._fields(bundle.MANIFEST, {"package": self.manifest.package}, {"package": package}, "the journal")
        if self.manifest.notebook.sha256 != facts.shown(notebook)["sha256"]:
            self.say("manifest", "notebook", "its digest is not that of the notebook")
        name = f"{self.manifest.runbook}.html"
        if self.manifest.renderer == report.renderer() and self._digests.get(name) not in {None, digest(page.encode())}:
            self.say("html", name, "is not what the notebook and the journal give")

    def _findings(self, wanted: Mapping[str, Any]) -> None:
        told = self._json(bundle.FINDINGS)
        if told is None or _same(told, wanted):
            return
        listed = told.get("findings") if isinstance(told, dict) else None
        if not isinstance(listed, list):
            self.say("finding", bundle.FINDINGS, "is no list of findings")
            return
        for at, finding in enumerate(wanted["findings"]):
            name = f"{finding['step']}: {finding['code']} {finding['subject']}"
            if at >= len(listed):
                self.say("finding", name, "is missing")
            elif not _same(listed[at], finding):
                keys = {*finding, *listed[at]} if isinstance(listed[at], dict) else set(finding)
                wrong = sorted(
                    k for k in keys if not isinstance(listed[at], dict) or listed[at].get(k) != finding.get(k)
                )
                self.say("finding", name, f"differs from the journal in {', '.join(wrong)}")
        for at in range(len(wanted["findings"]), len(listed)):
            self.say("finding", f"number {at + 1}", "is not in the journal")
        if not any(d.kind == "finding" for d in self.found):
            self.say("finding", bundle.FINDINGS, "differs from the journal")


def _same(one: Any, other: Any) -> bool:
    # 1, 1.0 and True are equal for Python.
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _short(value: Any) -> str:
    return json.dumps(value, sort_keys=True)[:120]
