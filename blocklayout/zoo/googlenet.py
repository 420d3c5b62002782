"""GoogLeNet, or Inception v1, with batch normalisation.

Source: C. Szegedy et al., "Going Deeper with Convolutions", arXiv:1409.4842; as in torchvision 0.29, where the
5x5 convolutions are 3x3, without the auxiliary classifiers, which are for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING

from blocklayout.zoo._network import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

# Channels of each module's branches: 1x1; 3x3, reduced before it; 5x5, reduced before it; behind the pooling.
STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def inception(net: Layers, x: BuildValue, channels: Sequence[int]) -> BuildValue:
    """Four branches side by side."""
    ones, before_threes, threes, before_fives, fives, pooled = channels
    return net.concat(
        [
            net.conv_bn(x, ones, 1),
            net.conv_bn(net.conv_bn(x, before_threes, 1), threes),
            net.conv_bn(net.conv_bn(x, before_fives, 1), fives),
            net.conv_bn(x.max_pool(3, 1, pads=1, ceil_mode=True), pooled, 1),
        ]
    )


def googlenet(
    net: Layers, x: BuildValue, *, stages: Sequence[Sequence[Sequence[int]]] = STAGES, classes: int = 1000
) -> BuildValue:
    """Three stages of modules, which have so many channels."""
    net.epsilon = 1e-3
    net.at("stem")
    x = net.conv_bn(x, 64, 7, strides=2).max_pool(3, 2, ceil_mode=True)
    x = net.conv_bn(net.conv_bn(x, 64, 1), 192)
    for stage, modules in enumerate(stages, start=3):
        x = x.max_pool(2 if stage == 5 else 3, 2, ceil_mode=True)
        for letter, channels in zip(ascii_lowercase, modules, strict=False):
            net.at(f"inception{stage}{letter}")
            x = inception(net, x, channels)
    return net.classifier(x, classes)


NETWORKS = {"googlenet": Network(googlenet)}
