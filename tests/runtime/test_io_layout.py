"""Formats at the border: arrays in the caller's physical order, and Tensors in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout.plan import POLICIES
from tests import nets

SHAPE = (2, 17, 12, 12)
ORDERS = {"nchw": (0, 1, 2, 3), "nhwc": (0, 2, 3, 1), "chwn": (1, 2, 3, 0), "channels_last": (0, 2, 3, 1)}
BLOCKED = "nChw8c"


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return nets.random_input(SHAPE)


@pytest.fixture(scope="module")
def expected(x: np.ndarray) -> np.ndarray:
    return np.asarray(bl.load(nets.chain(batch=2))(x))


def _physical(array: np.ndarray, layout: str) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(ORDERS[layout])) if layout in ORDERS else array


def _logical(output: Any, layout: str) -> np.ndarray:
    if layout in ORDERS:
        assert isinstance(output, np.ndarray)
        assert output.flags.c_contiguous
        return output.transpose(np.argsort(ORDERS[layout]))
    assert isinstance(output, bl.Tensor)
    assert output.desc == bl.MemoryDesc(output.shape, "f32", layout)
    return output.numpy()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("given", [*ORDERS, BLOCKED])
@pytest.mark.parametrize("wanted", ["nhwc", "chwn", BLOCKED])
def test_the_answer_is_the_same_in_every_format(
    given: str, wanted: str, policy: str, x: np.ndarray, expected: np.ndarray
) -> None:
    session = bl.load(nets.chain(batch=2), layout=policy, io_layout={"x": given, "y": wanted})
    output = session(_physical(x, given))
    np.testing.assert_allclose(_logical(output, wanted), expected, rtol=1e-4, atol=1e-4)


def test_a_session_declares_what_the_caller_holds() -> None:
    session = bl.load(nets.chain(batch=2), io_layout={"x": "nhwc", "y": BLOCKED})
    assert session.get_inputs()[0].shape == (2, 12, 12, 17)
    assert session.get_outputs()[0].shape == SHAPE


def test_no_byte_moves_at_the_border() -> None:
    session = bl.load(nets.chain(batch=2), layout="nhwc", io_layout={"x": "nhwc", "y": "nhwc"})
    assert session.plan.reorders == ()
    usual = bl.load(nets.chain(batch=2), layout="nhwc")
    assert len(usual.plan.reorders) == 2


def test_blocks_stay_blocks_from_one_session_to_the_next(x: np.ndarray) -> None:
    session = bl.load(nets.chain(16, batch=2), layout=BLOCKED, io_layout={"x": BLOCKED, "y": BLOCKED})
    assert session.plan.reorders == ()
    blocks = x[:, :16]
    twice = session(session(bl.reorder(blocks, BLOCKED)))
    plain = bl.load(nets.chain(16, batch=2))
    np.testing.assert_allclose(twice.numpy(), plain(plain(blocks)), rtol=1e-4, atol=1e-4)


def test_padding_of_a_blocked_output_is_zero(x: np.ndarray) -> None:
    output = bl.load(nets.chain(batch=2), io_layout={"y": BLOCKED})(x)
    blocks = output.physical().reshape(2, 3, 12, 12, 8)
    assert not blocks[:, 2, :, :, 1:].any()


@pytest.mark.parametrize("layout", ["nchw", "nhwc", BLOCKED, "nChw16c"])
@pytest.mark.parametrize("declared", ["nhwc", BLOCKED])
def test_tensors_have_their_own_layout(declared: str, layout: str, x: np.ndarray, expected: np.ndarray) -> None:
    session = bl.load(nets.chain(batch=2), io_layout={"x": declared})
    np.testing.assert_allclose(session(bl.reorder(x, layout)), expected, rtol=1e-4, atol=1e-4)


def _free_model(nodes: list[onnx.NodeProto], shape: tuple[Any, ...] | None) -> onnx.ModelProto:
    weights = {"w": nets.he(np.random.default_rng(0), 4, 3, 3, 3), "c": np.arange(24, dtype=np.float32)}
    weights["c"] = weights["c"].reshape(1, 2, 3, 4)
    graph = helper.make_graph(
        nodes,
        "free",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NODES = [
    helper.make_node("Conv", ["x", "w"], ["y"]),
    helper.make_node("Neg", ["c"], ["z"]),
]


@pytest.mark.parametrize("shape", [("n", 3, "h", "w"), (None, None, None, None), None])
def test_free_extents_are_in_the_callers_order(shape: tuple[Any, ...] | None) -> None:
    session = bl.load(_free_model(NODES, shape), io_layout={"x": "nhwc", "y": "nhwc", "z": "nhwc"})
    if shape and shape[0]:
        assert session.get_inputs()[0].shape == ("n", "h", "w", 3)
    x = nets.random_input((2, 7, 9, 3))
    y, z = session.run(None, {"x": x})
    assert y.shape == (2, 5, 7, 4)
    np.testing.assert_array_equal(z, -np.arange(24).reshape(1, 2, 3, 4).transpose(0, 2, 3, 1))
    assert session.plan_for({"x": (2, 7, 9, 3)}) is session.plan
    planned = bl.load(_free_model(NODES, shape), io_layout={"x": "nhwc"}, shapes={"x": (2, 7, 9, 3)})
    np.testing.assert_allclose(planned.run(["y"], {"x": x})[0], y.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)


def test_a_constant_output_comes_in_blocks_too() -> None:
    session = bl.load(_free_model(NODES, (1, 3, 5, 5)), io_layout={"z": BLOCKED})
    [z] = session.run(["z"], {"x": nets.random_input((1, 3, 5, 5))})
    np.testing.assert_array_equal(z.numpy(), -np.arange(24).reshape(1, 2, 3, 4))
    assert z.desc.padded_dims == (1, 8, 3, 4)


def test_an_input_that_is_an_output_changes_order() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (2, 3, 4, 5)))
    session = bl.load(b, io_layout={"x": "nhwc"})
    x = nets.random_input((2, 4, 5, 3))
    np.testing.assert_array_equal(session(x), x.transpose(0, 3, 1, 2))


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no such name": ({"X": "nhwc"}, bl.InputError, "no input or output 'X'; there are x, y"),
    "no such format": ({"x": "nhwd"}, bl.LayoutError, "'x': no format tag 'nhwd'"),
    "another rank": ({"y": "nwc"}, bl.LayoutError, "'y' has rank 4, and nwc is a format of rank 3"),
    "not a name": ({"x": 4}, bl.LayoutError, "'x' wants the name of a format"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_format_is_refused_by_name(case: str) -> None:
    io_layout, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        bl.load(nets.chain(), io_layout=io_layout)


def test_a_rank_that_only_a_run_tells_is_checked_there() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), NODES[1]]
    session = bl.load(_free_model(nodes, None), io_layout={"y": "nwc"})
    with pytest.raises(bl.LayoutError, match="'y' has rank 2, and nwc is a format of rank 3"):
        session.run(None, {"x": nets.random_input((2, 3))})
    with pytest.raises(bl.LayoutError, match="the rank of 'x' is not declared"):
        bl.load(_free_model(nodes, None), io_layout={"x": "channels_last"})
    session = bl.load(_free_model(nodes, None), io_layout={"x": "nhwc"})
    with pytest.raises(bl.InputError, match="'x' is given in nhwc, which has rank 4; got rank 2"):
        session.run(None, {"x": nets.random_input((2, 3))})


def test_an_array_in_another_order_is_refused(x: np.ndarray) -> None:
    session = bl.load(nets.chain(batch=2), io_layout={"x": "nhwc"})
    with pytest.raises(bl.InputError, match="'x' is 2x12x12x17 in nhwc, got 2x17x12x12"):
        session(x)
    with pytest.raises(bl.InputError, match="2x17x12x12, got 2x12x12x17"):
        session(bl.reorder(_physical(x, "nhwc"), "nchw"))
