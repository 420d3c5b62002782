"""Softmax and LogSoftmax against ONNX's reference, in every layout."""

from __future__ import annotations

import pytest

from blocklayout.errors import ModelError, UnsupportedError
from tests.ops.cases import OpCase
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
CASES = [
    OpCase("Softmax", ((4, 10),)),
    OpCase("Softmax", (IMAGE,), {"axis": 1}),
    OpCase("Softmax", (IMAGE,), {"axis": -1}),
    OpCase("Softmax", (IMAGE,), {"axis": 0}),
    OpCase("LogSoftmax", ((4, 10),), {"axis": 1}),
    OpCase("Softmax", ((4, 10),), opset=11),
    OpCase("Softmax", ((4, 10, 1, 1),), opset=11, is_reference_wrong=True),
    OpCase("Softmax", ((4, 10, 3),), {"axis": 2}, opset=11),
    OpCase("Softmax", ((4, 1, 1, 3),), opset=11),
    OpCase("LogSoftmax", ((4, 10),), opset=11),
    OpCase("Softmax", ((7,),), {"axis": 0}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


def test_a_softmax_over_several_dimensions_together_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="opset 11"):
        OpCase("Softmax", ((4, 10, 3),), opset=11).lowered()


def test_an_axis_outside_of_the_rank_is_refused() -> None:
    with pytest.raises(ModelError, match="axis is 2"):
        OpCase("Softmax", ((4, 10),), {"axis": 2}).uninferred((4, 10))
