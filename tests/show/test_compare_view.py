"""Two plans side by side on the page."""

from __future__ import annotations

from typing import Any

import pytest

import blocklayout as bl
from blocklayout.show.report import Report
from tests import nets


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a small network, beside two other plans of one policy and one of another."""
    reports = []
    for layout, pin in (("auto", {}), ("nhwc", {}), ("nhwc", {"block1/a": "nchw"}), ("per-op", {})):
        with bl.load(nets.residual(), layout=layout, pin=pin, tune="model") as session:
            reports.append(session.report(nets.feed_of(session), n_runs=1))
    return reports[0].beside(*reports[1:])


def test_another_plan_is_chosen_and_stands_beside_this_one(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.click("#tab-compare")
    assert page.locator("#policy option").all_text_contents() == ["nhwc", "nhwc (2)", "per-op"]
    plan = report.record["plan"]
    for at, other in enumerate(report.record["others"]):
        page.select_option("#policy", index=at)
        rows = page.locator("#compare table").first.locator("tbody tr")
        steps = rows.filter(has_text="steps").locator("td").all_text_contents()
        assert steps[1:3] == [str(len(plan["steps"])), str(len(other["plan"]["steps"]))]
        measured = rows.filter(has_text="measured time").locator("td")
        assert float(measured.nth(2).get_attribute("data-value")) == other["profile"]["ns"]
        headings = page.locator("#compare h2").all_text_contents()
        changes = other["changes"]
        assert [int(text.rsplit(": ")[1]) for text in headings] == [
            *(len(changes[each]) for each in ("kernels", "reorders_gone", "reorders_new"))
        ]
    assert page.evaluate("location.hash") == "#compare&policy=per-op"
    page.go_back()
    page.locator("#policy").wait_for()
    assert page.input_value("#policy") == "nhwc (2)"


def test_a_strip_leads_to_its_plan_and_a_kernel_to_the_panel(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.get_by_role("button", name="Compare this plan with that of per-op", exact=True).click()
    assert page.is_visible("#compare")
    assert page.input_value("#policy") == "per-op"
    changed = report.record["others"][-1]["changes"]["kernels"][0]
    assert changed["before"] != changed["after"]
    row = page.locator("#compare table").nth(1).locator("tbody tr").first
    assert changed["before"]["writes"] in row.locator("td").nth(1).text_content()
    assert changed["after"]["writes"] in row.locator("td").nth(3).text_content()
    row.get_by_role("button").click()
    assert page.text_content("#node h2") == changed["name"]


def test_a_page_of_one_plan_has_nothing_to_compare(open_page: Any) -> None:
    page = open_page(bl.load(nets.chain(), tune="model").report().to_html())
    assert page.locator("#tab-compare").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_narrow_screen(report: Report, open_page: Any, theme: str) -> None:
    page = open_page(report.to_html(), width=390, height=844, theme=theme)
    page.click("#tab-compare")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
