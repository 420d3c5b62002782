"""Which models compute each row of a batch apart from the others, and why others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout import model
from tests import nets

SIZES = (1, 2, 4, 5)


def free(proto: onnx.ModelProto) -> onnx.ModelProto:
    """With a first extent that may be any."""
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return proto


def of_nodes(*nodes: onnx.NodeProto, opset: int = 20, **constants: np.ndarray) -> onnx.ModelProto:
    """From ``x`` of n rows of 4x6 to ``y``."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 4, 6))
    y = onnx.ValueInfoProto(name="y")
    given = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "rows", [x], [y], given)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(proto)


def node(op_type: str, *inputs: str, output: str = "y", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], **attrs)


def check(proto: onnx.ModelProto, **row: tuple[int, ...]) -> None:
    model.check_rows(model.open_model(proto), row or {"x": (1, 4, 6)}, SIZES)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


VECTOR = np.linspace(-1, 1, 6, dtype=np.float32)
MATRIX = np.linspace(-1, 1, 36, dtype=np.float32).reshape(6, 6)

APART: dict[str, Callable[[], onnx.ModelProto]] = {
    "elementwise": lambda: of_nodes(node("Relu", "x")),
    "a vector for all": lambda: of_nodes(node("Add", "x", "v"), v=VECTOR),
    "softmax inside": lambda: of_nodes(node("Softmax", "x", axis=1)),
    "mean inside": lambda: of_nodes(node("ReduceMean", "x", "axes", keepdims=0), axes=ints(1, 2)),
    "product of rows": lambda: of_nodes(node("MatMul", "x", "m"), m=MATRIX),
    "product of two": lambda: of_nodes(node("Transpose", "x", output="t", perm=(0, 2, 1)), node("MatMul", "x", "t")),
    "flattened by shape arithmetic": lambda: of_nodes(
        node("Shape", "x", output="s", start=0, end=1),
        node("Concat", "s", "rest", output="target", axis=0),
        node("Reshape", "x", "target", output="flat"),
        node("Gemm", "flat", "w"),
        rest=ints(-1),
        w=np.ones((24, 3), np.float32),
    ),
    "a token for each, expanded": lambda: of_nodes(
        node("Shape", "x", output="s", start=0, end=1),
        node("Concat", "s", "rest", output="target", axis=0),
        node("Expand", "token", "target", output="tokens"),
        node("Concat", "tokens", "x", axis=1),
        rest=ints(1, 6),
        token=VECTOR.reshape(1, 1, 6),
    ),
    "a slice inside": lambda: of_nodes(node("Slice", "x", "b", "e", "a"), b=ints(1), e=ints(3), a=ints(1)),
    "table": lambda: of_nodes(node("Cast", "x", output="i", to=TensorProto.INT64), node("Gather", "m", "i"), m=MATRIX),
    "the largest": lambda: of_nodes(node("ArgMax", "x", axis=2)),
    "resized": lambda: of_nodes(
        node("Shape", "x", output="s", start=0, end=1),
        node("Concat", "s", "rest", output="sizes", axis=0),
        node("Resize", "x", "", "", "sizes"),
        rest=ints(8, 12),
    ),
}

MIXED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "mean over all": (lambda: of_nodes(node("ReduceMean", "x", keepdims=1)), "ReduceMean"),
    "softmax over rows": (lambda: of_nodes(node("Softmax", "x", axis=0)), "Softmax"),
    "sum over rows": (
        lambda: of_nodes(node("ReduceSum", "x", "axes", output="t", keepdims=1), node("Sub", "x", "t"), axes=ints(0)),
        "ReduceSum",
    ),
    "running sum over rows": (lambda: of_nodes(node("CumSum", "x", "axis"), axis=np.array(0, np.int64)), "CumSum"),
    "rows moved": (lambda: of_nodes(node("Transpose", "x", perm=(1, 0, 2))), "Transpose"),
    "rows among each other": (
        lambda: of_nodes(node("Reshape", "x", "s"), s=ints(4, -1, 6)),
        "Reshape",
    ),
    "the first row for all": (
        lambda: of_nodes(
            node("Slice", "x", "b", "e", "a", output="first"),
            node("Add", "x", "first"),
            b=ints(0),
            e=ints(1),
            a=ints(0),
        ),
        "Slice",
    ),
    "as many as there are": (
        lambda: of_nodes(
            node("Shape", "x", output="s", start=0, end=1),
            node("Cast", "s", output="n", to=TensorProto.FLOAT),
            node("Div", "x", "n"),
        ),
        "follows from the number of rows",
    ),
    "turned over": (
        lambda: of_nodes(node("Slice", "x", "b", "e", "a", "s"), b=ints(-1), e=ints(-(1 << 40)), a=ints(0), s=ints(-1)),
        "Slice",
    ),
    "batch statistics": (
        lambda: of_nodes(
            helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y", "rm", "rv"], training_mode=1),
            s=np.ones(4, np.float32),
            b=np.ones(4, np.float32),
            m=np.ones(4, np.float32),
            v=np.ones(4, np.float32),
        ),
        "BatchNormalization",
    ),
    "noise": (lambda: of_nodes(node("RandomNormalLike", "x", output="r"), node("Add", "x", "r")), "RandomNormalLike"),
    "no rows in the output": (
        lambda: of_nodes(node("Relu", "x", output="unused"), node("Identity", "v"), v=VECTOR),
        "output 'y' has no row",
    ),
    "each row beside all": (
        lambda: of_nodes(
            node("ReduceMax", "x", "axes", output="v", keepdims=0),
            node("Shape", "v", output="s"),
            node("Concat", "s", "s", output="target", axis=0),
            node("Expand", "v", "target"),
            axes=ints(1, 2),
        ),
        "Expand",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_rows_apart_are_proven(name: str) -> None:
    check(APART[name]())


@pytest.mark.parametrize("name", APART)
def test_what_is_proven_is_so(name: str) -> None:
    proto = APART[name]()
    x = np.random.default_rng(0).uniform(0, 5, (5, 4, 6)).astype(np.float32)
    session = bl.load(proto, tune="model", threads=1)
    together = session(x)
    np.testing.assert_allclose(together, np.concatenate([session(row[None]) for row in x]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_rows_is_refused_by_name(name: str) -> None:
    make, named = MIXED[name]
    with pytest.raises(bl.UnsupportedError, match=f"batching: .*{named}.*run it without batching"):
        check(make())


@pytest.mark.parametrize("make", [nets.chain, nets.mobile, nets.residual])
def test_networks_of_images_are_proven(make: Callable[[], bl.Builder]) -> None:
    proto = free(make().to_onnx())
    [x] = proto.graph.input
    _, *extents = (dim.dim_value for dim in x.type.tensor_type.shape.dim)
    check(proto, **{x.name: (1, *extents)})
