"""Every page by keyboard alone, in both themes, on a phone and in print."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEAST_CONTRAST = 4.5
LARGE_TEXT_CONTRAST = 3.0  # from 24 px on, or 18.66 px in bold
MAX_STOPS = 400  # of the Tab key

# The contrast of each text that is seen, at its worst, by its element: text against the colours that are drawn beneath
# it. Text on a pattern or a gradient is left to eyes.
CONTRASTS = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].map((each, at) => (at === 3 ? each / 255 : each));
  };
  const over = ([r, g, b, a], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
  const luminance = (colour) => colour.slice(0, 3).map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const isShape = (each) => each instanceof SVGElement && !(each instanceof SVGSVGElement) && each.tagName !== "g";
  const paint = (each) => {
    const style = getComputedStyle(each);
    if (each.tagName === "line") return style.stroke;
    if (isShape(each)) return style.fill.includes("url(") ? null : style.fill;
    return style.backgroundImage === "none" ? style.backgroundColor : null;
  };
  // Colours beneath a point, from the top until one is opaque; null on a pattern.
  const beneath = (element, x, y) => {
    const layers = [];
    for (const each of document.elementsFromPoint(x, y)) {
      if (element.contains(each) && !(each === element && !isShape(element))) continue;
      if (each.tagName === "text" || each.tagName === "tspan" || paint(each) === "none") continue;
      if (paint(each) === null) return null;
      const layer = rgba(paint(each));
      const style = getComputedStyle(each);
      if (isShape(each)) layer[3] *= Number(style.opacity) * Number(style.fillOpacity);
      layers.push(layer);
      if (layer[3] > 0.99) break;
    }
    return layers.reverse().reduce((ground, layer) => over(layer, ground), [255, 255, 255, 1]);
  };
  const worst = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (node.data.trim() === "" || element.closest("script, style, noscript, [hidden], option, title")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || element.disabled) continue;
    const style = getComputedStyle(element);
    const kind = `${element.tagName} ${element.getAttribute("class")} ${style.color} ${style.fill}`;
    const tried = worst.get(kind) || { n: 0, contrast: Infinity };
    if (tried.n >= 25) continue;
    worst.set(kind, { ...tried, n: tried.n + 1 });
    element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    const [x, y] = [box.x + Math.min(box.width / 2, 20), box.y + box.height / 2];
    if (box.width === 0 || x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) continue;
    const top = document.elementFromPoint(x, y);
    const isOther = top !== null && !element.contains(top) && !top.contains(element);
    const isCovered = isOther && !isShape(top);
    const hasHalo = isShape(element) && style.paintOrder.startsWith("stroke") && style.stroke !== "none";
    const ground = isCovered ? null : hasHalo ? rgba(style.stroke) : beneath(element, x, y);
    if (ground === null) continue;
    const own = rgba(isShape(element) ? style.fill : style.color);
    own[3] *= Number(style.opacity);
    const [dark, light] = [luminance(over(own, ground)), luminance(ground)].sort((one, other) => one - other);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast >= tried.contrast) continue;
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    worst.set(kind, { n: tried.n + 1, contrast, isLarge, kind, text: node.data.trim().slice(0, 40) });
  }
  return [...worst.values()].filter((each) => each.kind !== undefined);
}"""

# What has the focus, and whether it is seen to have it: by an outline, or a mark of a picture by its stroke.
FOCUSED = """() => {
  const element = document.activeElement;
  const style = getComputedStyle(element);
  const isOutlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const isMark = element instanceof SVGElement && style.stroke !== "none" && parseFloat(style.strokeWidth) >= 2;
  const name = `${element.tagName} ${element.id} ${element.getAttribute("class")}`;
  return { name, isBody: element === document.body, isSeen: isOutlined || isMark, role: element.getAttribute("role") };
}"""


@cache
def network_page() -> str:
    network = zoo.build("squeezenet1_1", size=64)
    with bl.load(network, tune="model") as session:
        feed = {session.get_inputs()[0].name: np.zeros((1, 3, 64, 64), np.float32)}
        report = session.report(feed, n_runs=1)
    with bl.load(network, tune="model", layout="per-op") as session:
        return report.beside(session.report(feed, n_runs=1)).to_html()


def layout_page() -> str:
    return bl.describe(bl.MemoryDesc((1, 6, 3, 4), "f32", "nChw4c"), to="nchw").to_html()


MAKERS: list[Callable[[], str]] = [network_page, layout_page]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.__name__)
def html(request: pytest.FixtureRequest) -> str:
    maker: Callable[[], str] = request.param
    return maker()


def sections(page: Any) -> Iterator[str]:
    """The id of each view, once it is shown."""
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(50)
        yield tab.get_attribute("aria-controls")
    if page.get_by_role("tab").count() == 0:
        yield page.locator("section[role=tabpanel]").first.get_attribute("id")


