"""A pointwise and a depthwise convolution as one primitive."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import numpy as np
import onnxruntime
import pytest

import blocklayout as bl
from blocklayout.encoding import from_data, to_data
from blocklayout.ir import Fused, readable_as
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan import CostModel, Machine, Request, make_plan
from blocklayout.plan.costs.model import Price
from blocklayout.plan.solving.solve import solve_layouts
from tests import nets


def _bottleneck(stride: int, size: int = 113, channels: int = 384, *, shows: bool = False) -> bl.Builder:
    """What an inverted residual block begins with, its middle larger than twice the second-level cache of two cores."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 24, size, size)).conv(nets.he(rng, 16, 24, 1, 1), name="stem").clip(0, 6)
    bias = rng.standard_normal(channels).astype(np.float32)
    wide = x.conv(nets.he(rng, channels, 16, 1, 1), bias, name="expand").clip(0, 6)
    y = wide.conv(nets.he(rng, channels, 1, 3, 3), bias, pads=1, strides=stride, group=channels, name="depthwise").clip(
        0, 6
    )
    b.output("y", y.conv(nets.he(rng, 16, channels, 1, 1), name="project") + (x if stride == 1 else np.float32(1)))
    if shows:
        b.output("wide", wide)
    return b


class _Keen(CostModel, frozen=True):
    """Prices that make one primitive of two whatever it takes."""

    def price(self, spec: Any) -> Price:
        is_pair = spec.kind == "convolution" and spec.attr.depthwise is not None
        return Price(1.0, "modelled") if is_pair else super().price(spec)


def _plan(net: bl.Builder) -> bl.Plan:
    program = lower(legalize(simplify(net.to_graph())))
    return make_plan(program, Request(), _Keen(Machine(bl.dnnl.isa(), 2)))


def _pairs(plan: bl.Plan) -> list[str]:
    specs = [(step.kernel, step.spec) for step in plan.steps if isinstance(step.spec, bl.dnnl.Spec)]
    return [kernel for kernel, spec in specs if spec.kind == "convolution" and spec.attr.depthwise is not None]


@pytest.mark.usefixtures("wide_screen")
@pytest.mark.parametrize("stride", [1, 2])
def test_where_the_library_fuses_them_they_are_one_step_and_compute_the_same(stride: int) -> None:
    net = _bottleneck(stride)
    plan = _plan(net)
    if not _pairs(plan):
        pytest.skip("the library fuses no convolutions of this size on this CPU")
    assert _pairs(plan) == ["depthwise"]
    assert "expand" not in {step.kernel for step in plan.steps if not step.is_reorder}
    session = bl.load(net, plan=plan)  # which makes its steps again
    feed = nets.feed_of(session)
    # onnx.reference takes seconds for images of this size.
    runtime = onnxruntime.InferenceSession(net.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: Any = runtime.run(None, feed)
    error = np.abs(session.run(None, feed)[0] - outputs[0]).max() / np.abs(outputs[0]).max()
    assert error < 1e-5
    assert plan.format_of("expand").named("src") in ("nhwc", "nChw8c", "nChw16c")
    chosen = {choice.kernel: choice.chosen for choice in plan.choices}
    fused = Fused(plan.format_of("expand"), *chosen["depthwise"].impls)
    assert chosen["expand"].dst == fused
    assert chosen["depthwise"].sources == (fused,)
    again = bl.Plan.from_json(plan.to_json())
    assert again == plan
    assert isinstance(again.choices[[*chosen].index("expand")].chosen.dst, Fused)
    assert "computed as one with depthwise" in plan.explain()


def test_nothing_but_its_other_half_reads_what_is_fused() -> None:
    held = bl.MemoryDesc((1, 16, 4, 4), "f32", "nhwc")
    fused = Fused(held, "jit_1x1:avx2")
    assert readable_as(fused, Fused(held, "jit_1x1:avx2"))
    assert not readable_as(fused, Fused(held, "jit_1x1:avx512_core"))  # its weights may be packed otherwise
    assert not readable_as(fused, held)
    assert not readable_as(held, fused)
    assert from_data(Fused, to_data(fused)) == fused


@pytest.mark.parametrize("damage", [{"impl": 3}, {"held": None}, {"held": {"dims": [1]}}])
def test_a_damaged_record_of_what_is_fused_is_refused_by_the_name_of_the_field(damage: dict[str, Any]) -> None:
    plan = bl.load(nets.chain()).plan
    record = json.loads(plan.to_json())
    whole = to_data(Fused(plan.formats[plan.choices[0].writes], "jit_1x1:avx2"))
    record["rationale"]["choices"][0]["chosen"]["dst"] = whole | damage
    with pytest.raises(bl.PlanError, match=r"not a plan of this version: rationale\.choices\.0\.chosen\.dst"):
        bl.Plan.from_json(json.dumps(record))


def test_what_somebody_else_reads_is_stored() -> None:
    assert not _pairs(_plan(_bottleneck(1, shows=True)))


def test_no_policy_takes_what_only_a_pair_can_read() -> None:
    for policy in bl.plan.SIMPLE_POLICIES:
        plan = bl.load(_bottleneck(1), layout=policy).plan
        assert not _pairs(plan)
        assert np.isfinite(plan.cost_ns)
        assert not any(isinstance(layout, Fused) for choice in plan.choices for layout in choice.chosen.layouts)


def test_what_goes_with_no_choice_of_others_is_no_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing but one tile's candidates changes, those of half a pair cost infinitely more."""
    monkeypatch.setattr(solve_layouts, "__defaults__", (2,))
    plan = bl.load(_bottleneck(1), tune="model").plan
    assert not plan.is_exact
    assert all(isfinite(each.extra_ns) for choice in plan.choices for each in choice.alternatives)
    assert bl.Plan.from_json(plan.to_json()) == plan
