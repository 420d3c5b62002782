"""The picture of a run: a strip for each policy."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.cli import main
from blocklayout.errors import InputError
from blocklayout.show.page import LAYOUT_COLOURS
from blocklayout.show.report import Report
from blocklayout.show.strips import strips_svg
from tests import nets

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
SPAN = 912  # of the longest strip
HOSTILE = "</title><script>alert(1)</script>\"'&\u202e\u0000\ud800"


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a small network as three policies lay it out, run."""
    rng = np.random.default_rng(0)
    reports = []
    for policy in ("auto", "nhwc", "per-op"):
        with bl.load(nets.residual(), layout=policy, tune="model") as session:
            reports.append(session.report({"image": rng.random((2, 3, 14, 14), np.float32)}, n_runs=2))
    return reports[0].beside(*reports[1:])


def predicted(report: Report) -> dict[str, Any]:
    others = [{"plan": each["plan"], "profile": None} for each in report.record["others"]]
    return report.record | {"profile": None, "others": others}


def rows(text: str) -> list[ET.Element]:
    """The strips, in the order in which they are drawn."""
    return list(ET.fromstring(text).iter(f"{SVG}g"))


def pieces(row: ET.Element) -> list[ET.Element]:
    return [each for each in row.iter(f"{SVG}rect") if each.get("class") != "hatched"]


def length(row: ET.Element) -> float:
    return sum(float(each.attrib["width"]) for each in pieces(row))


def by_policy(report: Report) -> dict[str, dict[str, Any]]:
    return {each["plan"]["policy"]: each for each in (report.record, *report.record["others"])}


def test_strips_are_as_long_as_their_measured_times(report: Report) -> None:
    drawn = {row.attrib["data-policy"]: length(row) for row in rows(report.to_svg())}
    times = {policy: each["profile"]["ns"] for policy, each in by_policy(report).items()}
    longest = max(times.values())
    assert drawn == pytest.approx({policy: SPAN * ns / longest for policy, ns in times.items()}, abs=0.05)
    assert "measured, medians of 2 runs in turn" in report.to_svg()


def test_without_a_profile_of_each_times_are_predicted(report: Report) -> None:
    record = predicted(report)
    drawn = {row.attrib["data-policy"]: length(row) for row in rows(strips_svg(record))}
    times = {policy: each["plan"]["cost_ns"] for policy, each in by_policy(report).items()}
    longest = max(times.values())
    assert drawn == pytest.approx({policy: SPAN * ns / longest for policy, ns in times.items()}, abs=0.05)
    assert "predicted; nothing was run" in strips_svg(record)
    assert strips_svg(record | {"profile": report.record["profile"]}) == strips_svg(record)


def test_each_step_follows_the_one_before(report: Report) -> None:
    for row in rows(report.to_svg()):
        ends = [float(each.attrib["x"]) + float(each.attrib["width"]) for each in pieces(row)]
        begins = [float(each.attrib["x"]) for each in pieces(row)]
        assert begins == pytest.approx([24.0, *ends[:-1]], abs=0.01)


def test_every_reorder_is_drawn_and_reaches_below_its_strip(report: Report) -> None:
    plans = {policy: each["plan"] for policy, each in by_policy(report).items()}
    assert any(step["kind"] == "reorder" for step in plans["per-op"]["steps"])
    for row in rows(report.to_svg()):
        plan = plans[row.attrib["data-policy"]]
        n_reorders = sum(each["kind"] == "reorder" for each in plan["steps"])
        n_reorders += sum(each["is_reorder"] for each in plan["entries"])
        feet = [each.attrib["d"].count("M") for each in row.iter(f"{SVG}path") if "feet" in each.attrib["class"]]
        assert sum(each.get("class") == "in-reorder" for each in pieces(row)) == sum(feet) == n_reorders
        assert f"{n_reorders or 'no'} reorder" in "".join(row.itertext())


def test_the_plan_comes_first_and_others_by_their_times(report: Report) -> None:
    drawn = rows(report.to_svg())
    assert drawn[0].attrib["data-policy"] == "auto"
    assert [length(row) for row in drawn[1:]] == sorted(length(row) for row in drawn[1:])


def test_every_class_of_layouts_has_its_colours_and_words(report: Report) -> None:
    text = report.to_svg()
    for family, colours in LAYOUT_COLOURS.items():
        for colour in colours:
            assert f".in-{family.replace(' ', '-')}{{fill:{colour}}}" in text
    used = {each.attrib["class"] for row in rows(text) for each in pieces(row)}
    assert all(f".{each}{{" in text for each in used)


def test_blocks_of_the_network_are_named_below_the_first_strip(report: Report) -> None:
    text = strips_svg(predicted(report))
    shown = {each.text for each in ET.fromstring(text).iter(f"{SVG}text")}
    assert shown & {"block1", "block2", "1", "2"}


def test_one_plan_alone_makes_a_picture(report: Report) -> None:
    alone = strips_svg(report.record | {"others": []})
    assert len(rows(alone)) == 1
    assert "step by step" in alone


def test_the_same_record_makes_the_same_text(report: Report) -> None:
    assert strips_svg(copy.deepcopy(report.record)) == report.to_svg()


def test_hostile_names_are_text_and_nothing_else(report: Report) -> None:
    record = copy.deepcopy(report.record)
    record["plan"]["model"] = record["plan"]["policy"] = record["machine"]["cpu"] = HOSTILE
    for step in record["plan"]["steps"]:
        step["kernel"] = f"{HOSTILE}/{step['kernel']}"
    text = strips_svg(record)
    root = ET.fromstring(text)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "title", "desc", "style", "pattern", "rect", "text", "tspan", "path", "g")
    }
    assert re.search("[\u202e\u0000\ud800]", text) is None
    assert "\\u202e" in text


