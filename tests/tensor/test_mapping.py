"""A user's function on raw elements, and the padding that it meets there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import blocklayout as bl
from tests.tensor.tensors import dense, numbered, poisoned, tensors

BLOCKED = ("nChw8c", "nChw16c", "NChw16n16c", "aBcD4b2d")


@given(tensors())
def test_the_function_reaches_every_element_and_padding_stays_zero(tensor: bl.Tensor) -> None:
    made = tensor.map(lambda x: 2 * x + 1)
    assert made.desc.format_tag == tensor.desc.format_tag
    np.testing.assert_array_equal(made.numpy(), 2 * tensor.numpy() + 1)
    assert made.padding_is_zero()


@pytest.mark.parametrize("memory_format", BLOCKED)
def test_padding_warns_of_nothing_and_elements_do(memory_format: str) -> None:
    tensor = numbered((2, 17, 5, 3), memory_format)
    for f in (np.log, np.reciprocal, lambda x: x**-0.5, lambda x: 1 / x):
        made = tensor.map(f)
        assert made.padding_is_zero()
        np.testing.assert_array_equal(made.numpy(), f(tensor.numpy()))
    tensor[1, 3, 2, 1] = 0
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert np.isinf(tensor.map(np.log)[1, 3, 2, 1])


def test_it_is_called_once_with_everything_in_the_order_of_memory() -> None:
    seen: list[np.ndarray] = []
    tensor = numbered((1, 3, 1, 2), "nChw4c")

    def f(x: np.ndarray) -> np.ndarray:
        seen.append(x)
        return x

    made = tensor.map(f)
    [elements] = seen
    assert elements.tolist() == [2, 4, 6, 2, 3, 5, 7, 2]  # padding is a copy of the first
    assert not np.may_share_memory(made.buffer, tensor.buffer)
    assert made.physical().tolist() == [2, 4, 6, 0, 3, 5, 7, 0]
    with pytest.raises(ValueError, match="read-only"):
        tensor.map(lambda x: np.negative(x, out=x))


def test_the_type_is_what_comes_out() -> None:
    tensor = numbered((2, 17, 5, 3), "nChw8c", "s8")
    assert tensor.map(np.sqrt).dtype == "f16"
    assert tensor.map(lambda x: x > 3).dtype == "bool"
    assert tensor.map(lambda x: x.astype(np.int64)).memory_format == "nChw8c"
    assert bl.zeros((2, 3), "bf16").map(np.exp).numpy().tolist() == [[1, 1, 1], [1, 1, 1]]


def test_other_results_are_refused() -> None:
    tensor = numbered((2, 3))
    with pytest.raises(bl.InputError, match=r"shape \(1,\) for \(6,\)"):
        tensor.map(lambda x: x[:1])
    with pytest.raises(bl.InputError, match="gave list"):
        tensor.map(lambda x: x.tolist())
    with pytest.raises(bl.LayoutError, match="complex"):
        tensor.map(lambda x: x * np.complex64(1j))


def test_no_elements_are_no_trouble() -> None:
    assert bl.zeros((0, 17), memory_format="aB8b").map(np.log).shape == (0, 17)


@given(dense())
def test_padding_is_told_and_cleared(tensor: bl.Tensor) -> None:
    expected = tensor.numpy()
    assert tensor.padding_is_zero()
    is_padding = poisoned(tensor)
    assert tensor.padding_is_zero() == (not is_padding.any())
    tensor.physical()[is_padding] = np.nan
    assert tensor.padding_is_zero() == (not is_padding.any())
    tensor.zero_padding()
    assert tensor.padding_is_zero()
    np.testing.assert_array_equal(tensor.numpy(), expected)


def test_one_dirty_element_is_enough() -> None:
    desc = bl.MemoryDesc((2, 17, 3, 2), "f32", "nChw8c")
    places = set(range(desc.nbytes // 4)) - set(desc.offsets().ravel().tolist())
    assert len(places) == desc.n_padding
    for place in places:
        tensor = bl.zeros((2, 17, 3, 2), memory_format="nChw8c")
        tensor.physical()[place] = 1e-30
        assert not tensor.padding_is_zero()


def test_a_part_clears_its_own_padding_only() -> None:
    tensor = numbered((2, 20, 3, 2), "nChw8c")
    expected = tensor.numpy()
    for part in (tensor[:, 8:], tensor[:, :8], tensor[:, 8:12], tensor[1:]):
        part.zero_padding()
        assert part.padding_is_zero()
    np.testing.assert_array_equal(tensor.numpy(), expected)
    tensor.physical()[:] = 9
    assert tensor[:, :8].padding_is_zero()
    assert not tensor[:, 8:].padding_is_zero()
