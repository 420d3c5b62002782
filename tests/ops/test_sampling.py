"""Images read between their pixels, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.in_numpy import Case, check, floats

CASES = [
    Case("GridSample", (floats(2, 3, 4, 5), floats(2, 3, 2, 2) * 2), {"mode": "cubic", "padding_mode": "border"}),
    Case("GridSample", (floats(1, 2, 3, 4, 2), floats(1, 2, 2, 3, 3) * 3), {"padding_mode": "reflection"}),
    Case(
        "RoiAlign",
        (floats(2, 3, 9, 8), np.array([[-9, 1, 6, 7], [3, 3, 3, 3], [1, 2, 30, 9]], "f4"), np.array([1, 0, 1])),
        {"output_height": 2, "output_width": 3, "mode": "max"},
    ),
    Case(
        "RoiAlign",
        (floats(2, 3, 9, 8), np.array([[0, 1, 6, 7.5]], "f4"), np.array([1])),
        {"output_height": 2, "output_width": 3, "coordinate_transformation_mode": "output_half_pixel"},
    ),
    Case(
        "RoiAlign",  # regions beyond the image, turned around, and of no extents; as many points for all
        (
            floats(2, 3, 9, 8),
            np.array([[-9, -2, 6, 17], [5, 6, 1, 2], [3, 3, 3, 3], [7, 8, 30, 40]], "f4"),
            np.array([1, 0, 1, 0]),
        ),
        {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.75},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}
