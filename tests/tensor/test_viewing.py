"""``Tensor.view``: other extents over the same bytes, or an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from tests.tensor.tensors import numbered, tensors


@pytest.mark.parametrize(
    ("memory_format", "shape", "viewed"),
    [
        ("nchw", (-1,), "contiguous_format"),
        ("nchw", (2, 4, 8, 16), "contiguous_format"),
        ("nhwc", (2, 32, 16), "channels_last"),
        ("nhwc", (2, 4, 8, 4, 4), None),
        ("nChw16c", (2, 32, -1), "aBc16b"),
        ("nChw16c", (2, 32, 1, 16), "aBcd16b"),
    ],
)
def test_a_view_has_the_same_bytes(memory_format: str, shape: tuple[int, ...], viewed: str | None) -> None:
    x = numbered((2, 32, 4, 4), memory_format)
    with bl.watch("raise"):
        view, again = x.view(*shape), x.view(shape)
    assert view.desc == again.desc
    assert viewed in (None, view.memory_format) or view.desc.format_tag == bl.FormatTag.parse(viewed)
    np.testing.assert_array_equal(view.numpy(), x.numpy().reshape(shape))
    view[(0,) * view.ndim] = 99
    assert x[0, 0, 0, 0] == 99


@pytest.mark.parametrize(
    ("memory_format", "shape"), [("nhwc", (64, 4, 4)), ("nhwc", (-1,)), ("nChw16c", (2, 2, 16, 4, 4)), ("chwn", (-1,))]
)
def test_where_bytes_would_move_it_is_an_error(memory_format: str, shape: tuple[int, ...]) -> None:
    x = numbered((2, 32, 4, 4), memory_format)
    with pytest.raises(bl.LayoutError, match=r"view: .* would move bytes.*\.reshape\(\.\.\.\) copies there"):
        x.view(shape)


@settings(max_examples=80)
@given(tensors(), st.data())
def test_it_is_a_view_with_these_values_or_an_error(x: bl.Tensor, data: st.DataObject) -> None:
    factors = [extent for extent in x.shape if extent != 1]
    joined = data.draw(st.integers(0, max(len(factors) - 1, 0)))
    shape = (*factors[:joined], int(np.prod(factors[joined:], dtype=int)))
    try:
        view = x.view(shape)
    except bl.LayoutError:
        return
    np.testing.assert_array_equal(view.numpy(), x.numpy().reshape(shape))
    assert np.shares_memory(view.buffer, x.buffer) or not x.buffer.size
    assert view.padding_is_zero() == x.padding_is_zero()


@pytest.mark.parametrize("shape", [(3, -1), (-1, -1), (), (5,), (-2, -256), (-1, 0)])
def test_other_numbers_of_elements_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(bl.InputError, match=r"view: f32 2x32x4x4 nchw has 1024 elements, which .* cannot have"):
        bl.zeros((2, 32, 4, 4)).view(shape)


@pytest.mark.parametrize("shape", [("a",), (1.5, 2), (None,)])
def test_extents_are_integers(shape: Any) -> None:
    with pytest.raises(bl.LayoutError, match="view: shape must be integers"):
        bl.zeros((2, 32, 4, 4)).view(*shape)
