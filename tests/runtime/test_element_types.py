"""Types that the library does not have cross the border like all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import blocklayout as bl

TYPES = ("int64", "uint64", "uint32", "int16", "uint16", "bool", "float64", "int32", "int8", "uint8", "float16")
VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "row-major": lambda a: a,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "every second": lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
    "backwards": lambda a: np.ascontiguousarray(a[::-1, :, ::-1])[::-1, :, ::-1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape),
}


def _model(dtype: str, shape: tuple[int, ...], nodes: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes or [helper.make_node("Transpose", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])],
        "types",
        [helper.make_tensor_value_info("x", elem_type, shape)],
        [helper.make_tensor_value_info(name, elem_type, None) for name in ("y", "z")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


@pytest.mark.filterwarnings("ignore:.*f16", "ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_with_any_strides(dtype: str) -> None:
    session = bl.load(_model(dtype, (2, 3, 4)))
    for view, seen in VIEWS.items():
        fed = seen(_numbers(dtype, (2, 3, 4)))
        y, z = session.run(None, {"x": fed})
        np.testing.assert_array_equal(y, fed.T, err_msg=view)
        np.testing.assert_array_equal(z, fed, err_msg=view)
        assert y.dtype == z.dtype == np.dtype(dtype)
        assert not np.shares_memory(z, fed)


@pytest.mark.filterwarnings("ignore:.*f16", "ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("dtype", [*TYPES, "float32"])
def test_scalars(dtype: str) -> None:
    fed: Any = _numbers(dtype, ())
    nodes = [helper.make_node("Identity", ["x"], ["z"]), helper.make_node("Where", ["c", "x", "x"], ["y"])]
    model = _model(dtype, (), nodes)
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, ()))
    y, z = bl.load(model).run(None, {"x": fed, "c": np.array(True)})
    assert y.shape == z.shape == ()
    assert y == z == fed


@pytest.mark.parametrize("dtype", ["int64", "bool", "float64"])
def test_formats_at_the_border(dtype: str) -> None:
    numbers = _numbers(dtype, (2, 9, 4, 5))
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    session = bl.load(_model(dtype, (2, 9, 4, 5), nodes), io_layout={"x": "nhwc", "y": "nhwc"})
    fed = np.ascontiguousarray(numbers.transpose(0, 2, 3, 1))
    for source in (fed, bl.reorder(numbers, "nhwc"), bl.reorder(numbers, "nChw8c")):
        y, z = session.run(None, {"x": source})
        np.testing.assert_array_equal(y, fed)
        np.testing.assert_array_equal(z, numbers)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("dtype", ["bool", "int64"])
def test_they_cross_in_blocks(dtype: str) -> None:
    fed = _numbers(dtype, (2, 17, 5, 3))
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Transpose", ["x"], ["z"])]
    model = _model(dtype, fed.shape, nodes)
    session = bl.load(model, io_layout={"x": "nChw8c", "z": "aBcD2d4b"})
    _, z = session.run(None, {"x": bl.from_array(fed, "nChw8c")})
    assert (z.memory_format, z.dtype) == ("aBcD2d4b", {"bool": "bool", "int64": "s64"}[dtype])
    np.testing.assert_array_equal(z.numpy(), fed.T)
    assert z.padding_is_zero()
