"""Slices: views of a part, or nothing where the part is not in one piece."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 16, 3, 5)


def in_steps(*bounds: tuple[int, int, int, int], shape: tuple[int, ...] = IMAGE) -> OpCase:
    """A slice from a start to an end along an axis in steps, along some axes."""
    return OpCase("Slice", (shape, *(np.array(numbers, np.int64) for numbers in zip(*bounds, strict=True))))


VIEWS = [
    OpCase("Slice", (IMAGE, *(np.array([n], np.int64) for n in (8, 16, 1)))),
    OpCase("Slice", (IMAGE, *(np.array(n, np.int64) for n in ([-2, 1], [99, -1], [-2, -1])))),
    OpCase("Slice", (IMAGE,), {"starts": [1], "ends": [2]}, opset=9),
    in_steps((1, 2, 0, 5), (0, 1, 1, 2), shape=(2, 1, 3, 5)),
]
STEPPED = [
    in_steps((0, 3, 2, 2), (1, 5, 3, 3)),
    in_steps((1, 15, 1, 4), (-2, -1, 2, 1)),
    in_steps((0, 99, 3, 7)),
    in_steps((0, 4, 0, 2), shape=(4, 17, 2, 2)),
    in_steps((1, 2, 0, 1), (1, 9, 2, 2), shape=(3, 17, 9)),
]
BACKWARDS = [
    in_steps((2, -9, 2, -1)),
    in_steps((199, -201, 1, -1), shape=(2, 200, 3)),
    in_steps((-1, 0, 1, -3), (4, 0, 3, -2)),
    in_steps((1, -9, 0, -1), (0, 5, 3, 2), shape=(2, 17, 3, 5)),
]
CASES = [*BACKWARDS, *VIEWS, *STEPPED]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


def test_a_slice_that_begins_inside_a_block_moves_bytes() -> None:
    bounds = (np.array([n], np.int64) for n in (4, 12, 1))
    operator = OpCase("Slice", (IMAGE, *bounds)).lowered().operator
    assert operator.through(MemoryDesc(IMAGE, "f32", "nChw8c")) is None
    assert operator.through(MemoryDesc(IMAGE, "f32", "nhwc")) is not None


def test_a_slice_in_steps_stays_in_blocks() -> None:
    ran = check_case(in_steps((0, 3, 2, 2), (1, 5, 3, 3), shape=(2, 17, 3, 5)))
    assert {"plain", "channels_last", "blocked8", "blocked16"} == set(ran)
    assert not any("ref" in impl for impl in ran.values())


def test_steps_that_divide_are_one_copy() -> None:
    ran = check_case(in_steps((0, 4, 2, 2), (1, 6, 3, 2), shape=(2, 17, 4, 6)))
    assert not any("+" in impl for impl in ran.values())


def test_steps_inside_of_blocks_are_taken_elsewhere() -> None:
    assert set(check_case(in_steps((0, 16, 1, 2)))) == {"plain", "channels_last"}


def test_a_slice_of_nothing_begins_somewhere() -> None:
    operator = in_steps((16, 16, 1, 3)).uninferred((2, 0, 3, 5)).operator
    assert operator.through(MemoryDesc(IMAGE, "f32", "nhwc")) is not None


def test_slices_of_neighbours_are_views() -> None:
    for case in VIEWS:
        assert case.lowered().operator.role == "view"


def test_a_slice_in_steps_takes_no_post_ops() -> None:
    lowered = in_steps((0, 3, 2, 2)).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, (2, 16, 2, 5)), Wish("plain", "plain"), attr) is None
