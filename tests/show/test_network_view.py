"""The network as a graph: marks, blocks, search, keys, and the list of reorders, in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.show.report import Report
from tests.show.waiting import wait_until

if TYPE_CHECKING:
    from blocklayout.model.builder import BuildValue
    from blocklayout.model.graph import Graph

READY = 'svg.stage[aria-busy="false"]'
PINS = {"layer1.0.relu1": "nhwc", "layer1.0.pool": "nchw"}
"""Of :func:`residual`: what is between the two has to be reordered."""


def residual(n_blocks: int = 2, place: str = "layer1.{}.") -> Graph:
    """A stem, residual blocks and a classifier's beginning; ``place`` is before the names in a block."""
    b = bl.Builder("little")
    weights = np.ones((16, 16, 3, 3), np.float32)

    def conv(x: BuildValue, name: str) -> BuildValue:
        return x.conv(weights, pads=1, name=name)

    x = conv(b.input("x", (1, 16, 16, 16)), "stem.conv").relu(name="stem.relu")
    for index in range(n_blocks):
        within = place.format(index)
        y = conv(x, f"{within}conv1").relu(name=f"{within}relu1").max_pool(3, 1, pads=1, name=f"{within}pool")
        x = x + conv(y, f"{within}conv2")
    b.output("y", x.global_average_pool().flatten())
    return b.to_graph()


