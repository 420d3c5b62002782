"""Normalisations against ONNX's reference, in every layout."""

from __future__ import annotations

import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.kernels import Wish
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
VECTORS = (Weights((17,)), Weights((17,)), Weights((17,)), Weights((17,), 0.5))
CASES = [
    OpCase("BatchNormalization", (IMAGE, *VECTORS)),
    OpCase("BatchNormalization", (IMAGE, *VECTORS), {"epsilon": 0.1}, opset=9, is_reference_wrong=True),
    OpCase("BatchNormalization", ((4, 17), *VECTORS)),
    OpCase("BatchNormalization", ((2, 17, 5), *VECTORS)),
    OpCase("LRN", (IMAGE,), {"size": 5}, is_reference_wrong=True),
    OpCase("LRN", (IMAGE,), {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}, is_reference_wrong=True),
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


def test_even_sizes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="even"):
        OpCase("LRN", (IMAGE,), {"size": 4}).lowered()


def test_a_missing_size_is_named() -> None:
    with pytest.raises(ModelError, match="size is missing"):
        OpCase("LRN", (IMAGE,)).uninferred(IMAGE)


def test_lrn_takes_no_post_ops() -> None:
    lowered = OpCase("LRN", (IMAGE,), {"size": 3}).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), attr) is None


def test_a_softmax_over_several_dimensions_together_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="opset 11"):
        OpCase("Softmax", ((4, 10, 3),), opset=11).lowered()


def test_an_axis_outside_of_the_rank_is_refused() -> None:
    with pytest.raises(ModelError, match="axis is 2"):
        OpCase("Softmax", ((4, 10),), {"axis": 2}).uninferred((4, 10))


def test_training_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="training_mode"):
        OpCase("BatchNormalization", (IMAGE, *VECTORS), {"training_mode": 1}).uninferred(IMAGE)
    with pytest.raises(UnsupportedError, match="running statistics"):
        OpCase("BatchNormalization", (IMAGE, *VECTORS)).uninferred(IMAGE, (17,), (17,))


def test_vectors_of_other_extents_are_refused() -> None:
    vectors = (*VECTORS[:3], Weights((16,)))
    with pytest.raises(ModelError, match="input_var"):
        OpCase("BatchNormalization", (IMAGE, *vectors)).uninferred(IMAGE)
