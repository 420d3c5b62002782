"""Functions of two tensors against ONNX's reference, in every layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from blocklayout import dnnl
from blocklayout.errors import UnsupportedError
from blocklayout.ir import PostOpUse, Wish
from tests.ops.broadcasts import IMAGE, broadcasts
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import assert_close, check_case, resolved, run_recipe

CASES = [
    *(OpCase(op_type, (IMAGE, IMAGE), low=0.5) for op_type in ("Add", "Sub", "Mul", "Div")),
    *(OpCase(op_type, (IMAGE, Weights((17, 1, 1), 0.5))) for op_type in ("Add", "Sub", "Mul", "Div")),
    *(OpCase(op_type, (Weights((17, 1, 1), 0.5), IMAGE), low=0.5) for op_type in ("Add", "Sub", "Mul", "Div")),
    OpCase("Add", (IMAGE, Weights(()))),
    *(OpCase(op_type, (IMAGE, Weights((1, 1), 0.5))) for op_type in ("Sub", "Mul", "Div")),
    OpCase("Mul", (Weights((1,)), IMAGE)),
    OpCase("Sub", (Weights((1,)), IMAGE)),
    OpCase("Div", (Weights((1,)), IMAGE), low=0.5),
    OpCase("Mul", (IMAGE, (2, 17, 1, 1))),
    OpCase("Mul", ((2, 17, 1, 1), IMAGE)),
    OpCase("Add", (IMAGE, (1, 1, 3, 5))),
    OpCase("Add", ((2, 17, 1, 1), (1, 1, 3, 5))),
    OpCase("Add", ((4, 10), Weights((10,)))),
    OpCase("Add", ((1, 1, 3, 5), Weights((1, 17, 1, 1)))),
    OpCase("Sub", ((2, 1, 3, 1), Weights((1, 17, 1, 5)))),
    OpCase("Div", ((2, 17, 1, 5), Weights((17, 3, 1), 0.5)), low=0.5),
    OpCase("Mul", (IMAGE, (2, 1, 3, 1))),
    OpCase("Div", (IMAGE, (1, 17, 3, 1)), low=0.5),
    OpCase("Mul", ((2, 3, 2, 3, 2, 2), (1, 3, 1, 3, 1, 2))),
    OpCase("Sub", ((2, 1, 3, 5), (2, 1, 3, 5))),
    OpCase("Max", ((2, 1, 1, 1), (2, 1, 1, 1))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


@settings(max_examples=20)
@given(broadcasts(["Add", "Sub", "Mul", "Div"]))
def test_any_broadcast_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


def test_a_broadcast_minuend_is_subtracted_the_other_way_round() -> None:
    lowered = OpCase("Sub", (Weights((17, 1, 1)), IMAGE)).lowered()
    recipe = lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), dnnl.Attr())
    assert recipe is not None
    [step] = recipe.steps
    assert dict(step.operands) == {"dst": "dst", "src_0": "src_1", "src_1": "src_0"}
    assert step.spec.attr.post_ops == (dnnl.Eltwise("linear", -1.0),)


@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8"])
def test_what_follows_is_a_post_op_that_may_move_zero(layout: str) -> None:
    case = OpCase("Add", (IMAGE, IMAGE))
    lowered = case.lowered()
    attr = dnnl.Attr((dnnl.Eltwise("exp"),))
    recipe = lowered.operator.lower(problem_of(lowered, IMAGE), Wish(layout, layout), attr)
    assert recipe is not None
    case.__dict__["expected"] = np.exp(case.expected)
    actual = run_recipe(case, lowered, [resolved(step) for step in recipe.steps], recipe)
    assert_close(actual, case.expected, 1e-5, layout)


def post_op(case: OpCase, arg: str) -> PostOpUse | None:
    lowered = case.lowered()
    return lowered.operator.as_post_op(arg, problem_of(lowered, case.expected.shape))


def test_an_addition_of_equal_extents_is_a_sum_through_either_source() -> None:
    case = OpCase("Add", (IMAGE, IMAGE))
    assert post_op(case, "src_0") == PostOpUse(dnnl.Binary("binary_add"), "src_1", is_sum=True)
    assert post_op(case, "src_1") == PostOpUse(dnnl.Binary("binary_add"), "src_0", is_sum=True)


def test_a_subtraction_flows_through_its_first_source_only() -> None:
    case = OpCase("Sub", (IMAGE, IMAGE))
    assert post_op(case, "src_0") == PostOpUse(dnnl.Binary("binary_sub"), "src_1")
    assert post_op(case, "src_1") is None


@pytest.mark.parametrize("operand", [(1, 17, 1, 1), (1, 1, 1, 5), (1, 1, 1, 1), IMAGE])
def test_operands_of_the_destination_channels_columns_or_one_element_are_post_ops(operand: tuple[int, ...]) -> None:
    assert post_op(OpCase("Mul", (IMAGE, operand)), "src_0") == PostOpUse(dnnl.Binary("binary_mul"), "src_1")


@pytest.mark.parametrize("operand", [(2, 17, 1, 1), (1, 1, 3, 5), (1, 1, 3, 1), (2, 1, 1, 1)])
def test_other_broadcasts_are_no_post_ops(operand: tuple[int, ...]) -> None:
    assert post_op(OpCase("Mul", (IMAGE, operand)), "src_0") is None


def test_a_source_that_is_broadcast_itself_is_no_post_op() -> None:
    assert post_op(OpCase("Mul", ((1, 17, 1, 1), IMAGE)), "src_0") is None


def test_a_constant_operand_is_a_post_op() -> None:
    use = post_op(OpCase("Add", (Weights((17, 1, 1)), IMAGE)), "src_1")
    assert use == PostOpUse(dnnl.Binary("binary_add"), "src_0")


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
def test_a_number_before_a_tensor_is_an_eltwise(op_type: str) -> None:
    use = post_op(OpCase(op_type, (Weights((1,)), IMAGE)), "src")
    assert use is not None
    assert isinstance(use.post_op, dnnl.Eltwise)


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul"])
def test_a_number_behind_a_tensor_is_an_eltwise(op_type: str) -> None:
    use = post_op(OpCase(op_type, (IMAGE, Weights((1, 1)))), "src")
    assert use is not None
    assert isinstance(use.post_op, dnnl.Eltwise)


def test_a_division_by_a_number_stays_one() -> None:
    use = post_op(OpCase("Div", (IMAGE, Weights(()))), "src_0")
    assert use == PostOpUse(dnnl.Binary("binary_div"), "src_1")


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_what_is_no_number_stays_a_tensor(number: float) -> None:
    assert OpCase("Mul", (IMAGE, np.full(1, number, np.float32))).lowered().constants["src_1"].shape == (1, 1, 1, 1)


def test_constants_get_the_rank_of_the_result() -> None:
    lowered = OpCase("Add", (IMAGE, Weights((17, 1, 1)))).lowered()
    assert lowered.constants["src_1"].shape == (1, 17, 1, 1)


def test_a_run_time_value_of_another_rank_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="rank"):
        OpCase("Add", (IMAGE, (17, 1, 1))).lowered()
