"""Faster R-CNN: proposed regions are read from a pyramid of features, and each is named and moved.

Source: S. Ren et al., "Faster R-CNN: Towards Real-Time Object Detection with Region Proposal Networks",
arXiv:1506.01497; T.-Y. Lin et al., "Feature Pyramid Networks for Object Detection", arXiv:1612.03144; as in torchvision
0.29, but for the network that proposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.zoo._boxes import decoded
from blocklayout.zoo._catalogue import Network
from blocklayout.zoo.resnet import layers

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

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
    every level, and the input ``proposals`` has their offsets from where they are on average.

    Args:
        net: Whose layers they become.
        x: Images.
        blocks: Of the layers of a ResNet, each of which is a level.
        width: Of the bottlenecks of the first layer.
        channels: Of all levels of the pyramid.
        features: Of a region.
        grid: Rows and columns of regions on each level.
        classes: The background among them.
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
    read = [
        x.builder.op(
            "RoiAlign",
            level,
            each.reshape((-1, 4)),
            images,
            output_height=BINS,
            output_width=BINS,
            sampling_ratio=2,
            spatial_scale=1 / (4 << index),
            coordinate_transformation_mode="output_half_pixel",
        ).reshape((batch, grid**2, -1))
        for index, (level, each) in enumerate(zip(levels, pixels, strict=True))
    ]
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
    """Each level together with what is seen on the coarser ones."""
    net.at("pyramid")
    found: list[BuildValue] = []
    above = None
    for level in reversed(levels):
        y = net.conv(level, channels, 1, bias=True)
        if above is not None:
            sizes = (*above.shape[:2], *y.shape[2:])
            finer = above.resize(sizes=sizes, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
            y = net.add(y, net.same(finer, above))
        above = y
        found.insert(0, net.conv(y, channels, bias=True))
    return found


NETWORKS = {"faster_rcnn_resnet50_fpn": Network(faster_rcnn, (3, 800, 800))}
