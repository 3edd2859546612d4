"""The notebook that runs, as a file: whole at any time, and true of each cell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from papermill.engines import NotebookExecutionManager

from gpurunbook.folder import keep


@dataclass(frozen=True)
class Ending:
    """Why a notebook did not run to its end, in one line, and at which cell."""

    name: str
    reason: str
    index: int
    cell: str


class Notebook(NotebookExecutionManager):  # type: ignore[misc]
    """Keeps the notebook that runs in a file: whole at any time, and true.

    papermill writes and validates the file twice per cell; here it is replaced once, when the next cell starts,
    with the bytes that papermill would write. Raises OSError when it cannot be replaced; the old file stays whole.
    """

    def __init__(self, nb: Any, path: Path, **options: Any) -> None:
        super().__init__(nb, output_path=str(path), **options)
        self.path = path
        self._saving = True

    def save(self, **_: Any) -> None:
        """Replaces the file."""
        if self._saving:
            keep.write(self.path, nbformat.v4.writes_json(self.nb).encode())
            self.last_save_time = self.now()

    def autosave_cell(self) -> None:
        """Replaces the file now and then while a cell runs; a full disk is met at the next cell."""
        with contextlib.suppress(OSError):
            super().autosave_cell()

    def cell_start(self, cell: Any, cell_index: int | None = None, **more: Any) -> None:
        """Marks a cell as running and replaces the file, which then holds all of the cell before."""
        with self._unsaved():
            super().cell_start(cell, cell_index, **more)
        if cell.cell_type == "code":
            self.save()

    def cell_complete(self, cell: Any, cell_index: int | None = None, **more: Any) -> None:
        """Marks a cell as done; the file is replaced by what comes next."""
        with self._unsaved():
            super().cell_complete(cell, cell_index, **more)

    def fail(self, ending: Ending, show: bool) -> None:
        """Marks the cell as failed, with the reason as an error output of it where the kernel left none."""
        cell = self.nb.cells[ending.index]
        self.cell_exception(cell)
        cell.metadata.papermill["status"] = self.FAILED
        if show and cell.cell_type == "code":
            lines = [f"{ending.name}: {ending.reason}", "Written by the driver, not by the kernel."]
            cell.outputs.append(
                nbformat.v4.new_output("error", ename=ending.name, evalue=ending.reason, traceback=lines)
            )

    def notebook_complete(self, **_: Any) -> None:
        """Sets the times and replaces the file. Cells that did not run stay `pending`."""
        self.end_time = self.now()
        about = self.nb.metadata.papermill
        about["end_time"] = self.end_time.isoformat()
        about["duration"] = (self.end_time - self.start_time).total_seconds()
        self.complete_pbar()
        self.cleanup_pbar()
        self.save()

    @contextlib.contextmanager
    def _unsaved(self) -> Iterator[None]:
        self._saving = False
        try:
            yield
        finally:
            self._saving = True
