"""Pooling of norms against onnxruntime, in every layout."""

from __future__ import annotations

import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 7, 6)


def norms(shape: tuple[int, ...], **attrs: object) -> OpCase:
    return OpCase("LpPool", (shape,), attrs, opset=18, is_reference_wrong=True)


CASES = [
    norms(IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    norms(IMAGE, kernel_shape=[2, 3], p=1),
    norms(IMAGE, kernel_shape=[2, 2], p=3, strides=[2, 2]),
    norms(IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    norms(IMAGE, kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
    norms((1, 8, 9), kernel_shape=[3]),
    norms((1, 3, 4, 5, 6), kernel_shape=[2, 2, 2]),
    OpCase("GlobalLpPool", (IMAGE,), is_reference_wrong=True),
    OpCase("GlobalLpPool", (IMAGE,), {"p": 3}, is_reference_wrong=True),
]
DILATED = norms(IMAGE, kernel_shape=[2, 2], dilations=[2, 2])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_onnxruntime_in_every_layout(case: OpCase) -> None:
    ran = check_case(case)
    block = "blocked16" if dnnl.isa().startswith("avx512") else "blocked8"
    assert not any("ref" in ran[layout] for layout in ("plain", "channels_last", block))


def test_windows_with_gaps_agree_with_onnxruntime() -> None:
    check_case(DILATED)


def test_what_follows_is_a_post_op_of_the_pooling() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    recipe = lowered.operator.lower(problem_of(lowered, CASES[0].expected.shape), Wish("plain", "plain"), attr)
    assert recipe is not None
    assert recipe.steps[-1].spec.attr.post_ops[-1] == dnnl.Eltwise("relu")


def test_exponents_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ModelError, match="p is 0"):
        OpCase("GlobalLpPool", (IMAGE,), {"p": 0}).uninferred((2, 17, 1, 1))
