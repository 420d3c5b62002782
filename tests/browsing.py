"""A browser for the tests of pages: Chromium by Playwright; tests are skipped where either is missing."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
"""It runs as root in containers, and asks nothing of a network."""

EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first that is there is taken: the one without windows takes a third of the time."""

PATIENCE = 10.0  # seconds that processes have to end


class Browsing:
    """The browser that runs, if one does.

    Attributes:
        context: Playwright's, of all pages; ``None`` where no browser runs.
        ending: What ends it.
    """

    def __init__(self) -> None:
        self.context: Any = None
        self.ending = ExitStack()

    def begin(self, playwright: Any, executable: str) -> None:
        self.ending.callback(_wait_for_end, _children())
        driver = self.ending.enter_context(playwright.sync_playwright())
        launched = driver.chromium.launch(executable_path=executable, args=ARGUMENTS)
        self.ending.enter_context(closing(launched))
        self.context = launched.new_context()
        self.context.new_page()

    def end(self) -> None:
        self.context = None
        self.ending.close()


_browsing = Browsing()


@pytest.fixture
def browser(pytestconfig: pytest.Config) -> Any:
    """A context for all tests of a folder that follow each other, which use its pages again.

    A browser takes a second to begin, and so does a page in a process of its own. What is shown keeps nothing that
    others would find: no cookies, no storage.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    executable = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if executable is None:
        pytest.skip("there is no Chromium")
    if _browsing.context is None:
        _browsing.begin(playwright, executable)
        pytestconfig.add_cleanup(_browsing.end)  # where the session stops early
    return _browsing.context


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the browser with its folder's tests, since Playwright keeps an event loop on the thread."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _browsing.end()


def _wait_for_end(before: set[str]) -> None:
    """Tests that follow in this process count its children and its threads."""
    deadline = time.monotonic() + PATIENCE
    while _children() - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _children() - before, "the browser left processes"


def _children() -> set[str]:
    """Numbers of this process's children; a thread may end while its file is about to be read."""
    numbers: set[str] = set()
    for file in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            numbers.update(file.read_text(encoding="ascii").split())
    return numbers
