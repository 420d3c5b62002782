"""Operators are found by walking the package."""

from __future__ import annotations

import onnx.defs
import pytest

from blocklayout import ops
from blocklayout.ir import BaseOperator, NodeInfo, Refusal, Role, Value

RECOGNISED = frozenset({"ByteTable", "ChannelShuffle"})
"""What ONNX writes as several operators."""


def _is_view(op_type: str) -> bool:
    """Whether an operator takes elements of any type."""
    operator = ops.find(op_type)
    return operator is not None and operator.role is Role.VIEW


def test_every_op_type_finds_an_operator_that_names_it() -> None:
    for op_type in ops.op_types():
        operator = ops.find(op_type)
        assert operator is not None
        assert op_type in operator.op_types


def test_an_unknown_op_type_finds_nothing() -> None:
    assert ops.find("NoSuchOperator") is None


def test_operators_that_move_or_limit_elements_round_nothing() -> None:
    moving = "Pad Reshape Transpose Identity Dropout Slice Split Gather Concat Expand Tile DepthToSpace ChannelShuffle"
    limiting = "Relu Clip Abs Neg MaxPool Max Min Where"
    computing = "Conv BatchNormalization Add Mul Sum Sigmoid LeakyRelu Gelu AveragePool LRN"
    op_types = f"{moving} {limiting} {computing}".split()
    assert [each for each in op_types if ops.facts_of(each).rounds(each)] == computing.split()


@pytest.mark.parametrize("op_type", ops.op_types())
def test_operators_are_frozen_values_of_operators_that_onnx_knows(op_type: str) -> None:
    operator = ops.find(op_type)
    assert operator is not None
    assert issubclass(operator, BaseOperator)
    assert operator.__struct_config__.frozen
    assert onnx.defs.has(op_type) or op_type in RECOGNISED


@pytest.mark.parametrize("op_type", [op_type for op_type in ops.op_types() if not _is_view(op_type)])
def test_integers_are_refused_and_nothing_is_raised(op_type: str) -> None:
    operator = ops.find(op_type)
    assert operator is not None
    values = tuple(Value(f"in_{index}", (2, 3, 4, 5), "s64") for index in range(2))
    answer = operator.accept(NodeInfo("tested", op_type, {}, values, (values[0],), 20))
    assert isinstance(answer, Refusal)
    assert answer.reason.startswith(f"{op_type} 'tested': ")
