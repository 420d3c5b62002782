"""Functions of any number of tensors against ONNX's reference, in every layout."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from blocklayout import dnnl
from blocklayout.ir import Wish
from tests.ops.broadcasts import IMAGE, broadcasts
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import check_case

CASES = [
    *(OpCase(op_type, (IMAGE, IMAGE), low=0.5) for op_type in ("Min", "Max", "Sum")),
    *(OpCase(op_type, (IMAGE, Weights((17, 1, 1), 0.5))) for op_type in ("Min", "Max")),
    OpCase("Sum", (IMAGE, IMAGE, IMAGE)),
    OpCase("Sum", (IMAGE, (1, 17, 1, 1), Weights((3, 5)))),
    OpCase("Max", ((2, 17, 1, 1), IMAGE, IMAGE, (1, 1, 3, 5))),
    OpCase("Min", (IMAGE, IMAGE, IMAGE)),
    OpCase("Sum", (IMAGE,)),
    OpCase("Max", ((2, 17, 1, 1), (1, 1, 3, 1), (1, 1, 1, 5))),
    OpCase("Sum", ((2, 17, 1, 5), Weights((1, 3, 1)), (2, 1, 1, 1))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


@settings(max_examples=15)
@given(broadcasts(["Min", "Max", "Sum"]))
def test_any_broadcast_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


def test_three_sources_take_no_post_ops() -> None:
    lowered = OpCase("Sum", (IMAGE, IMAGE, IMAGE)).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), attr) is None
