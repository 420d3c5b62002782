"""The embedded model is what its documentation says: small, valid, padded when blocked, and right."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from blocklayout.zoo import digits


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load_from_string(digits.model_bytes())


def n_right(probabilities: np.ndarray, labels: np.ndarray) -> int:
    return int(np.sum(probabilities.argmax(axis=1) == labels))


def test_model_is_small_enough_to_embed() -> None:
    assert len(digits.model_bytes()) < 400_000


def test_model_is_valid_onnx_with_a_free_batch_extent(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {"image": ["N", 1, 8, 8], "probabilities": ["N", 10]}


def test_channels_fill_no_block(model: onnx.ModelProto) -> None:
    weights = {w.name: tuple(w.dims) for w in model.graph.initializer if len(w.dims) == 4}
    assert {17, 33, 49} <= {extent for dims in weights.values() for extent in dims[:2]}


def test_every_role_occurs_and_normalisation_is_not_folded(model: onnx.ModelProto) -> None:
    counts = Counter(node.op_type for node in model.graph.node)
    assert counts["BatchNormalization"] == counts["Conv"] == 6
    once = {"Add", "Concat", "MaxPool", "Clip", "GlobalAveragePool", "Flatten", "Gemm", "Softmax"}
    assert {op_type for op_type, n in counts.items() if n == 1} == once


def test_every_node_has_a_name_of_its_own(model: onnx.ModelProto) -> None:
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)


def test_weights_are_initializers_and_not_inputs(model: onnx.ModelProto) -> None:
    assert [value.name for value in model.graph.input] == ["image"]
    assert all(np.isfinite(numpy_helper.to_array(weight)).all() for weight in model.graph.initializer)


def test_normalisation_statistics_are_not_trivial(model: onnx.ModelProto) -> None:
    weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            scale, bias, mean, variance = (weights[name] for name in node.input[1:])
            assert min(values.std() for values in (scale, bias, mean, variance)) > 0.01
            assert variance.min() > 0


def test_held_out_images_are_scaled_and_show_every_digit() -> None:
    images, labels = digits.held_out()
    assert images.shape == (len(labels), 1, 8, 8)
    assert images.dtype == np.dtype(np.float32)
    assert labels.dtype == np.dtype(np.int64)
    assert (images.min(), images.max()) == (0, 1)
    assert np.bincount(labels).tolist() == [45, 46, 45, 46, 46, 46, 46, 45, 44, 45]


def test_reference_evaluator_reads_a_few_images(model: onnx.ModelProto) -> None:
    images, labels = digits.held_out()
    (probabilities,) = map(np.asarray, ReferenceEvaluator(model).run(None, {"image": images[:8]}))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert n_right(probabilities, labels[:8]) >= 7


@pytest.mark.parametrize("batch", [1, 454])
def test_held_out_accuracy_is_as_documented(batch: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the model here")
    session = onnxruntime.InferenceSession(digits.model_bytes(), providers=["CPUExecutionProvider"])
    images, labels = digits.held_out()
    runs = [session.run(None, {"image": images[i : i + batch]})[0] for i in range(0, len(images), batch)]
    assert n_right(np.concatenate(runs), labels) / len(labels) >= 0.98


def test_relu6_clips_some_activation(model: onnx.ModelProto) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the model here")
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    opened.graph.output.append(onnx.ValueInfoProto(name="top/norm"))
    session = onnxruntime.InferenceSession(opened.SerializeToString(), providers=["CPUExecutionProvider"])
    (before_clip,) = session.run(["top/norm"], {"image": digits.held_out()[0]})
    assert before_clip.min() < 0
    assert before_clip.max() > 6
