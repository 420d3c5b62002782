"""EfficientNet-B0.

Source: M. Tan and Q. V. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks",
arXiv:1905.11946; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._inverted import inverted_residual
from blocklayout.zoo._network import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

# Expansion, kernel, strides, channels and number of blocks of each stage.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def efficientnet_b0(
    net: Layers, x: BuildValue, *, stages: Sequence[tuple[int, int, int, int, int]] = STAGES, classes: int = 1000
) -> BuildValue:
    """Stages of inverted residuals that squeeze and excite."""
    net.at("stem")
    x = net.conv_bn(x, 32, strides=2, act="silu")
    for stage, (expansion, kernel, strides, channels, n_blocks) in enumerate(stages, start=1):
        for index in range(n_blocks):
            net.at(f"stage{stage}.{index}")
            stride = strides if index == 0 else 1
            x = inverted_residual(net, x, channels, kernel, stride, expansion=expansion, act="silu", squeeze=True)
    net.at("head")
    x = net.conv_bn(x, 1280, 1, act="silu")
    return net.classifier(x, classes)


NETWORKS = {"efficientnet_b0": Network(efficientnet_b0)}
