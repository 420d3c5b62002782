"""Instance normalisation against ONNX's reference, in every layout."""

from __future__ import annotations

from typing import Any

import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import check_alternatives, check_case

IMAGE = (2, 17, 3, 5)


def instance_norm(shape: tuple[int, ...], **attrs: Any) -> OpCase:
    n_channels = Weights(shape[1:2])
    return OpCase("InstanceNormalization", (shape, n_channels, n_channels), attrs)


ROWS_IN_BLOCKS = ("abCd4c", "abCd32c")
CASES = [
    instance_norm(IMAGE),
    instance_norm(IMAGE, epsilon=1e-2),
    instance_norm((1, 17, 3, 5)),
    instance_norm((3, 8, 4, 4)),
    instance_norm((2, 16, 3, 5)),
    instance_norm((2, 1, 3, 5)),
    instance_norm((2, 17, 9)),
    instance_norm((2, 17, 2, 3, 4)),
    instance_norm((2, 3, 2, 3, 2, 4)),
    instance_norm((2, 17, 1, 1)),
    instance_norm((1, 1, 3, 5)),
    OpCase("InstanceNormalization", (IMAGE, (17,), (17,))),
    OpCase("InstanceNormalization", ((1, 17, 9), (17,), Weights((17,)))),
    OpCase("InstanceNormalization", ((3, 8, 4, 4), Weights((8,)), (8,)), opset=22),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())


def test_images_are_normalised_in_every_layout() -> None:
    assert {"plain", "channels_last", "blocked8"} <= set(check_case(CASES[0]))


def test_blocks_of_all_images_are_one_primitive() -> None:
    impl = check_case(CASES[0], layouts=("blocked8",))["blocked8"]
    assert "ref" not in impl
    assert impl.count("+") == 0


def test_channels_last_images_are_normalised_one_by_one() -> None:
    assert check_case(CASES[0])["channels_last"].count("+") == 1


def test_many_channels_last_images_are_not() -> None:
    lowered = instance_norm((17, 3, 4, 4)).lowered()
    problem = problem_of(lowered, (17, 3, 4, 4))
    assert lowered.operator.lower(problem, Wish("nhwc", "nhwc"), dnnl.Attr()) is None


def test_a_relu_goes_with_it() -> None:
    lowered = CASES[0].lowered()
    problem = problem_of(lowered, IMAGE)
    wish = Wish("blocked8", "blocked8")
    recipe = lowered.operator.lower(problem, wish, dnnl.Attr((dnnl.Eltwise("relu"),)))
    assert recipe is not None
    assert dnnl.resolve(recipe.steps[0].spec).spec.impl  # type: ignore[arg-type]
    assert lowered.operator.lower(problem, wish, dnnl.Attr((dnnl.Eltwise("exp"),))) is None


def test_another_number_of_scales_is_refused() -> None:
    with pytest.raises(ModelError, match="17 channels"):
        OpCase("InstanceNormalization", (IMAGE, Weights((16,)), Weights((16,)))).uninferred(IMAGE)


@pytest.mark.parametrize("layout", ROWS_IN_BLOCKS)
def test_padding_of_pixels_does_not_count(layout: str) -> None:
    assert set(check_case(instance_norm((2, 16, 6, 5)), layouts=("plain", layout))) == {"plain"}


@pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_our_own_code_normalises_in_every_layout(case: OpCase, dtype: str) -> None:
    ran = check_alternatives(case, dtype)
    assert {impl.partition(":")[0] for impls in ran.values() for impl in impls} == {"group_normalization"}
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(ran)
