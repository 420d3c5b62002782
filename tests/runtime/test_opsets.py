"""One network in every operator set: the same answers."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, version_converter

import blocklayout as bl
from tests import nets

OLDEST, NEWEST = 7, onnx.defs.onnx_opset_version()
X = nets.random_input((2, 3, 12, 12))


@cache
def _oldest() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    vectors = {name: np.abs(nets.random_input((17,), seed)) + 0.5 for seed, name in enumerate("sbmv")}
    constants = {
        "w0": nets.he(rng, 17, 3, 3, 3),
        "w1": nets.he(rng, 17, 1, 3, 3),
        "w2": nets.he(rng, 10, 17),
        "b2": np.ones(10, np.float32),
        "slope": np.full((17, 1, 1), 0.1, np.float32),
        **vectors,
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4),
        node("BatchNormalization", ["c0", *"sbmv"], ["n0"]),
        node("PRelu", ["n0", "slope"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["p0", "w1"], ["c1"], pads=[1] * 4, group=17),
        node("Add", ["c1", "p0"], ["a1"]),
        node("LeakyRelu", ["a1"], ["r1"], alpha=0.2),
        node("AveragePool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", ["p1", "p1"], ["cat"], axis=1),
        node("Transpose", ["cat"], ["t"], perm=[0, 2, 3, 1]),
        node("ReduceMean", ["t"], ["mean"], axes=[1, 2], keepdims=0),
        node("Dropout", ["mean"], ["d"]),
        node("Flatten", ["d"], ["f"]),
        node("Softmax", ["f"], ["soft"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "opsets",
        [helper.make_tensor_value_info("x", 1, X.shape)],
        [helper.make_tensor_value_info("soft", 1, (2, 34))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OLDEST)], ir_version=4)


@cache
def _expected() -> np.ndarray:
    return np.asarray(bl.load(_oldest())(X))


def test_the_oldest_agrees_with_another_runtime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    peer = onnxruntime.InferenceSession(_oldest().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(_expected(), peer.run(None, {"x": X})[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", range(OLDEST, NEWEST + 1))
def test_every_operator_set_gives_the_same(opset: int) -> None:
    try:
        model = version_converter.convert_version(_oldest(), opset)
    except Exception as error:  # noqa: BLE001 - the converter raises several types
        pytest.skip(f"onnx cannot convert it: {error}")
    np.testing.assert_allclose(bl.load(model)(X), _expected(), rtol=1e-5, atol=1e-6)
