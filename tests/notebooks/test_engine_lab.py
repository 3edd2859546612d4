"""`gpurunbook lab` and `gpurunbook doctor`.

Covered: a real JupyterLab server opens on the working copy, saves copies and refuses to save a source or into a sealed
run; the command line it is started with; doctor's answers here, and for a kernel of another Python, an absent home, and
no cluster.
Not covered: the browser (tests/browser).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner
from test_engine_faults import SECONDS, wait_for

from gpurunbook.cli import doctor, lab
from gpurunbook.journal import Journal
from tests import ports

TOKEN = "only-on-loopback"


def ask(url: str, method: str = "GET", body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"Authorization": f"token {TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_lab_opens_a_copy_and_keeps_sources_and_sealed_runs(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    sealed = tiny.gpurunbook(home, "run", "provenance_audit", "--run-id", "sealed", "--set", "pod_json=pods.json")
    sealed.communicate(timeout=SECONDS)
    held = ports.held()
    port = held.getsockname()[1]
    words = ["--run-id", "mine", "--no-browser", f"--port={port}", "--ip=127.0.0.1", "--allow-root"]
    process = tiny.gpurunbook(home, "lab", "provenance_audit", *words, f"--IdentityProvider.token={TOKEN}")
    assert process.stderr is not None
    try:
        said = ""
        end = time.monotonic() + SECONDS
        while not (found := re.search(rf"http://127\.0\.0\.1:{port}/lab(\S*)", said)):
            assert time.monotonic() < end
            line = process.stderr.readline()
            assert line, said
            said += line
        assert f"working copy: {home}/outputs/mine/provenance_audit.ipynb" in said
        assert found[1].startswith("/tree/outputs/mine/provenance_audit.ipynb")
        wait_for(lambda: listens(port), process)  # it tells its address before it listens
        base = f"http://127.0.0.1:{port}/api/contents"
        source = Path(tiny.source(home)).read_bytes()
        model = {"type": "notebook", "format": "json", "content": json.loads(source)}
        status, answer = ask(f"{base}/runbooks/provenance_audit.ipynb", "PUT", model)
        assert status == 403
        assert "gpurunbook new provenance_audit" in answer
        status, _ = ask(f"{base}/runbooks/./other.ipynb", "PUT", model)
        assert status == 403
        assert [path.name for path in (home / "runbooks").iterdir()] == ["provenance_audit.ipynb"]
        assert Path(tiny.source(home)).read_bytes() == source
        status, _ = ask(f"{base}/outputs/mine/provenance_audit.ipynb", "PUT", model)
        assert status == 200
        evidence = home / "outputs" / "sealed" / "provenance_audit.ipynb"
        before = evidence.read_bytes()
        for name in ("provenance_audit.ipynb", "other.ipynb", "after/other.ipynb"):
            status, answer = ask(f"{base}/outputs/sealed/{name}", "PUT", model)
            assert status == 403
            assert "run sealed is sealed" in answer
        assert evidence.read_bytes() == before
        Journal.open(evidence.parent / "journal.jsonl").append("resume", {"process": {"host": "h", "pid": 1}})
        status, _ = ask(f"{base}/outputs/sealed/provenance_audit.ipynb", "PUT", model)
        assert status == 200  # it went on, and must be saved before it is sealed again
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
        held.close()


def test_lab_is_this_python_and_passes_words_on() -> None:
    command = lab.command(Path("/h"), Path("/h/outputs/r/x.ipynb"), ("--no-browser",))
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--LabApp.default_url=/lab/tree/outputs/r/x.ipynb" in command
    assert command[-1] == "--no-browser"
    assert "--ServerApp.root_dir=/h" in command


def answers(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(doctor.doctor, ["-o", "json", *words], standalone_mode=False)
    assert result.exception is None, result.exception
    found = json.loads(result.output)["answers"]
    return result.return_value, {answer["question"]: answer for answer in found}


@pytest.fixture
def _plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GPURUNBOOK_HOME", "GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize(
    ("words", "runbook"),
    [
        ((), ""),
        (("--port", "8889", "--no-browser"), ""),
        (("--port", "8889", "provenance_audit"), "provenance_audit"),
        (("provenance_audit", "--port", "8889"), "provenance_audit"),
        (("provenance_audt", "--no-browser"), "provenance_audt"),
    ],
)
def test_lab_takes_no_value_of_an_option_for_a_runbook(words: tuple[str, ...], runbook: str) -> None:
    assert lab.named(words, ["node_cordon", "provenance_audit"]) == runbook


@pytest.mark.usefixtures("_plain")
def test_root_is_told_of_the_option_before_a_copy_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tiny.lay(tmp_path, "closes")
    monkeypatch.chdir(home)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    done = CliRunner().invoke(lab.lab, ["provenance_audit"])
    assert done.exit_code == 2
    assert "--allow-root" in done.output
    assert not (home / "outputs").exists()


def test_doctor_finds_this_environment_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tiny.lay(tmp_path, "closes")
    monkeypatch.chdir(home)
    code, found = answers(monkeypatch)
    assert code == 0, found
    user = found.pop("user", None)
    assert (user is not None) == (os.geteuid() == 0)
    assert {name: answer["status"] for name, answer in found.items()} == {
        "python": "pass",
        "packages": "pass",
        "kernel": "pass",
        "home": "pass",
        "outputs": "pass",
        "ssh-keygen": "pass" if shutil.which("ssh-keygen") else "warn",
        "cluster": "warn",
    }
    assert list((home / "outputs").iterdir()) == []


@pytest.mark.usefixtures("_plain")
def test_doctor_names_a_kernel_of_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.lay(tmp_path, "closes"))
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = ["/opt/other/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "other", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    code, found = answers(monkeypatch)
    assert code == 1
    assert found["kernel"]["status"] == "fail"
    assert "/opt/other/bin/python" in found["kernel"]["seen"]
    assert "-m ipykernel install --sys-prefix" in found["kernel"]["remedy"]


@pytest.mark.usefixtures("_plain")
def test_doctor_outside_of_a_home_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, found = answers(monkeypatch)
    assert code == 1
    assert "GPURUNBOOK_HOME" in found["home"]["remedy"]
    assert "outputs" not in found


@pytest.mark.usefixtures("_plain")
def test_doctor_says_that_a_named_cluster_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.lay(tmp_path, "closes"))
    code, found = answers(monkeypatch, "--cluster", "no-such-context")
    assert code == 1
    assert found["cluster"]["status"] == "fail"
    assert found["cluster"]["remedy"]


@pytest.mark.usefixtures("_plain")
def test_doctor_names_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.lay(tmp_path, "closes"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPURUNBOOK_OUT", os.fspath(tmp_path / "file" / "runs"))
    code, found = answers(monkeypatch)
    assert code == 1
    assert found["outputs"]["status"] == "fail"
    assert "GPURUNBOOK_OUT" in found["outputs"]["remedy"]
