"""Inception: GoogLeNet, which is Inception v1 with batch normalisation, and Inception v3.

Source: C. Szegedy et al., "Going Deeper with Convolutions", arXiv:1409.4842; C. Szegedy et al., "Rethinking the
Inception Architecture for Computer Vision", arXiv:1512.00567; as in torchvision 0.29, where 5x5 convolutions of
GoogLeNet are 3x3, without the auxiliary classifiers, which are for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

# Channels of each module's branches: 1x1; 3x3, reduced before it; 5x5, reduced before it; behind the pooling.
GOOGLENET_STAGES = (
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
    net: Layers, x: BuildValue, *, stages: Sequence[Sequence[Sequence[int]]] = GOOGLENET_STAGES, classes: int = 1000
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


def pooled(net: Layers, x: BuildValue) -> BuildValue:
    """Means of 3x3 pixels; those outside of the image count as zeros."""
    return net.same(x.average_pool(3, 1, pads=1, count_include_pad=True), x)


def module_a(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """1x1, 5x5 and two 3x3 convolutions, and ``channels`` behind a pooling."""
    ones = net.conv_bn(x, 64, 1)
    fives = net.conv_bn(net.conv_bn(x, 48, 1), 64, 5)
    threes = net.conv_bn(net.conv_bn(net.conv_bn(x, 64, 1), 96), 96)
    return net.concat([ones, fives, threes, net.conv_bn(pooled(net, x), channels, 1)])


def module_b(net: Layers, x: BuildValue) -> BuildValue:
    """Half the image."""
    three = net.conv_bn(x, 384, strides=2, pads=0)
    threes = net.conv_bn(net.conv_bn(net.conv_bn(x, 64, 1), 96), 96, strides=2, pads=0)
    return net.concat([three, threes, net.same(x.max_pool(3, 2), x)])


def module_c(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """7x7 convolutions, each taken apart into 1x7 and 7x1."""
    ones = net.conv_bn(x, 192, 1)
    seven = net.conv_bn(net.conv_bn(x, channels, 1), channels, (1, 7))
    seven = net.conv_bn(seven, 192, (7, 1))
    sevens = net.conv_bn(net.conv_bn(x, channels, 1), channels, (7, 1))
    sevens = net.conv_bn(net.conv_bn(sevens, channels, (1, 7)), channels, (7, 1))
    sevens = net.conv_bn(sevens, 192, (1, 7))
    return net.concat([ones, seven, sevens, net.conv_bn(pooled(net, x), 192, 1)])


def module_d(net: Layers, x: BuildValue) -> BuildValue:
    """Half the image again."""
    three = net.conv_bn(net.conv_bn(x, 192, 1), 320, strides=2, pads=0)
    seven = net.conv_bn(net.conv_bn(x, 192, 1), 192, (1, 7))
    seven = net.conv_bn(net.conv_bn(seven, 192, (7, 1)), 192, strides=2, pads=0)
    return net.concat([three, seven, net.same(x.max_pool(3, 2), x)])


def module_e(net: Layers, x: BuildValue) -> BuildValue:
    """3x3 convolutions taken apart into 1x3 and 3x1, side by side."""
    ones = net.conv_bn(x, 320, 1)
    three = apart(net, net.conv_bn(x, 384, 1))
    threes = apart(net, net.conv_bn(net.conv_bn(x, 448, 1), 384))
    return net.concat([ones, three, threes, net.conv_bn(pooled(net, x), 192, 1)])


def apart(net: Layers, x: BuildValue) -> BuildValue:
    """1x3 beside 3x1."""
    return net.concat([net.conv_bn(x, 384, (1, 3)), net.conv_bn(x, 384, (3, 1))])


def inception_v3(
    net: Layers,
    x: BuildValue,
    *,
    pooled5: Sequence[int] = (32, 64, 64),
    channels6: Sequence[int] = (128, 160, 160, 192),
    classes: int = 1000,
) -> BuildValue:
    """Modules of five kinds.

    Those of the fifth stage differ in the channels behind their pooling, those of the sixth in the channels between
    their convolutions.
    """
    net.epsilon = 1e-3
    net.at("stem")
    x = net.conv_bn(net.conv_bn(x, 32, strides=2, pads=0), 32, pads=0)
    x = net.conv_bn(x, 64).max_pool(3, 2)
    x = net.conv_bn(net.conv_bn(x, 80, 1), 192, pads=0).max_pool(3, 2)
    for letter, channels in zip(ascii_lowercase[1:], pooled5, strict=False):
        net.at(f"mixed5{letter}")
        x = module_a(net, x, channels)
    net.at("mixed6a")
    x = module_b(net, x)
    for letter, channels in zip(ascii_lowercase[1:], channels6, strict=False):
        net.at(f"mixed6{letter}")
        x = module_c(net, x, channels)
    net.at("mixed7a")
    x = module_d(net, x)
    for letter in "bc":
        net.at(f"mixed7{letter}")
        x = module_e(net, x)
    return net.classifier(x, classes)


NETWORKS = {"googlenet": Network(googlenet), "inception_v3": Network(inception_v3, (3, 299, 299))}
