"""The view of times, in a browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import blocklayout as bl
from blocklayout import zoo
from blocklayout.show.profile import Profile, predicted_profile
from blocklayout.show.report import Report
from tests import nets


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a small network, as if it had run without disturbance, every fifth step in twice the predicted time."""
    with bl.load(zoo.build("resnet18", size=64), tune="model") as session:
        plan = session.plan
    machine = plan.machine()
    steps = predicted_profile(plan, machine).steps
    run = tuple(replace(step, ns=step.ns * (1 if at % 5 else 2)) for at, step in enumerate(steps))
    return Report.of(plan, machine, Profile(plan.model, 2, run))


@pytest.fixture(scope="module")
def predicted() -> Report:
    """Of one with reorders, not run."""
    with bl.load(nets.residual(), tune="model", layout="per-op") as session:
        return session.report()


def _open(open_page: Any, report: Report, **more: Any) -> Any:
    page = open_page(report.to_html(), **more)
    page.click("#tab-time")
    return page


def test_the_headline_says_how_much_is_above_80_percent_of_the_ceiling(report: Report, open_page: Any) -> None:
    text = _open(open_page, report).text_content("#time .findings")
    assert f"{100 * report.record['profile']['above_80']:.1f}% of the time is spent above 80% of the ceiling" in text
    assert "measured" in text


