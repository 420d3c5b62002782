"""Initializers that are inputs as well: used where nothing is fed, as other runtimes do."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from tests import nets

WEIGHTS = nets.he(np.random.default_rng(0), 17, 3, 3, 3)
X = nets.random_input((1, 3, 8, 8))


def _model(ir_version: int, opset: int = 8) -> onnx.ModelProto:
    constants = {"w": WEIGHTS, "b": np.ones(17, np.float32), "target": np.array([1, -1])}
    elem_types = {"x": TensorProto.FLOAT, "w": TensorProto.FLOAT, "b": TensorProto.FLOAT, "target": TensorProto.INT64}
    shapes: dict[str, Any] = {"x": X.shape, **{name: array.shape for name, array in constants.items()}}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Reshape", ["r", "target"], ["y"]),
        ],
        "defaults",
        [helper.make_tensor_value_info(name, elem_types[name], shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


FEEDS: dict[str, dict[str, np.ndarray]] = {
    "nothing": {},
    "weights": {"w": -WEIGHTS},
    "bias": {"b": np.arange(17, dtype=np.float32)},
    "a target": {"target": np.array([17, -1])},
    "all of them": {"w": 2 * WEIGHTS, "b": np.zeros(17, np.float32), "target": np.array([-1, 4])},
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_whatever_is_fed_counts() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(_model(8).SerializeToString(), options, providers=["CPUExecutionProvider"])
    session = bl.load(_model(8))
    for feed in (*FEEDS.values(), FEEDS["nothing"]):
        [output] = session.run(None, {"x": X, **feed})
        [expected] = peer.run(None, {"x": X, **feed})
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_they_are_no_inputs() -> None:
    session = bl.load(_model(8))
    assert [info.name for info in session.get_inputs()] == ["x"]
    assert {info.name: info.shape for info in session.get_overridable_initializers()} == {
        "w": (17, 3, 3, 3),
        "b": (17,),
        "target": (2,),
    }
    assert session(X).shape == (1, 17 * 64)


def test_each_array_in_their_place_has_a_plan_of_its_own() -> None:
    session = bl.load(_model(8))
    fed = FEEDS["weights"]["w"].copy()
    first = session.run(None, {"x": X, "w": fed})[0]
    fed *= 2
    assert not np.array_equal(session.run(None, {"x": X, "w": fed})[0], first)
    np.testing.assert_array_equal(session.run(None, {"x": X, **FEEDS["weights"]})[0], first)
    assert session.memory().n_plans == 3


@pytest.mark.parametrize("ir_version", [3])
def test_before_version_4_they_are_constants(ir_version: int) -> None:
    session = bl.load(_model(ir_version))
    assert session.get_overridable_initializers() == []
    with pytest.raises(bl.InputError, match="no input 'w'; its inputs are x"):
        session.run(None, {"x": X, "w": WEIGHTS})


def test_they_are_checked_like_any_input() -> None:
    session = bl.load(_model(8))
    with pytest.raises(bl.InputError, match="'w' is float32, got float64"):
        session.run(None, {"x": X, "w": WEIGHTS.astype(np.float64)})
    with pytest.raises(bl.InputError, match="axis 0 must be 17"):
        session.run(None, {"x": X, "b": np.ones(16, np.float32)})
