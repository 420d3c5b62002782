"""Comparisons of Tensors: truth element by element, in the format of the first."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from tests.tensor.tensors import DTYPES, FORMATS, numbered, tensors

OPERATORS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
FUNCTIONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_or_equal": operator.le,
    "greater": operator.gt,
    "greater_or_equal": operator.ge,
}
Compare = Callable[[Any, Any], Any]


def check(found: Any, expected: np.ndarray, memory_format: str) -> None:
    assert isinstance(found, bl.Tensor)
    assert (found.dtype, found.memory_format) == ("bool", memory_format)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert found.padding_is_zero()


@settings(max_examples=60)
@given(x=tensors(), number=st.integers(0, 100), compare=st.sampled_from(OPERATORS), data=st.data())
def test_every_layout_as_numpy_compares(x: bl.Tensor, number: int, compare: Compare, data: st.DataObject) -> None:
    own = x.clone().memory_format
    check(compare(x, number), compare(x.numpy(), number), own)
    shuffled = x.numpy().ravel()
    shuffled[:: data.draw(st.integers(1, 3))] += 1
    y = shuffled.reshape(x.shape)
    with bl.watch("record") as seen:
        check(compare(x, bl.from_array(y, x.desc.format_tag)), compare(x.numpy(), y), own)
    assert not [event for event in seen if event.kind == "loss"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compare", OPERATORS)
def test_every_type(compare: Compare, dtype: str) -> None:
    x = numbered((2, 17, 3, 2), "nChw8c", dtype)
    y = bl.from_array(x.numpy()[::-1, :, ::-1].copy(), "nChw8c")
    check(compare(x, y), compare(x.numpy(), y.numpy()), "nChw8c")


@pytest.mark.parametrize("memory_format", FORMATS)
def test_functions_methods_and_broadcasting(memory_format: str) -> None:
    x = numbered((2, 17, 3, 2), memory_format)
    column = np.arange(17, dtype=np.float32).reshape(17, 1, 1)
    for name, compare in FUNCTIONS.items():
        expected = compare(x.numpy(), column)
        check(getattr(bl, name)(x, column), expected, x.memory_format)
        check(getattr(x, name)(bl.from_array(column)), expected, x.memory_format)
        check(getattr(bl, name)(column, x), compare(column, x.numpy()), x.memory_format)


def test_reflected_and_with_arrays() -> None:
    x = numbered((1, 9, 2, 2), "nChw8c")
    array = x.numpy()[:, ::-1]
    check(operator.lt(5, x), x.numpy() > 5, "nChw8c")
    check(array < x, array < x.numpy(), "nChw8c")
    check(array == x, array == x.numpy(), "nChw8c")
    check(np.float32(5) >= x, x.numpy() <= 5, "nChw8c")
    check(x == array, array == x.numpy(), "nChw8c")  # an array of its extents is no other format
    check(numbered((4, 3), "ab", "s32") > 2.5, numbered((4, 3)).numpy() > 2.5, "contiguous_format")


def test_nan_is_equal_to_nothing() -> None:
    x = bl.full((1, 3, 2, 2), np.nan, memory_format="nChw8c")
    assert [bool(compare(x, x).numpy().any()) for compare in OPERATORS] == [False, True, False, False, False, False]


def test_another_layout_gives_way_and_says_so() -> None:
    x, y = numbered((1, 16, 4, 4), "nhwc"), numbered((1, 16, 4, 4), "nChw8c")
    with pytest.warns(bl.LayoutLossWarning, match="nChw8c gives way to nhwc"):
        check(x == y, np.ones(x.shape, bool), "channels_last")


def test_shapes_that_do_not_go_together_are_named() -> None:
    with pytest.raises(bl.InputError, match=r"less: y has shape \(3, 2\), which does not go with \(2, 3\)"):
        _ = bl.zeros((2, 3)) < bl.zeros((3, 2))
    with pytest.raises(bl.InputError, match=r"less: y.*no data type"):
        _ = bl.zeros((2, 3)) < "text"
    for wrong in (10**400, np.str_("text")):
        with pytest.raises(bl.InputError, match=r"less: y is .*; give a number that can be compared with float32"):
            _ = bl.zeros((2, 3)) < wrong


def test_other_things_differ_as_a_whole() -> None:
    x: Any = bl.zeros((2, 3))
    for other in (None, "text", [x]):
        assert (x == other) is False
        assert (x != other) is True
    assert {x: 1}[x] == 1  # hashed by identity
    with pytest.raises(bl.InputError, match="ambiguous"):
        assert bl.ones((2, 3)) in [bl.ones((2, 3)), x]


def test_truths_are_counted() -> None:
    x = numbered((2, 17, 3, 2), "nChw8c")
    assert (x > 50).sum().item() == (x.numpy() > 50).sum()


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_a_builder_has_them_too() -> None:
    b = bl.Builder()
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    results = {name: compare(x, y) for name, compare in FUNCTIONS.items()} | {"half": x > 0.5}
    for name, value in results.items():
        assert value.dtype == "bool"
        b.output(name, value)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 3, (2, 3)).astype(np.float32) for _ in range(2)]
    found = bl.load(b).run(None, dict(zip(("x", "y"), arrays, strict=True)))
    for array, compare in zip(found, FUNCTIONS.values(), strict=False):
        np.testing.assert_array_equal(array, compare(*arrays))
    np.testing.assert_array_equal(found[-1], arrays[0] > 0.5)


def test_a_built_value_has_no_truth() -> None:
    b = bl.Builder()
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    for asked in (lambda: bool(x), lambda: x == y and y, lambda: x in [y, y]):
        with pytest.raises(bl.ModelError, match="has no truth"):
            asked()
    assert x in [x, y]
    assert {x: 1}[x] == 1
