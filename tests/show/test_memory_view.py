"""The view of memory, in a browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.show.report import Report
from tests import nets
from tests.show.waiting import wait_until


def _report(network: Any, **options: Any) -> Report:
    with bl.load(network, tune="model", **options) as session:
        return session.report()


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a network with concatenations and sums, not run."""
    return _report(nets.mobile())


def _open(open_page: Any, report: Report, **more: Any) -> Any:
    page = open_page(report.to_html(), **more)
    page.click("#tab-memory")
    return page


def _in_arena(report: Report) -> list[dict[str, Any]]:
    buffers = report.record["plan"]["buffers"]
    return [each for each in buffers if each["kind"] in ("arena", "entry") and each["first"] is not None]


def test_each_buffer_is_a_rectangle_and_a_row(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    n = len(_in_arena(report))
    assert page.locator("#memory rect.buffer").count() == n
    page.click("#memory summary >> text=buffers of the arena")
    page.wait_for_selector("#memory details tbody tr")
    assert page.locator("#memory details >> tbody tr").count() == n


def test_hovering_tells_of_a_buffer_and_a_click_chooses_its_kernel(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    buffer = page.locator("#memory rect.buffer").last
    buffer.hover()
    tip = page.text_content(".tip")
    assert "from" in tip
    assert "step" in tip
    buffer.click()
    assert page.locator("#memory rect.chosen").count() >= 1
    chosen = page.evaluate("page.record.plan.kernels[page.selected].name")
    assert chosen in page.text_content("#node h2")


def test_the_arena_is_walked_by_keys(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    page.locator("#memory rect.buffer").first.focus()
    labels = []
    for key in ("ArrowRight", "ArrowRight", "Home", "End"):
        page.keyboard.press(key)
        labels.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        assert page.locator(".tip").is_visible()
    assert len(set(labels)) == 4
    page.keyboard.press("Enter")
    assert page.evaluate("page.selected") is not None
    assert page.locator("#memory rect.buffer[tabindex='0']").count() == 1


def test_padding_is_told_in_bytes_or_in_words(open_page: Any) -> None:
    blocked, plain = _report(nets.chain(channels=17), layout="blocked"), _report(nets.chain(channels=17), layout="nchw")
    page = _open(open_page, blocked)
    wasted = blocked.record["plan"]["padding_nbytes"]
    if wasted:
        assert page.locator("#memory td >> text=result of conv").count() >= 1
    text = _open(open_page, plain).text_content("#memory")
    descs = [plain.record["plan"]["descs"][each["desc"]] for each in plain.record["plan"]["constants"]]
    if not any(each["padding_nbytes"] for each in descs):
        assert "No result and no packed weights hold padding" in text


def test_a_network_without_weights_and_arena_says_so(open_page: Any) -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (2, 3)).relu())
    text = _open(open_page, _report(b)).text_content("#memory")
    assert "Nothing is packed" in text
    assert "No step asks for any" in text


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_narrow_screen(theme: str, report: Report, open_page: Any) -> None:
    page = _open(open_page, report, width=390, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#memory svg").first.bounding_box()["width"] <= 390


def test_it_is_drawn_anew_for_another_width(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    page.set_viewport_size({"width": 600, "height": 800})
    wait_until(page, "document.querySelector('#memory .picture svg').viewBox.baseVal.width < 600")


def test_names_are_text(open_page: Any) -> None:
    evil = "<img src=x onerror=alert(1)>\u202e"
    b = bl.Builder(evil)
    rng = np.random.default_rng(0)
    x = b.input("x", (1, 8, 8, 8)).conv(nets.he(rng, 8, 8, 3, 3), pads=1, name=evil).relu()
    b.output("y", x.conv(nets.he(rng, 8, 8, 3, 3), pads=1, name="b"))
    page = _open(open_page, _report(b))
    page.locator("#memory rect.buffer").last.hover()
    assert page.locator("#memory img, .tip img").count() == 0
    assert "\u202e" not in page.evaluate("document.getElementById('memory').innerHTML")


def test_squeezenet_marks_what_is_written_in_place(open_page: Any) -> None:
    report = _report(zoo.build("squeezenet1_1", size=64))
    text = _open(open_page, report).text_content("#memory")
    has_parts = any(each["within"] is not None for each in report.record["plan"]["buffers"])
    assert ("a part of a larger buffer" in text) == has_parts
