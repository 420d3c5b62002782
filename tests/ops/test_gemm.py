"""Gemm against ONNX's reference, in every layout."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError
from blocklayout.kernels import Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import Input, OpCase, Weights, problem_of
from tests.ops.harness import check_case, resolved

CASES = [
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((7,)))),
    OpCase("Gemm", ((4, 10), Weights((7, 10)), Weights((1, 7))), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights(()))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((4, 7))), {"alpha": 0.5, "beta": 2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((4, 1)))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((7,))), {"beta": 0.0}),
    OpCase("Gemm", ((1, 10), Weights((10, 7)))),
    OpCase("Gemm", (Weights((10, 4)), (10, 7)), {"transA": 1, "alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7), (4, 7))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (1, 7)), {"alpha": 0.5}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (7,))),
    OpCase("Gemm", ((4, 10), (7, 10)), {"transB": 1}),
    OpCase("Gemm", ((4, 10), (7, 10), (7,)), {"transB": 1}),
    OpCase("Gemm", ((4, 10), (7, 10), Weights((7,))), {"transB": 1, "beta": 2.0}),
    OpCase("Gemm", (Weights((10, 4)), (7, 10), (4, 7)), {"transA": 1, "transB": 1, "alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7)), {"alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7), Weights((7,))), {"alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7), (4, 7)), {"alpha": 0.5, "beta": 2.0}),
    OpCase("Gemm", ((4, 10), (10, 7), (1, 7)), {"beta": 2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (4, 1)), {"beta": -2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (1, 1))),
    OpCase("Gemm", ((10, 4), Weights((10, 7))), {"transA": 1}),
    OpCase("Gemm", ((10, 4), Weights((7, 10)), Weights((7,))), {"transA": 1, "transB": 1, "alpha": 0.5}),
    OpCase("Gemm", ((10, 4), (7, 10), (7,)), {"transA": 1, "transB": 1, "beta": 2.0}),
    OpCase("Gemm", ((10, 4), (10, 7), (7,)), {"transA": 1}),
    OpCase("Gemm", ((4, 10), (7, 10)), {"transB": 1, "alpha": 2.0}),
    OpCase("Gemm", ((4, 10), (7, 10), (4, 7)), {"transB": 1, "alpha": 2.0, "beta": -1.0}),
    OpCase("Gemm", ((4, 10), (10, 7), (7,)), {"beta": 2.0}),
    OpCase("Gemm", ((4, 10), (10, 7), (7,))),
    OpCase("Gemm", ((4, 10), (10, 7), (1,))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), ()), {"beta": 0.5}),
    OpCase("Gemm", ((1, 10), Weights((10, 7)), (1, 7))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


@pytest.mark.needs_bf16
@pytest.mark.parametrize("case", CASES[:8], ids=str)
def test_agrees_with_the_reference_in_bf16(case: OpCase) -> None:
    check_case(case, "bf16")


def test_weights_of_a_gemm_are_a_view_with_the_output_in_front() -> None:
    case = OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((1,))))
    constants = case.lowered().constants
    assert constants["weights"].shape == (7, 10)
    assert np.shares_memory(constants["weights"], case.arrays[1])
    assert constants["bias"].shape == (7,)


def test_matrices_computed_at_run_time_are_turned_where_they_lie() -> None:
    lowered = OpCase("Gemm", ((10, 4), (7, 10)), {"transA": 1, "transB": 1}).lowered()
    recipe = lowered.operator.lower(problem_of(lowered, (4, 7)), Wish("plain", "plain"), dnnl.Attr())
    assert recipe is not None
    [step] = recipe.steps
    assert step.spec.memory_desc("src") == MemoryDesc((4, 10), "f32", "ba")
    assert dict(recipe.whole)["src"] == MemoryDesc((10, 4), "f32", "ab")


@pytest.mark.parametrize("c", [(4, 7), (4, 1), Weights((4, 7))], ids=str)
@pytest.mark.parametrize("b", [(10, 7), Weights((10, 7))], ids=str)
def test_a_matrix_is_added_by_no_reference_kernel(b: Input, c: Input) -> None:
    lowered = OpCase("Gemm", ((4, 10), b, c)).lowered()
    recipe = lowered.operator.lower(problem_of(lowered, (4, 7)), Wish("plain", "plain"), dnnl.Attr())
    assert recipe is not None
    assert not [step for step in recipe.steps if resolved(step).spec.impl.startswith("ref")]


def test_nothing_fuses_behind_an_added_matrix() -> None:
    lowered = OpCase("Gemm", ((4, 10), (10, 7), (4, 7))).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, (4, 7)), Wish("plain", "plain"), attr) is None


def test_matrices_that_do_not_multiply_are_refused() -> None:
    with pytest.raises(ModelError, match="multiply"):
        OpCase("Gemm", ((4, 10), Weights((9, 7)))).uninferred((4, 7))


def test_a_bias_that_does_not_broadcast_is_refused() -> None:
    with pytest.raises(ModelError, match="broadcast"):
        OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((6,)))).uninferred((4, 7))