def test_every_tab_is_reached_by_keyboard(html: str, open_page: Any) -> None:
    page = open_page(html)
    n_tabs = page.get_by_role("tab").count()
    if n_tabs == 0:
        assert page.locator("section[role=tabpanel]").is_visible()
        return
    for _ in range(MAX_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED)["role"] == "tab":
            break
    shown = set()
    for _ in range(n_tabs):
        assert page.evaluate(FOCUSED)["role"] == "tab"
        assert page.evaluate(FOCUSED)["isSeen"]
        view = page.evaluate("document.activeElement.getAttribute('aria-controls')")
        assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
        assert page.locator("section[role=tabpanel]:not([hidden])").evaluate_all(
            "all => all.map((each) => each.id)"
        ) == [view]
        shown.add(view)
        page.keyboard.press("ArrowRight")
    assert len(shown) == n_tabs


def test_the_way_back_leads_to_the_view_before(html: str, open_page: Any) -> None:
    page = open_page(html)
    views = list(sections(page))
    for view in reversed(views[:-1]):
        page.go_back()
        page.locator(f"#{view}:not([hidden])").wait_for(state="attached")
        assert page.url.endswith(f"#{view}")


def test_the_focus_is_seen_wherever_tab_leads(html: str, open_page: Any) -> None:
    page = open_page(html)
    for view in sections(page):
        page.evaluate("document.activeElement.blur()")
        unseen = set()
        for _ in range(MAX_STOPS):
            page.keyboard.press("Tab")
            focused = page.evaluate(FOCUSED)
            if focused["isBody"]:
                break
            if not focused["isSeen"]:
                unseen.add(focused["name"])
        assert not unseen, view


def test_what_is_chosen_is_reached_and_left_by_keyboard(open_page: Any) -> None:
    page = open_page(network_page())
    page.get_by_role("tab", name="Steps").focus()
    page.keyboard.press("Enter")
    step = page.locator("#steps tbody button").nth(2)
    step.focus()
    page.keyboard.press("Enter")
    chosen = page.evaluate("page.record.plan.kernels[page.selected].name")
    assert page.get_by_role("complementary", name="The chosen kernel").is_visible()
    assert page.locator("#node [role=status]").first.text_content().startswith(f"{chosen}: ")
    page.locator("#steps tbody button").last.focus()
    reached: list[str] = []
    while not page.evaluate(FOCUSED)["isBody"] and len(reached) < MAX_STOPS:
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUSED)["isSeen"] or page.evaluate(FOCUSED)["isBody"]
        reached.append(page.evaluate("document.activeElement.textContent"))
    assert {"Show it in the network", "Close"} <= {*reached}
    page.get_by_role("button", name="Close", exact=True).press("Enter")
    assert page.evaluate("page.selected") is None
    assert page.evaluate(FOCUSED)["role"] == "tab"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(html: str, open_page: Any, theme: str) -> None:
    page = open_page(html, theme=theme)
    for view in sections(page):
        found = page.evaluate(CONTRASTS)
        assert found
        limit = {True: LARGE_TEXT_CONTRAST, False: LEAST_CONTRAST}
        assert not [each for each in found if each["contrast"] < limit[each["isLarge"]] - 0.01], view


def test_the_button_changes_the_theme(html: str, open_page: Any) -> None:
    page = open_page(html)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light / dark").click()
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Light / dark").click()
    assert page.evaluate(ground) == light


def test_a_phone_scrolls_down_only(html: str, open_page: Any) -> None:
    page = open_page(html, width=390, height=844)
    for view in sections(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


def test_a_print_has_every_view(html: str, open_page: Any) -> None:
    screen, page = open_page(html), open_page(html)
    drawn = {view: screen.evaluate(f"document.querySelectorAll('#{view} *').length > 0") for view in sections(screen)}
    page.pdf()  # as printing does, it tells the page first
    page.emulate_media(media="print")
    for view, has_content in drawn.items():
        assert page.evaluate(f"getComputedStyle(document.getElementById('{view}')).display") != "none", view
        assert page.evaluate(f"document.querySelectorAll('#{view} *').length > 0") == has_content, view
    assert page.locator("nav[role=tablist]:visible").count() == 0


def test_a_print_is_on_light_ground(html: str, open_page: Any) -> None:
    page = open_page(html, theme="dark")
    page.get_by_role("button", name="Light / dark").dblclick()
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_every_control_and_picture_has_a_name(html: str, open_page: Any) -> None:
    page = open_page(html)
    for view in sections(page):
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, select, input, [role=application], [role=tabpanel]")]
                .filter((each) => each.checkVisibility())
                .filter((each) => each.tagName !== "BUTTON" || each.textContent.trim() === "")
                .filter((each) => !["aria-label", "aria-labelledby", "title"].some((name) => each.getAttribute(name)))
                .filter((each) => (each.labels || []).length === 0)
                .map((each) => each.outerHTML.slice(0, 200))"""
        )
        assert not nameless, view
