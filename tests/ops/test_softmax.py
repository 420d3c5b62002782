"""Softmax and LogSoftmax against ONNX's reference, in every layout."""

from __future__ import annotations

import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError
from blocklayout.ir import Wish
from blocklayout.ops._layouts import n_lanes
from tests.ops.cases import OpCase, problem_of
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
    OpCase("LogSoftmax", (IMAGE,), {"axis": 1}),
    OpCase("LogSoftmax", (IMAGE,), {"axis": 2}),
    OpCase("Softmax", ((2, 17, 5),), {"axis": 1}),
    OpCase("Softmax", ((2, 16, 2, 3, 5),), {"axis": 3}),
    OpCase("Softmax", ((2, 3, 2, 3, 2, 2),), {"axis": 2}),
    OpCase("Softmax", ((2, 17, 1, 1),), {"axis": 0}),
    OpCase("Softmax", ((2, 1, 3, 5),), {"axis": 1}),
    OpCase("Softmax", (IMAGE,), opset=11, is_reference_wrong=True),
    OpCase("Softmax", ((2, 16, 3, 5),), opset=11, is_reference_wrong=True),
    OpCase("LogSoftmax", (IMAGE,), {"axis": 2}, opset=11, is_reference_wrong=True),
    OpCase("Softmax", (IMAGE,), {"axis": 0}, opset=11, is_reference_wrong=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_in_every_layout(case: OpCase) -> None:
    ran = check_case(case)
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(ran)
    assert not any("ref" in impl for impl in ran.values())


@pytest.mark.parametrize("shape", [(2, 17, 3, 5), (2, 16, 3, 5)], ids=str)
def test_channels_are_normalised_in_blocks_of_a_register(shape: tuple[int, ...]) -> None:
    layout = {4: "nChw4c", 8: "nChw8c", 16: "nChw16c"}[n_lanes()]
    ran = check_case(OpCase("Softmax", (shape,), {"axis": 1}), layouts=(layout,))
    assert "+" not in ran[layout]


def test_images_flattened_in_one_piece_are_not_copied() -> None:
    ran = check_case(OpCase("Softmax", ((2, 16, 3, 5),), opset=11, is_reference_wrong=True))
    assert not any("+" in impl for impl in ran.values())


def test_functions_of_the_result_are_post_ops() -> None:
    lowered = OpCase("Softmax", (IMAGE,), {"axis": 2}).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("log"),))
    recipe = lowered.operator.lower(problem_of(lowered, IMAGE), Wish("nChw8c", "nChw8c"), attr)
    assert recipe is not None
    assert [step.spec.attr.post_ops for step in recipe.steps] == [(), attr.post_ops, ()]


def test_an_axis_outside_of_the_rank_is_refused() -> None:
    with pytest.raises(ModelError, match="axis is 2"):
        OpCase("Softmax", ((4, 10),), {"axis": 2}).uninferred((4, 10))
