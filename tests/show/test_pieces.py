"""The page of a model in pieces, and a report in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

import blocklayout as bl
from blocklayout.show.report import Report
from tests import nets
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, model_of


@pytest.fixture(scope="module")
def report() -> Report:
    """Of three pieces: a convolution, NonZero, and what is gathered of where it is positive."""
    nodes = [
        *PLACES,
        NODE("Transpose", ["p"], ["pt"]),
        NODE("GatherND", ["c", "pt"], ["v"]),
        NODE("Relu", ["v"], ["y"]),
    ]
    with bl.load(model_of(nodes, {"x": IMAGE}, {"y": F32})) as session:
        return session.report({"x": IMAGE}, n_runs=1)


def test_the_pieces_and_why_it_is_cut_are_told(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.click("header summary")
    pieces = page.locator("header ol li").all_text_contents()
    assert [text.split(":")[0] for text in pieces] == [piece["name"] for piece in report.record["pieces"]]
    assert "by numpy" in pieces[1]
    assert "depend on data" in pieces[1]


def test_a_piece_is_chosen_and_stays_in_the_address(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html(), width=390)
    first, _, last = report.record["pieces"]
    page.click("#tab-steps")
    assert page.text_content("h1") == first["report"]["plan"]["model"]
    page.select_option("#piece", "2")
    page.get_by_role("heading", level=1, name=last["report"]["plan"]["model"], exact=True).wait_for()
    assert page.evaluate("location.hash") == "#steps&piece=3"
    assert page.is_visible("#steps")
    page.click("#tab-time")
    assert page.evaluate("location.hash") == "#time&piece=3"
    page.reload()
    assert page.text_content("h1") == last["report"]["plan"]["model"]
    assert page.is_visible("#time")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("wrong", ["piece=2", "piece=9", "piece=x", "piece=", "piece=-1"])
def test_an_address_of_no_planned_piece_shows_the_first(report: Report, open_page: Any, wrong: str) -> None:
    page = open_page(report.to_html())
    page.goto(f"{page.url}#steps&{wrong}")
    page.reload()
    assert page.text_content("h1") == report.record["plan"]["model"]


def test_a_whole_model_has_no_chooser(open_page: Any) -> None:
    page = open_page(bl.load(nets.chain()).report().to_html())
    assert page.locator("#piece").count() == 0


def test_a_notebook_shows_the_page_in_a_frame(report: Report, open_page: Any) -> None:
    page = open_page(f"<!doctype html><meta charset='utf-8'><title>notebook</title><p>Out[1]:{report._repr_html_()}")
    frame = page.frames[1]
    assert frame.text_content("h1") == report.record["plan"]["model"]
    frame.click("#tab-steps")
    assert frame.evaluate("location.hash") == "#steps"
    assert frame.locator("#steps tbody tr").count() >= 1
    frame.evaluate("getSelection().selectAllChildren(document.querySelector('header'))")
    frame.select_option("#piece", "2")
    last = report.record["pieces"][2]["report"]["plan"]["model"]
    page.frame_locator("iframe").locator(f'h1:has-text("{last}")').wait_for()
    assert page.url.startswith("file:")
    assert page.evaluate("location.hash") == ""
