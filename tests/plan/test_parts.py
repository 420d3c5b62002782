"""Parts of values that are read where they are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from tests import nets


def halves(batch: int, axis: int) -> bl.Builder:
    """A convolution whose result is cut in two, each half with one of its own behind it, and added to another's."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    y = b.input("x", (batch, 16, 8, 8)).conv(nets.he(rng, 32, 16, 3, 3), pads=1, name="whole").relu()
    extent = y.shape[axis] // 2
    for index, part in enumerate(y.split([extent, extent], axis)):
        channels = part.shape[1]
        b.output(f"y{index}", part.conv(nets.he(rng, 16, channels, 3, 3), pads=1, name=f"conv{index}"))
        b.output(f"z{index}", part.conv(nets.he(rng, channels, channels, 1, 1), name=f"conv_of_sum{index}") + part)
    return b


def check(net: bl.Builder, session: bl.Session) -> None:
    feed = nets.feed_of(session)
    for found, right in zip(session.run(None, feed), ReferenceEvaluator(net.to_onnx()).run(None, feed), strict=True):
        assert np.abs(found - right).max() < 1e-5 * np.abs(right).max()


@pytest.mark.parametrize(("batch", "axis", "layout"), [(4, 0, "nhwc"), (4, 0, "nChw8c"), (1, 1, "nChw8c")])
def test_dense_parts_are_not_copied(batch: int, axis: int, layout: str) -> None:
    net = halves(batch, axis)
    session = bl.load(net, layout=layout)
    plan = session.plan
    if plan.format_of("whole").named("src") == "nchw":
        pytest.skip(f"nothing but a reference computes these channels in {layout} on this CPU")
    read = {operand.desc for step in plan.steps for arg, operand in step.operands if arg == "src"}
    assert any(desc.offset0 for desc in read)
    assert not [step for step in plan.steps if step.is_reorder and step.kernel.startswith("conv")]
    check(net, session)


def test_other_parts_are_copied() -> None:
    net = halves(2, 1)
    session = bl.load(net, layout="nhwc")
    assert [step for step in session.plan.steps if step.is_reorder and step.kernel.startswith("conv")]
    check(net, session)


def test_parts_of_what_the_caller_gives_are_read_there() -> None:
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (4, 8, 6, 6))
    for index, part in enumerate(x.split([1, 3], 0)):
        b.output(f"y{index}", part.conv(nets.he(rng, 8, 8, 3, 3)))
    session = bl.load(b, layout="nchw")
    check(b, session)
    x_of_caller = np.zeros((4, 6, 6, 8), np.float32).transpose(0, 3, 1, 2)  # which it is copied from
    x_of_caller[:] = rng.standard_normal(x_of_caller.shape)
    right = ReferenceEvaluator(b.to_onnx()).run(None, {"x": np.ascontiguousarray(x_of_caller)})
    for found, expected in zip(session.run(None, {"x": x_of_caller}), right, strict=True):
        assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_plan_with_parts_can_be_saved() -> None:
    plan = bl.load(halves(4, 0), layout="nhwc").plan
    assert bl.Plan.from_json(plan.to_json()) == plan
