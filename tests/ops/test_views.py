"""Views: other extents over the same bytes, or nothing where bytes would have to move."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import LAYOUT_NAMES, TensorInfo, wished_desc
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase
from tests.ops.harness import check_case

IMAGE = (2, 16, 3, 5)
TRUE = np.array(True)
CASES = [
    OpCase("Reshape", (IMAGE, np.array([2, -1], np.int64))),
    OpCase("Reshape", (IMAGE, np.array([0, 4, 4, 15], np.int64))),
    OpCase("Flatten", (IMAGE,)),
    OpCase("Flatten", (IMAGE,), {"axis": 2}),
    OpCase("Squeeze", ((2, 16, 1, 1), np.array([2, 3], np.int64))),
    OpCase("Unsqueeze", ((2, 16), np.array([2, 3], np.int64))),
    OpCase("Transpose", (IMAGE,), {"perm": [0, 2, 3, 1]}),
    OpCase("Transpose", (IMAGE,)),
    OpCase("Identity", (IMAGE,)),
    OpCase("Dropout", (IMAGE,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


def test_flattening_blocked_images_moves_bytes() -> None:
    operator = CASES[2].lowered().operator
    assert operator.through(MemoryDesc(IMAGE, "f32", "nChw8c")) is None
    assert operator.through(MemoryDesc(IMAGE, "f32", "nhwc")) is None


def test_flattening_one_pixel_moves_nothing() -> None:
    operator = OpCase("Flatten", ((2, 16, 1, 1),)).lowered().operator
    assert operator.through(MemoryDesc((2, 16, 1, 1), "f32", "nhwc")) is not None
    assert operator.through(MemoryDesc((2, 16, 1, 1), "f32", "nChw8c")) is not None


def test_a_transpose_to_channels_last_of_channels_last_is_plain() -> None:
    dst = CASES[6].lowered().operator.through(MemoryDesc(IMAGE, "f32", "nhwc"))
    assert dst is not None
    assert dst.physically_equal(MemoryDesc((2, 3, 5, 16), "f32"))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("layout", LAYOUT_NAMES[1:])
def test_the_way_back_leads_to_a_source_that_is_seen_as_wished(case: OpCase, layout: str) -> None:
    operator = case.lowered().operator
    wished = wished_desc(layout, TensorInfo(case.expected.shape, "f32"))
    assert isinstance(wished, MemoryDesc)
    source = operator.back(wished)
    if source is None:
        assert layout != "plain"
        return
    seen = operator.through(source)
    assert source.dims == case.feeds["in_0"].shape
    assert seen is not None
    assert seen.physically_equal(wished)


def test_an_image_from_one_pixel_is_wished_for_in_blocks() -> None:
    operator = OpCase("Unsqueeze", ((2, 17), np.array([2, 3], np.int64))).lowered().operator
    source = operator.back(MemoryDesc((2, 17, 1, 1), "f32", "nChw8c"))
    assert source == MemoryDesc((2, 17), "f32", "aB8b")


def test_a_scalar_is_one_element() -> None:
    operator = OpCase("Reshape", ((1, 1), np.zeros(0, np.int64))).uninferred(()).operator
    assert operator.through(MemoryDesc((1, 1), "f32")) == MemoryDesc((1,), "f32")
    assert operator.back(MemoryDesc((1,), "f32")) == MemoryDesc((1, 1), "f32")


def test_views_have_no_primitive_and_are_no_post_op() -> None:
    for case in CASES:
        lowered = case.lowered()
        assert lowered.operator.role == "view"


def test_a_perm_that_is_none_is_refused() -> None:
    with pytest.raises(ModelError, match="perm"):
        OpCase("Transpose", (IMAGE,), {"perm": [0, 1, 1, 2]}).uninferred(IMAGE)


def test_training_and_masks_of_dropout_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="training_mode"):
        OpCase("Dropout", (IMAGE, None, TRUE)).lowered()
    with pytest.raises(UnsupportedError, match="mask"):
        OpCase("Dropout", (IMAGE,)).uninferred(IMAGE, IMAGE)
