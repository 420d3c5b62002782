"""Operators on chwn: computed in it where roles can be swapped, else through another layout, which is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 9, 7, 6)).astype(np.float32)
WEIGHTS = RNG.standard_normal((12, 9, 3, 3)).astype(np.float32)
POINTWISE, BIAS = WEIGHTS[:, :, :1, :1].copy(), RNG.standard_normal(12).astype(np.float32)
VECTORS: Any = [RNG.uniform(0.5, 1, 9).astype(np.float32) for _ in range(4)]

Call = Callable[[bl.Tensor], bl.Tensor]

KEPT: dict[str, Call] = {
    "relu": bl.relu,
    "sum": lambda x: x + x,
    "average_pool": lambda x: bl.average_pool(x, 3, 2, 1),
    "average_pool of counted pads": lambda x: bl.average_pool(x, 2, count_include_pad=True),
    "global_average_pool": bl.global_average_pool,
    "batch_norm": lambda x: bl.batch_norm(x, *VECTORS),
    "pointwise conv": lambda x: bl.conv(x, POINTWISE),
    "pointwise conv with bias": lambda x: bl.conv(x, POINTWISE, BIAS),
}
"""Nothing moves, whatever the CPU."""

MOVED: dict[str, Call] = {
    "conv": lambda x: bl.conv(x, WEIGHTS, pads=1),
    "strided pointwise conv": lambda x: bl.conv(x, POINTWISE, strides=2),
    "depthwise conv": lambda x: bl.conv(x, np.ones((9, 1, 3, 3), np.float32), group=9),
}


def check(call: Call, found: bl.Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bl.LayoutLossWarning)
        expected = call(bl.from_array(X)).numpy()
    assert found.memory_format == "chwn"
    assert np.abs(found.numpy() - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", KEPT)
def test_is_computed_without_moving_anything(name: str) -> None:
    x = bl.reorder(X, "chwn")
    with bl.watch("raise"):
        found = KEPT[name](x)
    check(KEPT[name], found)


@pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")
def test_max_pooling_moves_nothing() -> None:
    x = bl.reorder(X, "chwn")
    with bl.watch("raise"):
        found = bl.max_pool(x, 3, 2, 1)
    check(lambda each: bl.max_pool(each, 3, 2, 1), found)


@pytest.mark.parametrize("name", MOVED)
def test_what_needs_another_layout_comes_back_and_is_told(name: str) -> None:
    x = bl.reorder(X, "chwn")
    with bl.watch("record") as seen, pytest.warns(bl.LayoutLossWarning, match="nothing fast computes it in chwn"):
        found = MOVED[name](x)
    check(MOVED[name], found)
    [loss] = [event for event in seen if event.kind == "loss"]
    moved = [event for event in seen if event.kind == "reorder" and "chwn" in event.reason]
    assert loss.operator == "conv"
    assert len(moved) == 2  # there and back


@pytest.mark.parametrize("formats", [{"x": "chwn"}, {"x": "chwn", "y": "chwn"}], ids=str)
def test_a_session_that_is_fed_chwn(formats: dict[str, str]) -> None:
    b = bl.Builder()
    b.output("y", b.input("x", X.shape).conv(POINTWISE, BIAS).relu().average_pool(2))
    [found] = bl.load(b, io_layout=formats).run(None, {"x": bl.reorder(X, "chwn")})
    [expected] = bl.load(b).run(None, {"x": X})
    if "y" in formats:  # as it lies
        found = np.moveaxis(found, -1, 0)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
