"""Writes the executed examples: notebook and page of each runbook's main scenario, as they were sealed.

`python docs/examples/write.py [RUNBOOK]…`. What names the machine or the moment of the run is taken out of the
notebook's metadata first, and the run is sealed again as it is then; of the page nothing is changed.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from gpurunbook.evidence import seal
from gpurunbook.declared.runbooks import names
from gpurunbook.folder import keep, workspace
from gpurunbook.headless import batch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def main(runbooks: list[str]) -> int:
    """Returns 1 when a run did not come to what is expected of it; then nothing is written of that runbook."""
    code = 0
    with tempfile.TemporaryDirectory() as out:
        scenarios = [s for s in batch.in_home(ROOT, runbooks) if s.main]
        for result in batch.run_all(scenarios, home=ROOT, out=Path(out), jobs=1):
            if result.exit or result.outcome is None:
                print(result.scenario.runbook, result.trouble or result.differences, file=sys.stderr)
                code = 1
                continue
            run = result.outcome.run_dir
            notebook = workspace.notebook(run)
            keep.write(notebook, plain(notebook.read_bytes()))
            seal.seal(run)
            for kind in ("ipynb", "html"):
                shutil.copy(run / f"{result.scenario.runbook}.{kind}", HERE)
    return code


def plain(raw: bytes) -> bytes:
    """Writes nothing. A notebook without papermill's paths and times."""
    made = json.loads(raw)
    made["metadata"].pop("papermill", None)
    for cell in made["cells"]:
        cell["metadata"] = {"tags": cell["metadata"].get("tags", [])}
    return json.dumps(made, ensure_ascii=False, indent=1, sort_keys=True).encode() + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or names()))
