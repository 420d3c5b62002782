"""Concatenations whose producers write their slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from tests import nets


def _branches(batch: int = 1, channels: tuple[int, ...] = (16, 8, 24)) -> bl.Builder:
    """Convolutions side by side, and one behind them."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (batch, 8, 8, 8)).conv(nets.he(rng, 16, 8, 3, 3), pads=1).relu()
    parts = [x.conv(nets.he(rng, n, 16, 3, 3), pads=1, name=f"part{i}").relu() for i, n in enumerate(channels)]
    joined = b.concat(parts, name="joined")
    b.output("y", joined.conv(nets.he(rng, 16, sum(channels), 3, 3), pads=1, name="behind").relu())
    return b


def _error(net: bl.Builder, session: bl.Session) -> float:
    feed = nets.feed_of(session)
    outputs: Any = ReferenceEvaluator(net.to_onnx()).run(None, feed)
    return max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(session.run(None, feed), outputs, strict=True)
    )


def _n_slices(plan: bl.Plan) -> int:
    return sum(buffer.within is not None for buffer in plan.buffers)


@pytest.mark.parametrize("layout", ["nchw", "nChw8c"])
def test_producers_write_their_slices_where_these_are_dense(layout: str) -> None:
    session = bl.load(_branches(), layout=layout)
    assert _n_slices(session.plan) == 3
    assert not [step for step in session.plan.steps if step.kernel == "joined"]
    assert session.plan.format_of("joined").named("src") == layout
    assert _error(_branches(), session) < 1e-5


@pytest.mark.parametrize(
    ("batch", "channels", "layout"), [(2, (16, 8), "nChw8c"), (1, (17, 8), "nChw8c"), (1, (16, 8), "nhwc")]
)
def test_elsewhere_bytes_are_copied(batch: int, channels: tuple[int, ...], layout: str) -> None:
    net = _branches(batch, channels)
    session = bl.load(net, layout=layout)
    if session.plan.format_of("joined").named("src") == "nchw":
        pytest.skip(f"nothing but a reference computes these channels in {layout} on this CPU")
    assert _n_slices(session.plan) == 0
    assert [step.spec.kind for step in session.plan.steps if step.kernel == "joined"][-1] == "concat"
    assert _error(net, session) < 1e-5


def test_only_the_last_slice_may_have_padding() -> None:
    net = _branches(channels=(16, 17))
    session = bl.load(net, layout="nChw8c")
    assert _n_slices(session.plan) == 2
    assert _error(net, session) < 1e-5


def test_what_the_caller_gives_or_gets_is_no_slice() -> None:
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8))
    y = x.conv(nets.he(rng, 16, 16, 3, 3), pads=1, name="shown").relu()
    z = x.conv(nets.he(rng, 16, 16, 3, 3), pads=1, name="hidden").relu()
    joined = b.concat([x, y, z], name="joined")
    b.output("y", y)
    b.output("z", joined.conv(nets.he(rng, 16, 48, 1, 1), name="behind"))
    session = bl.load(b, layout="nChw8c")
    assert _error(b, session) < 1e-5
    outputs = {result.buffer for result in session.plan.results if result.buffer is not None}
    entries = {entry.buffer for entry in session.plan.entries}
    assert all(session.plan.buffers[index].within is None for index in outputs | entries)


def test_a_value_read_twice_is_a_slice_of_one_result_only() -> None:
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8)).conv(nets.he(rng, 16, 16, 3, 3), pads=1, name="a").relu()
    y = x.conv(nets.he(rng, 16, 16, 3, 3), pads=1, name="b").relu()
    first, second = b.concat([x, y], name="first"), b.concat([y, x, y], name="second")
    b.output("u", first.conv(nets.he(rng, 8, 32, 1, 1)))
    b.output("v", second.conv(nets.he(rng, 8, 48, 1, 1)))
    for layout in ("auto", "nChw8c", "nchw"):
        assert _error(b, bl.load(b, layout=layout)) < 1e-5


def test_features_so_far_grow_in_one_buffer() -> None:
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 8, 8, 8)).conv(nets.he(rng, 16, 8, 3, 3), pads=1, name="stem").relu()
    features = [x]
    for layer in range(4):
        before = b.concat(features) if layer else x
        features.append(before.conv(nets.he(rng, 8, before.shape[1], 3, 3), pads=1, name=f"layer{layer}").relu())
    b.output("y", b.concat(features).conv(nets.he(rng, 8, 48, 1, 1), name="last"))
    session = bl.load(b, layout="nChw8c")
    assert _n_slices(session.plan) == 8
    assert [step.spec.kind for step in session.plan.steps if not step.is_reorder] == ["convolution"] * 6
    assert _error(b, session) < 1e-5


def test_checks_look_at_the_whole_when_its_last_slice_is_written() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 8, 6, 5))
    b.output("y", b.concat([b.concat([x, x], name="inner"), x], name="outer").global_average_pool())
    session = bl.load(b, layout="nchw")
    assert _n_slices(session.plan) == 2
    with bl.checking():
        assert _error(b, session) < 1e-5
