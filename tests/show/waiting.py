"""Waiting for what a page does in its own time."""

from __future__ import annotations

import time
from typing import Any

PATIENCE = 30.0  # seconds


def wait_until(page: Any, condition: str) -> None:
    """Until a JavaScript expression is true of the page.

    Playwright's own ``wait_for_function`` asks again by ``eval``, which the pages' content security policy refuses.
    """
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never came true: {condition}"
        page.wait_for_timeout(20)
