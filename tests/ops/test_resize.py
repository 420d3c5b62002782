"""Resize and Upsample against ONNX's reference, in every layout; what the library does differently is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def by_scales(*scales: float, shape: tuple[int, ...] = IMAGE, **attrs: Any) -> OpCase:
    return OpCase("Resize", (shape, None, floats(*scales)), attrs, opset=19)


def by_sizes(*sizes: int, shape: tuple[int, ...] = IMAGE, **attrs: Any) -> OpCase:
    return OpCase("Resize", (shape, None, None, np.array(sizes, np.int64)), attrs, opset=19)


TENSORFLOW = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
FLOOR: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}

CASES = [
    by_scales(1, 1, 2, 2),
    by_scales(1, 1, 2, 2, mode="linear"),
    by_scales(1, 1, 2, 3, **FLOOR),
    by_scales(
        1, 1, 1.5, 2.5, shape=(2, 17, 4, 6), mode="linear", coordinate_transformation_mode="half_pixel_symmetric"
    ),
    by_scales(1, 1, 2, 2, mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
    by_scales(1, 1, 0.5, 0.5, shape=(2, 17, 4, 6), mode="linear"),
    by_scales(1, 1, 0.5, 0.5, shape=(2, 17, 4, 6), nearest_mode="round_prefer_ceil"),
    by_sizes(2, 17, 7, 4, mode="linear"),
    by_sizes(2, 17, 6, 5),
    by_sizes(6, 10, mode="linear", axes=[2, 3]),
    by_sizes(6, 12, mode="linear", axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
    by_sizes(6, 12, axes=[2, 3], keep_aspect_ratio_policy="not_smaller"),
    by_sizes(2, 17, 9, shape=(2, 17, 3)),
    by_sizes(1, 17, 4, 6, 10, shape=(1, 17, 2, 3, 5), mode="linear"),
    by_sizes(2, 17, 1, 1, mode="linear"),
    by_sizes(2, 17, 4, 1, shape=(2, 17, 1, 1), mode="linear"),
    by_sizes(2, 6, 10, 17, shape=(2, 3, 5, 17), mode="linear"),
    by_sizes(2, 6, 7, 10, shape=(2, 3, 7, 5), mode="linear"),
    by_sizes(4, 34, 3, 5),
    by_sizes(8, 6, shape=(4, 3)),
    by_sizes(8, shape=(4,), mode="linear"),
    OpCase("Resize", (IMAGE, floats(), floats(1, 1, 2, 2)), TENSORFLOW, opset=12, is_reference_wrong=True),
    OpCase("Resize", (IMAGE, floats(), floats(1, 1, 2, 2)), FLOOR, opset=11),
    OpCase("Resize", (IMAGE, floats(1, 1, 2, 3)), opset=10, is_reference_wrong=True),
    OpCase("Upsample", (IMAGE, floats(1, 1, 2, 3)), opset=9),
    OpCase("Upsample", (IMAGE,), {"scales": [1.0, 1.0, 2.0, 2.0]}, opset=7, is_reference_wrong=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())


@pytest.mark.parametrize("case", CASES[:9], ids=str)
def test_spatial_dimensions_resize_in_every_layout(case: OpCase) -> None:
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(check_case(case))


@pytest.mark.parametrize("extent", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("transformation", ["half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"])
def test_any_extents_agree_with_the_reference(extent: int, transformation: str) -> None:
    modes = [{"mode": "nearest", "nearest_mode": mode} for mode in NEAREST_MODES] + [{"mode": "linear"}]
    for to, mode in product(range(1, 11), modes):
        case = by_sizes(1, 1, to, shape=(1, 1, extent), coordinate_transformation_mode=transformation, **mode)
        check_case(case, layouts=("plain",))


@pytest.mark.parametrize("scale", [1.3, 1.9, 0.6, 2.25])
@pytest.mark.parametrize("transformation", ["half_pixel", "asymmetric"])
def test_scales_that_give_no_whole_extents_agree_with_the_reference(scale: float, transformation: str) -> None:
    for extent, mode in product((5, 7, 9), ("nearest", "linear")):
        attrs = {"coordinate_transformation_mode": transformation, "mode": mode}
        check_case(by_scales(1, 1, scale, shape=(1, 3, extent), **attrs))


@pytest.mark.parametrize("factor", [2, 3, 4, 7])
def test_whole_factors_are_resampled(factor: int) -> None:
    for rounding in ("floor", "round_prefer_floor"):
        transformation = "asymmetric" if rounding == "floor" else "half_pixel"
        attrs = {"nearest_mode": rounding, "coordinate_transformation_mode": transformation}
        assert _is_resampled(by_scales(1, 1, factor, factor, shape=(1, 8, 19, 26), **attrs))
    assert _is_resampled(by_scales(1, 1, factor, factor, shape=(1, 8, 19, 26), mode="linear"))


def _is_resampled(case: OpCase) -> bool:
    return type(case.lowered().operator).__name__ == "Resize"


def test_downsampling_that_is_not_specified_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="opset 10"):
        OpCase("Resize", (IMAGE, floats(1, 1, 1, 0.6)), opset=10).lowered()


def test_cropping_is_unsupported() -> None:
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    roi = floats(0, 0, 0, 0, 1, 1, 1, 1)
    with pytest.raises(UnsupportedError, match="Slice"):
        OpCase("Resize", (IMAGE, roi, floats(1, 1, 2, 2)), attrs, opset=13).lowered()


def test_scales_computed_at_run_time_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="scales"):
        OpCase("Resize", (IMAGE, None, (4,)), opset=13).uninferred((2, 17, 6, 10))


def test_neither_scales_nor_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match="scales or sizes"):
        OpCase("Resize", (IMAGE,), opset=13).uninferred(IMAGE)


def test_extents_that_the_scales_do_not_give_are_refused() -> None:
    with pytest.raises(ModelError, match="scaled"):
        by_scales(1, 1, 2, 2).uninferred((2, 17, 9, 10))


def test_an_empty_roi_is_none_at_all() -> None:
    case = OpCase("Resize", (IMAGE, floats(), floats(1, 1, 2, 2)), opset=13)
    assert [step.spec.kind for step in bl.load(case.model).plan.steps] == ["resampling"]


def test_nothing_to_resize_is_a_view() -> None:
    assert by_sizes(*IMAGE).lowered().operator.role == "view"


@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8"])
def test_post_ops_go_with_it(layout: str) -> None:
    lowered = CASES[0].lowered()
    problem = problem_of(lowered, CASES[0].expected.shape)
    recipe = lowered.operator.lower(problem, Wish(layout, layout), dnnl.Attr((dnnl.Eltwise("relu"),)))
    assert recipe is not None
    assert "ref" not in dnnl.resolve(recipe.steps[0].spec).spec.impl  # type: ignore[arg-type]


def test_some_elements_of_long_lines_take_memory_for_these_alone() -> None:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 2, 110788))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    sizes = [numpy_helper.from_array(np.array([1, 1, 1, 7]), "sizes")]
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", **FLOOR)
    x = np.arange(2 * 110788, dtype=np.float32).reshape(1, 1, 2, -1)
    [y] = bl.load(helper.make_model(helper.make_graph([node], "net", inputs, outputs, sizes))).run(None, {"x": x})
    np.testing.assert_array_equal(y.ravel(), np.arange(7) * 110788 // 7)
