"""Having what a rule needs fetched, each kind from its source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from gpurunbook.errors import RunbookError
from gpurunbook.evidence import consumed
from gpurunbook.folder import keep
from gpurunbook.journal import digest
from gpurunbook.plan import (
    Approval,
    Approved,
    Bundle,
    Document,
    Folder,
    Need,
    Now,
    Object,
    Observed,
    Pages,
    Problem,
    Recorded,
)
from gpurunbook.sources import files
from gpurunbook.sources.cluster import Cluster

_NOTES = "inputs/withheld"
"""Where it stands what is known of files that may not be kept. All else in `inputs/` begins with a digest."""


class Observer:
    """Fetches needs. `inputs` collects the digest of each file of the user's, by its name under `inputs/`."""

    def __init__(
        self,
        folder: Path,
        home: Path,
        cluster: Callable[[], Cluster],
        clock: Callable[[], datetime],
        recorded: Mapping[str, Mapping[str, str]],
        approved: Callable[[str], Approved] | None = None,
    ) -> None:
        self._folder = folder
        self._home = home
        self._cluster = cluster
        self._clock = clock
        self._recorded = recorded
        self._approved = approved
        self.inputs: dict[str, str] = {}

    def __call__(self, needs: Mapping[str, Need]) -> dict[str, Observed]:
        """Copies the user's files that it reads into the run folder; writes nothing else."""
        return {name: self._one(need) for name, need in needs.items()}

    def _one(self, need: Need) -> Observed:
        try:
            match need:
                case Pages() | Object():
                    return self._cluster().observe(need)
                case Now():
                    return Observed(need, self._clock())
                case Document():
                    return Observed(need, self._document(need))
                case Folder():
                    return Observed(need, self._files(need))
                case Recorded():
                    return Observed(need, self._recorded_file(need))
                case Bundle():
                    found, kept = consumed.consume(need, self._home)
                    for name, raw in kept.items():
                        self._keep(name, raw)
                    return Observed(need, found)
                case Approval() if self._approved is not None:
                    return self._approval(need, self._approved)
        except (RunbookError, OSError) as wrong:
            code = wrong.code if isinstance(wrong, RunbookError) else "unreadable"
            text = str(wrong) if isinstance(wrong, RunbookError) else f"cannot be read: {wrong.strerror}"
            return Observed(need, problem=Problem(code, text))
        raise TypeError(f"no source for {type(need).__name__}")

    def _approval(self, need: Approval, approved: Callable[[str], Approved]) -> Observed:
        try:
            return Observed(need, approved(need.digest))
        except RunbookError as wrong:
            return Observed(need, problem=Problem(wrong.code, f"{wrong.subject}: {wrong.message}", wrong.remedy))

    def _document(self, need: Document) -> bytes:
        path = next((p for p in (Path(need.path), self._home / need.path) if p.is_file()), None)
        if path is None:
            raise FileNotFoundError(2, f"no file {need.path}")
        with path.open("rb") as file:
            raw = file.read(need.limit + 1)
        if len(raw) > need.limit:
            raise OSError(27, f"{need.path} is larger than {need.limit} bytes")
        self._keep(path.name, raw)
        return raw

    def _keep(self, given: str, raw: bytes) -> None:
        name = f"inputs/{digest(raw)[7:19]}-{given}"
        keep.kept(self._folder / name, raw)
        self.inputs[name] = digest(raw)

    def _files(self, need: Folder) -> dict[str, bytes | Problem]:
        path = next((p for p in (Path(need.path), self._home / need.path) if p.is_dir()), Path(need.path))
        found = dict(files.folder(str(path), need.files, need.limit))
        sums = {name: digest(raw) for name, raw in sorted(found.items()) if isinstance(raw, bytes)}
        place = f"{digest(repr(sums).encode())[7:19]}-{path.resolve().name}"
        for name, raw in found.items():
            if isinstance(raw, bytes):
                self._copy(f"{place}/{name}", raw, need.withhold(name, raw) if need.withhold else "")
        return found

    def _copy(self, given: str, raw: bytes, withheld: str) -> None:
        """The file itself; or, when it may not be kept, what is known of it, where no name of a file can lead."""
        name = f"inputs/{given}"
        if withheld:
            name, told = f"{_NOTES}/{given}", {"sha256": digest(raw), "bytes": len(raw), "withheld": withheld}
            raw = json.dumps(told, sort_keys=True).encode() + b"\n"
        keep.kept(self._folder / name, raw)
        self.inputs[name] = digest(raw)

    def _recorded_file(self, need: Recorded) -> bytes:
        wanted = self._recorded.get(need.step, {}).get(f"after/{need.name}")
        if wanted is None:
            raise FileNotFoundError(2, f"step {need.step} recorded no {need.name}")
        raw = (self._folder / "after" / need.name).read_bytes()
        if digest(raw) != wanted:
            raise OSError(5, f"after/{need.name} is not what step {need.step} recorded")
        return raw
