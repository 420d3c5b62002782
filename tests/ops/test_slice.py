"""Slices: views of a part, or nothing where the part is not in one piece."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout.errors import UnsupportedError
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase
from tests.ops.harness import check_case

IMAGE = (2, 16, 3, 5)
CASES = [
    OpCase("Slice", (IMAGE, *(np.array([n], np.int64) for n in (8, 16, 1)))),
    OpCase("Slice", (IMAGE, *(np.array(n, np.int64) for n in ([-2, 1], [99, -1], [-2, -1])))),
    OpCase("Slice", (IMAGE,), {"starts": [1], "ends": [2]}, opset=9),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


def test_a_slice_that_begins_inside_a_block_moves_bytes() -> None:
    bounds = (np.array([n], np.int64) for n in (4, 12, 1))
    operator = OpCase("Slice", (IMAGE, *bounds)).lowered().operator
    assert operator.through(MemoryDesc(IMAGE, "f32", "nChw8c")) is None
    assert operator.through(MemoryDesc(IMAGE, "f32", "nhwc")) is not None


def test_a_slice_in_steps_is_unsupported() -> None:
    bounds = (np.array([n], np.int64) for n in (0, 16, 1, 2))
    with pytest.raises(UnsupportedError, match="steps"):
        OpCase("Slice", (IMAGE, *bounds)).lowered()


def test_slices_are_views() -> None:
    for case in CASES:
        lowered = case.lowered()
        assert lowered.operator.role == "view"
