"""NonZero, Compress, Unique, Range and ConstantOfShape of data."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout.dtypes import to_numpy
from blocklayout.resource_limits import memory_nbytes
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, ROW, S64, Case, check, model_of

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")

MOST = [NODE("ReduceMax", ["x"], ["most"], keepdims=0), NODE("Cast", ["most"], ["n"], to=S64)]
CASES = {
    "NonZero": Case(
        [
            *PLACES,
            NODE("Transpose", ["p"], ["pt"]),
            NODE("GatherND", ["c", "pt"], ["v"]),
            NODE("Shape", ["p"], ["n"]),
            NODE("Softmax", ["c"], ["s"], axis=1),
            NODE("Relu", ["v"], ["y"]),
        ],
        [{"x": IMAGE}, {"x": -IMAGE}, {"x": IMAGE[:, :, :5]}],
        ["nz"],
        {"y": F32, "n": S64, "s": F32},
    ),
    "of a scalar": Case([NODE("NonZero", ["x"], ["y"], name="nz")], [{"x": np.float32(2)}], ["nz"], {"y": S64}),
    "Compress": Case(
        [NODE("Compress", ["x", "kept"], ["z"], name="some", axis=-1), NODE("Neg", ["z"], ["y"])],
        [{"x": IMAGE, "kept": np.arange(8) % n == 0} for n in (2, 3, 9)],
        ["some"],
    ),
    "Unique": Case(
        [NODE("Unique", ["x"], ["u", "first", "back", "count"], name="u", sorted=0), NODE("Neg", ["u"], ["y"])],
        [{"x": np.array([2, 1, 1, 3, 4, 3], np.float32)}],
        ["u"],
        {"y": F32, "first": S64, "back": S64, "count": S64},
    ),
    "Range": Case(
        [
            *MOST,
            NODE("Range", ["none", "n", "one"], ["r"], name="numbers"),
            NODE("Cast", ["r"], ["f"], to=F32),
            NODE("Unsqueeze", ["f", "minus"], ["y"]),
        ],
        [{"x": np.array([most, *ROW], np.float32)} for most in (4.5, 6.5)],
        ["numbers"],
    ),
    "ConstantOfShape": Case(
        [*MOST, NODE("Reshape", ["n", "ones"], ["s"]), NODE("ConstantOfShape", ["s"], ["y"], name="filled")],
        [{"x": np.array([most, *ROW], np.float32)} for most in (4.5, 6.5)],
        ["filled"],
    ),
}
HUGE = np.array([memory_nbytes()])


@pytest.mark.parametrize("name", CASES)
def test_extents_follow_from_data(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [("Range", "none n one"), ("ConstantOfShape", "n"), ("Expand", "none n"), ("Tile", "ones n")],
)
@pytest.mark.parametrize("is_computed", [False, True])
def test_extents_beyond_memory_are_refused(op_type: str, inputs: str, *, is_computed: bool) -> None:
    feed: dict[str, Any] = {"n": HUGE[0] if op_type == "Range" else HUGE}
    nodes = [NODE(op_type, inputs.split(), ["y"], name="big")]
    if is_computed:
        nodes = [
            NODE("ReduceMax", ["many"], ["most"], keepdims=0),
            NODE("Add", ["n", "most"], ["more"]),
            NODE(op_type, ["more" if name == "n" else name for name in inputs.split()], ["y"], name="big"),
        ]
        feed |= {"many": np.zeros(600, np.int64)}
    model = model_of(nodes, feed, {"y": F32 if op_type == "ConstantOfShape" else S64})
    with pytest.raises(bl.UnsupportedError, match=r"node 'big'.*GiB; .* GiB of memory are left here"):
        bl.load(model).run(None, feed)


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ((0, 1e30, 1e-30), "extents"),
        ((-3e38, 3e38, 1e-38), "extents"),
        ((0, -3e38, -1e-38), "extents"),
        ((0, 1, np.inf), "must be finite"),
        ((np.nan, 1, 1), "must be finite"),
        ((0, 1, 0), "must not be 0"),
    ],
)
def test_ranges_that_cannot_be_counted_are_refused(
    numbers: tuple[float, float, float], problem: str, *, is_constant: bool
) -> None:
    given = dict(zip(("start", "limit", "delta"), np.array(numbers, np.float32), strict=True))
    constants, feed = (given, {}) if is_constant else ({}, given)
    model = model_of([NODE("Range", list(given), ["y"], name="big")], feed, **constants)
    with pytest.raises(bl.BlockLayoutError, match=f"big.*{problem}"):
        bl.load(model).run(None, feed)


def test_a_range_from_several_numbers_is_refused() -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Range", ["start", "limit", "delta"], ["y"], name="big")],
            "range",
            [
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BFLOAT16, shape)
                for name, shape in (("start", [19]), ("limit", []), ("delta", []))
            ],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.BFLOAT16, None)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 27)],
    )
    bf16 = to_numpy("bf16")  # which shape inference does not read
    feed = {"start": np.zeros(19, bf16), "limit": np.zeros((), bf16), "delta": np.ones((), bf16)}
    with pytest.raises(bl.ModelError, match=r"big.*19, 1 and 1 elements"):
        bl.load(model).run(None, feed)


def test_a_range_in_the_other_direction_is_empty() -> None:
    feed = dict(zip(("start", "limit", "delta"), np.array([0, -3e38, 1e-38], np.float32), strict=True))
    assert bl.load(model_of([NODE("Range", list(feed), ["y"])], feed)).run(None, feed)[0].shape == (0,)
