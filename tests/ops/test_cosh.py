"""The hyperbolic cosine against ONNX's reference, in every layout."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import UnsupportedError
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

CASES = [
    OpCase("Cosh", ((2, 17, 3, 5),), low=-4, high=4),
    OpCase("Cosh", ((7,),), low=-20, high=20),
    OpCase("Cosh", ((2, 3, 2, 3, 2, 2),)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    ran = check_case(case)
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(ran)
    assert not any("ref" in impl for impl in ran.values())


def test_it_is_finite_wherever_its_result_is() -> None:
    edges = np.array([-np.inf, -89.4, -88.8, -1e-30, -0.0, 0.0, 1e-4, 88.8, 89.4, np.inf], np.float32)
    expected = np.cosh(edges.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(bl.cosh(edges).numpy(), expected, rtol=2e-5)


def test_of_nan_nothing_finite_comes() -> None:
    assert not np.isfinite(bl.cosh(np.full((2, 17, 2, 2), np.nan, np.float32)).numpy()).any()


def test_functions_of_each_element_follow_in_the_same_primitive() -> None:
    lowered = CASES[0].lowered()
    problem, wish = problem_of(lowered, (2, 17, 3, 5)), Wish("blocked8", "blocked8")
    recipe = lowered.operator.lower(problem, wish, dnnl.Attr((dnnl.Eltwise("log"),)))
    assert recipe is not None
    assert [len(step.spec.attr.post_ops) for step in recipe.steps[:3]] == [1, 0, 4]
    assert lowered.operator.lower(problem, wish, dnnl.Attr((dnnl.Prelu(2),))) is None


def test_other_floats_are_unsupported() -> None:
    refused = OpCase("Cosh", ((2, 3),), fed="float64")
    with pytest.raises(UnsupportedError, match="f64"):
        refused.lowered()
