"""Attention as a recurrence, against the reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.ops.in_numpy import Case, check, floats

NEWEST = onnx.defs.onnx_opset_version()
CASES = [
    Case(
        "LinearAttention",
        (
            floats(2, 5, 8),
            floats(2, 5, 4),
            floats(2, 5, 6),
            floats(2, 2, 2, 3),
            -np.abs(floats(2, 5, 4)),
            floats(2, 5, 1),
        ),
        {"q_num_heads": 4, "kv_num_heads": 2},
        n_outputs=2,
        opset=NEWEST,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}
