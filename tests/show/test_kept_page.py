"""The page that is kept in docs/."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import blocklayout as bl
from blocklayout.zoo import digits
from tests.structure.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = ROOT / "docs" / "digits.html"
RENEWAL = "renew it: .ci/renew-pictures page"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """Its record."""
    found = re.search(r'<script type="application/json" id="record">(.*?)</script>', PAGE.read_text(encoding="utf-8"))
    assert found is not None
    record: dict[str, Any] = json.loads(found[1])
    return record


def nodes_of(plan: Mapping[str, Any]) -> set[str]:
    return {node for kernel in plan["kernels"] for node in kernel["nodes"]}


def test_it_shows_the_network_that_comes_with_the_package(kept: dict[str, Any]) -> None:
    with bl.load(digits.model_bytes(), tune="model", shapes={"image": (1, 1, 8, 8)}) as session:
        made = session.report().to_dict()
    assert nodes_of(kept["plan"]) == nodes_of(made["plan"]), RENEWAL
    assert set(made) <= set(kept), RENEWAL
    assert set(made["plan"]) <= set(kept["plan"]), RENEWAL


def test_its_times_are_measured(kept: dict[str, Any]) -> None:
    assert kept["profile"]["n_runs"] > 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_opens_it(kept: dict[str, Any], open_page: Any, theme: str) -> None:
    page = open_page(url=PAGE.as_uri(), theme=theme)
    assert page.text_content("h1") == kept["plan"]["model"]
