"""Products and convolutions of integers, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import UnimplementedError, UnsupportedError
from blocklayout.ir import Lowered, NodeInfo, Problem, Role, TensorInfo, Value, Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import bind
from tests.ops.harness import assert_padding_is_zero, resolved, run_step
from tests.ops.in_numpy import ROWS, Case, check, floats, integers, scalar

CASES = [
    Case(
        "ConvInteger",
        (
            *(integers(2, 4, 6, 5, low=0, dtype="uint8"), integers(6, 2, 3, 2, low=0, dtype="uint8")),
            *(scalar(2, "uint8"), scalar(3, "uint8")),
        ),
        {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
    ),
    Case("QuantizeLinear", (ROWS, np.abs(floats(4)) + 0.1, integers(4, dtype="int8")), {"axis": 1}),
    Case(
        "DequantizeLinear",
        (integers(3, 4, 5, dtype="int8"), np.abs(floats(3, 2, 5)), integers(3, 2, 5, dtype="int8")),
        {"axis": 1, "block_size": 2},
    ),
    Case(
        "MatMulInteger",
        (
            integers(300, 300, low=0, high=255, dtype="uint8"),
            integers(300, 2, low=-127, high=127, dtype="int8"),
            scalar(3, "uint8"),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}


IMAGE = (2, 17, 3, 5)
QUANTA = [
    (scalar(0.1, "float32"), scalar(0, "uint8"), 1),
    (scalar(0.1, "float32"), scalar(131, "uint8"), 1),
    (scalar(0.1, "float32"), scalar(-7, "int8"), 1),
    (np.abs(floats(17)) + np.float32(0.1), np.zeros(17, np.int8), 1),
    (np.abs(floats(5)) + np.float32(0.1), np.zeros(5, np.uint8), -1),
]


def node_of(op_type: str, scale: np.ndarray, zero: np.ndarray | None, axis: int = 1) -> NodeInfo:
    """A node that converts an image by known numbers."""
    integers = "u8" if zero is not None and zero.dtype == np.uint8 else "s8"
    src, dst = ("f32", integers) if op_type == "QuantizeLinear" else (integers, "f32")
    known = [
        None if array is None else Value(name, array.shape, "f32" if name == "scale" else integers, array)
        for name, array in (("scale", scale), ("zero", zero))
    ]
    inputs = (Value("x", IMAGE, src), *known)
    return NodeInfo("tested", op_type, {"axis": axis}, inputs, (Value("y", IMAGE, dst),), 21)


def problem_of(lowered: Lowered, dtype: str) -> Problem:
    constants = {
        arg: TensorInfo(array.shape, "f32" if arg == "scale" else "s32") for arg, array in lowered.constants.items()
    }
    return Problem({"src": TensorInfo(IMAGE, "f32")}, constants, TensorInfo(IMAGE, dtype), n_threads=1)


@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8", "blocked16"])
@pytest.mark.parametrize(("scale", "zero", "axis"), QUANTA, ids=str)
def test_quantising_writes_any_layout(scale: np.ndarray, zero: np.ndarray, axis: int, layout: str) -> None:
    case = Case("QuantizeLinear", (floats(*IMAGE) * 9, scale, zero), {"axis": axis})
    lowered = bind(node_of("QuantizeLinear", scale, zero, axis))
    recipe = lowered.operator.lower(
        problem_of(lowered, "u8" if zero.dtype == np.uint8 else "s8"), Wish("plain", layout), dnnl.Attr()
    )
    assert recipe is not None
    buffers: dict[str, tuple[MemoryDesc, np.ndarray]] = {}
    try:
        step = resolved(recipe.steps[0])
    except UnimplementedError:
        assert layout.startswith("blocked")
        assert scale.size > 1
        return
    run_step(step, {"src": case.feed["x0"], **lowered.constants}, buffers)
    desc, buffer = buffers["dst"]
    assert_padding_is_zero(desc, buffer)
    difference = desc.unpack(buffer).astype(np.int32) - case.expected()[0]
    assert int(np.abs(difference).max()) <= 1


def test_dequantising_moves_no_byte() -> None:
    for scale, zero, axis in QUANTA:
        operator = bind(node_of("DequantizeLinear", scale, zero, axis)).operator
        assert operator.role is Role.VIEW
        desc = MemoryDesc(IMAGE, "u8", "nhwc")
        assert operator.through(desc) == operator.back(desc) == desc


@pytest.mark.parametrize(
    ("scale", "zero", "message"),
    [
        (np.ones((1, 17, 3, 5), np.float32), None, "scale is of blocks"),
        (np.ones(17, np.float32), np.arange(17, dtype=np.int8), "zero has several numbers"),
    ],
)
@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
def test_what_no_reorder_takes_is_unsupported(
    op_type: str, scale: np.ndarray, zero: np.ndarray | None, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"'tested'.*{message}"):
        bind(node_of(op_type, scale, zero))
