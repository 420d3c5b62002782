"""Resize by matrices and by copies against ONNX's reference, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 4, 6)
ALIGNED: dict[str, Any] = {"coordinate_transformation_mode": "align_corners"}
ASYMMETRIC: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric"}


def resized(*sizes: int, shape: tuple[int, ...] = IMAGE, **attrs: Any) -> OpCase:
    return OpCase("Resize", (shape, None, None, np.array(sizes, np.int64)), attrs, opset=19)


def scaled(*scales: float, shape: tuple[int, ...] = IMAGE, **attrs: Any) -> OpCase:
    return OpCase("Resize", (shape, None, np.array(scales, np.float32)), attrs, opset=19)


PRODUCTS = [
    resized(2, 17, 8, 12, mode="linear", **ALIGNED),
    resized(2, 17, 3, 9, mode="linear", **ASYMMETRIC),
    resized(2, 17, 8, 12, mode="cubic"),
    resized(2, 17, 3, 4, mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
    resized(2, 17, 2, 3, mode="linear", antialias=1),
    resized(2, 17, 3, 4, mode="cubic", antialias=1),
    resized(2, 17, 3, 4, mode="cubic", antialias=1, exclude_outside=1),
    resized(2, 17, 1, 1, mode="linear", **ALIGNED),
    resized(2, 17, 4, 9, mode="cubic"),
    resized(2, 17, 9, shape=(2, 17, 4), mode="linear", **ALIGNED),
    resized(1, 3, 3, 5, 4, shape=(1, 3, 2, 3, 5), mode="linear", **ALIGNED),
    resized(3, 8, 5, 6, mode="linear"),
    resized(3, 8, 5, 7, mode="linear"),
    resized(2, 17, 4, 3, shape=(2, 17, 1, 1), mode="linear", **ALIGNED),
    scaled(1, 1, 0.6, 1.7, mode="linear"),
    scaled(1, 1, 1.0, 1.1, shape=(2, 17, 4, 5), mode="linear"),
    scaled(1, 1, 1.5, 2.5, mode="cubic", **ALIGNED),
    scaled(1, 1, 0.8, 0.8, mode="cubic", **ALIGNED),
    scaled(1, 1, 0.6, 0.6, shape=(1, 1, 2, 4), mode="linear", **ALIGNED),
    scaled(1, 1, 1.3, 0.8, **ALIGNED),
    scaled(1, 1, 1.5, 1.7),
    scaled(1, 1, 0.5, 2),
    resized(2, 17, 5, 5, nearest_mode="round_prefer_ceil", **ASYMMETRIC),
    resized(2, 17, 4, 2, shape=(2, 17, 4, 5), nearest_mode="ceil"),
]

COPIES = [
    scaled(1, 1, 0.5, 0.5),
    scaled(1, 1, 0.5, 0.5, nearest_mode="floor", **ASYMMETRIC),
    scaled(1, 1, 0.25, 1 / 3, nearest_mode="ceil"),
    resized(1, 17, 4, 3),
    resized(2, 17, 1, 3, shape=(2, 17, 4, 7), nearest_mode="floor", **ASYMMETRIC),
    scaled(1, 1, 0.5, shape=(2, 17, 8)),
]


@pytest.mark.parametrize("case", PRODUCTS, ids=str)
def test_products_agree_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())


@pytest.mark.parametrize("case", COPIES, ids=str)
def test_copies_agree_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())


@pytest.mark.parametrize("case", [PRODUCTS[0], PRODUCTS[2], COPIES[0]], ids=str)
def test_images_stay_in_every_layout(case: OpCase) -> None:
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(check_case(case))


def test_what_resampling_does_it_does() -> None:
    operator = resized(2, 17, 8, 12, mode="linear").lowered().operator
    assert type(operator).__name__ == "Resize"


def test_channels_in_blocks_are_not_resized() -> None:
    case = resized(3, 8, 5, 7, mode="linear")
    lowered = case.lowered()
    problem = problem_of(lowered, case.expected.shape)
    assert lowered.operator.lower(problem, Wish("blocked8", "blocked8"), dnnl.Attr()) is None


@pytest.mark.parametrize("case", [PRODUCTS[0], COPIES[0]], ids=str)
def test_it_takes_no_post_ops(case: OpCase) -> None:
    lowered = case.lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, case.expected.shape), Wish("plain", "plain"), attr) is None