def test_the_command_draws_all_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "digits.svg"
    assert main(["show", "--runs", "0", "--tune", "model", "-o", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    names = [row.attrib["data-policy"] for row in rows(target.read_text(encoding="utf-8"))]
    assert names[0] == "auto"
    assert sorted(names) == ["any", "auto", "blocked", "nhwc", "per-op", "plain"]


def test_the_command_takes_turns_and_begins_with_the_policy_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "digits.svg"
    assert main(["show", "--runs", "2", "--tune", "model", "--layout", "nhwc", "-o", str(target)]) == 0
    text = target.read_text(encoding="utf-8")
    assert next(row.attrib["data-policy"] for row in rows(text)) == "nhwc"
    assert len(rows(text)) == 6
    assert "medians of 2 runs in turn" in text


@pytest.mark.parametrize("name", ["page.htm", "picture.png", "page"])
def test_a_name_that_says_neither_page_nor_picture_is_refused(report: Report, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.html.*\.svg"):
        report.save(tmp_path / name)
    assert main(["show", "-o", str(tmp_path / name)]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [960, 390])
def test_a_browser_draws_it_within_its_frame(
    report: Report, open_page: Any, tmp_path: Path, theme: str, width: int
) -> None:
    report.save(tmp_path / "run.svg")
    page = open_page(url=(tmp_path / "run.svg").as_uri(), width=width, height=700, theme=theme)
    outside = page.evaluate(
        """() => {
            const frame = document.documentElement.viewBox.baseVal;
            return [...document.querySelectorAll("text")].filter((text) => {
                const box = text.getBBox();
                return box.width > 0 && (box.x < 0 || box.x + box.width > frame.width
                    || box.y < 0 || box.y + box.height > frame.height);
            }).map((text) => text.textContent);
        }"""
    )
    assert outside == []
    ground = page.evaluate("getComputedStyle(document.querySelector('rect.ground[rx]')).fill")
    assert ground == ("rgb(255, 255, 255)" if theme == "light" else "rgb(22, 23, 26)")
    is_large = page.evaluate("parseFloat(getComputedStyle(document.querySelector('text.name')).fontSize) > 20")
    assert is_large == (width == 390)


def test_no_texts_of_a_row_touch(report: Report, open_page: Any, tmp_path: Path) -> None:
    report.save(tmp_path / "run.svg")
    for width in (960, 390):
        page = open_page(url=(tmp_path / "run.svg").as_uri(), width=width, height=700)
        touching = page.evaluate(
            """() => {
                const seen = [...document.querySelectorAll("text")]
                    .map((text) => [text.textContent, text.getBBox()]).filter(([, box]) => box.width > 0);
                const apart = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x
                    || a.y + a.height <= b.y + 4 || b.y + b.height <= a.y + 4;
                return seen.flatMap(([name, box], at) => seen.slice(at + 1)
                    .filter(([, other]) => !apart(box, other)).map(([other]) => `${name} / ${other}`));
            }"""
        )
        assert touching == [], width


# --- the same at the head of the page


def strips_of(page: Any) -> dict[str, float]:
    """The share of the longest that each policy's strip takes, from above."""
    rows = page.locator("#policies .run")
    lengths = rows.evaluate_all(
        """rows => rows.map((row) => {
            const widths = [...row.querySelectorAll("rect")].map((each) => each.width.baseVal.value);
            return [row.dataset.policy, widths.reduce((sum, each) => sum + each, 0) / 10000];
        })"""
    )
    return dict(lengths)


def test_the_page_begins_with_a_strip_for_each_policy(report: Report, open_page: Any) -> None:
    page = open_page(Report(report.record | {"others": []}).to_html())
    costs = {policy: ns for policy, ns in report.record["plan"]["policy_costs"].items() if policy != "solve"}
    first, *others = strips_of(page).items()
    assert first[0] == "auto"
    assert [share for _, share in others] == sorted(share for _, share in others)
    longest = max(costs.values())
    expected = {policy: ns / longest for policy, ns in costs.items()}
    assert dict([first, *others]) == pytest.approx(expected, abs=1e-3)
    assert "predicted" in page.text_content("#policies figcaption")
    assert page.locator("#policies").bounding_box()["y"] < page.locator("nav[role=tablist]").bounding_box()["y"]


def test_strips_on_the_page_are_measured_where_each_plan_was_run(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    times = {policy: each["profile"]["ns"] for policy, each in by_policy(report).items()}
    longest = max(times.values())
    assert strips_of(page) == pytest.approx({policy: ns / longest for policy, ns in times.items()}, abs=1e-3)
    assert "measured, medians of 2 runs in turn" in page.text_content("#policies figcaption")


def test_a_step_of_a_strip_chooses_its_kernel_and_keys_walk_from_strip_to_strip(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    focused = "document.activeElement.closest('.run')?.dataset.policy"
    step = page.locator("#policies .run").nth(1).locator("rect[role=button]").nth(3)
    step.dispatch_event("click")  # however narrow it is
    chosen = page.evaluate("page.record.plan.kernels[page.selected].name")
    assert page.locator("#policies rect.chosen").first.get_attribute("aria-label").startswith(f"{chosen}, ")
    page.locator("#policies rect[tabindex='0']").focus()
    assert page.evaluate(focused) == "auto"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "auto"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == page.locator("#policies .run").nth(1).get_attribute("data-policy")
    assert page.locator(".tip").is_visible()
    ink = page.evaluate("getComputedStyle(document.body).color")
    strokes = page.locator("#policies rect.chosen, #policies rect:focus-visible").evaluate_all(
        "all => all.map((each) => getComputedStyle(each).stroke)"
    )
    assert len(strokes) > 1
    assert {*strokes} == {ink}
