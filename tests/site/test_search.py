"""The site's own search, in a browser, finds the page that answers what users of other runtimes ask."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.site.questions import QUESTIONS, Question

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("sphinx", reason="the extra docs is not installed")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def found(browser: Any, address: str, query: str) -> list[str]:
    """Paths of what the search lists, the best first."""
    page = browser.pages[0]
    page.goto(f"{address}/search.html?q={query.replace(' ', '+')}")
    page.wait_for_function("/finished|did not match/.test(document.querySelector('#search-results')?.textContent)")
    hits: list[str] = page.eval_on_selector_all("#search-results .search li > a", "all => all.map(a => a.pathname)")
    return hits


def test_there_are_twenty_questions() -> None:
    assert len({question.url for question in QUESTIONS}) == len(QUESTIONS) == 20


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.title)
def test_a_question_is_answered_by_a_page_within_the_first_three(
    browser: Any, address: str, question: Question
) -> None:
    pages = list(dict.fromkeys(found(browser, address, question.query)))
    assert f"/how-to/{question.page}.html" in pages[:3], pages[:8]


def test_a_word_that_no_page_has_is_found_nowhere(browser: Any, address: str) -> None:
    assert found(browser, address, "xylophone") == []
