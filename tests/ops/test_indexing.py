"""Elements at places that another tensor names, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.in_numpy import ROWS, SIGNED, Case, check, computed, floats, integers, scalar

CASES = [
    Case("Gather", (SIGNED, integers(2, 3, low=-5, high=5)), {"axis": -1}),
    Case("Gather", (SIGNED, scalar(-1)), {"axis": 1}),
    Case("GatherND", (ROWS, integers(3, 2, 1, low=-4, high=4)), {"batch_dims": 1}),
    Case("GatherElements", (ROWS, integers(3, 2, 5, low=0, high=4)[:, :1]), {"axis": 1}),
    Case("ScatterND", (ROWS, np.array([[0, 1], [2, 3], [0, 1]]), floats(3, 5)), {"reduction": "add"}),
    Case("ScatterND", (ROWS, np.array([[-1], [0]]), floats(2, 4, 5)), {"reduction": "max"}),
    Case("ScatterElements", (ROWS, np.array([[[1, 1, -1]]]), floats(1, 1, 3)), {"axis": 2, "reduction": "mul"}),
    Case("ScatterElements", (SIGNED, integers(1, 2, 1, 1, low=-9, high=-7), integers(1, 2, 1, 1)), {"axis": 1}),
    Case("OneHot", (integers(2, 3, low=-6), scalar(5), np.array([2, 7], "int32")), {"axis": 1}),
    Case("ReverseSequence", (ROWS, np.array([1, 0, 4])), {"batch_axis": 0, "time_axis": 1}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@settings(max_examples=40)
@given(st.data(), SHAPES)
def test_places_are_those_of_numpy(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    seed = np.random.default_rng(data.draw(st.integers(0, 99)))
    places = seed.integers(-shape[axis], shape[axis], data.draw(SHAPES)[:2])
    [taken] = computed(Case("Gather", (x, places), {"axis": axis}), [np.take(x, places, axis)]) or []
    np.testing.assert_array_equal(taken, np.take(x, places, axis))
    along = seed.integers(-shape[axis], shape[axis], shape)
    wanted = np.take_along_axis(x, along, axis)
    [gathered] = computed(Case("GatherElements", (x, along), {"axis": axis}), [wanted]) or []
    np.testing.assert_array_equal(gathered, wanted)
    [counted] = (
        computed(Case("ScatterElements", (x * 0, along, x * 0 + 1), {"axis": axis, "reduction": "add"}), [x]) or []
    )
    np.testing.assert_array_equal(counted.sum(axis), np.full_like(x, 1).sum(axis))
    depth = data.draw(st.integers(1, x.ndim))
    points = np.stack([seed.integers(-n, n, 5) for n in shape[:depth]], -1)
    wanted = x[tuple(points.T)]
    [sliced] = computed(Case("GatherND", (x, points)), [wanted]) or []
    np.testing.assert_array_equal(sliced, wanted)
    [written] = computed(Case("ScatterND", (x * 0, points, wanted)), [x]) or []
    np.testing.assert_array_equal(written[tuple(points.T)], wanted)
    summed = x * 0
    np.add.at(summed, tuple(points.T), wanted)
    [added] = computed(Case("ScatterND", (x * 0, points, wanted), {"reduction": "add"}), [x]) or []
    np.testing.assert_array_equal(added, summed)
