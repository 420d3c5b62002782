"""Operators on sources from before a Transpose, against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.defs import get_all_schemas
from onnx.reference import ReferenceEvaluator

from blocklayout import ops
from blocklayout.ir import Facts, NodeInfo, Value
from blocklayout.layout.permutation import identity, inverse, permuted

OPSET = 20
UNSUPPORTED = frozenset({"Swish"})
"""The reference does not have them in this operator set."""
INTEGERS = {"BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}
BOOLS = {"And", "Or", "Xor", "Not"}


@dataclass(frozen=True, eq=False)
class Case:
    """A node of one or more sources of these extents; the other inputs are constants.

    Attributes:
        shape: Of each source.
        attrs: Attributes.
        constants: Further inputs.
        n_sources: Sources before them.
        opset: Version of the operator set.
    """

    op_type: str
    shape: tuple[int, ...] = (2, 3, 4, 5)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[Any, ...] = ()
    n_sources: int = 1
    n_results: int = 1
    opset: int = OPSET

    def __str__(self) -> str:
        return f"{self.op_type} {dict(self.attrs)} {len(self.constants)}"


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape, np.float32) + np.float32(0.5)


CASES = (
    Case("ReduceSum", attrs={"keepdims": 1}, constants=(_ints(1, -1),)),
    Case("ReduceSum", attrs={"keepdims": 0}, constants=(_ints(1, 3),)),
    Case("ReduceMax", attrs={"keepdims": 0}, constants=(_ints(-2),)),
    Case("ReduceMean", attrs={"keepdims": 0}),
    Case("ReduceSum", attrs={"noop_with_empty_axes": 1, "keepdims": 0}),
    Case("ReduceLogSumExp", attrs={"axes": (0, 2), "keepdims": 0}, opset=13),
    Case("ArgMax", attrs={"axis": 2}),
    Case("ArgMin", attrs={"axis": -1, "keepdims": 0}),
    Case("Softmax"),
    Case("LogSoftmax", attrs={"axis": 1}),
    Case("Hardmax", attrs={"axis": 1}),
    Case("LpNormalization", attrs={"axis": 1}),
    Case("Concat", attrs={"axis": -2}, n_sources=3),
    Case("Split", attrs={"axis": 3}, constants=(_ints(2, 3),), n_results=2),
    Case("Gather", attrs={"axis": 1}, constants=(_ints(2, 0),)),
    Case("Gather", attrs={"axis": 2}, constants=(np.array(1),)),
    Case("Slice", constants=(_ints(1, -3), _ints(3, 9), _ints(2, -1))),
    Case("Slice", constants=(_ints(0, 1), _ints(1, 3))),
    Case("Slice", constants=(_ints(3), _ints(-9), _ints(2), _ints(-1))),
    Case("Slice", attrs={"starts": (1, 0), "ends": (3, 2)}, opset=9),
    Case("Pad", constants=(_ints(0, 1, 2, 0, 0, 0, 1, 3),)),
    Case("Pad", attrs={"mode": "reflect"}, constants=(_ints(1, 2, 0, 1), None, _ints(-1, 2))),
    Case("Pad", attrs={"pads": (0, 0, 1, 0, 0, 2, 0, 0)}, opset=10),
    Case("Expand", shape=(2, 1, 4, 1), constants=(_ints(3, 1, 5),)),
    Case("Tile", constants=(_ints(1, 2, 1, 3),)),
    Case("Resize", constants=(None, np.array([1, 1, 2, 3], np.float32))),
    Case("Resize", constants=(None, None, _ints(2, 3, 8, 5))),
    Case("Resize", attrs={"axes": (2, 3)}, constants=(None, np.array([2, 1], np.float32))),
    Case("Upsample", constants=(np.array([1, 1, 2, 1], np.float32),), opset=9),
    Case("BatchNormalization", constants=(_floats(3), _floats(3), _floats(3), _floats(3))),
    Case("InstanceNormalization", constants=(_floats(3), _floats(3))),
    Case("GlobalAveragePool"),
    Case("GlobalMaxPool"),
    Case("LayerNormalization", constants=(_floats(5),)),
    Case("LayerNormalization", attrs={"axis": 2}, constants=(_floats(4, 5), _floats(5))),
    Case("MatMul", constants=(_floats(5, 2),)),
    Case("Reshape", constants=(_ints(2, 3, 2, 2, 5),)),
    Case("Reshape", constants=(_ints(2, 12, 5),)),
    Case("Reshape", constants=(_ints(6, 1, 4, 5),)),
    Case("Reshape", constants=(_ints(2, 60),)),
    Case("Flatten"),
    Case("Squeeze", shape=(2, 1, 3, 1), constants=(_ints(1, -1),)),
    Case("Unsqueeze", constants=(_ints(0, 3),)),
    Case("Clip", constants=(np.float32(0.2), np.float32(0.7))),
    Case("Dropout"),
    Case("Cast", attrs={"to": 11}),
    Case("BitCast", attrs={"to": TensorProto.INT32}, opset=26),
    Case("BitShift", attrs={"direction": "LEFT"}, n_sources=2),
    Case("Where", n_sources=3),
    Case("PRelu", n_sources=2),
    Case("Max", n_sources=3),
    Case("DequantizeLinear", constants=(np.float32(0.5),)),
)
DECLARED = sorted(
    op_type
    for op_type in {schema.name for schema in get_all_schemas() if not schema.domain}
    if ops.facts_of(op_type).is_elementwise or ops.facts_of(op_type).broadcasts_from is not None
)
BY_DECLARATION = tuple(
    Case(op_type, n_sources=1 if ops.facts_of(op_type).is_elementwise else 2)
    for op_type in DECLARED
    if op_type not in {case.op_type for case in CASES} | UNSUPPORTED | {"CastLike", "QuantizeLinear"}
)


def evaluated(op_type: str, inputs: list[Any], case: Case, attrs: Mapping[str, Any]) -> list[np.ndarray]:
    names = [f"i{index}" if array is not None else "" for index, array in enumerate(inputs)]
    outputs = [f"o{index}" for index in range(case.n_results)]
    node = helper.make_node(op_type, names, outputs, **attrs)
    infos = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in names if name]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    graph = helper.make_graph([node], "node", infos, results)
    opsets = [helper.make_opsetid("", case.opset)]
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if name}
    found: Any = evaluator.run(None, feeds)
    return list(found)


def sources_of(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(prod(case.shape))
    numbers = (rng.permutation(prod(case.shape)) + 1 for _ in range(case.n_sources))
    sources = [each.reshape(case.shape) / (prod(case.shape) + 1) for each in numbers]
    if case.op_type == "Acosh":
        sources = [source + 1 for source in sources]
    dtype: Any = np.float32
    if case.op_type in INTEGERS | BOOLS | {"DequantizeLinear"}:
        dtype = bool if case.op_type in BOOLS else np.uint8
        sources = [source * 2 for source in sources]
    arrays = [source.astype(dtype) for source in sources]
    return [arrays[0] > 0.5, *arrays[1:]] if case.op_type == "Where" else arrays


def info_of(case: Case, inputs: list[Any], results: list[np.ndarray]) -> NodeInfo:
    constants = inputs[case.n_sources :]
    values = [Value(f"x{index}", array.shape, "f32") for index, array in enumerate(inputs[: case.n_sources])]
    known = [
        None if array is None else Value(f"c{index}", array.shape, "f32", array)
        for index, array in enumerate(map(_as_array, constants))
    ]
    outputs = tuple(Value(f"y{index}", result.shape, "f32") for index, result in enumerate(results))
    return NodeInfo("tested", case.op_type, case.attrs, (*values, *known), outputs, case.opset)


def _as_array(constant: Any) -> np.ndarray | None:
    return None if constant is None else np.asarray(constant)


@cache
def computed(case: Case) -> tuple[list[np.ndarray], list[Any], list[np.ndarray]]:
    """Sources, all inputs, and the results of the original node."""
    sources = sources_of(case)
    inputs = [*sources, *map(_as_array, case.constants)]
    return sources, inputs, evaluated(case.op_type, inputs, case, case.attrs)


def check(case: Case, perm: tuple[int, ...]) -> bool:
    """Whether the operator answers for this permutation; what it answers has to be right."""
    sources, inputs, expected = computed(case)
    turned = ops.facts_of(case.op_type).transposed(info_of(case, inputs, expected), perm)
    if turned is None:
        return False
    source = turned.source or perm
    rewritten: list[Any] = list(inputs)
    for index in turned.sources:
        rewritten[index] = sources[index].transpose(inverse(source))
    for index, array in turned.constants.items():
        rewritten += [None] * (index + 1 - len(rewritten))
        rewritten[index] = array
    results = evaluated(turned.op_type or case.op_type, rewritten, case, turned.attrs)
    for result, wanted in zip(results, expected, strict=True):
        given = result if turned.order is None else result[:, inverse(tuple(turned.order.tolist()))]
        np.testing.assert_allclose(given.transpose(turned.result), wanted, rtol=1e-5, atol=1e-6)
    return True


@settings(max_examples=6)
@given(st.data())
@pytest.mark.parametrize("case", [*CASES, *BY_DECLARATION], ids=str)
def test_a_rewritten_node_gives_the_same(case: Case, data: st.DataObject) -> None:
    check(case, tuple(data.draw(st.permutations(range(len(case.shape))))))


SPATIAL = {"BatchNormalization", "InstanceNormalization", "GlobalAveragePool", "GlobalMaxPool", "Resize", "Upsample"}


@pytest.mark.parametrize("case", [*CASES, *BY_DECLARATION], ids=str)
def test_every_case_is_answered_for_some_permutation(case: Case) -> None:
    swaps = [(0, 1, 3, 2), (1, 0, 2, 3), (0, 2, 3, 1)]
    assert any(check(case, perm) for perm in swaps)


@pytest.mark.parametrize("case", [case for case in CASES if case.op_type in SPATIAL], ids=str)
def test_operators_of_images_keep_their_channels(case: Case) -> None:
    assert not check(case, (0, 3, 1, 2))


def test_nothing_is_known_of_other_operators() -> None:
    x = Value("x", (2, 3), "f32")
    node = NodeInfo("tested", "NoSuchOperator", {}, (x,), (x,), OPSET)
    facts = ops.facts_of("NoSuchOperator")
    assert facts is Facts
    assert facts.transposed(node, (1, 0)) is None
    assert facts.same_as(node) is None
    assert facts.not_negative_if(node) is None


def test_permutations_compose_as_transposes_do() -> None:
    perm = (2, 0, 3, 1)
    assert permuted(perm, inverse(perm)) == identity(4)
