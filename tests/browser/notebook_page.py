"""JupyterLab as an on-call engineer has it: started by `gpurunbook lab`, and one notebook driven in its page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from gpurunbook.cli.run import make
from gpurunbook.folder.workspace import kernel_alive
from gpurunbook.journal import read
from tests import ports

CLI = (sys.executable, "-c", "import sys; from gpurunbook.cli import main; main(sys.argv[1:])")
START_SECONDS = 300.0
CELL_SECONDS = 300.0
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"

# Resolves when the cell has got a number again: a number alone may be of an earlier kernel.
_NUMBERED = """node => {
    window.numbered = new Promise(resolve => {
        const observer = new MutationObserver(() => {
            if (/[0-9]/.test(node.textContent)) { observer.disconnect(); resolve(node.textContent); }
        });
        observer.observe(node, {childList: true, subtree: true, characterData: true});
    });
}"""
_WAIT = "ms => Promise.race([window.numbered, new Promise((_, no) => setTimeout(() => no('the cell runs on'), ms))])"
_TRACES = "graph => graph.data.map(t => ({name: t.name, x: Array.from(t.x), y: Array.from(t.y)}))"


def environment(folder: Path) -> dict[str, str]:
    """This process's environment with Jupyter's own folders under `folder`.

    Nobody is asked about news, and JupyterLab saves nothing by itself: two minutes after a sealed run was opened, the
    dialog that refuses that would stand over whatever a test does then.
    """
    settings = folder / "settings" / "@jupyterlab"
    for name, text in {
        "apputils-extension/notification": '{"fetchNews": "false"}',
        "docmanager-extension/plugin": '{"autosave": false}',
    }.items():
        file = settings / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("GPURUNBOOK_", "JPY_", "JUPYTER", "IPYTHON"))}
    places = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    labs = {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(folder / "spaces")}
    return {**own, **places, **labs, "IPYTHONDIR": str(folder / "ipython")}


@dataclass(frozen=True)
class Lab:
    """A JupyterLab server on the loopback. url: with a slash at its end; token: what a browser must show."""

    home: Path
    url: str
    token: str

    def gpurunbook(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs one command in the home."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("GPURUNBOOK_")}
        return subprocess.run([*CLI, *words], cwd=self.home, env=own, capture_output=True, text=True, timeout=600)

    def new(self, run: str, scenario: str = "", runbook: str = "provenance_audit") -> Path:
        """Makes a run with its working copy as `gpurunbook new` does, and gives its folder."""
        given = (self.home / "parameters" / runbook / f"{scenario}.yaml",) if scenario else ()
        with contextlib.chdir(self.home):
            return make(runbook, given, (), "", self.home / "outputs", run).parent

    def seal(self, folder: Path) -> dict[str, Any]:
        """Seals a run. What `gpurunbook seal` says of it."""
        done = self.gpurunbook("seal", folder.name, "-o", "json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def verified(self, folder: Path) -> tuple[str, list[Any]]:
        """What `gpurunbook verify` says of a run: its verdict, and the differences."""
        told = json.loads(self.gpurunbook("verify", folder.name, "-o", "json").stdout)
        return told["verdict"], told["differences"]

    def requests(self, fixture: str) -> list[dict[str, Any]]:
        """What the embedded server of a fixture cluster was asked."""
        log = self.home / "outputs" / ".clusters" / f"clusters-{fixture}" / "requests.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()]

    def ask(self, fixture: str, path: str, merge: Any = None) -> Any:
        """What the embedded server of a fixture cluster answers to its administrator. merge: a merge patch."""
        folder = self.home / "outputs" / ".clusters" / f"clusters-{fixture}"
        server = json.loads((folder / "server.json").read_bytes())
        data = None if merge is None else json.dumps(merge).encode()
        headers = {"Authorization": f"Bearer {server['token']}", "Content-Type": "application/merge-patch+json"}
        method = "GET" if merge is None else "PATCH"
        request = urllib.request.Request(server["url"] + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)


@contextlib.contextmanager
def served(home: Path, folder: Path) -> Iterator[Lab]:
    """JupyterLab on `home`, ended by its process id, and with it the embedded servers that its kernels started."""
    held = ports.held()
    root = ["--allow-root"] if os.geteuid() == 0 else []
    words = ["lab", "--no-browser", "--ip=127.0.0.1", f"--port={held.getsockname()[1]}", *root]
    with (folder / "lab.log").open("wb") as log:
        process = subprocess.Popen(
            [*CLI, *words], cwd=home, env=environment(folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        told = _ready(process, folder)
        yield Lab(home, f"http://127.0.0.1:{told['port']}/", told["token"])
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(120)
        held.close()
        for state in (home / "outputs" / ".clusters").glob("*/"):
            stop = [sys.executable, "-m", "gpurunbook.embedded", "--state", str(state), "--stop"]
            subprocess.run(stop, check=True, timeout=120)


def _ready(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    """What the server says of itself when it listens. The process is still the one that was started: `lab` execs."""
    record = folder / "runtime" / f"jpserver-{process.pid}.json"
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            told = dict(json.loads(record.read_bytes()))
            socket.create_connection(("127.0.0.1", told["port"]), 1).close()
            return told
        except (OSError, ValueError):
            time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{(folder / 'lab.log').read_text()[-3000:]}")


class Notebook:
    """One notebook in a page of JupyterLab, opened there; cells are named by their ids in the file."""

    def __init__(self, page: Page, lab: Lab, file: Path) -> None:
        self.page = page
        self.file = file
        self.ids = [cell["id"] for cell in json.loads(file.read_bytes())["cells"]]
        if not page.url.startswith(lab.url):
            page.goto(f"{lab.url}lab?token={lab.token}")
            expect(page.locator("#jupyterlab-splash")).to_have_count(0, timeout=START_SECONDS * 1000)
        self._menu("File", "Open from Path…")
        page.locator(".jp-Dialog input").fill(str(file.relative_to(lab.home)))
        page.keyboard.press("Enter")
        tab = page.locator(f".lm-TabBar-tab.lm-mod-current[title*='Path: {file.relative_to(lab.home)}']")
        self.tab = tab.get_attribute("data-id", timeout=START_SECONDS * 1000)
        self.panel = page.locator(f"[id='{self.tab}']")
        self.cells = self.panel.locator(".jp-Notebook .jp-Cell")
        expect(self.cells).to_have_count(len(self.ids), timeout=START_SECONDS * 1000)
        expect(self.panel.locator(".jp-Spinner")).to_have_count(0)
        self.idle()

    def activate(self) -> None:
        """Brings its tab to the front."""
        self.page.locator(f".lm-TabBar-tab[data-id='{self.tab}']").click()

    def idle(self) -> None:
        """Waits until its kernel says that it has nothing to do. What is run before that is lost without a word."""
        expect(self.page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=START_SECONDS * 1000)

    def cell(self, id: str) -> Locator:
        """One cell."""
        return self.cells.nth(self.ids.index(id))

    @property
    def injected(self) -> str:
        """The id of the cell that the parameters of `gpurunbook new` stand in."""
        return self.ids[self.ids.index("parameters") + 1]

    def run(self, *ids: str) -> Locator:
        """Runs cells one after the other by Shift+Enter. The last of them."""
        for id in ids:
            self.begin(id)
            self.end()
        return self.cell(ids[-1])

    def begin(self, id: str) -> Locator:
        """Begins to run a cell by Shift+Enter. The cell."""
        prompt = self.cell(id).locator(".jp-InputArea-prompt")
        prompt.evaluate(_NUMBERED)
        prompt.click()
        self.page.keyboard.press("Shift+Enter")
        return self.cell(id)

    def end(self) -> None:
        """Waits until the cell that was begun last has ended."""
        self.page.evaluate(_WAIT, CELL_SECONDS * 1000)

    def append(self, id: str, text: str) -> None:
        """Types a line at the end of a cell, as a paste."""
        self.cell(id).locator(".cm-content").click()
        self.page.keyboard.press("Control+End")
        self.page.keyboard.insert_text(f"\n{text}")

    def restart(self) -> None:
        """Restarts the kernel from the menu and says yes."""
        self._menu("Kernel", "Restart Kernel…")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.until(lambda: not kernel_alive(self.file.parent), "the kernel did not end")
        self.idle()

    def shut_down(self) -> None:
        """Shuts the kernel down from the menu."""
        self._menu("Kernel", "Shut Down Kernel")
        expect(self.page.locator("#jp-main-statusbar")).to_contain_text("No Kernel", timeout=CELL_SECONDS * 1000)

    def until(self, true: Callable[[], bool], trouble: str) -> None:
        """Waits for a condition."""
        end = time.monotonic() + CELL_SECONDS
        while not true():
            assert time.monotonic() < end, trouble
            self.page.wait_for_timeout(50)

    def _menu(self, menu: str, item: str) -> None:
        self.page.locator(".lm-MenuBar-item", has_text=re.compile(f"^{menu}$")).click()
        self.page.locator(".lm-Menu-item", has_text=re.compile(f"^{re.escape(item)}")).click()

    def save(self) -> None:
        """Saves by Control+S and waits until the file is the new one."""
        before = self.file.stat().st_mtime_ns
        self.page.keyboard.press("Control+s")
        self.until(lambda: self.file.stat().st_mtime_ns != before, "JupyterLab did not save")
        expect(self.panel.locator(".jp-mod-dirty")).to_have_count(0)

    def refused(self) -> str:
        """Saves by Control+S, and closes the notebook without it. What the dialog says that refuses to save."""
        self.page.keyboard.press("Control+s")
        dialog = self.page.locator(".jp-Dialog")
        expect(dialog.locator(".jp-Dialog-header")).to_contain_text("Save Error")
        said = dialog.inner_text()
        dialog.locator(".jp-Dialog-footer button").last.click()
        expect(dialog).to_have_count(0)
        self._menu("File", "Close Tab")
        dialog.locator(".jp-mod-warn").click()
        expect(self.panel).to_have_count(0)
        return said

    @property
    def trust(self) -> str:
        """What the status bar says on trust."""
        item = self.page.locator(".jp-StatusItem-trust")
        expect(item).to_have_attribute("title", re.compile("trusted"))
        return item.get_attribute("title") or ""

    def figure(self) -> list[dict[str, Any]]:
        """The traces of the only figure, as plotly.js has drawn them."""
        graph = self.panel.locator(".js-plotly-plot")
        expect(graph.locator(".main-svg").first).to_be_visible(timeout=CELL_SECONDS * 1000)
        return list(graph.evaluate(_TRACES))


def events(folder: Path) -> list[tuple[str, str]]:
    """Event and step of each record of a run."""
    return [(record["event"], record["data"].get("step", "")) for record in read(folder / "journal.jsonl")]


def picture(page: Page, name: str, height: int, top: Locator | None = None) -> None:
    """Writes a picture for the documentation where they are asked for; a test leaves no trace otherwise."""
    if os.environ.get("GPURUNBOOK_PICTURES") != "1":
        return
    before = page.viewport_size
    assert before is not None
    page.set_viewport_size({"width": 1280, "height": height})
    if top is not None:
        top.evaluate("node => node.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(1000)  # plotly.js draws anew for the new width
    page.screenshot(path=PICTURES / name)
    page.set_viewport_size(before)
