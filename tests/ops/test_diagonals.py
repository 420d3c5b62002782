"""Triangles and diagonals, against the reference."""

from __future__ import annotations

import pytest

from tests.ops.in_numpy import SPECIAL, Case, check, floats, scalar

CASES = [
    Case("Trilu", (SPECIAL, scalar(-1)), {"upper": 0}),
    Case("Trilu", (SPECIAL, scalar(9))),
    Case("EyeLike", (floats(3, 5),), {"k": -1}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}
