"""Sums and products up to each element, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.in_numpy import ROWS, SIGNED, Case, check, scalar

CASES = [
    Case("CumSum", (ROWS, scalar(-2)), {"exclusive": 1, "reverse": 1}),
    Case("CumSum", (np.zeros((0, 3), "f4"), scalar(0)), {"exclusive": 1}),
    Case("CumProd", (SIGNED, scalar(1)), {"reverse": 1}, opset=26),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}
