"""Detectors: SSDLite with MobileNet v3, YOLO v8 and Faster R-CNN, their boxes, and the best of those that overlap.

Source: W. Liu et al., "SSD: Single Shot MultiBox Detector", arXiv:1512.02325; A. Howard et al., "Searching for
MobileNetV3", arXiv:1905.02244, section 6.3; S. Ren et al., "Faster R-CNN: Towards Real-Time Object Detection with
Region Proposal Networks", arXiv:1506.01497; T.-Y. Lin et al., "Feature Pyramid Networks for Object Detection",
arXiv:1612.03144; as in torchvision 0.29, but for the network that proposes; G. Jocher et al., Ultralytics YOLOv8,
https://github.com/ultralytics/ultralytics, ``yolov8.yaml`` and ``nn/modules``, release 8.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.zoo import CatalogueEntry
from blocklayout.zoo._layers import BRANCH_GAIN
from blocklayout.zoo.inverted_residuals import MOBILENET_V3_BLOCKS, Block, mobilenet_v3_blocks
from blocklayout.zoo.residual import layers

if TYPE_CHECKING:
    from onnx import ModelProto

    from blocklayout.model import BuildValue
    from blocklayout.zoo._layers import Layers

_SHIFT, _GROWTH = 10, 5
"""Divisors: offsets of a box's centre, and of the logarithm of its extents, are so many times as large."""

_ALL = {"boxes": "all_boxes", "scores": "all_scores"}
"""Names of the results of which the best are kept."""

_MOST = math.log(1000 / 16)
"""Of the logarithm by which a box grows."""


def decoded(offsets: BuildValue, centres: BuildValue | np.ndarray, extents: BuildValue | np.ndarray) -> BuildValue:
    """Corners of boxes in an image of 1x1; ``offsets`` are of the centre, in extents, and of log extents."""
    shift, growth = offsets.split((2, 2), axis=-1)
    middle = shift * (1 / _SHIFT) * extents + centres
    half = (growth * (1 / _GROWTH)).clip(hi=_MOST).exp() * extents * 0.5
    return offsets.builder.concat([middle - half, middle + half], axis=-1).clip(0, 1)


class Suppression(Struct, frozen=True):
    """Of boxes of a class that overlap, the one with the highest score is kept.

    Attributes:
        n: How many are kept of a class at most.
        overlap: Intersection over union above which only the better one is kept.
        score: Least score of a box that is kept.
        is_centred: Whether boxes are centres and extents; otherwise they are corners.
    """

    n: int
    overlap: float
    score: float
    is_centred: bool = False

    def behind(self, model: ModelProto) -> ModelProto:
        """The model with the best of its ``boxes`` (batch, n, 4) and ``scores`` (batch, kinds, n), and ``classes``."""
        from onnx import TensorProto, helper, numpy_helper

        graph = model.graph
        for node in graph.node:
            node.output[:] = [_ALL.get(name, name) for name in node.output]
        constants: dict[str, np.ndarray] = {
            "n": np.array([self.n], np.int64),
            "overlap": np.array([self.overlap], np.float32),
            "least": np.array([self.score], np.float32),
            "of_box": np.array([0, 2], np.int64),
            "of_class": np.array(1, np.int64),
        }
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
        limits = ("n", "overlap", "least")
        is_centred = int(self.is_centred)
        nodes = (
            helper.make_node("NonMaxSuppression", [*_ALL.values(), *limits], ["kept"], center_point_box=is_centred),
            helper.make_node("Gather", ["kept", "of_box"], ["places"], axis=1),
            helper.make_node("GatherND", ["all_boxes", "places"], ["boxes"]),
            helper.make_node("GatherND", ["all_scores", "kept"], ["scores"]),
            helper.make_node("Gather", ["kept", "of_class"], ["classes"], axis=1),
        )
        graph.node.extend(nodes)
        del graph.output[:]
        results = (("boxes", TensorProto.FLOAT, 4), ("scores", TensorProto.FLOAT), ("classes", TensorProto.INT64))
        graph.output.extend(
            helper.make_tensor_value_info(name, dtype, ("found", *inner)) for name, dtype, *inner in results
        )
        return model


# --- SSDLite: boxes as offsets from constant ones on six levels

BLOCKS = (
    *MOBILENET_V3_BLOCKS[:-3],
    (5, 672, 80, True, "hard_swish", 2),
    (5, 480, 80, True, "hard_swish", 1),
    (5, 480, 80, True, "hard_swish", 1),
)
"""The last three have half the channels of those of the classifier."""