def test_the_ten_longest_steps_are_a_table(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    steps = [each for each in report.record["profile"]["steps"] if each["kind"] != "outside"]
    longest = max(steps, key=lambda each: each["ns"])
    first = page.locator("#time table").first.locator("tbody tr")
    assert first.count() == 10
    assert longest["name"] in first.first.text_content()


def test_steps_and_blocks_tell_of_themselves_and_choose(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    flame = page.locator("#time svg[aria-label^='The run by step']")
    flame.locator("rect[aria-label^='layer1,']").hover()
    assert "of the run" in page.text_content(".tip")
    flame.locator("rect[aria-label^='layer2.0.conv']").last.click()
    chosen = page.evaluate("page.record.plan.kernels[page.selected].name")
    assert chosen.startswith("layer2.0.conv")
    assert flame.locator("rect.chosen").count() >= 1


def test_a_block_is_shown_alone_and_the_whole_again(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    flame = page.locator("#time svg[aria-label^='The run by step']")
    n = flame.locator("rect[role=button]").count()
    flame.locator("rect[aria-label^='layer3,']").click()
    assert 0 < flame.locator("rect[role=button]").count() < n
    assert flame.locator("rect[aria-label^='layer1.0']").count() == 0
    page.click("text=Show the whole run")
    assert flame.locator("rect[role=button]").count() == n


def test_the_flame_is_walked_by_keys(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    flame = page.locator("#time svg[aria-label^='The run by step']")
    flame.locator("rect[aria-label^='layer1,']").focus()

    def label() -> str:
        return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))

    page.keyboard.press("ArrowDown")
    assert label().startswith("layer1.0,")
    page.keyboard.press("ArrowRight")
    assert label().startswith("layer1.1,")
    page.keyboard.press("ArrowUp")
    assert label().startswith("layer1,")
    page.keyboard.press("ArrowRight")
    assert label().startswith("layer2,")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert "layer2.0" in label()
    page.keyboard.press("Enter")
    assert page.evaluate("page.record.plan.kernels[page.selected].name").startswith("layer2.0")


def test_each_step_with_arithmetic_is_a_dot_under_the_ceilings(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    roofline = page.locator("#time svg[aria-label^='Roofline']")
    n = sum(each["flops"] > 0 for each in report.record["profile"]["steps"])
    assert roofline.locator("[aria-label=dot] > [role=button]").count() == n
    text = roofline.text_content()
    assert "GB/s" in text
    assert "GFLOP/s" in text or "TFLOP/s" in text
    roofline.locator("[aria-label=dot] > [role=button]").first.focus()
    assert "operations a byte" in page.text_content(".tip")


def test_predictions_are_held_against_measurements_where_there_are_any(
    report: Report, predicted: Report, open_page: Any
) -> None:
    profile = report.record["profile"]
    ratio, _ = profile["prediction"]
    timed = [each for each in profile["steps"] if each["estimated_ns"] > 0]
    long = [each for each in timed if each["ns"] > 0.2 * profile["ns"] / len(timed)]
    slow = [each["name"] for each in long if each["ns"] > 1.5 * each["estimated_ns"]]
    page = _open(open_page, report)
    assert f"Steps take {ratio:.2f} times what was predicted" in page.text_content("#time")
    far = page.locator(
        "#time h2:has-text('Prediction against measurement') >> xpath=../following-sibling::div[1] >> tbody tr"
    ).all_text_contents()
    assert len(far) == min(5, len(slow)) > 0
    assert all(any(name in row for name in slow) for row in far)
    text = _open(open_page, predicted).text_content("#time")
    assert "Prediction against measurement" not in text
    assert "Nothing was run" in text


def test_each_block_is_priced_in_each_policy_that_is_there(predicted: Report, open_page: Any) -> None:
    with bl.load(nets.residual(), tune="model", layout="nchw") as session:
        beside = session.report()
    other = beside.record["plan"]
    page = _open(open_page, predicted.beside(beside))
    table = page.locator("#time h2:has-text('Each block in each policy') + div")
    assert table.locator("thead th").all_text_contents() == ["", "per-op", "nchw"]
    whole = table.locator("tbody tr").first.locator("td")
    assert float(whole.nth(2).get_attribute("data-value")) == pytest.approx(other["cost_ns"])
    assert float(whole.nth(1).get_attribute("data-value")) == pytest.approx(predicted.record["plan"]["cost_ns"])
    page.click("#time summary >> text=kernels")
    page.wait_for_selector("#time details tbody tr")
    assert page.locator("#time details tbody tr").count() > table.locator("tbody tr").count()


def test_axes_are_labelled_in_plain_numbers(report: Report, open_page: Any) -> None:
    page = _open(open_page, report)
    ticks = page.locator("#time [aria-label*='tick label'] text").all_text_contents()
    assert ticks
    assert not [tick for tick in ticks if "e" in tick or "^" in tick or tick == ""]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_narrow_screen(theme: str, report: Report, open_page: Any) -> None:
    page = _open(open_page, report, width=390, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_steps_that_count_no_arithmetic_have_no_roofline(open_page: Any) -> None:
    b = bl.Builder()
    b.output("y", b.op("Erf", b.input("x", (2, 3, 4))))
    with bl.load(b, tune="model") as session:
        report = session.report({"x": np.ones((2, 3, 4), np.float32)}, n_runs=1)
    assert "there is no roofline" in _open(open_page, report).text_content("#time")


def test_names_are_text(open_page: Any) -> None:
    evil = "<img src=x onerror=alert(1)>/a.b\u202e"
    b = bl.Builder()
    rng = np.random.default_rng(0)
    b.output("y", b.input("x", (1, 8, 8, 8)).conv(nets.he(rng, 8, 8, 3, 3), pads=1, name=evil))
    with bl.load(b, tune="model") as session:
        report = session.report({"x": np.ones((1, 8, 8, 8), np.float32)}, n_runs=1)
    page = _open(open_page, report)
    page.locator("#time rect[role=button]").first.hover()
    assert page.locator("#time img, .tip img").count() == 0
    assert "\u202e" not in page.evaluate("document.getElementById('time').innerHTML")


def test_a_thousand_steps_stay_usable(open_page: Any, report: Report) -> None:
    record = dict(report.record)
    steps = record["profile"]["steps"]
    copies = range(1000 // len(steps) + 1)
    many = [each | {"name": f"part{at}.{each['name']}"} for at in copies for each in steps]
    kernels = [
        each | {"name": f"part{at}.{each['name']}", "path": (f"part{at}", *each["path"])}
        for at in copies
        for each in record["plan"]["kernels"]
    ]
    profile = record["profile"] | {"steps": many, "ns": sum(each["ns"] for each in many)}
    page = open_page(Report(record | {"profile": profile, "plan": record["plan"] | {"kernels": kernels}}).to_html())
    page.click("#tab-time")
    assert page.locator("#time *").count() < 12_000
    flame = page.locator("#time svg[aria-label^='The run by step']")
    flame.locator("rect[aria-label^='part3,']").click()
    assert page.locator("text=Show the whole run").is_visible()
