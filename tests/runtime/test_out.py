"""Outputs in the caller's own arrays: written directly where they fit, copied to where not, refused where neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from tests import nets


def test_an_array_that_fits_is_written_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    session = bl.load(nets.chain())
    feed = nets.feed_of(session)
    [expected] = session.run(None, feed)
    monkeypatch.setattr("blocklayout.runtime.workspace.np.empty", lambda *_: pytest.fail("a fresh array was made"))
    given = np.full_like(expected, np.nan)
    [result] = session.run(None, feed, out={"y": given})
    assert result is given
    np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize("kind", ["every second", "backwards", "transposed"])
def test_an_array_with_strides_is_copied_to(kind: str) -> None:
    session = bl.load(nets.chain())
    feed = nets.feed_of(session)
    [expected] = session.run(None, feed)
    n, c, h, w = expected.shape
    given = {
        "every second": np.zeros((n, c, h, 2 * w), np.float32)[..., ::2],
        "backwards": np.zeros(expected.shape, np.float32)[:, ::-1],
        "transposed": np.zeros((n, h, w, c), np.float32).transpose(0, 3, 1, 2),
    }[kind]
    [result] = session.run(["y"], feed, out={"y": given})
    assert result is given
    np.testing.assert_array_equal(given, expected)


def test_an_array_that_is_fed_may_be_given() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 8, 6, 6))
    b.output("y", x.conv(np.ones((8, 8, 3, 3), np.float32), pads=1) + x)
    session = bl.load(b)
    array = np.random.default_rng(0).standard_normal((1, 8, 6, 6), dtype=np.float32)
    expected = session(array.copy())
    session.run(None, {"x": array}, out={"y": array})
    np.testing.assert_array_equal(array, expected)


def test_two_outputs_do_not_share_what_overlaps() -> None:
    b = bl.Builder()
    x = b.input("x", (2, 8))
    b.output("y", x.relu())
    b.output("z", (x + x))
    session = bl.load(b)
    array = np.ones((2, 8), np.float32)
    whole = np.zeros((3, 8), np.float32)
    session.run(None, {"x": array}, out={"y": whole[:2], "z": whole[1:]})
    np.testing.assert_array_equal(whole, [[1] * 8, [2] * 8, [2] * 8])


def test_what_no_step_computes_is_given_as_well() -> None:
    b = bl.Builder()
    x = b.input("x", (2, 3))
    b.output("y", x.relu())
    b.output("c", b.op("Identity", b.constant(np.arange(3, dtype=np.float32))))
    session = bl.load(b)
    given = np.zeros(3, np.float32)
    session.run(None, {"x": np.ones((2, 3), np.float32)}, out={"c": given})
    np.testing.assert_array_equal(given, [0, 1, 2])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda array: array[:, :1], "give an array of shape"),
        (lambda array: array.astype(np.float64), "and type float64; give an array of shape"),
        (lambda array: array.tolist(), "out: y is a list"),
        (lambda array: np.broadcast_to(array, array.shape), "is read-only"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(spoil: Callable[[np.ndarray], Any], message: str) -> None:
    session = bl.load(nets.chain())
    feed = nets.feed_of(session)
    [expected] = session.run(None, feed)
    with pytest.raises(bl.InputError, match=message):
        session.run(None, feed, out={"y": spoil(expected)})
    with pytest.raises(bl.InputError, match="out='z' is none of the outputs that are asked for: y"):
        session.run(None, feed, out={"z": expected})


def test_a_tensor_is_not_given_as_an_array() -> None:
    session = bl.load(nets.chain(), io_layout={"y": "nChw8c"})
    feed = nets.feed_of(session)
    [tensor] = session.run(None, feed)
    with pytest.raises(bl.InputError, match="y is a Tensor"):
        session.run(None, feed, out={"y": np.empty(tensor.shape, np.float32)})