RATIOS = (2, 3)
"""Width over height of boxes beside the two square ones; there is one of each lying and standing."""

N_BOXES = 2 + 2 * len(RATIOS)
SMALLEST, LARGEST = 0.2, 0.95

MOSTLY_NOTHING = 6.0
"""Added to the scores of the background before the softmax."""

SSD_KEPT = Suppression(300, overlap=0.55, score=0.05)


def ssdlite(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[Block] = BLOCKS,
    extras: Sequence[int] = (512, 256, 256, 128),
    classes: int = 91,
) -> dict[str, BuildValue]:
    """All boxes (corners, in parts of the image), and their scores for each class but the background, the first.

    The last of the ``blocks`` of MobileNet v3 with strides is where the first level is seen; ``extras`` are channels of
    further levels, each half as large as the one before.
    """
    levels = features(net, x, blocks, extras)
    found: dict[int, list[BuildValue]] = {classes: [], 4: []}
    for index, level in enumerate(levels):
        for kind, values in found.items():
            net.at(f"{'boxes' if kind == 4 else 'scores'}{index}")
            y = net.conv_bn(level, level.shape[1], group=level.shape[1], act="relu6")
            y = net.conv(y, N_BOXES * kind, 1, bias=True).reshape((x.shape[0], N_BOXES, kind, *y.shape[2:]))
            values.append(y.transpose((0, 3, 4, 1, 2)).reshape((x.shape[0], -1, kind)))
    scores, offsets = (x.builder.concat(values, axis=1) for values in found.values())
    centres, extents = priors([level.shape[2:] for level in levels])
    boxes = decoded(offsets, centres, extents)
    nothing = np.array([MOSTLY_NOTHING, *[0] * (classes - 1)], np.float32)
    kinds = (scores + nothing).softmax().slice([1], [classes], [2]).transpose((0, 2, 1))
    return {"boxes": boxes, "scores": kinds}


