"""Local response normalisation against onnxruntime, in every layout."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
LAYOUTS = ("plain", "channels_last", "blocked16" if dnnl.isa().startswith("avx512") else "blocked8")
CASES = [
    OpCase("LRN", (IMAGE,), {"size": 5}, is_reference_wrong=True),
    OpCase("LRN", (IMAGE,), {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}, is_reference_wrong=True),
    OpCase("LRN", ((1, 32, 3, 5),), {"size": 5}, is_reference_wrong=True),
    OpCase("LRN", ((1, 32, 3, 5),), {"size": 7, "alpha": 0.3}, is_reference_wrong=True),
    OpCase("LRN", (IMAGE,), {"size": 1, "alpha": 0.3}, is_reference_wrong=True),
    OpCase("LRN", ((2, 3, 4, 5),), {"size": 5, "alpha": 0.3, "beta": 0.5}, is_reference_wrong=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_onnxruntime(case: OpCase) -> None:
    check_case(case)


@pytest.mark.parametrize("shape", [(2, 17, 3, 5), (1, 32, 3, 5)], ids=str)
def test_the_usual_one_runs_optimised_in_every_layout(shape: tuple[int, ...]) -> None:
    ran = check_case(OpCase("LRN", (shape,), {"size": 5}, is_reference_wrong=True), layouts=LAYOUTS)
    assert set(ran) == set(LAYOUTS)
    assert not any("ref" in impl for impl in ran.values())


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_none_needs_a_reference_kernel_where_channels_have_no_blocks(case: OpCase, layout: str) -> None:
    assert "ref" not in check_case(case, layouts=(layout,))[layout]


@pytest.mark.parametrize("shape", [(2, 17, 3, 5), (2, 17), (2, 6, 3), (1, 3, 2, 2, 2)], ids=str)
def test_an_even_size_has_its_extra_neighbour_behind(shape: tuple[int, ...]) -> None:
    case = OpCase("LRN", (shape,), {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 2.0})
    squares = np.pad(case.feeds["in_0"] ** 2, [(0, 0), (1, 2), *[(0, 0)] * (len(shape) - 2)])
    sums = sum(squares[:, first : first + shape[1]] for first in range(4))
    case.__dict__["expected"] = case.feeds["in_0"] * (2.0 + 0.5 / 4 * sums) ** -0.6
    assert set(check_case(case)) >= {"plain", "channels_last"}


def test_even_sizes_are_not_computed_in_blocks() -> None:
    lowered = OpCase("LRN", (IMAGE,), {"size": 4}).lowered()
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("blocked8", "blocked8"), dnnl.Attr()) is None


def test_it_takes_no_post_ops() -> None:
    lowered = OpCase("LRN", (IMAGE,), {"size": 3}).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), attr) is None
