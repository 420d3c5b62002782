"""Networks by name: what can be asked for, what is refused, and what the weights are like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.errors import ModelError
from blocklayout.model import Builder
from blocklayout.zoo._layers import adaptive_average_pool

SMALL = "squeezenet1_1"


def weights_of(network: Builder) -> dict[str, np.ndarray]:
    return {name: value.data for name, value in network.to_graph().values.items() if value.data is not None}


def test_a_seed_repeats_its_weights_and_another_gives_others() -> None:
    first, again, other = (weights_of(zoo.build(SMALL, seed=seed)) for seed in (3, 3, 4))
    floats = [name for name in first if first[name].dtype == np.float32]
    assert floats
    assert all(np.array_equal(first[name], again[name]) for name in floats)
    assert not any(np.array_equal(first[name], other[name]) for name in floats)


def test_weights_to_count_by_take_no_memory() -> None:
    held = weights_of(zoo.build("vgg16", seed=None)).values()
    assert sum(array.size for array in held) > 138e6
    assert all(sum(array.strides) == 0 for array in held if array.dtype == np.float32)


def test_normalisations_are_varied_and_tame() -> None:
    network = zoo.build("resnet18", size=32)
    held = weights_of(network)
    nodes = [node for node in network.to_graph().nodes if node.op_type == "BatchNormalization"]
    scale, bias, mean, variance = (
        np.concatenate([held[node.inputs[position]] for node in nodes]) for position in range(1, 5)
    )
    assert 0.5 <= variance.min() < variance.max() <= 1.5
    assert 0.2 < scale.min() < 0.4  # ends of residual branches
    assert 0.9 < scale.max() < 1.1
    assert min(bias.std(), mean.std()) > 0.05


def test_nodes_are_named_after_their_place() -> None:
    names = [node.name for node in zoo.build("resnet50", seed=None).to_graph().nodes]
    assert {"stem.conv1", "layer3.5.conv3", "layer4.0.bn4", "classifier.linear1"} <= set(names)


@pytest.mark.parametrize(
    ("name", "size", "shape"),
    [
        ("resnet18", None, (2, 3, 224, 224)),
        ("resnet18", 65, (2, 3, 65, 65)),
        ("resnet18", (33, 65), (2, 3, 33, 65)),
        ("r3d_18", 32, (2, 3, 16, 32, 32)),
        ("r3d_18", (4, 32, 33), (2, 3, 4, 32, 33)),
        ("m5", 4001, (2, 1, 4001)),
        ("dcgan_generator", None, (2, 100, 1, 1)),
    ],
)
def test_size_is_of_all_spatial_dimensions_or_of_height_and_width(
    name: str, size: int | tuple[int, ...] | None, shape: tuple[int, ...]
) -> None:
    assert zoo.build(name, batch=2, size=size, seed=None).to_graph().shape("x") == shape


def test_unet_with_padding_gives_an_image_of_any_extents_back() -> None:
    network = zoo.build("unet", size=(37, 50), seed=None, width=4, is_padded=True, classes=3)
    assert network.to_graph().shape("y") == (1, 3, 37, 50)


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        ("resnet500", {}, r"no network 'resnet500'; the closest are resnet50, \S+, \S+$"),
        ("", {}, r"the closest are \S+, \S+, \S+$"),
        ("resnet50", {"depth": 3}, "no variant 'depth'; what can be varied: blocks, .*classes"),
        ("resnet50", {"size": (1, 2, 3)}, r"give one number, or 2 of them, such as \(224, 224\)"),
        ("m5", {"size": (1, 2)}, r"give one number, such as \(32000,\)"),
        ("unet", {"size": 100}, "unet cannot take"),
        ("resnet50", {"size": 0}, "nothing would be left"),
        ("resnet50", {"size": -1}, "no extent can be negative"),
    ],
)
def test_what_cannot_be_built_is_refused(name: str, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        zoo.build(name, seed=None, **asked)


def test_only_detectors_have_boxes_to_choose_among() -> None:
    with pytest.raises(ModelError, match=r"resnet18 makes no boxes.*detectors are ssdlite320\S+, yolo_v8n"):
        zoo.detector("resnet18")


@pytest.mark.parametrize(
    ("name", "variant"),
    [(SMALL, {}), ("shufflenet_v2_x0_5", {}), ("convnext_tiny", {"blocks": (1, 1), "channels": (96, 192)})],
)
def test_other_runtimes_load_what_is_saved(name: str, variant: dict[str, Any], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    bl.save(zoo.build(name, size=64, **variant), tmp_path / "network.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "network.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx")
    assert [value.shape for value in (*session.get_inputs(), *session.get_outputs())] == [[1, 3, 64, 64], [1, 1000]]


def windows(source: int, wanted: int) -> list[slice]:
    """As PyTorch documents it: from the floor of the one bound to the ceiling of the other."""
    return [slice(int(np.floor(i * source / wanted)), int(np.ceil((i + 1) * source / wanted))) for i in range(wanted)]


@pytest.mark.parametrize(
    ("extents", "wanted", "op_types"),
    [
        ((7, 7), (7, 7), set()),
        ((1, 1), (6, 6), {"Expand"}),
        ((14, 14), (7, 7), {"AveragePool"}),
        ((13, 13), (6, 6), {"AveragePool"}),
        ((2, 9), (7, 7), {"Slice", "ReduceMean", "Concat"}),
    ],
)
def test_adaptive_pooling_is_that_of_pytorch(
    extents: tuple[int, int], wanted: tuple[int, int], op_types: set[str]
) -> None:
    b = Builder()
    b.output("y", adaptive_average_pool(b.input("x", (2, 3, *extents)), wanted))
    assert {node.op_type for node in b.to_graph().nodes} - {"Identity"} == op_types
    x = np.random.default_rng(0).standard_normal((2, 3, *extents), np.float32)
    rows, columns = windows(extents[0], wanted[0]), windows(extents[1], wanted[1])
    expected = np.array([[x[:, :, row, column].mean((2, 3)) for column in columns] for row in rows])
    np.testing.assert_allclose(bl.load(b)(x), expected.transpose(2, 3, 0, 1), rtol=1e-5, atol=1e-6)
