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


def test_every_step_is_in_the_table(report: Report, open_page: Any) -> None:
    page = open_page(report.to_html())
    page.click("#tab-steps")
    assert page.locator("#steps tbody tr").count() >= len(report.record["plan"]["steps"])
