"""Names that a model's author chose do nothing but be read, on every tab of every kind of page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout.show.page import framed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blocklayout.show.report import Report

NAMES = [
    "<script>window.wasRun=1</script>",
    '"><img src=x onerror="window.wasRun=1">',
    "</script><script>window.wasRun=1</script>",
    "]]></style></title></textarea><svg onload=window.wasRun=1>",
    "--><!--<script>",
    "javascript:window.wasRun=1",
    'it\'s "quoted" `ticked` ${window.wasRun=1} back\\slash \\u003c',
    "&lt;b&gt; &amp; %3Cb%3E",
    "new\nline\r\ttab",
    "nul\x00bell\x07escape\x1b[31m\x7f\x85",
    "right\u202eto\u202dleft\u2066iso\u2069\u061c",
    "zero\u200bwidth\ufeff\u00adsoft\u2060joined\u200d\u3164",
    "long" * 2500,
    "emoji \U0001f600 \U0001d54f \U000e0041",
    "__proto__",
    "constructor",
    " ",
    "url(#x);}*{display:none",
]
TAKEN = {"<script>window.wasRun=1</script>", "</script><script>window.wasRun=1</script>", "&lt;b&gt; &amp; %3Cb%3E"}
"""Names that a page must show literally somewhere."""

UNSEEN = r"/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u3164]/u"

# Text and attributes that a reader or a screen reader meets, with characters that nobody sees.
FIND_UNSEEN = f"""() => {{
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {{
    if (node.nodeType === Node.TEXT_NODE) {{
      const isCode = node.parentElement.closest("script, style");
      if (!isCode && {UNSEEN}.test(node.data.replaceAll("\\n", ""))) found.push(node.data);
    }} else for (const each of ["title", "aria-label", "alt", "placeholder", "label"]) {{
      if ({UNSEEN}.test(node.getAttribute(each) || "")) found.push(`${{each}}=${{node.getAttribute(each)}}`);
    }}
  }}
  return found.map((each) => each.slice(0, 200));
}}"""


def hostile_model() -> onnx.ModelProto:
    """A chain in which every name is hostile: nodes, values, weights, the graph, its input and its output."""
    weights = np.full((8, 8, 3, 3), 0.01, np.float32)
    nodes, constants, value = [], [], "in" + NAMES[1]
    for number, name in enumerate(NAMES):
        constants.append(numpy_helper.from_array(weights, f"weights {name}"))
        nodes.append(helper.make_node("Conv", [value, constants[-1].name], [name], f"conv {name}", pads=[1, 1, 1, 1]))
        value = name
        if number % 4 == 0:  # now and then something that asks for another layout
            nodes.append(helper.make_node("Softmax", [value], [f"softmax {name}"], f"/softmax/{name}", axis=1))
            value = f"softmax {name}"
        nodes[-1].doc_string = name
    shape = (1, 8, 6, 6)
    graph = helper.make_graph(
        nodes,
        "".join(NAMES[:11]),
        [helper.make_tensor_value_info("in" + NAMES[1], TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)],
        constants,
        doc_string=NAMES[0],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name=NAMES[0])
    helper.set_model_props(model, {NAMES[0]: NAMES[1]})
    return model


@pytest.fixture(scope="module")
def report() -> Report:
    with bl.load(hostile_model(), tune="model") as session:
        feed = {session.get_inputs()[0].name: np.zeros((1, 8, 6, 6), np.float32)}
        return session.report(feed, n_runs=1)


def visited(page: Any) -> Iterator[str]:
    """Each tab of a page, once it is shown; the page itself where it has no tabs."""
    tabs = page.get_by_role("tab").all()
    for tab in tabs:
        tab.click()
        page.wait_for_timeout(50)
        yield tab.get_attribute("id")
    if not tabs:
        yield "the page"


def touch(page: Any, root: str) -> None:
    """Point at and focus some of each kind of element of a section, for what these show."""
    page.evaluate(
        """(root) => {
          const kinds = new Map();
          for (const each of document.querySelectorAll(`${root} *`)) {
            const kind = `${each.tagName} ${each.getAttribute("class")}`;
            kinds.set(kind, [...(kinds.get(kind) || []), each]);
          }
          for (const elements of kinds.values()) for (const each of elements.slice(0, 24)) {
            const box = each.getBoundingClientRect();
            const at = { bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 };
            for (const kind of ["enter", "over", "move"]) {
              each.dispatchEvent(new PointerEvent(`pointer${kind}`, at));
              each.dispatchEvent(new MouseEvent(`mouse${kind}`, at));
            }
            if (each.tabIndex >= 0 && each.focus) each.focus({ preventScroll: true });
          }
        }""",
        root,
    )


def check(page: Any, n_scripts: int) -> None:
    assert page.evaluate("window.wasRun") is None
    assert page.evaluate("document.querySelectorAll('script').length") == n_scripts
    assert page.evaluate("document.querySelectorAll('img, object, embed, link, base').length") == 0
    assert page.evaluate(FIND_UNSEEN) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_network_of_hostile_names_is_shown_and_does_nothing(report: Report, open_page: Any, width: int) -> None:
    page = open_page(report.to_html(), width=width)
    n_scripts = page.evaluate("document.querySelectorAll('script').length")
    seen = ""
    for tab in visited(page):
        touch(page, "main section:not([hidden])")
        check(page, n_scripts)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        seen += page.evaluate("document.body.innerText")
    assert not [name for name in TAKEN if name not in seen]
    assert page.evaluate("location.pathname").endswith("page0.html")


def test_kernels_of_hostile_names_can_be_chosen(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    n_scripts = page.evaluate("document.querySelectorAll('script').length")
    for number in range(len(report.record["plan"]["kernels"])):
        page.evaluate("(kernel) => page.select(kernel)", number)
        check(page, n_scripts)


def test_hostile_names_are_isolated(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    assert page.locator("h1 bdi").count() == 1
    page.click("#tab-steps")
    cells = page.locator("#steps tbody tr td:nth-child(2)")
    assert cells.count() == cells.locator("bdi").count() > 0


def test_in_a_notebook_hostile_names_do_nothing(report: Report, open_page: Any) -> None:
    # A browser would guess at an encoding that is not stated.
    page = open_page(f"<!doctype html><meta charset=windows-1252><body>{framed(report.to_html())}")
    page.frame_locator("iframe").locator("h1").wait_for()
    for tab in page.frame_locator("iframe").get_by_role("tab").all():
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
    for frame in page.frames:
        assert frame.evaluate("window.wasRun") is None
    assert page.evaluate("document.body.children.length") == 1


def test_a_long_name_is_shortened_where_it_is_shown(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    for _ in visited(page):
        names = page.locator("bdi").evaluate_all("all => all.map((each) => each.textContent.length)")
        assert max(names) <= 200
