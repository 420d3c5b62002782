"""A repetition of elements and the convolution behind it as one deconvolution."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.model import BuildValue, legalize, lower, simplify
from blocklayout.plan import CostModel, Machine, Request, make_plan
from blocklayout.plan.costs.model import Price
from blocklayout.plan.policies import POLICIES
from tests import nets

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.PolicyWarning", "ignore::blocklayout.LayoutLossWarning")

_rng = np.random.default_rng(5)


def _weights(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    return nets.he(_rng, *shape), _rng.standard_normal(shape[0]).astype(np.float32)


def _generator() -> bl.Builder:
    """As of a DCGAN that enlarges before it convolves: noise to an image, a residual on the way."""
    b = bl.Builder("generator")
    x = b.input("z", (2, 20, 3, 4))
    shortcut = x.upsample((1, 1, 2, 2)).conv(*_weights(17, 20, 1, 1), name="shortcut")
    x = x.upsample((1, 1, 2, 2)).conv(*_weights(17, 20, 3, 3), pads=1, name="up0") + shortcut  # in place
    x = x.relu()
    x = x.resize(scales=(1, 1, 3, 2)).conv(*_weights(12, 17, 3, 5), pads=(1, 2, 1, 2), name="up1").clip(0, 6)
    b.output("image", x.upsample((1, 1, 2, 2)).conv(*_weights(3, 12, 3, 3), pads=1, name="up2").tanh())
    return b


def _decoder() -> bl.Builder:
    """As of a U-Net that enlarges by its nearest neighbours: each level convolved, then beside what was skipped."""
    b = bl.Builder("decoder")
    skipped = b.input("x", (1, 8, 8, 12)).conv(*_weights(16, 8, 3, 3), pads=1, name="down").relu()
    x = skipped.max_pool(2).conv(*_weights(32, 16, 3, 3), pads=1, name="bottom").relu()
    x = x.upsample((1, 1, 2, 2)).conv(*_weights(16, 32, 2, 2), pads=(0, 0, 1, 1), name="up").relu()
    b.output("y", b.concat([skipped, x]).conv(*_weights(8, 32, 3, 3), pads=1, name="double"))
    return b


class _Priced(CostModel, frozen=True):
    """Prices of deconvolutions that are much too low, and of resizing too high; or the other way round."""

    factor: float = 1.0

    def price(self, spec: Any) -> Price:
        factors = {"deconvolution": self.factor, "resampling": 1 / self.factor}
        ns, source = super().price(spec)
        return Price(ns * factors.get(spec.kind, 1.0), source)


def _plan(net: bl.Builder, factor: float, dtype: str = "f32") -> bl.Plan:
    program = lower(legalize(simplify(net.to_graph())))
    return make_plan(program, Request(dtype=dtype), _Priced(Machine(bl.dnnl.isa(), 2), factor=factor))


def _kinds(plan: bl.Plan) -> list[str]:
    return [step.spec.kind for step in plan.steps]


def _error(net: bl.Builder, session: bl.Session) -> float:
    feed = nets.feed_of(session)
    outputs: Any = ReferenceEvaluator(net.to_onnx()).run(None, feed)
    expected = outputs[0]
    return float(np.abs(session.run(None, feed)[0] - expected).max() / np.abs(expected).max())


@pytest.mark.usefixtures("wide_screen")
@pytest.mark.parametrize(("net", "n_merged"), [(_generator(), 4), (_decoder(), 1)], ids=["generator", "decoder"])
def test_where_it_is_cheaper_it_is_one_deconvolution_of_the_small_tensor(
    net: bl.Builder, n_merged: int, tmp_path: Path
) -> None:
    plan = _plan(net, 1e-3)
    assert _kinds(plan).count("deconvolution") == n_merged
    assert "resampling" not in _kinds(plan)
    why = plan.explain().partition("why each is computed so")[2]
    assert re.search(r"\n  .*, one with resize\w+ as ConvTranspose\n    up", why)
    assert re.search(r"\n  computed as one with up.*\n    resize", why)
    assert bl.Plan.from_json(plan.to_json()) == plan
    session = bl.load(net, plan=plan)  # which makes its steps again
    assert _error(net, session) < 1e-5
    session.save(tmp_path / "saved")
    assert _error(net, bl.load(tmp_path / "saved")) < 1e-5


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_computes_the_same_and_only_the_solve_merges(policy: str) -> None:
    net = _decoder()
    session = bl.load(net, layout=policy, tune="model")
    assert policy == "auto" or "deconvolution" not in _kinds(session.plan)
    assert np.isfinite(session.plan.cost_ns)
    assert _error(net, session) < 1e-5


def test_where_it_is_dearer_nothing_is_as_it_would_be_without() -> None:
    plan = _plan(_generator(), 1e3)
    assert _kinds(plan).count("resampling") == 4
    assert "deconvolution" not in _kinds(plan)
    assert not any(item.made for item in plan.constants)


Net = Callable[[bl.Builder, BuildValue], BuildValue]


def _of(net: Net, extents: tuple[int, ...] = (1, 16, 5, 4)) -> bl.Builder:
    b = bl.Builder()
    b.output("y", net(b, b.input("x", extents)))
    return b


def _merged() -> Iterator[Any]:
    """Name, net, extents of its input."""
    up = (1, 1, 2, 2)
    yield "no pads", lambda _, x: x.upsample(up).conv(*_weights(16, 16, 3, 3)), (1, 16, 5, 4)
    yield "all pads", lambda _, x: x.upsample(up).conv(*_weights(16, 16, 3, 3), pads=2), (1, 16, 5, 4)
    yield "5x5", lambda _, x: x.upsample(up).conv(*_weights(8, 16, 5, 5), pads=(2, 1, 0, 3)), (1, 16, 5, 4)
    yield "groups", lambda _, x: x.upsample(up).conv(*_weights(32, 8, 3, 3), pads=1, group=2), (1, 16, 5, 4)
    yield "depthwise", lambda _, x: x.upsample(up).conv(*_weights(16, 1, 3, 3), pads=1, group=16), (1, 16, 5, 4)
    dilated = lambda _, x: x.upsample(up).conv(*_weights(16, 16, 3, 3), pads=2, dilations=2)  # noqa: E731
    yield "dilated", dilated, (1, 16, 5, 4)
    yield "by 4", lambda _, x: x.upsample((1, 1, 4, 1)).conv(*_weights(16, 16, 3, 3), pads=1), (1, 16, 5, 4)
    yield "by sizes", lambda _, x: x.resize(sizes=(1, 16, 10, 12)).conv(*_weights(16, 16, 1, 1)), (1, 16, 5, 4)
    yield "rank 3", lambda _, x: x.upsample((1, 1, 3)).conv(*_weights(16, 16, 3), pads=1), (2, 16, 7)
    yield "rank 5", lambda _, x: x.upsample((1, 1, 2, 2, 2)).conv(*_weights(16, 16, 3, 3, 3), pads=1), (1, 16, 3, 2, 3)
    wide = nets.he(_rng, 144, 144, 3, 3), np.ones(144, np.float32)
    yield "sums too long for a bias", lambda _, x: x.upsample(up).conv(*wide, pads=1).relu(), (1, 144, 3, 3)


@pytest.mark.parametrize(("net", "extents"), [pytest.param(*case[1:], id=case[0]) for case in _merged()])
def test_what_is_merged_computes_the_same(net: Net, extents: tuple[int, ...]) -> None:
    built = _of(net, extents)
    plan = _plan(built, 1e-3)
    assert "resampling" not in _kinds(plan)
    assert _error(built, bl.load(built, plan=plan)) < 1e-5


def _read_twice(_: bl.Builder, x: BuildValue) -> BuildValue:
    large = x.upsample((1, 1, 2, 2))
    return large.conv(*_weights(16, 16, 3, 3), pads=1) + large


def _shown(b: bl.Builder, x: BuildValue) -> BuildValue:
    large = x.upsample((1, 1, 2, 2))
    b.output("large", large)
    return large.conv(*_weights(16, 16, 3, 3), pads=1)


def _apart() -> Iterator[Any]:
    up = (1, 1, 2, 2)
    yield "linear", lambda _, x: x.upsample(up, mode="linear").conv(*_weights(16, 16, 3, 3))
    yield "no whole factor", lambda _, x: x.resize(scales=(1, 1, 1.5, 1.5)).conv(*_weights(16, 16, 1, 1))
    yield "strided", lambda _, x: x.upsample(up).conv(*_weights(16, 16, 3, 3), strides=2)
    yield "padded by more than it reaches", lambda _, x: x.upsample(up).conv(*_weights(16, 16, 1, 1), pads=1)
    computed = lambda b, x: x.upsample(up).conv(b.input("w", (16, 16, 3, 3)))  # noqa: E731
    yield "with weights of the caller's", computed
    yield "read twice", _read_twice
    yield "shown to the caller", _shown


@pytest.mark.parametrize("net", [pytest.param(case[1], id=case[0]) for case in _apart()])
def test_what_is_not_the_same_is_not_merged(net: Net) -> None:
    assert "deconvolution" not in _kinds(_plan(_of(net), 1e-3))


def test_plans_share_sums_of_the_same_weights_and_keep_others_apart() -> None:
    """Two convolutions with the same weights behind other factors."""
    weights = nets.he(_rng, 16, 16, 3, 3)
    b = bl.Builder()
    x = b.input("x", (1, 16, 5, 5))
    shared = b.constant(weights, "w")
    two, three = (x.resize(scales=(1, 1, n, n)).conv(shared, pads=1) for n in (2, 3))
    b.output("two", two)
    b.output("three", three)
    b.output("one", x.conv(shared, pads=1))
    plan = _plan(b, 1e-3)
    assert len({item.made for item in plan.constants if item.constant == "w"}) == 3
    session = bl.load(b, plan=plan)
    feed = nets.feed_of(session)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    for got, want in zip(session.run(None, feed), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


@pytest.mark.skipif(not bl.dnnl.has_bf16(), reason="this CPU computes nothing in bf16")
def test_sums_are_rounded_once() -> None:
    net = _decoder()
    plan = _plan(net, 1e-3, "bf16")
    assert "deconvolution" in _kinds(plan)
    assert _error(net, bl.load(net, plan=plan)) < 2e-2
