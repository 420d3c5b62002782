"""Concatenation against ONNX's reference, in every layout."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import Input, OpCase, Weights, problem_of
from tests.ops.harness import check_case

CASES = [
    OpCase("Concat", ((2, 16, 3, 5), (2, 8, 3, 5)), {"axis": 1}),
    OpCase("Concat", ((2, 17, 3, 5), (2, 1, 3, 5), (2, 5, 3, 5)), {"axis": 1}),
    OpCase("Concat", ((2, 16, 3, 5), (1, 16, 3, 5)), {"axis": 0}),
    OpCase("Concat", ((2, 17, 3, 5), (2, 17, 3, 2)), {"axis": -1}),
    OpCase("Concat", ((2, 16, 3, 5), Weights((2, 16, 3, 5))), {"axis": 1}),
    OpCase("Concat", ((4, 10),), {"axis": 0}),
    OpCase("Concat", ((4,), (3,)), {"axis": 0}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@st.composite
def concats(draw: st.DrawFn) -> OpCase:
    axis = draw(st.integers(0, 3))
    shape = [
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 3, 8, 17])),
        *(draw(st.integers(1, 4)) for _ in range(2)),
    ]
    extents = draw(st.lists(st.sampled_from([1, 2, 8, 9]), min_size=1, max_size=4))
    inputs: list[Input] = [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents]
    return OpCase("Concat", tuple(inputs), {"axis": axis})


@settings(max_examples=20)
@given(concats())
def test_any_concat_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


def test_the_destination_may_have_its_own_layout() -> None:
    case = CASES[0]
    lowered = case.lowered()
    wish = Wish("blocked8", "channels_last")
    recipe = lowered.operator.lower(problem_of(lowered, case.expected.shape), wish, dnnl.Attr())
    assert recipe is not None
    assert recipe.steps[0].spec.memory_desc("src_1") == MemoryDesc((2, 8, 3, 5), "f32", "nChw8c")
    assert recipe.steps[0].spec.memory_desc("dst") == MemoryDesc((2, 24, 3, 5), "f32", "nhwc")
