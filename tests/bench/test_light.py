"""The ImageNet graphs with random weights: valid, repeatable, and worth comparing outputs of."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bench import light
from blocklayout.errors import ModelError

SMALL = "squeezenet"
LARGE = [pytest.param(name, marks=pytest.mark.full_size) for name in light.NAMES if name != SMALL]


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the model here")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # the published graphs list constants as inputs, which it warns of
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, inputs)]


def weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def parameters_by_role(model: onnx.ModelProto, op_type: str, position: int) -> list[np.ndarray]:
    known = weights(model)
    return [known[node.input[position]] for node in model.graph.node if node.op_type == op_type]


def test_a_seed_repeats_its_weights_and_another_gives_others() -> None:
    first, again, other = (weights(light.light_model(SMALL, seed)) for seed in (3, 3, 4))
    assert first.keys() == again.keys() == other.keys()
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not any(np.array_equal(first[name], other[name]) for name in first)


def test_only_the_image_is_an_input_and_nothing_is_generated_at_run_time() -> None:
    model = light.light_model(SMALL)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["data_0"]
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}


def test_graph_is_otherwise_the_published_one() -> None:
    published = Counter(node.op_type for node in light.smoke_case(SMALL).model.graph.node)
    del published["ConstantOfShape"]
    assert Counter(node.op_type for node in light.light_model(SMALL).graph.node) == published


def test_convolutions_behind_a_relu_get_he_weights() -> None:
    (deviation,) = {
        round(float(w.std()) * np.sqrt(w[0].size / 2), 1)
        for w in parameters_by_role(light.light_model(SMALL), "Conv", 1)
        if w.shape[2:] == (3, 3) and w.shape[1] > 16
    }
    assert deviation == 1


def test_normalisations_of_a_residual_network_are_varied_and_tame() -> None:
    model = light.light_model("shufflenet")
    scale, bias, mean, variance = (
        np.concatenate(parameters_by_role(model, "BatchNormalization", position)) for position in range(1, 5)
    )
    assert variance.min() >= 0.5
    assert variance.max() <= 1.5
    assert 0.2 < scale.min() < 0.4  # ends of residual branches
    assert 0.9 < scale.max() < 1.1
    assert min(bias.std(), mean.std()) > 0.05


@pytest.mark.parametrize("name", [SMALL, *LARGE])
def test_outputs_vary_with_the_input_and_are_not_saturated(name: str) -> None:
    model = light.light_model(name)
    (first,), (second,) = (run(model, light.random_inputs(model, seed)) for seed in (0, 1))
    assert np.isfinite(first).all()
    assert np.abs(first - second).max() > 0.01 * first.max()
    if model.graph.node[-1].op_type == "Softmax":
        assert 1.5 / first.size < first.max() < 0.9


@pytest.mark.parametrize("name", [SMALL, *LARGE])
def test_published_output_is_what_onnxruntime_gives(name: str) -> None:
    case = light.smoke_case(name)
    for output, expected in zip(run(case.model, case.inputs), case.outputs.values(), strict=True):
        np.testing.assert_allclose(output, expected, rtol=2e-3)


def test_pieces_drawn_by_threads_do_not_depend_on_the_machine() -> None:
    drawn = light._normal(np.random.default_rng(0), (light.PIECE + 3,), 2.0)
    first, last = np.random.default_rng(0).spawn(2)
    np.testing.assert_array_equal(drawn[:5], 2 * first.standard_normal(5, np.float32))
    np.testing.assert_array_equal(drawn[light.PIECE :], 2 * last.standard_normal(3, np.float32))


def test_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ModelError, match=r"no network is named 'resnet'; there are bvlc_alexnet, .*resnet50"):
        light.light_model("resnet")
