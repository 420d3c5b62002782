"""Element-wise functions against ONNX's reference, in every layout."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import UnsupportedError
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case, in_narrow_floats

IMAGE = ((2, 17, 3, 5),)
CASES = [
    *(OpCase(op_type, IMAGE, low=-4, high=4) for op_type in ("Abs", "Elu", "Exp", "HardSigmoid", "HardSwish")),
    *(OpCase(op_type, IMAGE, low=-4, high=4) for op_type in ("LeakyRelu", "Neg", "Relu", "Round", "Sigmoid")),
    *(OpCase(op_type, IMAGE, low=-4, high=4) for op_type in ("Softplus", "Tanh")),
    *(OpCase(op_type, IMAGE, low=0.1, high=4) for op_type in ("Log", "Reciprocal", "Sqrt")),
    OpCase("Mish", IMAGE, opset=18, low=-4, high=4),
    OpCase("Gelu", IMAGE, opset=20, low=-4, high=4),
    OpCase("Gelu", IMAGE, {"approximate": "tanh"}, opset=20, low=-4, high=4),
    OpCase("LeakyRelu", IMAGE, {"alpha": 0.3}),
    OpCase("Elu", IMAGE, {"alpha": 2.0}),
    OpCase("HardSigmoid", IMAGE, {"alpha": 0.5, "beta": 0.25}, low=-4, high=4),
    OpCase("Pow", (*IMAGE, np.array(2, np.float32))),
    OpCase("Pow", (*IMAGE, np.array([0.5], np.float32)), low=0.1),
    OpCase("Pow", (*IMAGE, np.array(3, np.int64))),
    OpCase("Round", ((1, 6),), low=-2.5, high=2.5),
    OpCase("Relu", ((7,),)),
    OpCase("Relu", ((2, 3, 4, 5, 2, 2),)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


@in_narrow_floats
@pytest.mark.parametrize("case", [case for case in CASES[:12] if case.op_type != "Round"], ids=str)
def test_agrees_with_the_reference_in_narrow_floats(case: OpCase, dtype: str) -> None:
    check_case(case, dtype)


@pytest.mark.needs_bf16
def test_round_is_computed_in_f32_where_the_network_is_in_bf16() -> None:
    builder = bl.Builder()
    builder.output("y", builder.op("Round", builder.input("x", IMAGE[0])) + np.float32(0.5))
    x = np.random.default_rng(0).uniform(-4, 4, IMAGE[0]).astype(np.float32)
    session = bl.load(builder, dtype="bf16")
    assert session.plan.reference_steps == ()
    np.testing.assert_array_equal(session(x), np.round(x) + 0.5)


def test_round_takes_halves_to_the_even_neighbour() -> None:
    case = OpCase("Round", ((1, 6),))
    case.feeds["in_0"][:] = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]
    check_case(case)


def test_functions_that_move_zero_see_padding_as_elements() -> None:
    lowered = OpCase("Exp", IMAGE).lowered()
    recipe = lowered.operator.lower(problem_of(lowered, IMAGE[0]), Wish("blocked8", "blocked8"), dnnl.Attr())
    assert recipe is not None
    exp, zeros = recipe.steps
    assert exp.spec.memory_desc("src") == MemoryDesc((2, 24, 3, 5), "f32", "nChw8c")
    assert zeros.spec.impl == "numpy"
    assert dict(recipe.whole)["dst"] == MemoryDesc(IMAGE[0], "f32", "nChw8c")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_function_is_a_post_op(case: OpCase) -> None:
    lowered = case.lowered()
    use = lowered.operator.as_post_op("src", problem_of(lowered, case.expected.shape))
    assert use is not None
    assert isinstance(use.post_op, dnnl.Eltwise)
    assert use.operand is None
    assert not use.is_sum


def test_a_tensor_of_exponents_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="exponent"):
        OpCase("Pow", (*IMAGE, np.ones((5,), np.float32))).lowered()


def test_integers_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="s64"):
        OpCase("Neg", (np.ones(3, np.int64),)).uninferred((3,))
