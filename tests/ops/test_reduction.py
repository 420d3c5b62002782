"""Reductions against ONNX's reference, along every dimension and in every layout."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
OPS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)

_RANGES = {"ReduceLogSum": (2.0, 3.0), "ReduceProd": (0.5, 1.0)}
"""Of the random values: no logarithms near zero, which the library computes to an absolute error."""


def along(*axes: int) -> np.ndarray:
    return np.array(axes, np.int64)


def reduce_case(op_type: str, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: int = 1) -> OpCase:
    low, high = _RANGES.get(op_type, (-1.0, 1.0))
    return OpCase(op_type, (shape, along(*axes)), {"keepdims": keepdims}, opset=18, low=low, high=high)


CASES = [
    *(reduce_case(op_type, IMAGE, axes) for op_type in OPS for axes in ((2, 3), (1,), (-1,), (0,), (0, 1, 2, 3))),
    *(reduce_case(op_type, IMAGE, axes, 0) for op_type in OPS for axes in ((2, 3), (1,), (0, 2))),
    *(reduce_case("ReduceMean", IMAGE, axes) for n in (1, 2, 3) for axes in combinations(range(4), n)),
    reduce_case("ReduceSum", IMAGE, (0, 1, 2, 3), 0),
    reduce_case("ReduceSum", (7,), (0,), 0),
    reduce_case("ReduceMax", (4, 10), (1,), 0),
    reduce_case("ReduceMin", (2, 17, 9), (2,)),
    reduce_case("ReduceMean", (2, 17, 2, 3, 4), (2, 3, 4), 0),
    reduce_case("ReduceL2", (2, 3, 2, 3, 2, 2), (1, -2)),
    reduce_case("ReduceL1", (2, 17, 1, 1), (2, 3), 0),
    reduce_case("ReduceLogSum", (2, 17, 1, 1), (2, 3)),
    reduce_case("ReduceSum", (2, 1, 3, 5), (1, 2)),
    OpCase("ReduceMean", (IMAGE,), {"axes": [2, -1]}, opset=13),
    OpCase("ReduceMean", (IMAGE,), {"keepdims": 0}, opset=11),
    OpCase("ReduceSum", (IMAGE, along(1)), opset=13),
    OpCase("ReduceMax", (IMAGE,), opset=18),
    OpCase("ReduceMax", (IMAGE, along()), opset=18),
    OpCase("ReduceL1", (IMAGE,), {"noop_with_empty_axes": 1}, opset=18),
    OpCase("ReduceLogSum", (IMAGE, along()), {"noop_with_empty_axes": 1}, opset=18, low=0.5),
    OpCase("ReduceSum", (IMAGE, along()), {"noop_with_empty_axes": 1}, opset=18),
    reduce_case("ReduceMean", (2, 17, 1, 1), (2, 3), 0),
    reduce_case("ReduceProd", (1, 1), (0, 1), 0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())


@st.composite
def reductions(draw: st.DrawFn) -> OpCase:
    ndims = draw(st.integers(1, 5))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 8, 17])) for _ in range(ndims))
    axes = draw(st.lists(st.integers(-ndims, ndims - 1), max_size=ndims, unique_by=lambda axis: axis % ndims))
    return reduce_case(draw(st.sampled_from(OPS)), shape, tuple(axes), draw(st.integers(0, 1)))


@settings(max_examples=60)
@given(reductions())
def test_any_reduction_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@pytest.mark.parametrize("op_type", OPS)
def test_spatial_reductions_stay_in_blocks(op_type: str) -> None:
    ran = check_case(reduce_case(op_type, IMAGE, (2, 3)), layouts=("blocked8", "blocked16"))
    assert len(ran) == 2


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceL2"])
def test_sums_of_padded_channels_stay_in_blocks(op_type: str) -> None:
    ran = check_case(reduce_case(op_type, IMAGE, (1,)), layouts=("blocked8",))
    assert "blocked8" in ran


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin", "ReduceProd"])
def test_padding_takes_no_part_in_extremes_and_products(op_type: str) -> None:
    lowered = reduce_case(op_type, IMAGE, (1,)).lowered()
    problem = problem_of(lowered, (2, 1, 3, 5))
    assert lowered.operator.lower(problem, Wish("blocked8", "blocked8"), dnnl.Attr()) is None
    assert "blocked8" in check_case(reduce_case(op_type, (2, 16, 3, 5), (1,)))


def test_the_mean_of_channels_last_pixels_is_one_pooling() -> None:
    assert check_case(reduce_case("ReduceMean", IMAGE, (2, 3)))["channels_last"].count("+") == 0


@pytest.mark.parametrize(("extent", "kind"), [(3, "matmul"), (1024, "matmul"), (1025, "reduction")])
def test_short_rows_are_summed_as_a_product(extent: int, kind: str) -> None:
    case = reduce_case("ReduceMean", (7, extent), (1,))
    assert "plain" in check_case(case)
    recipe = case.lowered().operator.lower(problem_of(case.lowered(), (7, 1)), Wish("plain", "plain"), dnnl.Attr())
    assert recipe is not None
    assert [step.spec.kind for step in recipe.steps] == [kind]


def test_the_result_keeps_the_layout_of_what_is_left() -> None:
    lowered = reduce_case("ReduceMean", IMAGE, (0,), 0).lowered()
    nhwc = MemoryDesc(IMAGE, "f32", "nhwc")
    recipe = lowered.operator.lower(problem_of(lowered, IMAGE[1:]), Wish(nhwc, nhwc), dnnl.Attr())
    assert recipe is not None
    assert dict(recipe.whole)["dst"] == MemoryDesc(IMAGE[1:], "f32", "bca")


def test_nothing_to_reduce_is_a_view() -> None:
    assert reduce_case("ReduceMax", (2, 17, 1, 1), (2, 3)).lowered().operator.role == "view"


def test_axes_computed_at_run_time_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="axes"):
        OpCase("ReduceMax", (IMAGE, (1,)), opset=18).uninferred((2, 17, 1, 5))


def test_sources_without_elements_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="at least one element"):
        reduce_case("ReduceSum", (2, 0), (1,)).lowered()


def test_axes_outside_of_the_rank_are_refused() -> None:
    with pytest.raises(ModelError, match="rank 4"):
        reduce_case("ReduceMax", IMAGE, (4,)).uninferred(IMAGE)


def test_it_takes_no_post_ops() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    problem = problem_of(lowered, CASES[0].expected.shape)
    assert lowered.operator.lower(problem, Wish("plain", "plain"), attr) is None


@pytest.mark.parametrize(("op_type", "infinity"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf)])
def test_an_extreme_of_infinities_is_infinite_and_that_of_any_numbers_is_one_of_them(
    op_type: str, infinity: float
) -> None:
    b = bl.Builder()
    b.output("y", b.op(op_type, b.input("x", (4, 9)), [1], keepdims=0))
    x = np.full((4, 9), infinity, np.float32)
    largest = np.finfo(np.float32).max
    x[1:, 3] = largest, -largest, 1 / 3
    session = bl.load(b)
    assert not session.plan.plain_steps
    np.testing.assert_array_equal(session(x), [infinity, largest, -largest, np.float32(1 / 3)])
