"""What a page shows is in its address: a link shows it again, and the ways back and forward lead through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.show.report import Report
from tests.show.waiting import wait_until

READY = 'svg.stage[aria-busy="false"]'
PLACE = "document.querySelector('#network .world').getAttribute('transform')"


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a network with blocks and a reorder, run."""
    with bl.load(zoo.build("squeezenet1_1", size=64), tune="model", pin={"fire3.conv1": "nhwc"}) as session:
        return session.report({session.get_inputs()[0].name: np.zeros((1, 3, 64, 64), np.float32)}, n_runs=1)


def opened(open_page: Any, report: Report, **options: Any) -> Any:
    page = open_page("" if options.get("url") else report.to_html(), reduced_motion="reduce", **options)
    if page.is_visible("#network"):
        page.wait_for_selector(READY)
    return page


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    page.wait_for_selector(READY)


def test_a_link_shows_what_its_sender_saw(report: Report, open_page: Any) -> None:
    page = opened(open_page, report)
    press(page, "Collapse all blocks")
    page.evaluate("page.select(9)")
    page.wait_for_selector("#network .node.chosen")
    press(page, "Zoom in")
    page.get_by_label("what was free").check()
    page.wait_for_selector(READY)
    page.get_by_role("searchbox").fill("fire8")
    wait_until(page, "location.hash.includes('at=')")
    page.wait_for_timeout(100)
    shown = opened(open_page, report, url=page.url)
    assert shown.evaluate("page.selected") == 9
    assert shown.text_content("#node h2") == page.text_content("#node h2")
    assert shown.evaluate(PLACE) == page.evaluate(PLACE)
    assert shown.get_by_label("what was free").is_checked()
    assert shown.input_value("[type=search]") == "fire8"
    assert shown.text_content(".tools output") == page.text_content(".tools output")
    assert shown.url == page.url
    for each in (page, shown):
        press(each, "Show the whole network")
        wait_until(each, "document.querySelectorAll('#network .node.output').length === 1")
    blocks = page.locator("#network .node.block")
    assert shown.locator("#network .node.block").count() == blocks.count() > 0


def test_a_link_shows_a_chosen_reorder_and_a_part_of_the_run(report: Report, open_page: Any) -> None:
    page = opened(open_page, report)
    page.locator("#network .lists button").first.click()
    page.wait_for_selector("#network .node.reorder.chosen")
    page.click("#tab-time")
    flame = "#time svg[aria-label^='The run by step'] rect[role=button]"
    page.locator("#time rect[aria-label^='fire4,']").click()
    shown = opened(open_page, report, url=page.url)
    assert shown.is_visible("#time")
    assert shown.locator(flame).count() == page.locator(flame).count()
    assert shown.text_content("#node .chosen-reorder") == page.text_content("#node .chosen-reorder") != ""


def test_the_ways_back_and_forward_lead_through_what_was_chosen(report: Report, open_page: Any) -> None:
    page = opened(open_page, report)
    places = []
    for kernel in (3, 30, 12):
        page.evaluate("kernel => page.select(kernel)", kernel)
        page.wait_for_selector(f'#network .node.chosen[data-kernel="{kernel}"]')
        wait_until(page, "location.hash.includes('at=')")
        places.append(page.evaluate(PLACE))
    page.click("#tab-memory")
    page.go_back()
    wait_until(page, "!document.getElementById('network').hidden")
    for kernel, place in ((30, places[1]), (3, places[0])):
        page.go_back()
        wait_until(page, f"page.selected === {kernel}")
        assert page.evaluate(PLACE) == place
    page.go_back()
    wait_until(page, "page.selected === null")
    page.go_forward()
    wait_until(page, "page.selected === 3")
    assert page.text_content("#node h2") == report.record["plan"]["kernels"][3]["name"]


WRONG = (
    *("kernel=99999", "kernel=__proto__", "kernel=1.5", "reorder=r9999"),
    *("at=a b c", "at=1 2 -3", "open=x.y", "span=9 1", "find=%00%FF", "%"),
)


def test_an_address_of_nothing_shows_the_page_as_at_first(report: Report, open_page: Any) -> None:
    shown = opened(open_page, report)
    begin = shown.url.split("#")[0]
    for wrong in WRONG:
        shown.goto(f"{begin}#network&{wrong}")
        shown.reload()
        assert shown.evaluate("page.selected") is None, wrong
        assert shown.is_visible("#network .node"), wrong
        shown.click("#tab-time")
        assert shown.is_hidden("text=Show the whole run"), wrong
