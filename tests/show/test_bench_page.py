"""The page of a benchmark, in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import blocklayout as bl
from blocklayout.show.bench_page import BenchPage, Chart, Row, Table
from blocklayout.timing import Spread
from tests.show.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

NONE = "\N{EN DASH}"
HOSTILE = "<script>alert(1)</script>\u202e"


def page_of(n_rounds: int = 9) -> BenchPage:
    """Two networks, one with a hostile name, and three contenders; one has a slow round."""
    rounds = [1.0 + 0.01 * number for number in range(n_rounds)]
    ratios = [
        Row.of(name, [factor * each for each in rounds[:-1]] + [slow], group)
        for group in (HOSTILE, "resnet50")
        for name, factor, slow in (("ours", 1.0, 1.0), ("theirs", 1.2, 2.5), ("another", 3.1, 3.2))
    ]
    first = [Row.of(row.name, [0.5], row.group) for row in ratios]
    return BenchPage(
        title=HOSTILE,
        command="python bench/peers.py --rounds 9",
        environment={"cpu": "a CPU", "n_threads": 2, "n_rounds": n_rounds, "date": "2026-01-02 03:04 UTC"},
        charts=[
            Chart("Time over ours", "", ratios, baseline="ours"),
            Chart("Time of a run", "ms", [Row.of("ours", rounds), Row.of("told", {"median": 2, "low": 1, "high": 4})]),
            Chart("First result", "s", first),
            Chart("Nothing", "s", []),
        ],
        tables=[Table("Versions", ("runtime", "differs by"), [("theirs", 4e-7), ("another", None)])],
        notes=["another differs"],
    )


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "bench.html"
    page_of().save(path)
    return path.read_text(encoding="utf-8")


def test_every_contender_has_a_strip_and_a_line_in_the_table(html: str, open_page: Any) -> None:
    page = open_page(html)
    assert page.locator("h2").all_text_contents() == [
        *("Time over ours", "Time of a run", "First result", "Versions", "Notes")
    ]
    wait_until(page, f"document.querySelectorAll('figure svg').length === {2 + 1 + 2}")  # they are drawn by and by
    assert "theirs 1.248" in page.locator("figure svg").nth(1).get_attribute("aria-label")
    assert page.locator("figure svg").nth(1).locator("circle").count() == 27
    rows = page.locator("details").first.locator("tbody tr")
    assert rows.count() == 6
    cells = rows.nth(4).locator("td").all_text_contents()
    assert cells[:2] == ["resnet50", "theirs"]
    assert [float(cell) for cell in cells[2:7]] == pytest.approx([1.248, 1.224, 1.272, 1.2, 2.5])
    assert cells[7] == "9"
    assert cells[8].split()[-1] == "2.500"


def test_the_heading_says_where_and_how_it_was_measured(html: str, open_page: Any) -> None:
    header = open_page(html).text_content("header")
    for fact in ("a CPU", "threads 2", "rounds 9", "2026-01-02", "python bench/peers.py"):
        assert fact in header


def test_a_spread_without_its_values_has_no_quartiles(html: str, open_page: Any) -> None:
    row = open_page(html).locator("details").nth(1).locator("tbody tr").nth(1)
    assert row.locator("td").all_text_contents() == ["told", "2.00", NONE, NONE, "1.00", "4.00", NONE, NONE]


def test_pointing_at_a_round_tells_its_value(html: str, open_page: Any) -> None:
    page = open_page(html)
    slow = page.locator("figure svg").nth(1).locator("circle").nth(17).bounding_box()
    page.mouse.move(slow["x"] + 2, slow["y"] + 2)
    wait_until(page, "[...document.querySelectorAll('[aria-label=tip] text')].some((e) => e.textContent)")
    assert "9 of 9: 2.500" in page.locator("figure svg").nth(1).locator("[aria-label=tip]").text_content()


def test_names_are_text(html: str, open_page: Any) -> None:
    page = open_page(html)
    assert page.locator("script").count() == html.count("<script>") + html.count("<script type")
    assert "\\u202e" in page.text_content("h1")
    assert "<script>" in page.text_content("figcaption")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone(html: str, open_page: Any, theme: str) -> None:
    page = open_page(html, width=390, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1200, "height": 800})
    wait_until(page, "document.querySelector('figure svg').getAttribute('width') > 400")


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bl.InputError, match="the page cannot be written to"):
        page_of().save(tmp_path / "nowhere" / "bench.html")


def test_charts_without_rows_are_left_out() -> None:
    record = page_of(2).to_dict()
    assert [chart["title"] for chart in record["charts"]] == ["Time over ours", "Time of a run", "First result"]
    assert record["charts"][0]["rows"][0]["quartiles"] is None
    assert Row.of("ours", Spread.of([1.0, 3.0])).to_dict()["median"] == 2.0
