"""Old models compute what they did in their own operator set."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.model import open_model, read
from blocklayout.model.onnx_read import OLDEST_OPSET
from tests.model.protos import make_model, relu_model


def test_a_model_of_an_operator_set_before_7_is_converted() -> None:
    model = relu_model()
    model.opset_import[0].version = 6
    assert read(model).opset == OLDEST_OPSET


def prelu(shape: tuple[int, ...], slope: np.ndarray) -> ModelProto:
    nodes = [helper.make_node("PRelu", ["x", "s"], ["y"])]
    return make_model(nodes, {"x": shape}, constants={"s": slope}, opset=6)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 3), (2, 3, 4, 5, 3)], ids=str)
def test_slopes_of_old_prelus_belong_to_channels(shape: tuple[int, ...]) -> None:
    slope = np.array([0.5, 2, -1], np.float32)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    [y] = bl.load(prelu(shape, slope)).run(None, {"x": x})
    of_channel = slope.reshape(3, *[1] * (len(shape) - 2))
    np.testing.assert_allclose(y, np.where(x < 0, of_channel * x, x), rtol=1e-6)


def test_a_slope_shared_by_all_channels_stays_one() -> None:
    model = prelu((2, 3, 4), np.array([0.5], np.float32))
    x = np.full((2, 3, 4), -1, np.float32)
    np.testing.assert_array_equal(bl.load(model).run(None, {"x": x})[0], x / 2)


def test_scatter_is_read_under_its_later_name() -> None:
    shapes = {"data": (1, 5), "updates": (1, 2)}
    nodes = [helper.make_node("Scatter", ["data", "indices", "updates"], ["y"], axis=1)]
    model = make_model(nodes, shapes, constants={"indices": np.array([[1, 3]])}, opset=10)
    assert [node.op_type for node in open_model(model).nodes] == ["ScatterElements"]
    data, updates = np.arange(1, 6, dtype=np.float32)[None], np.array([[1.5, 2.5]], np.float32)
    [y] = bl.load(model).run(None, {"data": data, "updates": updates})
    np.testing.assert_array_equal(y, [[1, 1.5, 3, 2.5, 5]])


def test_a_model_that_needs_no_conversion_is_left_alone() -> None:
    model = make_model([helper.make_node("Clip", ["x"], ["y"], min=0.0)], {"x": (2,)}, opset=10)
    assert open_model(model).opset == 10
    x = np.array([-1, 1], np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(bl.load(model).run(None, {"x": x}), expected)
