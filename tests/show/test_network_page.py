"""The page of a network, in a browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.show.report import Report


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a small network, run."""
    network = zoo.build("squeezenet1_1", size=64)
    with bl.load(network, tune="model") as session:
        image = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)
        return session.report({session.get_inputs()[0].name: image})


def test_the_heading_names_the_network_and_its_time(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    assert page.text_content("h1") == report.record["plan"]["model"]
    assert "measured" in page.text_content("header")


def test_every_step_is_in_the_table_with_its_spread_beside_its_estimate(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.click("#tab-steps")
    plan = report.record["plan"]
    rows = page.locator("#steps tbody tr")
    assert rows.count() == len(plan["steps"]) + sum(each["is_reorder"] for each in plan["entries"])
    ran = next(each for each in report.record["profile"]["steps"] if each["number"] == len(plan["steps"]) - 1)
    cells = rows.last.locator("td").all_text_contents()
    low, high = (page.evaluate("ns => page.time(ns)", ran[name]) for name in ("low_ns", "high_ns"))
    assert page.evaluate("ns => page.time(ns)", ran["estimated_ns"]) == cells[2]
    assert cells[3] == f"{page.evaluate('ns => page.time(ns)', ran['ns'])}{low} to {high}"


def test_a_table_of_thousands_of_steps_scrolls_in_its_box(report: Report, open_page: Any) -> None:
    record = report.record | {"plan": report.record["plan"] | {"steps": report.record["plan"]["steps"] * 100}}
    page = open_page(Report(record).to_html(), url="", height=700)
    page.click("#tab-steps")
    n_steps = len(record["plan"]["steps"])
    assert n_steps > 2000
    box = page.locator("#steps .scrolls")
    assert box.locator("tbody tr").count() >= n_steps
    assert box.bounding_box()["height"] < 700
    box.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    assert box.locator("tbody tr").last.locator("td").first.text_content() == str(n_steps - 1)
    frame, head, last = (each.bounding_box() for each in (box, box.locator("th").first, box.locator("tbody tr").last))
    assert head["y"] == pytest.approx(frame["y"], abs=2)
    assert last["y"] + last["height"] <= frame["y"] + frame["height"] + 2


def test_the_panel_of_what_is_chosen_stays_in_sight(report: Report, open_page: Any) -> None:
    for width, height in ((1280, 700), (390, 844)):
        page = open_page(report.to_html(), width=width, height=height)
        page.click("#tab-steps")
        assert page.is_hidden("#node")
        page.locator("#steps tbody button").nth(3).click()
        chosen = page.evaluate("page.record.plan.kernels[page.selected].name")
        assert page.locator("#steps tr.chosen").count() >= 1
        for view in ("steps", "time", "memory", "network"):
            page.click(f"#tab-{view}")
            assert page.text_content("#node h2") == chosen
            for far in (0, 400, 100_000):
                page.evaluate("y => scrollTo(0, y)", far)
                box = page.locator("#node").bounding_box()
                top, bottom = max(0, box["y"]), min(height, box["y"] + box["height"])
                assert bottom - top >= 0.3 * height or (view == "steps" and far == 0), (view, far, box)
            page.evaluate("scrollTo(0, 0)")
        page.click("#tab-time")
        page.get_by_role("button", name="Show it in the network").click()
        assert page.is_visible("#network")
        page.get_by_role("button", name="Close", exact=True).click()
        assert page.evaluate("page.selected") is None
        assert page.is_hidden("#node h2")


def test_search_scrolls_to_what_it_finds_and_marks_it_in_every_view(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html(), height=600)
    page.click("#tab-steps")
    box = page.get_by_role("searchbox")
    box.fill("fire9")
    steps = page.locator("#steps .scrolls")
    found = steps.locator("tr.match")
    names = found.locator("td:nth-child(2) bdi").all_text_contents()
    assert names
    others = [name for name in names if not name.startswith("fire9")]
    words = "[...each.nodes, ...each.aliases, ...each.reads, each.writes, ...each.holds]"
    kernels = page.evaluate(f"Object.fromEntries(page.record.plan.kernels.map((each) => [each.name, {words}]))")
    assert not [name for name in others if not any("fire9" in word for word in kernels[name])]

    def is_in_sight(row: Any) -> bool:
        frame, box = steps.bounding_box(), row.bounding_box()
        return bool(frame["y"] <= box["y"] < frame["y"] + frame["height"])

    assert is_in_sight(found.first)
    box.press("Enter")
    box.press("Enter")
    chosen = page.evaluate("page.record.plan.kernels[page.selected].name")
    assert steps.locator("tr.chosen.match").count() >= 1
    assert is_in_sight(steps.locator("tr.chosen"))
    page.click("#tab-network")
    page.wait_for_selector("#network .node.current")
    assert page.get_attribute("#network .node.current", "aria-label").startswith(f"{chosen}, ")
    page.click("#tab-steps")
    assert found.count() == len(names)
    box.fill("")
    assert found.count() == 0
