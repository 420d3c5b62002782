"""What the zoo's networks compute, in every policy, against another runtime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.model import Builder
from blocklayout.plan import POLICIES

TOLERANCE = 1e-5
"""Largest error, over the largest output."""


@dataclass(frozen=True)
class Small:
    """A network with less of everything that it has several of, at an odd size."""

    size: int | tuple[int, ...]
    variant: dict[str, Any] = field(default_factory=dict)


# One of each family, or of each kind of block in it.
SMALL = {
    "alexnet": Small((95, 63), {"features": 24, "classes": 10}),
    "vgg11_bn": Small(65, {"features": 24, "depths": (1, 1, 2), "classes": 10}),
    "resnet18": Small(49, {"blocks": (2, 1), "classes": 10}),
    "resnext50_32x4d": Small(49, {"blocks": (1, 1), "classes": 10}),
    "densenet121": Small(45, {"blocks": (2, 2), "growth": 12, "stem": 20}),
    "googlenet": Small(47, {"stages": (((24, 20, 28, 10, 12, 16),), ((30, 24, 33, 12, 14, 17),)), "classes": 10}),
    "inception_v3": Small(75, {"pooled5": (32,), "channels6": (40,), "classes": 10}),
    "mnasnet0_5": Small(49, {"stacks": ((24, 3, 2, 3, 2), (40, 5, 2, 3, 1)), "classes": 10}),
    "mobilenet_v2": Small(49, {"stacks": ((1, 16, 1, 1), (6, 24, 2, 2)), "classes": 10}),
    "shufflenet_v2_x1_0": Small(49, {"channels": (24, 116, 232, 64), "units": (3, 2), "classes": 10}),
    "squeezenet1_1": Small(33, {"classes": 10}),
    "convnext_tiny": Small(45, {"blocks": (1, 1), "channels": (24, 40), "classes": 10}),
    "efficientnet_b0": Small(49, {"stages": ((1, 3, 1, 16, 1), (6, 5, 2, 24, 2)), "classes": 10}),
    "unet": Small((61, 50), {"width": 24, "depth": 2}),
    "dcgan_generator": Small((2, 3), {"width": 20}),
    "r3d_18": Small((5, 21, 17), {"layers": 2, "classes": 10}),
    "r2plus1d_18": Small((5, 21, 17), {"layers": 2, "classes": 10}),
    "m34_res": Small(3001, {"stages": ((48, 1), (96, 1))}),
    "mobilenet_v3_large": Small(
        33, {"blocks": ((3, 16, 16, False, "relu", 1), (5, 40, 24, True, "hard_swish", 2)), "classes": 10}
    ),
    "efficientnet_v2_s": Small(
        33, {"stages": ((True, 1, 1, 24, 1), (True, 4, 2, 32, 1), (False, 4, 2, 40, 1)), "classes": 10}
    ),
    "regnet_y_400mf": Small(33, {"blocks": (1, 1), "channels": (48, 104), "classes": 10}),
    "convnext_v2_tiny": Small(45, {"blocks": (1,), "channels": (24,), "classes": 10}),
    "deeplab_v3_resnet50": Small((65, 49), {"blocks": (1, 1, 1), "width": 16, "rates": (2, 3), "classes": 5}),
    "unet_3d": Small((24, 23, 22), {"width": 8, "depth": 1}),
    "swin_t": Small((36, 60), {"blocks": (2, 1), "heads": (2, 4), "features": 24, "classes": 10}),
    "vit_b_16": Small(49, {"layers": 1, "features": 36, "heads": 3, "classes": 10}),
    "bert_base": Small(7, {"layers": 1, "features": 24, "heads": 3, "words": 50}),
    "crnn": Small((32, 24), {"channels": (8, 12, 20, 24), "states": 12, "classes": 10}),
    "conv_tasnet": Small(400, {"features": 24, "bottleneck": 12, "hidden": 20, "layers": 3, "stacks": 1}),
    "faster_rcnn_resnet50_fpn": Small(
        (70, 60), {"blocks": (1, 1), "width": 8, "channels": 12, "features": 20, "grid": 3, "classes": 5}
    ),
    "yolo_v8n": Small((64, 96), {"channels": (8, 16, 16, 24, 32), "blocks": (1, 2, 1, 1), "classes": 7}),
    "ssdlite320_mobilenet_v3_large": Small(
        (70, 50),
        {
            "blocks": ((3, 16, 16, False, "relu", 1), (5, 40, 24, True, "hard_swish", 2)),
            "extras": (24, 16),
            "classes": 7,
        },
    ),
}

ODD: dict[str, int | tuple[int, ...]] = {
    "inception_v3": 315,
    "unet": 573,
    "unet_3d": (132, 132, 116),
    "bert_base": 77,
    "dcgan_generator": (2, 3),
    "crnn": (32, 131),
    "conv_tasnet": 30_008,
    "yolo_v8n": (224, 288),
    "r3d_18": (15, 117, 113),
    "mc3_18": (15, 117, 113),
    "r2plus1d_18": (15, 117, 113),
    **dict.fromkeys(("m3", "m5", "m11", "m18", "m34_res"), 30_001),
}
FULL = [(name, size) for name in zoo.names() for size in (None, ODD.get(name, 231))]


def inputs_of(network: Builder) -> dict[str, np.ndarray]:
    graph, rng = network.to_graph(), np.random.default_rng(7)
    return {
        x.name: rng.standard_normal(x.shape, np.float32) if x.dtype == "f32" else rng.integers(0, 50, x.shape)
        for x in (graph.values[name] for name in graph.inputs)
    }


def computed_elsewhere(network: Builder | onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = network.to_onnx() if isinstance(network, Builder) else network
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [np.asarray(each) for each in session.run(None, feeds)]


def check_every_policy(network: Builder, policies: Sequence[str] = POLICIES) -> None:
    feeds = inputs_of(network)
    expected = computed_elsewhere(network, feeds)
    for policy in policies:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of operators that no primitive computes
            warnings.simplefilter("ignore", bl.PolicyWarning)  # no kernel of this CPU may take its blocks
            session = bl.load(network, layout=policy)
        for found, wanted in zip(session.run(None, feeds), expected, strict=True):
            assert found.shape == wanted.shape, policy
            assert np.abs(found - wanted).max(initial=0) < TOLERANCE * np.abs(wanted).max(initial=1e-30), policy
        assert session.plan.plain_steps == (), policy
        assert session.plan.reference_steps == (), policy


LONG = (
    *("inception_v3", "vgg11_bn", "resnet18", "mnasnet0_5", "r3d_18", "mobilenet_v3_large", "efficientnet_v2_s"),
    *("regnet_y_400mf", "convnext_v2_tiny", "deeplab_v3_resnet50", "unet_3d", "vit_b_16", "swin_t"),
    *("faster_rcnn_resnet50_fpn", "ssdlite320_mobilenet_v3_large", "yolo_v8n"),
)
"""They take long, or others are of the same blocks."""
BRIEF_FIRST = [pytest.param(name, marks=pytest.mark.full_size) if name in LONG else name for name in SMALL]


@pytest.mark.parametrize("name", BRIEF_FIRST)
def test_small_variants_agree_with_onnxruntime(name: str) -> None:
    small = SMALL[name]
    check_every_policy(zoo.build(name, batch=2, size=small.size, **small.variant), ("auto", "blocked", "nhwc", "plain"))


@pytest.mark.parametrize(
    "name", [pytest.param("yolo_v8n", marks=pytest.mark.full_size), "ssdlite320_mobilenet_v3_large"]
)
def test_detectors_keep_the_boxes_that_onnxruntime_keeps(name: str) -> None:
    small = SMALL[name]
    feeds = inputs_of(zoo.build(name, size=small.size, seed=None, **small.variant))
    model = zoo.detector(name, size=small.size, **small.variant)
    expected = computed_elsewhere(model, feeds)
    assert len(expected[0]) > 1
    session = bl.load(model)
    for found, wanted in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * np.abs(wanted).max())
    assert not any(plan.plain_steps or plan.reference_steps for plan in session.plans)


def test_padding_unet_agrees_with_onnxruntime() -> None:
    check_every_policy(zoo.build("unet", size=(37, 50), width=24, depth=1, is_padded=True))


@pytest.mark.parametrize(
    "name",
    [
        *("densenet121", "efficientnet_b0", "m34_res"),
        *(pytest.param(name, marks=pytest.mark.full_size) for name in ("resnet101", "vgg19")),
    ],
)
def test_activations_neither_vanish_nor_explode(name: str) -> None:
    """Through the deepest of each kind; images are small, since depth is what matters."""
    size = 3000 if name == "m34_res" else 48
    variant = {"features": 256} if name == "vgg19" else {}
    network = zoo.build(name, batch=2, size=size, **variant)
    [y] = computed_elsewhere(network, inputs_of(network))
    assert np.isfinite(y).all()
    assert 1e-2 < y.std() < 1e2
    assert np.abs(y[0] - y[1]).max() > 0.01 * np.abs(y).max()  # it does matter what is shown


@pytest.mark.full_size
@pytest.mark.parametrize(("name", "size"), FULL)
def test_full_size_networks_agree_with_onnxruntime(name: str, size: int | tuple[int, ...] | None) -> None:
    check_every_policy(zoo.build(name, size=size))
