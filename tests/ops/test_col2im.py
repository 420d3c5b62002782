"""Windows summed into an image, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from tests.ops.in_numpy import Case, check, computed, floats

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


def test_an_image_with_pads_is_weighed_first() -> None:
    attrs = {"pads": [1 << 20, 1 << 20], "strides": [1 << 19]}
    case = Case("Col2Im", (floats(1, 1, 5), np.array([1]), np.array([1])), attrs)
    with bl.limits(nbytes=1 << 20), pytest.raises(bl.LimitError, match="'own': its image with pads"):
        computed(case, [np.zeros((1, 1, 1), np.float32)])
