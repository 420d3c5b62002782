"""Functions made of comparisons against ONNX's reference, exactly, in every layout."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import UnsupportedError
from blocklayout.ir import LAYOUT_NAMES, Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case, resolved, run_recipe

IMAGE = ((2, 17, 3, 5),)
CASES = [
    *(OpCase(op_type, IMAGE, low=-4, high=4) for op_type in ("Ceil", "Floor", "Sign", "ThresholdedRelu")),
    OpCase("ThresholdedRelu", IMAGE, {"alpha": 0.0}, low=-4, high=4),
    OpCase("ThresholdedRelu", IMAGE, {"alpha": -2.5}, low=-4, high=4),
    OpCase("Floor", ((7,),), low=-4, high=4),
    OpCase("Sign", ((2, 3, 2, 3, 2, 2),)),
]
EDGES = np.array([-np.inf, -1e30, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-30, 0.5, 1.0, 1.5, 8388609.0, np.inf], np.float32)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    ran = check_case(case)
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(ran)
    assert not any("ref" in impl for impl in ran.values())


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [
        ("Ceil", {}),
        ("Floor", {}),
        ("Sign", {}),
        ("ThresholdedRelu", {}),
        ("ThresholdedRelu", {"alpha": 0.0}),
        ("ThresholdedRelu", {"alpha": -1.0}),
    ],
)
def test_agrees_exactly_where_it_jumps(op_type: str, attrs: dict[str, float]) -> None:
    case = OpCase(op_type, ((1, 13, 1, 1),), attrs)
    case.feeds["in_0"][...] = EDGES.reshape(1, 13, 1, 1)
    lowered = case.lowered()
    for layout in LAYOUT_NAMES[1:]:
        recipe = lowered.operator.lower(problem_of(lowered, (1, 13, 1, 1)), Wish(layout, layout), dnnl.Attr())
        assert recipe is not None
        actual = run_recipe(case, lowered, [resolved(step) for step in recipe.steps], recipe)
        np.testing.assert_array_equal(actual, case.expected, layout)


def test_it_takes_no_post_ops() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE[0]), Wish("plain", "plain"), attr) is None


def test_integers_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="s64"):
        OpCase("Sign", (np.ones(3, np.int64),)).uninferred((3,))
