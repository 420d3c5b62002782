"""YOLO v8: boxes of every pixel of three levels of features, of which the best are kept.

Source: G. Jocher et al., Ultralytics YOLOv8, https://github.com/ultralytics/ultralytics, ``yolov8.yaml`` and
``nn/modules``, release 8.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.zoo._boxes import Suppression
from blocklayout.zoo._catalogue import Network
from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

N_DISTANCES = 16
"""Numbers of which each side's distance from the centre is a mean."""

TAME = 0.9
"""Gain of normalisations: sums of many branches, and the largest of many pixels, grow more than theory knows."""

RARE = -5.0
"""Mean of scores before the sigmoid: few pixels have something to tell."""

KEPT = Suppression(100, overlap=0.45, score=0.25, is_centred=True)


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

    Args:
        net: Whose layers they become.
        x: Images; each extent is a multiple of 32.
        channels: Of the levels, each half as large as the one before.
        blocks: Bottlenecks of each but the first.
        classes: Kinds of things.
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
    n = blocks[-1]
    fourth = partial(net, net.concat([upsampled(net, fifth), fourth]), channels[3], n, is_residual=False)
    third = partial(net, net.concat([upsampled(net, fourth), third]), channels[2], n, is_residual=False)
    down = net.concat([conv(net, third, channels[2], 3, 2), fourth])
    fourth = partial(net, down, channels[3], n, is_residual=False)
    down = net.concat([conv(net, fourth, channels[3], 3, 2), fifth])
    fifth = partial(net, down, channels[4], n, is_residual=False)
    boxes, scores = detected(net, (third, fourth, fifth), classes)
    return {"boxes": boxes.transpose((0, 2, 1)), "scores": scores}


def upsampled(net: Layers, x: BuildValue) -> BuildValue:
    """Every pixel four times."""
    y = x.resize(scales=(1, 1, 2, 2), coordinate_transformation_mode="asymmetric", nearest_mode="floor")
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


NETWORKS = {"yolo_v8n": Network(yolo_v8, (3, 640, 640), kept=KEPT)}
