"""SSDLite with MobileNet v3: boxes as offsets from constant ones on six levels, of which the best are kept.

Source: W. Liu et al., "SSD: Single Shot MultiBox Detector", arXiv:1512.02325; A. Howard et al., "Searching for
MobileNetV3", arXiv:1905.02244, section 6.3; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.zoo._boxes import Suppression, decoded
from blocklayout.zoo._catalogue import Network
from blocklayout.zoo.inverted_residuals import MOBILENET_V3_BLOCKS, Block, narrowed, widened

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

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

KEPT = Suppression(300, overlap=0.55, score=0.05)


def ssdlite(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[Block] = BLOCKS,
    extras: Sequence[int] = (512, 256, 256, 128),
    classes: int = 91,
) -> dict[str, BuildValue]:
    """All boxes (corners, in parts of the image), and their scores for each class but the background.

    Args:
        net: Whose layers they become.
        x: Images.
        blocks: Of MobileNet v3; the last of those with strides is where the first level is seen.
        extras: Channels of further levels, each half as large as the one before.
        classes: The background, which is the first, among them.
    """
    net.epsilon = 1e-3
    levels = list(features(net, x, blocks, extras))
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
    net.at("stem")
    x = net.conv_bn(x, 16, strides=2, act="hard_swish")
    last = max(index for index, block in enumerate(blocks) if block[-1] > 1)
    levels = []
    for index, block in enumerate(blocks):
        net.at(f"block{index}")
        y = widened(net, x, block)
        if index == last:
            levels.append(y)
        x = narrowed(net, x, y, block)
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


NETWORKS = {"ssdlite320_mobilenet_v3_large": Network(ssdlite, (3, 320, 320), kept=KEPT)}