def features(net: Layers, x: BuildValue, blocks: Sequence[Block], extras: Sequence[int]) -> Sequence[BuildValue]:
    """The levels, from fine to coarse."""
    seen = list(mobilenet_v3_blocks(net, x, blocks))
    last = max(index for index, block in enumerate(blocks) if block[-1] > 1)
    levels, x = [seen[last][1]], seen[-1][0]
    net.at("head")
    levels.append(net.conv_bn(x, 6 * x.shape[1], 1, act="hard_swish"))
    for index, channels in enumerate(extras):
        net.at(f"extra{index}")
        y = net.conv_bn(levels[-1], channels // 2, 1, act="relu6")
        y = net.conv_bn(y, channels // 2, strides=2, group=channels // 2, act="relu6")
        levels.append(net.conv_bn(y, channels, 1, act="relu6"))
    return levels


def priors(levels: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Centres and extents, (boxes, 2), of all boxes in an image of 1x1."""
    scales = [*np.linspace(SMALLEST, LARGEST, len(levels)), 1.0]
    centres, extents = [], []
    for (height, width), (scale, following) in zip(levels, pairwise(scales), strict=True):
        sides = [(scale, scale), (np.sqrt(scale * following),) * 2]
        for ratio in RATIOS:
            lying = (scale * np.sqrt(ratio), scale / np.sqrt(ratio))
            sides += [lying, lying[::-1]]
        rows, columns = np.mgrid[:height, :width] + 0.5
        places = np.stack([columns / width, rows / height], -1).reshape(-1, 1, 2)
        centres.append(np.tile(places, (1, len(sides), 1)).reshape(-1, 2))
        extents.append(np.tile(np.clip(sides, 0, 1), (len(places), 1)))
    return np.concatenate(centres).astype(np.float32), np.concatenate(extents).astype(np.float32)


# --- YOLO v8: boxes of every pixel of three levels of features

N_DISTANCES = 16
"""Numbers of which each side's distance from the centre is a mean."""

DOUBLED = (1, 1, 2, 2)

TAME = 0.9
"""Gain of normalisations: sums of many branches, and the largest of many pixels, grow more than theory knows."""

RARE = -5.0
"""Mean of scores before the sigmoid: few pixels have something to tell."""

YOLO_KEPT = Suppression(100, overlap=0.45, score=0.25, is_centred=True)


def conv(
    net: Layers, x: BuildValue, channels: int, kernel: int = 1, strides: int = 1, gain: float = TAME
) -> BuildValue:
    """A convolution, normalised, and SiLU."""
    return net.conv_bn(x, channels, kernel, strides=strides, act="silu", gain=gain)


def partial(net: Layers, x: BuildValue, channels: int, n: int, *, is_residual: bool = True) -> BuildValue:
    """Half the channels through ``n`` bottlenecks, and all that comes about side by side: C2f."""
    half = channels // 2
    y = conv(net, x, channels)
    parts = [net.same(part, y) for part in y.split((half, half))]
    for _ in range(n):
        y = conv(net, conv(net, parts[-1], half, 3), half, 3, gain=BRANCH_GAIN if is_residual else TAME)
        parts.append(net.add(parts[-1], y) if is_residual else y)
    return conv(net, net.concat(parts), channels)


def pooled(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """The largest of ever wider surroundings side by side: SPPF."""
    parts = [conv(net, x, x.shape[1] // 2)]
    for _ in range(3):
        parts.append(net.max_around(parts[-1], 5))
    return conv(net, net.concat(parts), channels)


def yolo_v8(
    net: Layers,
    x: BuildValue,
    *,
    channels: Sequence[int] = (16, 32, 64, 128, 256),
    blocks: Sequence[int] = (1, 2, 2, 1),
    classes: int = 80,
) -> dict[str, BuildValue]:
    """Boxes of all pixels (centres and extents, in pixels of the image), and their scores for each class.

    Extents of images are multiples of 32. ``channels`` are of the levels, each half as large as the one before,
    ``blocks`` numbers of bottlenecks of each but the first.
    """
    net.epsilon = 1e-3
    net.at("level1")
    y = conv(net, x, channels[0], 3, 2)
    levels: list[BuildValue] = []
    for index, (n_channels, n) in enumerate(zip(channels[1:], blocks, strict=True), start=2):
        net.at(f"level{index}")
        y = partial(net, conv(net, y, n_channels, 3, 2), n_channels, n)
        levels.append(y)
    net.at("pooled")
    third, fourth, fifth = levels[1], levels[2], pooled(net, y, channels[4])
    net.at("neck")

    def joined(x: BuildValue, y: BuildValue, n_channels: int) -> BuildValue:
        return partial(net, net.concat([x, y]), n_channels, blocks[-1], is_residual=False)

    fourth = joined(upsampled(net, fifth, scales=DOUBLED), fourth, channels[3])
    third = joined(upsampled(net, fourth, scales=DOUBLED), third, channels[2])
    fourth = joined(conv(net, third, channels[2], 3, 2), fourth, channels[3])
    fifth = joined(conv(net, fourth, channels[3], 3, 2), fifth, channels[4])
    boxes, scores = detected(net, (third, fourth, fifth), classes)
    return {"boxes": boxes.transpose((0, 2, 1)), "scores": scores}


def upsampled(
    net: Layers, x: BuildValue, *, sizes: Sequence[int] | None = None, scales: Sequence[float] | None = None
) -> BuildValue:
    """Every pixel several times, to ``sizes`` or by ``scales``."""
    y = x.resize(scales=scales, sizes=sizes, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return net.same(y, x)


def detected(net: Layers, levels: Sequence[BuildValue], classes: int) -> tuple[BuildValue, BuildValue]:
    """Boxes of all pixels, (batch, 4, pixels), and scores, (batch, classes, pixels)."""
    builder, batch = levels[0].builder, levels[0].shape[0]
    of_boxes = max(16, levels[0].shape[1] // 4, 4 * N_DISTANCES)
    of_classes = max(levels[0].shape[1], min(classes, 100))
    found: list[BuildValue] = []
    for index, x in enumerate(levels):
        net.at(f"detect{index}")
        box = net.conv(conv(net, conv(net, x, of_boxes, 3), of_boxes, 3), 4 * N_DISTANCES, 1, bias=1.0)
        kind = net.conv(conv(net, conv(net, x, of_classes, 3), of_classes, 3), classes, 1, bias=RARE)
        found.append(builder.concat([box, kind]).reshape((batch, 4 * N_DISTANCES + classes, -1)))
    distances, scores = builder.concat(found, axis=2).split((4 * N_DISTANCES, classes))
    places, strides = pixels(levels)
    return boxes_of(distances, places) * strides, scores.sigmoid()


def boxes_of(distances: BuildValue, places: np.ndarray) -> BuildValue:
    """Centres and extents of boxes whose sides lie so far from their pixels."""
    batch, _, n = distances.shape
    likely = distances.reshape((batch, 4, N_DISTANCES, n)).transpose((0, 2, 1, 3)).softmax(1)
    means = likely.conv(np.arange(N_DISTANCES, dtype=np.float32).reshape(1, -1, 1, 1)).reshape((batch, 4, n))
    left_top, right_bottom = means.split((2, 2))
    first, last = places - left_top, places + right_bottom
    return distances.builder.concat([(first + last) / 2, last - first])


def pixels(levels: Sequence[BuildValue]) -> tuple[np.ndarray, np.ndarray]:
    """Centres of all pixels, (1, 2, pixels), and how far apart those of their level lie in the image, (1, pixels)."""
    places, strides = [], []
    for index, level in enumerate(levels):
        rows, columns = (each.ravel() + np.float32(0.5) for each in np.mgrid[: level.shape[2], : level.shape[3]])
        places.append(np.stack([columns, rows]))
        strides.append(np.full((1, rows.size), 8 << index, np.float32))
    return np.concatenate(places, 1)[None].astype(np.float32), np.concatenate(strides, 1)


# --- Faster R-CNN: proposed regions are read from a pyramid of features, and each is named and moved

SIDE = 16
"""Of a region as it is proposed, in pixels of the level that it is read from."""

BINS = 7
"""Rows and columns that are read of a region."""


def faster_rcnn(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[int] = (3, 4, 6, 3),
    width: int = 64,
    channels: int = 256,
    features: int = 1024,
    grid: int = 16,
    classes: int = 91,
) -> dict[str, BuildValue]:
    """Boxes and scores of regions for each class, (batch, regions, classes, 4) and (batch, regions, classes).

    How many regions are proposed, and of which level, depends on data. Here there is one for each point of a grid, on
    every level, and the input ``proposals`` has their offsets from where they are on average. Levels are the layers of
    a ResNet of ``blocks``, and have so many ``channels``; ``grid`` is the rows and columns of regions on each. The
    background is one of the classes.
    """
    batch, _, height, width_of_image = x.shape
    image = np.array([width_of_image, height], np.float32)
    levels = pyramid(net, list(layers(net, x, blocks=blocks, width=width)), channels)
    centres = [each.ravel() for each in np.meshgrid(*[(np.arange(grid, dtype=np.float32) + 0.5) / grid] * 2)]
    anchors = np.tile(np.stack(centres, -1), (len(levels), 1))
    strides = np.repeat(np.array([4 << level for level in range(len(levels))], np.float32), grid**2)
    offsets = x.builder.input("proposals", (batch, len(anchors), 4))
    regions = decoded(offsets, anchors, SIDE * strides[:, None] / image)
    net.at("regions")
    pixels = (regions * np.tile(image, 2)).split([grid**2] * len(levels), axis=1)
    images = np.repeat(np.arange(batch), grid**2)
    bins = {"output_height": BINS, "output_width": BINS, "sampling_ratio": 2}
    mode, read = "output_half_pixel", []
    for index, (level, each) in enumerate(zip(levels, pixels, strict=True)):
        given: dict[str, Any] = {**bins, "spatial_scale": 1 / (4 << index), "coordinate_transformation_mode": mode}
        values = x.builder.op("RoiAlign", level, each.reshape((-1, 4)), images, **given)
        read.append(values.reshape((batch, grid**2, -1)))
    y = x.builder.concat(read, axis=1)
    net.at("head")
    y = y.reshape((batch * len(anchors), -1))
    y = net.act(net.linear(net.act(net.linear(y, features)), features))
    scores = net.linear(y, classes).reshape((batch, -1, classes)).softmax()
    left_top, right_bottom = regions.unsqueeze((2,)).split((2, 2), axis=-1)
    moved = net.linear(y, 4 * classes).reshape((batch, -1, classes, 4))
    boxes = decoded(moved, (left_top + right_bottom) * 0.5, right_bottom - left_top)
    return {"boxes": boxes * np.tile(image, 2), "scores": scores}


def pyramid(net: Layers, levels: Sequence[BuildValue], channels: int) -> list[BuildValue]:
    """Each level together with the coarser ones."""
    net.at("pyramid")
    found: list[BuildValue] = []
    above = None
    for level in reversed(levels):
        y = net.conv(level, channels, 1, bias=True)
        if above is not None:
            y = net.add(y, upsampled(net, above, sizes=(*above.shape[:2], *y.shape[2:])))
        above = y
        found.insert(0, net.conv(y, channels, bias=True))
    return found


NETWORKS = {
    "ssdlite320_mobilenet_v3_large": CatalogueEntry(ssdlite, (3, 320, 320), kept=SSD_KEPT),
    "yolo_v8n": CatalogueEntry(yolo_v8, (3, 640, 640), kept=YOLO_KEPT),
    "faster_rcnn_resnet50_fpn": CatalogueEntry(faster_rcnn, (3, 800, 800)),
}
