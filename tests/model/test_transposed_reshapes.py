"""Reshapes between Transposes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocklayout.model import Builder, legalize, lower, simplify
from blocklayout.ops.views import groups_of
from tests.model.transposing import FIRST, LAST, SHAPE, n_transposes, op_types, pushed, vector


def test_channels_split_where_they_are() -> None:
    b = Builder()
    x = b.input("x", (2, 6, 5, 4)).transpose(LAST).reshape((2, 5, 4, 3, 2))
    y = (x - b.op("ReduceMean", x, [1, 2, 4], keepdims=1)).reshape((2, 5, 4, 6))
    b.output("y", y.transpose(FIRST).relu())
    after = pushed(b)
    assert n_transposes(after) == 0
    assert after.shape(after.nodes[0].outputs[0]) == (2, 3, 2, 5, 4)


def test_rows_and_columns_merge_where_they_are() -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose(LAST).reshape((2, 24, 3))
    b.output("y", x.transpose((0, 2, 1)).sigmoid())
    assert op_types(pushed(b)) == ["Reshape", "Sigmoid"]


def test_neighbours_that_are_none_in_the_base_are_brought_together() -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose(LAST).reshape((2, 6, 12))
    b.output("y", b.op("CumSum", x, np.array(1)))
    assert op_types(pushed(b)) == ["Transpose", "Reshape", "CumSum"]


def test_a_shuffle_of_channels_that_stand_last_is_a_shuffle() -> None:
    b = Builder()
    x = b.input("x", (2, 6, 4, 5)).conv(vector(6, 6, 1, 1)).transpose(LAST)
    x = x.reshape((2, 4, 5, 3, 2)).transpose((0, 1, 2, 4, 3)).reshape((2, 4, 5, 6))
    b.output("y", x.transpose(FIRST).conv(vector(6, 6, 1, 1)))
    assert op_types(pushed(b)) == ["Conv", "Reshape", "Transpose", "Reshape", "Conv"]
    assert len(lower(legalize(simplify(b.to_graph()))).kernels) == 3


@pytest.mark.parametrize("target", [(1, 2, 6, 4, 3), (2, 6, 4, 3, 1), (2, 1, 6, 2, 2, 3, 1, 1)])
def test_extents_of_one_come_and_go(target: tuple[int, ...]) -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose(LAST).reshape(target).relu().reshape((2, 6, 4, 3))
    b.output("y", x.transpose(FIRST))
    assert n_transposes(pushed(b)) == 0


def test_one_pixel_is_flat_in_any_order() -> None:
    b = Builder()
    x = b.input("x", SHAPE).global_average_pool().transpose(LAST).flatten()
    b.output("y", x.relu())
    assert op_types(pushed(b)) == ["GlobalAveragePool", "Reshape", "Relu"]


def test_an_image_without_elements_stays_as_it_is() -> None:
    b = Builder()
    x = b.input("x", (0, 3, 6, 4)).transpose(LAST)
    b.output("y", x.reshape((0, 24, 3)).relu())
    pushed(b)


EXTENTS = st.lists(st.sampled_from((1, 2, 3, 4, 6)), max_size=6)


@given(EXTENTS, st.data())
def test_groups_hold_the_same_elements_in_the_same_order(before: list[int], data: st.DataObject) -> None:
    factors = [factor for extent in before for factor in {4: (2, 2), 6: (2, 3)}.get(extent, (extent,))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(factors)), max_size=4)))
    edges = zip([0, *cuts], [*cuts, len(factors)], strict=True)
    after = [math.prod(factors[start:end]) for start, end in edges]
    groups = groups_of(tuple(before), tuple(after))
    assert [dim for group in groups for dim in group.before] == [d for d, extent in enumerate(before) if extent != 1]
    assert [dim for group in groups for dim in group.after] == [d for d, extent in enumerate(after) if extent != 1]
    for group in groups:
        assert math.prod(before[dim] for dim in group.before) == math.prod(after[dim] for dim in group.after)
