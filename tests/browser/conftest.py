"""Chromium, one JupyterLab for all tests of this folder, and a home of runbooks that they may write into.

Nothing lives as long as the session: while Playwright's synchronous API is open, its event loop counts as running in
this thread, and nbclient cannot run in another test. `__init__.py` makes the folder a scope of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from tests.browser.notebook_page import Lab, served
from tests.conftest import absent

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """The system's Chromium, with a new profile."""
    if not CHROMIUM.exists():
        absent(f"no {CHROMIUM}: `apt-get install chromium`")
    expect.set_options(timeout=120_000)  # a loaded machine draws late
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            headless=True,
            args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of runbooks/ and parameters/."""
    made = tmp_path_factory.mktemp("home")
    for name in ("runbooks", "parameters"):
        shutil.copytree(ROOT / name, made / name)
    (made / "outputs").mkdir()
    return made


@pytest.fixture(scope="package")
def lab(chromium: Browser, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on the home."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GPURUNBOOK_HOME", "GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS"):
            patch.delenv(name, raising=False)
        with served(home, tmp_path_factory.mktemp("jupyter")) as server:
            yield server


@pytest.fixture(scope="package")
def workbench(chromium: Browser) -> Iterator[Page]:
    """One page for JupyterLab, so that it is loaded once. High enough that no cell is out of sight."""
    context = chromium.new_context(viewport={"width": 1280, "height": 4000})
    context.set_default_timeout(120_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(workbench: Page) -> Iterator[Page]:
    """The page of JupyterLab. A script of a notebook that opens a dialog fails the test."""
    asked: list[str] = []

    def note(dialog: Dialog) -> None:
        asked.append(f"{dialog.type}: {dialog.message}")
        dialog.accept()

    workbench.on("dialog", note)
    yield workbench
    workbench.remove_listener("dialog", note)
    assert asked == []
