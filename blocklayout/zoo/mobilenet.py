"""MobileNet v2.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", arXiv:1801.04381; as in
torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._inverted import inverted_residual, rounded
from blocklayout.zoo._network import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

# Expansion, channels, number of blocks and strides of each stack: the paper's t, c, n, s.
STACKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    net: Layers,
    x: BuildValue,
    *,
    width: float = 1.0,
    stacks: Sequence[tuple[int, int, int, int]] = STACKS,
    classes: int = 1000,
) -> BuildValue:
    """Stacks of inverted residuals with ReLU6; ``width`` multiplies all channels."""
    net.at("stem")
    x = net.conv_bn(x, rounded(32 * width), strides=2, act="relu6")
    for stack, (expansion, channels, n_blocks, strides) in enumerate(stacks, start=1):
        for index in range(n_blocks):
            net.at(f"stack{stack}.{index}")
            stride = strides if index == 0 else 1
            x = inverted_residual(net, x, rounded(channels * width), 3, stride, expansion=expansion, act="relu6")
    net.at("head")
    x = net.conv_bn(x, rounded(1280 * max(1.0, width)), 1, act="relu6")
    return net.classifier(x, classes)


NETWORKS = {"mobilenet_v2": Network(mobilenet_v2)}
