"""Dropout of whole channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl

DROPOUTS = ((bl.dropout2d, (4, 17, 3, 2)), (bl.dropout3d, (4, 17, 3, 2, 2)))


@pytest.mark.parametrize("memory_format", ["contiguous_format", "channels_last", "blocked"])
@pytest.mark.parametrize(("dropout", "shape"), DROPOUTS)
def test_whole_channels_are_dropped_in_the_layout_of_the_source(
    dropout: Any, shape: tuple[int, ...], memory_format: str
) -> None:
    x = bl.randn_like(bl.zeros(shape, memory_format=memory_format), rng=0)
    with bl.watch("record") as seen:
        y = dropout(x, 0.25, training=True, rng=1)
    assert y.desc.format_tag == x.desc.format_tag
    assert not [event for event in seen if event.kind == "loss"]
    assert y.padding_is_zero()
    factors = (y.numpy() / x.numpy()).reshape(4, 17, -1)
    np.testing.assert_allclose(factors, np.broadcast_to(factors[:, :, :1], factors.shape), rtol=1e-5)
    kept = factors[:, :, 0] != 0
    np.testing.assert_allclose(factors[kept], 1 / 0.75, rtol=1e-5)
    assert 0.6 < kept.mean() < 0.9


@pytest.mark.parametrize(("dropout", "shape"), DROPOUTS)
def test_it_does_nothing_in_inference_and_all_or_nothing_at_the_ends(dropout: Any, shape: tuple[int, ...]) -> None:
    x = bl.ones(shape, memory_format="channels_last")
    assert dropout(x, 0.5) is x
    np.testing.assert_array_equal(dropout(x, 0, training=True).numpy(), x.numpy())
    assert not dropout(x, 1.0, training=True).numpy().any()


def test_one_seed_drops_the_same_channels_of_a_gradient() -> None:
    x = bl.ones((2, 32, 2, 2), memory_format="channels_last")
    y, gradient = (bl.dropout2d(each, training=True, rng=7) for each in (x, bl.full_like(x, 3)))
    np.testing.assert_array_equal(gradient.numpy(), 3 * y.numpy())
    other = bl.dropout2d(x, training=True, rng=8)
    assert (other.numpy() != y.numpy()).any()


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((bl.zeros((2, 3, 4)),), {}, r"dropout2d: x has shape \(2, 3, 4\); give one of rank 4"),
        ((bl.zeros((2, 3, 4, 5)), 1.5), {}, "dropout2d: p is 1.5; give a probability"),
        ((bl.zeros((2, 3, 4, 5)), "half"), {}, "dropout2d: p is 'half'"),
        ((bl.zeros((2, 3, 4, 5), "s32"),), {}, "dropout2d: x is s32 2x3x4x5 nchw; give floating-point numbers"),
        ((bl.zeros((2, 3, 4, 5)),), {"training": True, "rng": "x"}, "dropout2d: rng is 'x'"),
    ],
)
def test_wrong_arguments_are_named(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(bl.InputError, match=message):
        bl.dropout2d(*args, **kwargs)
