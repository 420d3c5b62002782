"""Extents: what the model declares, what the caller gives, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from blocklayout.errors import InputError, ModelError, UnsupportedError
from blocklayout.model import Builder, Graph, free_extents, open_model, read, simplify
from tests.model.protos import conv_net, make_model, relu_model

OpTypes = Callable[[Graph], list[str]]
NEWEST = onnx.defs.onnx_opset_version()

# --- extents


def test_free_extents_are_listed() -> None:
    nodes = [helper.make_node("Sum", ["x", "z", "w"], ["y"])]
    model = make_model(nodes, {"x": ["N", 3], "z": [None, 3], "w": (1, 3)})
    assert free_extents(model) == {"x": (None, 3), "z": (None, 3)}


def test_an_undeclared_rank_is_free() -> None:
    model = relu_model(None)
    assert free_extents(model) == {"x": None}
    with pytest.raises(InputError, match="does not declare the shape"):
        read(model)
    assert read(model, {"x": (4, 5)}).shape("y") == (4, 5)


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ({}, r"free extents, \(N, 3\); set them with shapes=\{'x': \(1, 3\)\} or --shape x=1x3"),
        ({"X": (1, 3)}, r"no input 'X'; its inputs are 'x'"),
        ({"x": (1, 3, 4)}, "has 2 dimensions"),
        ({"x": (1, 4)}, "extent 1 is fixed to 3, not 4"),
        ({"x": (-1, 3)}, "negative"),
        ({"x": ("a", 3)}, "must be integers"),
        ({"x": 3}, "must be integers"),
    ],
)
def test_wrong_extents_name_the_remedy(shapes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read(relu_model(["N", 3]), shapes)


def test_all_inputs_with_free_extents_are_named_with_the_words_that_set_them() -> None:
    model = make_model([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": ["n", "k"], "b": ["k", None]})
    remedy = r"shapes=\{'a': \(1, 128\), 'b': \(1, 128\)\} or --shape a=1x128 --shape b=1x128"
    with pytest.raises(InputError, match=rf"'a' has free extents, \(n, k\); input 'b'.* \(k, \?\); set .* {remedy}"):
        read(model)


def test_a_misspelt_input_is_guessed() -> None:
    model = make_model([helper.make_node("Relu", ["image"], ["y"])], {"image": ["N", 3]})
    with pytest.raises(InputError, match="did you mean 'image'"):
        read(model, {"imgae": (1, 3)})


def test_a_named_extent_follows_from_another_input() -> None:
    model = make_model([helper.make_node("Add", ["x", "z"], ["y"])], {"x": ["N", 3], "z": ["N", 3]})
    assert read(model, {"x": (4, 3)}).shape("z") == (4, 3)
    with pytest.raises(InputError, match="'N', which is 4 in 'x', not 5"):
        read(model, {"x": (4, 3), "z": (5, 3)})


def test_extents_named_unknown_are_independent() -> None:
    unknown = ["?", "??", "*", "-1", " ", "None", "null", "NaN", "unk", "unk__12", "unknown", "Unknown_3", "dynamic"]
    for name in unknown:
        assert read(relu_model([name, name]), {"x": (4, 3)}).shape("y") == (4, 3), name
    for name in ("n", "N", "nanos", "batch_1", "DynamicDimension.0", "dynamic_axes_1"):
        with pytest.raises(InputError, match="which is 4 in 'x', not 3"):
            read(relu_model([name, name]), {"x": (4, 3)})


def test_a_negative_declared_extent_is_free() -> None:
    assert free_extents(relu_model([-1, 3])) == {"x": (None, 3)}


def test_batch_0_is_legal() -> None:
    graph = simplify(read(conv_net(13), {"x": (0, 3, 8, 8)}))
    assert [graph.shape(node.outputs[0])[0] for node in graph.nodes] == [0] * 6
    assert graph.shape("y") == (0, 5)


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((0, 4, 6), (0, -1), (0, 24)),
        ((0, 4, 6), (-1, 24), (0, 24)),
        ((0, 4, 6), (0, -1, 3), (0, 8, 3)),
        ((4, 0), (-1, 0), (4, 0)),
        ((0, 4), (4, 0), (4, 4)),
    ],
)
def test_reshaping_nothing_works_out_extents_as_for_any_batch(
    shape: tuple[int, ...], target: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    b = Builder()
    if 0 in expected:
        assert b.input("x", shape).reshape(target).shape == expected
    else:
        with pytest.raises(ModelError, match="Reshape"):
            b.input("x", shape).reshape(target)


def test_one_reading_serves_many_extents() -> None:
    model = open_model(conv_net(13))
    assert [read(model, {"x": (n, 3, 8, 8)}).shape("y") for n in (1, 5)] == [(1, 5), (5, 5)]


def test_inputs_that_extents_follow_from_can_be_given_as_constants() -> None:
    b = Builder()
    b.output("y", b.input("x", (2, 6)).reshape((3, 4)))
    model = b.to_onnx()
    target = model.graph.node[0].input[1]
    model.graph.initializer.pop()
    model.graph.input.append(helper.make_tensor_value_info(target, TensorProto.INT64, [2]))
    with pytest.raises(UnsupportedError, match="depend on data"):
        read(model)
    graph = read(model, constants={target: np.array([3, 4])})
    assert graph.inputs == ("x",)
    assert graph.shape("y") == (3, 4)
    with pytest.raises(InputError, match="declared s64, not float32"):
        read(model, constants={target: np.array([3, 4], np.float32)})
