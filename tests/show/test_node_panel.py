"""The panel of one kernel, and the pins that are tried there, in a browser."""

from __future__ import annotations

import ast
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.show.report import Report
from tests import nets

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = ("it's <img src=x onerror=alert(1)>", "-dash=a=b", 'bidi\u202edlrow $(rm) `x` \\ "q"', "line\nbreak")


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a small residual network, run."""
    builder = nets.residual()
    with bl.load(builder, tune="model") as session:
        return session.report(nets.feed_of(session)).from_source("residual.onnx")


@pytest.fixture(scope="module")
def hostile() -> Report:
    """Of a chain whose nodes have names that mean something to HTML, shells and readers' eyes."""
    rng = np.random.default_rng(0)
    builder = bl.Builder()
    x = builder.input("x", (1, 16, 8, 8))
    for name in HOSTILE:
        x = x.conv(nets.he(rng, 16, 16, 3, 3), pads=1, name=name).relu()
    builder.output("y", x)
    return bl.load(builder, tune="model").report().from_source("-it's here.onnx", {"x": (1, 16, 8, 8)})


def kernel(report: Report, name: str) -> int:
    return [each["name"] for each in report.record["plan"]["kernels"]].index(name)


def choose(page: Any, index: int) -> None:
    page.evaluate("kernel => page.select(kernel)", index)


def keywords(python: str) -> dict[str | None, Any]:
    """The arguments with names of the call in the last line."""
    assignment = ast.parse(python).body[-1]
    assert isinstance(assignment, ast.Assign)
    assert isinstance(assignment.value, ast.Call)
    return {each.arg: ast.literal_eval(each.value) for each in assignment.value.keywords}


def pinnable(report: Report, index: int) -> list[dict[str, Any]]:
    return [each for each in report.record["plan"]["kernels"][index]["alternatives"] if each["pin"] is not None]


