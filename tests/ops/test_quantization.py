"""Products and convolutions of integers, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.in_numpy import ROWS, Case, check, floats, integers, scalar

CASES = [
    Case(
        "ConvInteger",
        (
            *(integers(2, 4, 6, 5, low=0, dtype="uint8"), integers(6, 2, 3, 2, low=0, dtype="uint8")),
            *(scalar(2, "uint8"), scalar(3, "uint8")),
        ),
        {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
    ),
    Case("QuantizeLinear", (ROWS, np.abs(floats(4)) + 0.1, integers(4, dtype="int8")), {"axis": 1}),
    Case(
        "DequantizeLinear",
        (integers(3, 4, 5, dtype="int8"), np.abs(floats(3, 2, 5)), integers(3, 2, 5, dtype="int8")),
        {"axis": 1, "block_size": 2},
    ),
    Case(
        "MatMulInteger",
        (
            integers(300, 300, low=0, high=255, dtype="uint8"),
            integers(300, 2, low=-127, high=127, dtype="int8"),
            scalar(3, "uint8"),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}