def report_of(graph: Graph, **options: Any) -> Report:
    with bl.load(graph, tune="model", **options) as session:
        return session.report()


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a network with two blocks and a reorder."""
    made = report_of(residual(), pin=PINS)
    assert reorders(made), "the pins ask for different layouts"
    return made


def reorders(report: Report) -> list[dict[str, Any]]:
    """Steps and entries that reorder, the costliest first."""
    plan = report.record["plan"]
    found = [step for step in plan["steps"] if step["kind"] == "reorder"]
    found += [entry for entry in plan["entries"] if entry["is_reorder"]]
    return sorted(found, key=lambda each: -each["cost_ns"])


def shown(open_page: Any, report: Report, **options: Any) -> Any:
    page = open_page(report.to_html(), reduced_motion="reduce", **options)
    page.wait_for_selector(READY)
    return page


def press(page: Any, name: str) -> None:
    """Press a button of the toolbar, and wait for the graph."""
    page.get_by_role("button", name=name, exact=True).click()
    page.wait_for_selector(READY)


def fit(page: Any) -> None:
    """Bring every mark into view."""
    press(page, "Show the whole network")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def names(page: Any) -> list[str]:
    """What is told of all marks."""
    return [mark.get_attribute("aria-label") for mark in page.locator("#network .node").all()]


def active(page: Any) -> str:
    """What is told of the mark that has the focus."""
    return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))


def test_every_kernel_reorder_input_and_result_has_a_mark(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    fit(page)
    plan = report.record["plan"]
    kernels = [kernel for kernel in plan["kernels"] if not kernel["is_view"]]
    assert page.locator("#network .node.kernel").count() == len(kernels)
    assert page.locator("#network .node.reorder").count() == len(reorders(report))
    assert page.locator("#network .node.input").count() == len(plan["inputs"])
    assert page.locator("#network .node.output").count() == len(plan["results"])
    assert "16c" in page.text_content("#network .legend") or "channels last" in page.text_content("#network .legend")


def test_views_are_shown_on_demand(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    fit(page)
    assert page.locator("#network .node.view").count() == 0
    page.get_by_label("what was free").check()
    page.wait_for_selector(READY)
    fit(page)
    views = [kernel for kernel in report.record["plan"]["kernels"] if kernel["is_view"]]
    assert page.locator("#network .node.view").count() == len(views) > 0


def test_nodes_that_vanished_are_shown_on_demand(open_page: Any) -> None:
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8)).conv(np.ones((16, 16, 3, 3), np.float32), name="conv")
    b.output("y", b.op("Identity", x, name="nothing").max_pool(2, name="pool"))
    page = shown(open_page, report_of(b.to_graph()))
    fit(page)
    assert page.locator("#network .node.vanished").count() == 0
    page.get_by_label("what was free").check()
    page.wait_for_selector(READY)
    fit(page)
    assert [name for name in names(page) if "vanished" in name] == ["nothing, vanished"]


def test_blocks_collapse_and_expand(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    press(page, "Collapse all blocks")
    fit(page)
    [block] = [name for name in names(page) if name.endswith("collapsed")]
    assert block.startswith("layer1, 6 kernels, ")
    assert "reorder" in block
    page.locator("#network .node.block").click()
    page.wait_for_selector(READY)
    fit(page)
    assert [name.split(",")[0] for name in names(page) if name.endswith("collapsed")] == ["layer1.0", "layer1.1"]
    page.locator("#network [data-block]").first.click()
    page.wait_for_selector(READY)
    fit(page)
    assert page.locator("#network .node.block").count() == 1


def test_the_keyboard_reaches_everything(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    press(page, "Collapse all blocks")
    page.locator('#network .node[tabindex="0"]').focus()
    assert active(page).startswith("x, input")
    page.keyboard.press("ArrowDown")
    while not active(page).startswith("layer1,"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_until(page, "document.activeElement.getAttribute('aria-label')?.startsWith('layer1.0,')")
    page.keyboard.press("c")
    wait_until(page, "document.activeElement.getAttribute('aria-label')?.startsWith('layer1,')")
    while not active(page).startswith("stem.conv"):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.evaluate("page.selected") == 0
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_search_counts_matches_and_goes_to_them(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    press(page, "Collapse all blocks")
    box = page.get_by_role("searchbox")
    box.fill("layer1.1.CONV")
    matches = page.locator(".tools output")
    found = int(matches.text_content().split()[0])
    assert found >= 2
    assert page.locator("#network .node.block.match").count() == 1
    box.press("Enter")
    page.wait_for_selector("#network .node.kernel.current")
    assert page.get_attribute("#network .node.current", "aria-label").startswith("layer1.1.conv1,")
    assert matches.text_content() == f"1 of {found}"
    box.press("Shift+Enter")
    assert matches.text_content() == f"{found} of {found}"
    box.fill("no such name")
    assert matches.text_content() == "nothing found"


def test_a_kernel_is_chosen_here_and_shown_when_chosen_elsewhere(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    page.locator('#network .node[data-kernel="0"]').click()
    assert page.evaluate("page.selected") == 0
    assert page.locator("#network .node.chosen").count() == 1
    assert "stem.conv" in page.text_content("#node")
    press(page, "Collapse all blocks")
    kernels = [kernel["name"] for kernel in report.record["plan"]["kernels"]]
    wanted = kernels.index("layer1.1.conv2")
    page.evaluate("kernel => page.select(kernel)", wanted)
    page.wait_for_selector(f'#network .node.chosen[data-kernel="{wanted}"]')
    assert page.locator("#network .node.chosen").count() == 1


@pytest.mark.parametrize(("width", "height"), [(1280, 700), (390, 844)])
def test_what_is_chosen_or_found_comes_into_sight(open_page: Any, width: int, height: int) -> None:
    report = report_of(residual(12))
    page = shown(open_page, report, width=width, height=height)
    kernels = [kernel["name"] for kernel in report.record["plan"]["kernels"]]

    def is_in_sight(kernel: int) -> bool:
        mark = page.locator(f'#network .node[data-kernel="{kernel}"]')
        mark.wait_for()
        page.wait_for_timeout(100)
        box, panel = mark.bounding_box(), page.locator("#node").bounding_box()
        end = height if width > 860 else panel["y"]
        return bool(box["y"] >= 0 and box["y"] + box["height"] <= end)

    for name in ("layer1.9.conv1", "stem.conv", "layer1.4.conv2"):
        page.evaluate("kernel => page.select(kernel)", kernels.index(name))
        assert is_in_sight(kernels.index(name))
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.get_by_role("searchbox").fill("layer1.11.conv1")
    page.get_by_role("searchbox").press("Enter")
    assert is_in_sight(kernels.index("layer1.11.conv1"))


def test_a_reorder_tells_its_facts_and_chooses_its_reader(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    found = reorders(report)
    row = page.locator("#network .lists tbody tr").first
    [costliest] = [each for each in found if each["reason"] in row.text_content()]
    assert costliest["cost_ns"] == found[0]["cost_ns"], "several may cost as much"
    row.get_by_role("button").click()
    page.wait_for_selector("#network .node.reorder.chosen")
    box = page.text_content("#node .chosen-reorder")
    assert costliest["reason"] in box
    kernels = report.record["plan"]["kernels"]
    assert kernels[page.evaluate("page.selected")]["name"] in costliest["readers"]
    page.evaluate("page.select(0)")
    assert page.is_hidden("#node .chosen-reorder")


def test_values_tell_their_layout_under_the_pointer(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    fit(page)
    page.locator("#network .link .hit").first.dispatch_event("pointerover")
    assert "f32 1\u00d716\u00d716\u00d716" in page.text_content(".tip")


def test_the_graph_moves_and_scales(report: Report, open_page: Any) -> None:
    page = shown(open_page, report)
    transform = "document.querySelector('#network .world').getAttribute('transform')"
    before = page.evaluate(transform)
    press(page, "Zoom in")
    closer = page.evaluate(transform)
    frame = page.locator("svg.stage").bounding_box()
    page.mouse.move(frame["x"] + 20, frame["y"] + 200)
    page.mouse.down()
    page.mouse.move(frame["x"] + 60, frame["y"] + 120, steps=3)
    page.mouse.up()
    assert len({before, closer, page.evaluate(transform)}) == 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_narrow_page(report: Report, open_page: Any, theme: str) -> None:
    page = shown(open_page, report, width=390, height=844, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    frame, panel = page.locator("#network .frame").bounding_box(), page.locator("#node").bounding_box()
    assert panel["y"] >= frame["y"] + frame["height"]


def test_names_of_onnx_exporters_make_blocks(open_page: Any) -> None:
    page = shown(open_page, report_of(residual(place="/layer1/layer1.{}/")))
    press(page, "Collapse all blocks")
    fit(page)
    assert [name.split(",")[0] for name in names(page) if name.endswith("collapsed")] == ["layer1"]
    page.locator("#network .node.block").click()
    page.wait_for_selector(READY)
    fit(page)
    assert [name.split(",")[0] for name in names(page) if name.endswith("collapsed")] == ["layer1.0", "layer1.1"]


def test_of_flat_names_blocks_are_those_of_the_structure(open_page: Any) -> None:
    page = shown(open_page, report_of(residual(place="n{}_")))
    press(page, "Collapse all blocks")
    fit(page)
    assert page.locator("#network .node.block").count() >= 1
    press(page, "Expand all blocks")
    fit(page)
    assert page.locator("#network .headings").all_text_contents()[-1].endswith("part 2")
    assert page.locator("#network .node.block").count() == 0


def test_large_networks_are_laid_out_in_parts(open_page: Any) -> None:
    report = report_of(residual(40, place="n{}_"))
    page = shown(open_page, report)
    press(page, "Expand all blocks")
    fit(page)
    kernels = [kernel for kernel in report.record["plan"]["kernels"] if not kernel["is_view"]]
    assert page.locator("#network .node.kernel").count() == len(kernels) > 100
    tops = page.locator("#network .node.kernel").evaluate_all(
        "marks => marks.sort((a, b) => a.dataset.kernel - b.dataset.kernel).map(each => each.getBoundingClientRect().y)"
    )
    assert tops == sorted(tops)


def test_hostile_names_are_text(open_page: Any) -> None:
    name = "</script><img src=x onerror=alert(1)>.\"'\u202eevil\u2066"
    b = bl.Builder(name)
    x = b.input("x]]><b>", (1, 8, 8, 8)).conv(np.ones((8, 8, 3, 3), np.float32), name=f"{name}.a").relu()
    x = x.max_pool(3, name=f"{name}.b").conv(np.ones((8, 8, 1, 1), np.float32), name="__proto__.constructor")
    b.output("y", x)
    report = report_of(b.to_graph())
    page = shown(open_page, report)
    fit(page)
    assert page.locator("#network img, #network b").count() == 0
    assert "\\u202eevil\\u2066" in page.get_attribute('#network .node[data-kernel="0"]', "aria-label")
    page.locator('#network .node[data-kernel="0"]').click()
    page.get_by_role("searchbox").fill("__PROTO__")
    assert page.text_content(".tools output").endswith(" found")
