"""What the start and the last cell say in a kernel of JupyterLab: cells run before the start, corrected parameters.

Covered: a passed step whose cell was run before the start of a new kernel; a wrong parameter that is put right in the
same kernel, before and after something has counted. Not covered: the browser (tests/browser), headless runs.
"""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest
import tiny

from gpurunbook.folder import workspace

START = f'import gpurunbook as rb\n\nrun = rb.start("{tiny.RUNBOOK}")'
AUDIT = 'run.check("audit", rb.supply.provenance(run.parameters.namespaces, pod_json=run.parameters.pod_json))'
EVIDENCE = 'run.check("evidence", rb.supply.evidence_ready())'
CLOSE = "run.close()"


def parameters(file: str) -> str:
    return f'# parameters of {tiny.RUNBOOK}\npod_json = "{file}"'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    home = tiny.lay(tmp_path, "closes")
    monkeypatch.setenv("GPURUNBOOK_HOME", str(home))
    return workspace.new_run(tiny.RUNBOOK, home=home, out=home / "outputs", run_id="one")


def kernel(folder: Path, *cells: str) -> list[str]:
    """What each cell shows, in a new kernel that goes on after an error."""
    made = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "p", "language": "python"}}
    )
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    where = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(made, timeout=300, allow_errors=True, resources=where).execute()
    return [
        "\n".join(str(o.get("data", {}).get("text/plain", "")) + o.get("evalue", "") for o in cell.outputs)
        for cell in made.cells
    ]


def test_a_passed_step_that_was_run_before_the_start_is_asked_for_again(folder: Path) -> None:
    kernel(folder, parameters("pods.json"), START, AUDIT, EVIDENCE)
    told = kernel(folder, AUDIT, parameters("pods.json"), START, CLOSE, AUDIT, EVIDENCE, CLOSE)
    assert "name 'run' is not defined" in told[0]
    assert "run the cell audit again" in told[2]
    assert "Run the cell 'audit' first" in told[3]
    assert tiny.closing(folder)["verdict"] == "pass"


def test_a_wrong_parameter_is_put_right_in_its_own_kernel(folder: Path) -> None:
    told = kernel(folder, parameters("none.json"), START, AUDIT, parameters("pods.json"), START, AUDIT, EVIDENCE, CLOSE)
    assert "none.json" in told[2]
    assert tiny.events(folder).count("start") == 2
    assert tiny.closing(folder)["verdict"] == "pass"


def test_after_a_step_has_passed_the_card_names_the_new_run_and_no_circle(folder: Path) -> None:
    told = kernel(folder, parameters("pods.json"), START, AUDIT, parameters("none.json"), START)
    assert "The run goes by other parameters" in told[4]
    assert "gpurunbook new provenance_audit --set pod_json=none.json" in told[4]
    assert "Change the parameters cell" not in told[4]
    assert tiny.events(folder).count("start") == 1
