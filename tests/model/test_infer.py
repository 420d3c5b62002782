"""What is known of a node's outputs before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import blocklayout as bl
from blocklayout.model import read
from tests.model.protos import make_model


@pytest.mark.parametrize(
    ("op_type", "n_parameters", "attrs", "opset"),
    [("LRN", 0, {"size": 3, "alpha": 1.0}, 17), ("BatchNormalization", 4, {}, 9)],
)
def test_what_the_reference_computes_wrongly_is_not_folded_by_it(
    op_type: str, n_parameters: int, attrs: dict[str, Any], opset: int
) -> None:
    names = [f"p{index}" for index in range(n_parameters)]
    constants: dict[str, np.ndarray] = dict.fromkeys(names, np.ones(6, np.float32))
    constants["a"] = np.arange(12, dtype=np.float32).reshape(1, 6, 2, 1)
    nodes = [helper.make_node(op_type, ["a", *names], ["b"], **attrs), helper.make_node("Add", ["b", "x"], ["y"])]
    graph = read(make_model(nodes, {"x": (1, 6, 2, 1)}, constants=constants, opset=opset))
    assert [node.op_type for node in graph.nodes] == [op_type, "Add"]


def test_indices_far_out_of_range_are_not_followed() -> None:
    """The reference takes them modulo the extent, by subtracting that 2^61 times."""
    gather = helper.make_node("GatherElements", ["a", "indices"], ["y"], name="gather")
    constants = {"a": np.ones(4, np.float32), "indices": np.array([1, 2**63 - 1])}
    session = bl.load(make_model([gather], {}, constants=constants).SerializeToString(), tune="model", threads=1)
    with pytest.raises(bl.InputError, match=r"'gather'.*indices are 1 to .*an extent of 4 has -4 to 3"):
        session.run(None, {})


@pytest.mark.parametrize("extents", [(1, 128, 1), (1, 128)])
@pytest.mark.parametrize(("attrs", "n_bins"), [({}, 9), ({"onesided": 1}, 9), ({"onesided": 0}, 16)], ids=str)
def test_a_short_time_fourier_transform_has_one_side_by_default(
    extents: tuple[int, ...], attrs: dict[str, Any], n_bins: int
) -> None:
    nodes = [helper.make_node("STFT", ["x", "step", "", "length"], ["y"], **attrs)]
    constants = {"step": np.array(8), "length": np.array(16)}
    model = make_model(nodes, {"x": extents}, constants=constants, opset=17)
    assert read(model).shape("y") == (1, 15, n_bins, 2)
    x = np.random.default_rng(0).standard_normal(extents, np.float32)
    [y] = bl.load(model).run(None, {"x": x})
    frames = np.lib.stride_tricks.sliding_window_view(x.reshape(-1), 16)[::8]
    np.testing.assert_allclose(y[0, ..., 0] + 1j * y[0, ..., 1], np.fft.fft(frames)[:, :n_bins], atol=1e-5)


def test_a_range_may_be_given_single_elements_of_any_rank() -> None:
    nodes = [helper.make_node("Range", ["a", "b", "a"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    constants = {"a": np.array([1], np.float32), "b": np.array([[4]], np.float32)}
    graph = read(make_model(nodes, {"x": (3,)}, constants=constants))
    np.testing.assert_array_equal(graph.constant("r"), [1, 2, 3])


_ONES, _INTEGERS = np.ones((3, 4), np.float32), np.array([1, 1, 1])


@pytest.mark.parametrize("opset", [7, 13, 22])
@pytest.mark.parametrize(
    ("op_type", "operands", "attrs"),
    [
        ("Add", [_ONES], {}),
        ("Add", [], {}),
        ("Concat", [_ONES], {"axis": 1}),
        ("Concat", [np.ones(2, np.float32)], {"axis": 0}),
        ("Concat", [], {}),
        ("Identity", [_ONES], {}),
        ("LRN", [], {}),
        ("MatMul", [np.ones((2, 4), np.float32)], {}),
        ("MaxPool", [], {}),
        ("Max", [], {"axis": 1}),
        ("Transpose", [], {"perm": [0, 0]}),
    ],
    ids=str,
)
def test_a_node_against_its_specification_is_refused(
    op_type: str, operands: list[np.ndarray], attrs: dict[str, Any], opset: int
) -> None:
    """Operators rely on that: they check what neither ONNX's checker nor its shape inference does."""
    names = [f"p{index}" for index in range(len(operands))]
    node = helper.make_node(op_type, ["x", *names], ["y"], name="own", **attrs)
    with pytest.raises(bl.ModelError, match=r"own|Required attribute|Unrecognized attribute"):
        read(make_model([node], {"x": (2, 3)}, constants=dict(zip(names, operands, strict=True)), opset=opset))


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [
        ("Expand", [_INTEGERS * 4]),
        ("Pad", [_INTEGERS]),
        ("Reshape", [_INTEGERS]),
        ("Slice", [_INTEGERS[:2], _INTEGERS[:1]]),
        ("Slice", [_INTEGERS[:1], _INTEGERS[:1], _INTEGERS[:1], np.zeros(1, np.int64)]),
    ],
    ids=str,
)
def test_numbers_against_the_specification_are_refused(op_type: str, operands: list[np.ndarray]) -> None:
    names = [f"p{index}" for index in range(len(operands))]
    node = helper.make_node(op_type, ["x", *names], ["y"], name="own")
    with pytest.raises(bl.ModelError, match="own"):
        read(make_model([node], {"x": (2, 3)}, constants=dict(zip(names, operands, strict=True)), opset=13))
