"""ONNX's operators of quantised tensors, written in those of real ones: against its reference, to one quantum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.model import read, simplify

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.PlainKernelWarning")

RNG = np.random.default_rng(0)
CONV = ("x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "bias")
MATMUL = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero")


def numbers(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def step(size: float, *shape: int, dtype: str = "float32") -> np.ndarray:
    return (size * RNG.uniform(0.8, 1.2, shape)).astype(dtype)


def model_of(op_type: str, arrays: dict[str, np.ndarray], fed: set[str], opset: int, **attrs: Any) -> ModelProto:
    """A file of one node; arrays that are not fed are constants."""
    graph = helper.make_graph(
        [helper.make_node(op_type, list(arrays), ["y"], name="node", **attrs)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(arrays[name].dtype), arrays[name].shape)
            for name in arrays
            if name in fed
        ],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(arrays["y_zero"].dtype), None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name not in fed],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(model: ModelProto, arrays: dict[str, np.ndarray]) -> list[str]:
    """Compare with the reference; returns the types of the nodes that the operator is written in."""
    feed = {info.name: arrays[info.name] for info in model.graph.input}
    expected: Any = ReferenceEvaluator(model).run(None, feed)
    actual = bl.load(model, tune="model").run(None, feed)
    assert (actual[0].dtype, actual[0].shape) == (expected[0].dtype, expected[0].shape)
    assert np.abs(actual[0].astype(int) - expected[0].astype(int)).max() <= 1
    assert len(np.unique(expected[0])) > 3
    return [node.op_type for node in read(model).nodes]


def convolution(x: str = "uint8", w: str = "int8", y: str = "uint8", channels: int = 0) -> dict[str, np.ndarray]:
    sizes = (channels,) if channels else ()
    given = (
        *(numbers(x, 2, 4, 7, 6), step(0.02), numbers(x)),
        *(numbers(w, 6, 4, 3, 3), step(0.01, *sizes), numbers(w, *sizes)),
        *(step(0.3), numbers(y)),
        RNG.integers(-9000, 9000, 6, np.int32),
    )
    return dict(zip(CONV, given, strict=True))


@pytest.mark.parametrize("opset", [10, 13, 21])
@pytest.mark.parametrize("channels", [0, 6])
@pytest.mark.parametrize(("x", "w", "y"), [("uint8", "int8", "uint8"), ("int8", "uint8", "int8")])
def test_convolutions_are_of_any_type_per_tensor_and_channel(x: str, w: str, y: str, channels: int, opset: int) -> None:
    arrays = convolution(x, w, y, channels)
    assert check(model_of("QLinearConv", arrays, {"x"}, opset), arrays)[-1] == "QuantizeLinear"


@pytest.mark.parametrize(
    "attrs",
    [
        {"group": 2},
        {"pads": [1, 0, 2, 1]},
        {"strides": [2, 1], "kernel_shape": [3, 3]},
        {"dilations": [1, 2]},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "VALID"},
    ],
    ids=str,
)
def test_convolutions_have_the_windows_of_others(attrs: dict[str, Any]) -> None:
    arrays = convolution()
    arrays["w"] = arrays["w"][:, : 4 // attrs.get("group", 1)]
    check(model_of("QLinearConv", arrays, {"x"}, 13, **attrs), arrays)


def test_a_convolution_may_have_no_bias_and_one_zero_point_for_all_channels() -> None:
    arrays = convolution(channels=6)
    del arrays["bias"]
    arrays["w_zero"] = np.array([3], np.int8)
    check(model_of("QLinearConv", arrays, {"x"}, 13), arrays)


@pytest.mark.parametrize("fed", [{"x", "x_scale", "y_scale"}, {*CONV}], ids=["scales", "all"])
def test_convolutions_read_what_is_computed_at_run_time(fed: set[str]) -> None:
    arrays = convolution(channels=6)
    check(model_of("QLinearConv", arrays, fed, 13), arrays)


def product(a: tuple[int, ...], b: tuple[int, ...], rows: Any = (), columns: Any = ()) -> dict[str, np.ndarray]:
    given = (
        *(numbers("uint8", *a), step(0.02, *rows), numbers("uint8", *rows)),
        *(numbers("int8", *b), step(0.01, *columns), numbers("int8", *columns)),
        *(step(0.3), np.array(120, np.uint8)),
    )
    return dict(zip(MATMUL, given, strict=True))


@pytest.mark.parametrize("fed", [{"a"}, {*MATMUL}], ids=["source", "all"])
@pytest.mark.parametrize(
    ("a", "b", "rows", "columns"),
    [
        ((3, 8), (8, 5), (), ()),
        ((2, 3, 8), (2, 8, 5), (), (1,)),
        ((3, 8), (8, 5), (), (5,)),
        ((2, 3, 8), (8, 5), (2, 3, 1), (1, 5)),
        ((8,), (8, 5), (), ()),
    ],
    ids=str,
)
def test_products_are_of_any_rank_per_tensor_row_and_column(
    a: Any, b: Any, rows: Any, columns: Any, fed: set[str]
) -> None:
    arrays = product(a, b, rows, columns)
    check(model_of("QLinearMatMul", arrays, fed, 13), arrays)


def test_numbers_along_rows_are_those_of_one_column() -> None:
    arrays = product((4, 8), (8, 5), (4,))
    whole = arrays | {name: arrays[name].reshape(4, 1) for name in ("a_scale", "a_zero")}
    expected: Any = ReferenceEvaluator(model_of("QLinearMatMul", whole, {"a"}, 13)).run(None, {"a": arrays["a"]})
    actual = bl.load(model_of("QLinearMatMul", arrays, {"a"}, 13), tune="model").run(None, {"a": arrays["a"]})
    assert np.abs(actual[0].astype(int) - expected[0].astype(int)).max() <= 1


def test_scales_of_fewer_bits_change_no_sum() -> None:
    arrays = product((3, 300), (300, 5))
    arrays |= {name: arrays[name].astype(np.float16) for name in ("a_scale", "b_scale")}
    arrays["y_scale"] = np.array(3, np.float16)
    check(model_of("QLinearMatMul", arrays, {"a"}, 21), arrays)


def test_a_network_that_is_built_is_written_out_too() -> None:
    b = bl.Builder(opset=21)
    arrays = product((3, 8), (8, 5))
    x = b.input("a", (3, 8), "u8")
    b.output("y", b.op("QLinearMatMul", x, *list(arrays.values())[1:], name="product"))
    assert [node.op_type for node in simplify(b.to_graph()).nodes][-2:] == ["MatMul", "QuantizeLinear"]