def test_a_kernel_is_told_from_its_nodes_to_its_bytes(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.select_option("#kernel", label="block1/a")
    text = page.inner_text("#node")
    assert page.text_content("#node h2") == "block1/a"
    index = kernel(report, "block1/a")
    [number] = report.record["plan"]["kernels"][index]["steps"]
    step = report.record["plan"]["steps"][number]
    assert step["primitive"] in text
    assert step["impl"] in text
    assert "by the model" in text
    assert "in place" in text
    for operand in step["operands"]:
        desc = report.record["plan"]["descs"][operand["desc"]]
        assert " \u00d7 ".join(map(str, desc["dims"])) in text
        assert f"strides {', '.join(map(str, desc['strides']))}" in text
    assert "1, 1, 1, 1" in text  # the pads of its node


def test_links_lead_to_neighbours(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    choose(page, kernel(report, "block2/a"))
    page.get_by_role("button", name="block2/b", exact=True).click()
    assert page.evaluate("page.selected") == kernel(report, "block2/b")
    assert page.evaluate("document.activeElement.textContent") == "block2/b"


def test_a_layout_that_is_tried_is_priced_and_named_in_a_command(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    index = kernel(report, "block2/b")
    choose(page, index)
    wanted = pinnable(report, index)[0]
    page.check(f"#node input[value='{wanted['pin']}']")
    cost = page.evaluate("ns => page.time(ns)", report.record["plan"]["cost_ns"] + wanted["added_ns"])
    assert cost in page.text_content("#node .outcome")
    shell, python = page.locator("#node pre").all_text_contents()
    assert shell == f"blocklayout show residual.onnx --pin 'block2/b={wanted['pin']}'"
    assert python.splitlines()[1] == f'session = bl.load("residual.onnx", pin={{"block2/b": "{wanted["pin"]}"}})'


def test_several_pins_are_priced_by_planning_anew_and_taken_back(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.evaluate("page.onPins((pins) => { globalThis.told = [...pins]; })")
    named = {}
    for name in ("block1/a", "block2/a"):
        index = kernel(report, name)
        choose(page, index)
        named[name] = pinnable(report, index)[0]["pin"]
        page.check(f"#node input[value='{named[name]}']")
    assert page.evaluate("told") == [list(each) for each in named.items()]
    assert "only by planning anew" in page.text_content("#node .outcome")
    page.get_by_role("button", name="Remove the pin of block2/a").click()
    assert page.is_checked("#node input[value='']")
    assert page.evaluate("[...page.pins.keys()]") == ["block1/a"]
    page.get_by_role("button", name="Reset").click()
    assert page.evaluate("page.pins.size") == 0
    assert page.locator("#node pre").count() == 0


def test_the_pins_of_a_plan_are_shown_and_kept_in_commands(open_page: Any) -> None:
    asked: dict[str, Any] = {
        "layout": "nhwc",
        "io_layout": {"x": "nhwc"},
        "precision": {"conv2": "f32"},
        "pin": {"conv1": "nchw"},
    }
    page = open_page(bl.load(nets.chain(), tune="model", **asked).report().to_html())
    assert page.evaluate("[...page.pins]") == [["conv1", "nchw"]]
    shell, python = page.locator("#node pre").all_text_contents()
    options = "--layout nhwc --io-layout=x=nhwc --precision=conv2=f32 --pin 'conv1=nchw'"
    assert shell == f"blocklayout show MODEL {options}"
    assert keywords(python) == asked
    choose(page, 1)
    assert "Pinned to nchw by conv1" in page.inner_text("#node")
    page.get_by_role("button", name="Remove the pin of conv1").click()
    assert "without pins" in page.text_content("#node .outcome")


def test_hostile_names_are_text_and_survive_shells_and_python(hostile: Report, open_page: Any) -> None:
    page = open_page(hostile.to_html())
    wanted = {}
    for index, name in enumerate(HOSTILE):
        choose(page, kernel(hostile, name))
        wanted[name] = pinnable(hostile, index)[0]["pin"]
        page.locator("#node input[type=radio]").nth(1).check()
    shell, python = page.locator("#node pre").all_text_contents()
    assert "\u202e" not in shell + python
    arguments = shell.removeprefix("blocklayout show ")
    script = f"printf '%s\\0' {arguments}"
    said = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout
    model, shape, *pins = said.decode().split("\0")[:-1]
    assert (model, shape) == ("./-it's here.onnx", "--shape=x=1x16x8x8")
    assert [each.removeprefix("--pin=") for each in pins if each != "--pin"] == [
        f"{name}={layout}" for name, layout in wanted.items()
    ]
    assert keywords(python) == {"shapes": {"x": [1, 16, 8, 8]}, "pin": wanted}
    assert page.locator("#node img").count() == 0


def test_a_command_is_selected_where_nothing_can_be_copied(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("page.pin('block1/a', 'nchw')")
    page.get_by_role("button", name="Copy: In a shell").click()
    assert page.evaluate("getSelection().toString()") == page.locator("#node pre").first.text_content()
    assert "Ctrl+C" in page.locator("#node .script [role=status]").first.text_content()


def test_a_page_of_a_saved_session_says_that_the_model_is_not_at_hand(open_page: Any, tmp_path: Path) -> None:
    bl.load(nets.chain(), tune="model").save(tmp_path / "chain.session")
    report = bl.load(tmp_path / "chain.session").report()
    assert report.record["nodes"] is None
    page = open_page(report.to_html())
    choose(page, 0)
    assert "the model was not at hand" in page.inner_text("#node")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(report: Report, open_page: Any, theme: str) -> None:
    page = open_page(report.to_html(), width=390, theme=theme)
    for index in range(len(report.record["plan"]["kernels"])):
        choose(page, index)
        widest = page.evaluate("Math.max(...[...document.querySelectorAll('#node *')].map((each) => each.scrollWidth))")
        assert widest <= 390, report.record["plan"]["kernels"][index]["name"]


def test_kernels_of_a_real_network_are_drawn(open_page: Any) -> None:
    report = bl.load(zoo.build("shufflenet_v2_x0_5", size=64), tune="model").report()
    page = open_page(report.to_html())
    kernels = report.record["plan"]["kernels"]
    for index in range(0, len(kernels), 3):
        choose(page, index)
        assert page.text_content("#node h2") == kernels[index]["name"]
