"""A browser for the tests of pages: Chromium by Playwright; tests are skipped where either is missing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
"""It runs as root in containers, and asks nothing of a network."""

PATIENCE = 10.0  # seconds that processes have to end


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this module; ended with it, since Playwright keeps an event loop on the thread."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("there is no Chromium")
    before = _children()
    with (
        playwright.sync_playwright() as driver,
        closing(driver.chromium.launch(executable_path=executable, args=ARGUMENTS)) as launched,
    ):
        yield launched
    # tests that follow in this process count its children and its threads
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


class Opened:
    """A page in the browser, and what it said or did that no page should."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        page.on(
            "console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", self._dismiss)
        page.on("popup", lambda popup: self.said.append(f"opened {popup.url}"))
        page.on(
            "request",
            lambda request: self.said.append(f"asked for {request.url}") if not _is_local(request.url) else None,
        )

    def _dismiss(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1"))


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens HTML text, or an address, at a size and in a theme; the page must have said nothing when the test ends."""
    opened: list[Opened] = []

    def opening(
        html: str = "", *, url: str = "", width: int = 1280, height: int = 800, theme: str = "light", **more: Any
    ) -> Any:
        if not url:
            path = tmp_path / f"page{len(opened)}.html"
            path.write_text(html, encoding="utf-8")
            url = path.as_uri()
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme, **more)
        opened.append(Opened(page))
        page.goto(url)
        return page

    yield opening
    said = [line for each in opened for line in each.said]
    for each in opened:
        each.page.close()
    assert not said, said
