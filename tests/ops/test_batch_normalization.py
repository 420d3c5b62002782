"""Batch normalisation with known statistics against ONNX's reference, in every layout."""

from __future__ import annotations

import pytest

from blocklayout.errors import ModelError, UnsupportedError
from tests.ops.cases import OpCase, Weights
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
VECTORS = (Weights((17,)), Weights((17,)), Weights((17,)), Weights((17,), 0.5))
CASES = [
    OpCase("BatchNormalization", (IMAGE, *VECTORS)),
    OpCase("BatchNormalization", (IMAGE, *VECTORS), {"epsilon": 0.1}, opset=9, is_reference_wrong=True),
    OpCase("BatchNormalization", ((4, 17), *VECTORS)),
    OpCase("BatchNormalization", ((2, 17, 5), *VECTORS)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


def test_training_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="training_mode"):
        OpCase("BatchNormalization", (IMAGE, *VECTORS), {"training_mode": 1}).uninferred(IMAGE)
    with pytest.raises(UnsupportedError, match="running statistics"):
        OpCase("BatchNormalization", (IMAGE, *VECTORS)).uninferred(IMAGE, (17,), (17,))


def test_vectors_of_other_extents_are_refused() -> None:
    vectors = (*VECTORS[:3], Weights((16,)))
    with pytest.raises(ModelError, match="input_var"):
        OpCase("BatchNormalization", (IMAGE, *vectors)).uninferred(IMAGE)
