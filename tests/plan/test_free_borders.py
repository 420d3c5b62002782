"""Inputs and outputs whose format the plan chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan import CostModel, Machine, Request, make_plan, portfolio
from blocklayout.plan.costs.model import Price
from tests import nets

needs_bf16 = pytest.mark.skipif(not bl.dnnl.has_bf16(), reason="this CPU computes nothing in bf16")
FREE = {"x": "any", "y": "any"}


@pytest.mark.parametrize("layout", ["auto", "nhwc", "nChw8c", "per-op"])
def test_a_free_border_costs_no_reorder_and_answers_the_same(layout: str) -> None:
    fixed, free = (
        bl.load(nets.chain(channels=16), layout=layout),
        bl.load(nets.chain(channels=16), layout=layout, io_layout=FREE),
    )
    array = nets.random_input((1, 16, 12, 12))
    [expected] = fixed.run(None, {"x": array})
    [given] = free.run(None, {"x": array})
    assert isinstance(given, bl.Tensor)
    np.testing.assert_allclose(given.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert given.desc == free.plan.format_of("y") or layout == "per-op"
    tensor = bl.reorder(array, free.plan.format_of("x"))
    [again] = free.run(None, {"x": tensor})
    np.testing.assert_array_equal(again.numpy(), given.numpy())
    if layout != "per-op":
        assert not free.plan.reorders
    assert free.plan.cost_ns <= fixed.plan.cost_ns


def test_the_solve_knows_that_a_free_input_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "PROMISE", 0.0)
    plan = bl.load(nets.residual(), io_layout={"image": "any"}).plan
    assert plan.is_optimal
    assert not [entry for entry in plan.entries if entry.is_reorder]
    assert dict(plan.inputs)["image"] == plan.format_of("image")


def test_an_output_that_is_a_constant_comes_as_a_tensor_too() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 8, 4, 4)).relu())
    b.output("c", b.constant(np.ones((1, 8, 4, 4), np.float32)))
    _, constant = bl.load(b, io_layout={"c": "any"}).run(None, {"x": nets.random_input((1, 8, 4, 4))})
    assert isinstance(constant, bl.Tensor)
    np.testing.assert_array_equal(constant.numpy(), 1)


def test_of_layouts_with_the_same_bytes_a_free_input_has_the_one_that_is_read() -> None:
    plan = bl.load(nets.chain(channels=16), layout="nChw16c", io_layout=FREE).plan
    [entry] = plan.entries
    assert entry.source == entry.desc


def test_a_plan_with_free_borders_can_be_saved(tmp_path: Path) -> None:
    first = bl.load(nets.chain(channels=16), io_layout=FREE)
    first.plan.save(tmp_path / "plan.json")
    second = bl.load(nets.chain(channels=16), plan=tmp_path / "plan.json")
    array = nets.random_input((1, 16, 12, 12))
    np.testing.assert_array_equal(second.run(None, {"x": array})[0].numpy(), first.run(None, {"x": array})[0].numpy())
    with pytest.raises(bl.PlanError, match="io_layout"):
        bl.load(nets.chain(channels=16), plan=tmp_path / "plan.json", io_layout={"x": "nhwc"})


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=needs_bf16)])
def test_a_plan_keeps_the_format_it_gave_a_free_input_whatever_reorders_are_said_to_cost(dtype: str) -> None:
    """In bf16 any format takes a reorder, so that prices decide, and those are others where a plan is loaded."""

    class Priced(CostModel, frozen=True):
        def reorder_price(self, src: bl.MemoryDesc, dst: bl.MemoryDesc) -> Price:
            ns, source = super().reorder_price(src, dst)
            return Price(ns * (0.5 if src.is_contiguous("channels_last") else 1.0), source)

    net = nets.chain(channels=16)
    program = lower(legalize(simplify(net.to_graph())))
    plan = make_plan(program, Request(dtype=dtype, io_layout=FREE), Priced(Machine(bl.dnnl.isa(), 2)))
    assert bl.load(net, plan=plan).plan == plan
