"""The page as it is served: pins are sent, and both plans stand side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.serving import PlanServer
from blocklayout.model import open_model
from blocklayout.show.report import Report
from tests import nets
from tests.cli.command import conv_model

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.model import Graph, OnnxModel
    from blocklayout.plan import Plan


HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@contextmanager
def serving(opened: Graph | OnnxModel, feeds: Mapping[str, np.ndarray]) -> Iterator[tuple[PlanServer, Plan]]:
    """The server of a model's page, and its plan."""
    race = Race(opened, feeds, 1, 1, lambda _: None)
    contender = Contender("nhwc")
    with race.session(contender) as session:
        record = session.report(race.feeds, n_runs=1).record
        page = Report(record | {"served": True}).to_html()
        with PlanServer(0, page, partial(race.what_if, contender, session, record["plan"])) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield server, session.plan
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[PlanServer, Plan]]:
    graph = nets.residual().to_graph()
    with serving(graph, random_feeds(graph)) as started:
        yield started


def pin(page: Any, kernel: str, layout: str) -> None:
    page.fill("#pin-kernel", kernel)
    page.fill("#pin-layout", layout)
    page.press("#pin-layout", "Enter")


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_a_pin_shows_both_plans_side_by_side(
    served: tuple[PlanServer, Plan], open_page: Any, width: int, theme: str
) -> None:
    server, plan = served
    kernel = next(choice.kernel for choice in plan.choices if "nChw8c" in choice.layouts)
    page = open_page(url=server.address, width=width, theme=theme)
    page.click("#tab-whatif")
    assert page.is_disabled("#make-plan")
    pin(page, kernel, "nChw8c")
    page.click("#make-plan")
    page.wait_for_selector("#whatif h2 .code")
    assert page.text_content("#whatif h2 .code") == f"{kernel} in nChw8c"
    rows = page.locator("#whatif table").first.locator("tbody tr")
    titles = rows.locator("td:first-child").all_text_contents()
    assert titles[:4] == ["predicted time", "measured time", "steps", "reorders"]
    steps = rows.nth(2).locator("td").all_text_contents()
    assert int(steps[1]) == len(plan.steps)
    changed = page.locator("#whatif table").nth(1).locator(f'tr:has(bdi:text-is("{kernel}"))')
    assert "nhwc" in changed.locator("td").nth(1).text_content()
    assert "nChw8c" in changed.locator("td").nth(3).text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_panel_plans_anew_in_one_step_and_tells_of_its_progress(open_page: Any) -> None:
    graph = nets.residual().to_graph()
    told: list[str] = []
    may_end = threading.Event()
    with serving(graph, random_feeds(graph)) as (server, plan):
        make_plan = server._make_plan

        def waiting(pins: Mapping[str, str], tell: Any) -> Any:
            tell("stage one")
            may_end.wait(10)
            return make_plan(pins, told.append)

        server._make_plan = waiting
        index = next(at for at, choice in enumerate(plan.choices) if "nChw8c" in choice.layouts)
        page = open_page(url=server.address)
        page.evaluate("kernel => page.select(kernel)", index)
        page.locator("#node input[type=radio]:not([value=''])").first.check()
        page.locator("#node").get_by_role("button", name="Plan anew", exact=True).click()
        page.get_by_text("The plan is being made: stage one").wait_for()
        assert page.get_by_role("progressbar").is_visible()
        assert page.is_disabled("#make-plan")
        may_end.set()
        page.wait_for_selector("#whatif h2 .code")
        assert plan.choices[index].kernel in page.text_content("#whatif h2 .code")
        assert page.get_by_role("progressbar").count() == 0
    assert any("running" in stage for stage in told)


def test_pins_can_be_taken_back(served: tuple[PlanServer, Plan], open_page: Any) -> None:
    server, plan = served
    page = open_page(url=f"{server.address}#whatif")
    pin(page, plan.choices[0].kernel, "nhwc")
    pin(page, plan.choices[1].kernel, "nhwc")
    assert page.locator("#whatif .pins li").count() == 2
    page.click("#whatif .pins li >> nth=0 >> button")
    assert page.locator("#whatif .pins li").count() == 1
    page.click("#whatif .pins button")
    assert page.is_disabled("#make-plan")


def test_layouts_are_those_that_the_kernel_is_offered(served: tuple[PlanServer, Plan], open_page: Any) -> None:
    server, plan = served
    page = open_page(url=f"{server.address}#whatif")
    choice = plan.choices[0]
    page.fill("#pin-kernel", choice.kernel)
    offered = page.eval_on_selector_all("#pin-layouts option", "options => options.map((each) => each.value)")
    assert offered == list(choice.layouts)


def test_a_page_that_is_not_served_asks_nothing(served: tuple[PlanServer, Plan], open_page: Any) -> None:
    _, plan = served
    page = open_page(Report.of(plan, plan.machine()).to_html())
    assert page.locator("#tab-whatif").count() == 0


def test_hostile_names_are_text(open_page: Any) -> None:
    proto = conv_model((1, 3, 8, 8))
    for node in proto.graph.node:
        node.name += HOSTILE
    with serving(open_model(proto.SerializeToString()), {"x": nets.random_input((1, 3, 8, 8))}) as (server, plan):
        page = open_page(url=f"{server.address}#whatif")
        pin(page, plan.choices[0].kernel, "nchw")
        shown = plan.choices[0].kernel.replace("\u202e", "\\u202e")
        assert shown in page.text_content("#whatif .pins")
        page.click("#make-plan")
        page.wait_for_selector("#whatif h2 .code")
        assert shown in page.text_content("#whatif h2 .code")
        assert page.locator("img").count() == 0
        assert "\u202e" not in page.inner_text("#whatif")
