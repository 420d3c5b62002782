"""Edges and classes of layouts in the record of a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

import blocklayout as bl
from blocklayout.layout import MemoryDesc
from blocklayout.show.names import step_layouts
from blocklayout.show.plan_record import layout_class, plan_record
from tests import nets


def record_of(b: bl.Builder) -> dict[str, Any]:
    with bl.load(b.to_graph(), tune="model") as session:
        return plan_record(session.plan)


def test_sums_in_place_keep_their_sources() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8)).conv(np.ones((16, 16, 3, 3), np.float32), pads=1, name="conv0").relu()
    for index in range(1, 4):
        x = x + x.conv(np.ones((16, 16, 3, 3), np.float32), pads=1, name=f"conv{index}")
    b.output("y", x)
    edges = record_of(b)["edges"]
    between = [edge for edge in edges if None not in (edge["source"], edge["reader"])]
    assert between
    assert all(edge["source"] < edge["reader"] for edge in between)


def test_matrices_with_gaps_have_a_class() -> None:
    assert layout_class(MemoryDesc((4, 8), "f32", strides=(16, 1))) == "other"


def test_weights_are_called_as_in_the_plan_s_text() -> None:
    plan = bl.load(nets.mobile(), tune="model").plan
    record = plan_record(plan)
    for step, shown in zip(plan.steps, record["steps"], strict=True):
        names = [record["descs"][each["desc"]]["layout"] for each in shown["operands"] if each["argument"] == "weights"]
        assert all(name in step_layouts(step) for name in names)
