"""Small models made with the ``onnx`` package's own helpers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from blocklayout.model import Graph

OpTypes = Callable[[Graph], list[str]]
NEWEST = onnx.defs.onnx_opset_version()


def make_model(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: tuple[str, ...] = ("y",),
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 20,
    **kwargs: Any,
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(opsets)
    return helper.make_model(graph, opset_imports=opsets, ir_version=max(version, 4), **kwargs)


def relu_model(shape: Any = (1, 2)) -> ModelProto:
    return make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": shape})


def conv_net(opset: int) -> ModelProto:
    rng = np.random.default_rng(0)

    def array(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    norms = {name: np.abs(array(4)) + 0.1 for name in ("scale", "shift", "mean", "var")}
    dropout: dict[str, Any] = {"ratio": 0.5} if opset < 12 else {}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c", *norms], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Dropout", ["m"], ["d", "mask"], **dropout),
        helper.make_node("Shape", ["d"], ["extents"]),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.array([0]))),
        helper.make_node("Gather", ["extents", "zero"], ["batch"]),
        helper.make_node("Constant", [], ["rest"], value=numpy_helper.from_array(np.array([-1]))),
        helper.make_node("Concat", ["batch", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["d", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "classes", "bias"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=1),
    ]
    constants = {"w": array(4, 3, 3, 3), "classes": array(5, 64), "bias": array(5), **norms}
    return make_model(nodes, {"x": ["N", 3, 8, 8]}, constants=constants, opset=opset)
