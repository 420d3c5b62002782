"""Local response normalisation against onnxruntime, in every layout."""

from __future__ import annotations

import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.kernels import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
CASES = [
    OpCase("LRN", (IMAGE,), {"size": 5}, is_reference_wrong=True),
    OpCase("LRN", (IMAGE,), {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}, is_reference_wrong=True),
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


def test_it_takes_no_post_ops() -> None:
    lowered = OpCase("LRN", (IMAGE,), {"size": 3}).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), attr) is None
