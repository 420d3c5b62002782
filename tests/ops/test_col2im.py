"""Windows summed into an image, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.in_numpy import Case, check, floats

CASES = [
    Case(
        "Col2Im",
        (floats(2, 12, 15), np.array([7, 6]), np.array([2, 3])),
        {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [2, 1]},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}
