"""The largest elements, ties and NaN, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.in_numpy import Case, check, floats, integers

TIES = integers(4, 200, low=0, high=9).astype(np.float32)
CASES = [
    Case("TopK", (TIES, np.array([7])), n_outputs=2),
    Case("TopK", (TIES, np.array([7])), {"largest": 0}, n_outputs=2),
    Case("TopK", (floats(200, 3), np.array([4])), {"axis": 0}, n_outputs=2),
    Case("TopK", (floats(3, 200), np.array([4])), {"largest": 0}, n_outputs=2),
    Case("TopK", (integers(2, 5, low=0, dtype="uint8"), np.array([5])), n_outputs=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.5, -2.0, np.inf, -np.inf, np.nan]), min_size=1, max_size=40),
    st.integers(1, 5),
    st.booleans(),
)
def test_of_equal_elements_the_first_are_largest(numbers: list[float], k: int, is_largest: bool) -> None:  # noqa: FBT001
    x = np.array(numbers, np.float32)
    check(Case("TopK", (x, np.array([min(k, x.size)])), {"largest": int(is_largest)}, n_outputs=2))
