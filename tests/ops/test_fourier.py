"""Fourier transforms, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.in_numpy import Case, check, floats, scalar

CASES = [
    Case("DFT", (floats(2, 7, 3, 2, dtype="f8"), scalar(9), scalar(1))),
    Case("DFT", (floats(2, 7, 1), None, scalar(1)), {"onesided": 1}),
    Case("DFT", (floats(2, 5, 2), scalar(8), scalar(1)), {"onesided": 1, "inverse": 1}),
    Case("STFT", (floats(2, 20, 1), scalar(3), np.hanning(8).astype("f4"), scalar(8)), {"onesided": 0}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}
