"""Pages in a browser, which must say and do nothing that no page should."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Opened:
    """A page in the browser, and what it said or did that no page should."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        self.handlers: dict[str, Callable[[Any], None]] = {
            "console": self._hear,
            "pageerror": lambda error: self.said.append(str(error)),
            "dialog": self._dismiss,
            "popup": lambda popup: self.said.append(f"opened {popup.url}"),
            "request": self._see,
        }
        for event, handler in self.handlers.items():
            page.on(event, handler)

    def close(self) -> None:
        """Leave it blank for the next test."""
        for event, handler in self.handlers.items():
            self.page.remove_listener(event, handler)
        self.page.emulate_media(media="null", color_scheme="null", reduced_motion="null")
        self.page.goto("about:blank")

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.said.append(message.text)

    def _dismiss(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _see(self, request: Any) -> None:
        if not _is_local(request.url):
            self.said.append(f"asked for {request.url}")


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1"))


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens HTML text, or an address, at a size and in a theme; the page must have said nothing when the test ends."""
    opened: list[Opened] = []

    def opening(
        html: str = "", *, url: str = "", width: int = 1280, height: int = 800, theme: str = "light", **media: Any
    ) -> Any:
        if not url:
            path = tmp_path / f"page{len(opened)}.html"
            path.write_text(html, encoding="utf-8")
            url = path.as_uri()
        page = browser.pages[len(opened)] if len(opened) < len(browser.pages) else browser.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=theme, **media)
        opened.append(Opened(page))
        page.goto(url)
        return page

    yield opening
    said = [line for each in opened for line in each.said]
    for each in opened:
        each.close()
    assert not said, said
