"""Random numbers: anew in each run, the same ones where a node has a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl

SHAPE = (50, 40)
PROBABILITIES = np.full(SHAPE, 0.25, np.float32)
CASES: dict[str, tuple[dict[str, Any], float, float]] = {
    "Bernoulli": ({}, 0.25, 0.25 * 0.75),
    "RandomNormal": ({"shape": SHAPE, "mean": 3.0, "scale": 2.0}, 3.0, 4.0),
    "RandomNormalLike": ({"mean": -1.0}, -1.0, 1.0),
    "RandomUniform": ({"shape": SHAPE, "low": 1.0, "high": 3.0}, 2.0, 4 / 12),
    "RandomUniformLike": ({}, 0.5, 1 / 12),
}


def model_of(op_type: str, **attributes: Any) -> Any:
    inputs = [] if "shape" in attributes else ["x"]
    node = helper.make_node(op_type, inputs, ["y"], **attributes)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)] if inputs else []
    dtype = attributes.get("dtype", TensorProto.FLOAT)
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", dtype, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def runs_of(model: Any) -> tuple[Any, Any]:
    session = bl.load(model)
    feed = {info.name: PROBABILITIES for info in session.get_inputs()}
    first, second = (session.run(None, feed)[0] for _ in range(2))
    return first, second


@pytest.mark.parametrize("op_type", CASES)
def test_numbers_are_drawn_anew_in_each_run(op_type: str) -> None:
    attributes, mean, variance = CASES[op_type]
    first, second = runs_of(model_of(op_type, **attributes))
    assert not np.array_equal(first, second)
    for drawn in (first, second):
        assert drawn.mean() == pytest.approx(mean, abs=6 * np.sqrt(variance / drawn.size))
        assert drawn.var() == pytest.approx(variance, rel=0.5)


@pytest.mark.parametrize("op_type", CASES)
def test_a_seed_gives_the_same_numbers(op_type: str) -> None:
    attributes, *_ = CASES[op_type]
    model = model_of(op_type, seed=4.0, **attributes)
    first, second = runs_of(model)
    np.testing.assert_array_equal(first, second)
    feed = {value.name: PROBABILITIES for value in model.graph.input}
    expected: Any = ReferenceEvaluator(model).run(None, feed)
    np.testing.assert_allclose(first, expected[0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.INT64])
def test_classes_are_drawn_by_their_weights(dtype: int) -> None:
    shares = np.array([[0.5, 0.25, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0]])
    with np.errstate(divide="ignore"):
        logarithms = np.log(shares * 7).astype(np.float32)
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=4000, dtype=dtype, seed=1.0)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info("y", dtype, (2, 4000))],
    )
    session = bl.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))
    drawn = session(logarithms)
    assert drawn.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    found = [np.bincount(row, minlength=4) / 4000 for row in drawn]
    np.testing.assert_allclose(found, shares, atol=0.05)


def test_random_numbers_are_no_constants() -> None:
    b = bl.Builder()
    b.output("y", b.op("Bernoulli", b.constant(np.ones((2, 3), np.float32))))
    assert [node.op_type for node in b.to_graph().nodes] == ["Bernoulli"]
