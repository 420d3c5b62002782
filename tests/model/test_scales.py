"""Scales and zero points that contradict ONNX's specification: one error that names the node and the rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout.errors import ModelError
from blocklayout.model import read


def model_of(op_type: str, scale: Any, zero: Any = None, **attrs: Any) -> Any:
    """A file of one node, of extents (2, 4, 6)."""
    given = {"scale": scale, "zero": zero}
    names = [name if array is not None else "" for name, array in given.items()]
    elem_type, result = TensorProto.UINT8, TensorProto.FLOAT
    if op_type.startswith("Q"):
        elem_type, result = result, elem_type
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], ["y"], name="node", **attrs)],
        "one",
        [helper.make_tensor_value_info("x", elem_type, (2, 4, 6))],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(array, name) for name, array in given.items() if array is not None],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


ONE = np.float32(0.1)
FOUR = np.full(4, 0.1, np.float32)


@pytest.mark.parametrize("op_type", ["DequantizeLinear", "QuantizeLinear"])
@pytest.mark.parametrize(
    ("scale", "zero", "attrs", "message"),
    [
        (np.float32(0), None, {}, r"_scale \(scale\) is 0; scales must be finite numbers above 0"),
        (np.float32(-1), None, {}, r"_scale \(scale\) is -1; "),
        (np.float32("nan"), None, {}, r"is nan; "),
        (np.array([0.1, np.inf, 1, 0], np.float32), None, {}, r"is inf at index 1; "),
        (FOUR[:3], None, {}, r"extents \[3\]; give one number, or one for each of the 4 elements along dimension 1"),
        (FOUR, None, {"axis": 2}, r"each of the 6 elements along dimension 2"),
        (FOUR, None, {"axis": 3}, r"axis is 3; rank 3 allows -3 to 2"),
        (FOUR.reshape(1, 4, 1), None, {}, r"extents \[1, 4, 1\]; give one number"),
        (
            FOUR,
            np.zeros(3, np.uint8),
            {},
            r"_zero_point \(zero\) has extents \[3\]; they must be those of ._scale, \[4\]",
        ),
        (np.ones((2, 2, 6), np.float32), None, {"block_size": 3, "axis": 2}, r"blocks of 3 .* need \[2, 4, 2\]"),
        (np.ones((2, 1, 6), np.float32), None, {"block_size": 3}, r"need \[2, 2, 6\]"),
        (ONE, None, {"block_size": -1}, r"block_size is -1"),
    ],
)
def test_it_is_refused_when_the_file_is_read(
    op_type: str, scale: Any, zero: Any, attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=rf"{op_type} 'node': .*{message}"):
        read(model_of(op_type, scale, zero, **attrs))


@pytest.mark.parametrize(
    ("op_type", "attrs", "message"),
    [
        ("DequantizeLinear", {}, r"'node': DequantizeLinear's input 'x_zero_point' .* cast one of them"),
        ("QuantizeLinear", {"output_dtype": TensorProto.UINT8}, r"'node'.*output_dtype"),
    ],
)
def test_zero_points_of_another_type_are_refused(op_type: str, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(model_of(op_type, ONE, np.int8(0), **attrs))


def test_what_fits_is_read() -> None:
    for scale, attrs in (
        (FOUR, {}),
        (ONE.reshape(1), {}),
        (np.ones((2, 2, 6), np.float32), {"block_size": 3}),
        (np.ones((2, 2, 6), np.float32), {"block_size": 2}),
        (np.full(6, 0.1, np.float32), {"axis": -1}),
    ):
        read(model_of("DequantizeLinear", scale, None, **attrs))


def test_it_is_refused_when_a_network_is_built() -> None:
    b = bl.Builder()
    with pytest.raises(ModelError, match=r"QuantizeLinear 'q': y_scale .* is -1"):
        b.op("QuantizeLinear", b.input("x", (2, 3)), np.float32(-1), np.uint8(0), name="q")
    with pytest.raises(ModelError, match=r"QuantizeLinear 'p': input 1 \(y_scale\) is missing; it is required"):
        b.op("QuantizeLinear", b.input("z", (2, 3)), None, np.uint8(0), name="p")


def test_what_is_known_of_a_quantised_convolution_is_checked() -> None:
    weights, zero = np.ones((2, 3, 1, 1), np.int8), np.int8(0)
    b = bl.Builder(opset=13)
    x = b.input("x", (1, 3, 4, 4), "s8")
    scales = np.array([0.1, 0], np.float32)
    b.output("y", b.op("QLinearConv", x, ONE, zero, weights, scales, np.zeros(2, np.int8), ONE, zero, name="conv"))
    with pytest.raises(ModelError, match=r"'conv' \(QLinearConv\): .*x_scale .* is 0 at index 1"):
        read(b.to_onnx())
