"""AlexNet, in one column, and VGG: stacks of convolutions, and three fully connected layers.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997; K. Simonyan
and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", arXiv:1409.1556; as in
torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo import IMAGE, Entry
from blocklayout.zoo._layers import adaptive_average_pool

if TYPE_CHECKING:
    from blocklayout.model import BuildValue
    from blocklayout.zoo._layers import Layers

CHANNELS = (64, 128, 256, 512, 512)
DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions of each stack, by how many layers there are with weights."""


def alexnet(net: Layers, x: BuildValue, *, features: int = 4096, classes: int = 1000) -> BuildValue:
    """Five convolutions and three fully connected layers, the first two of ``features`` each."""
    net.at("features")
    x = net.conv_act(x, 64, 11, strides=4, pads=2).max_pool(3, 2)
    x = net.conv_act(x, 192, 5).max_pool(3, 2)
    x = net.conv_act(x, 384)
    x = net.conv_act(x, 256)
    x = net.conv_act(x, 256).max_pool(3, 2)
    return classified(net, x, (6, 6), features, classes)


def vgg(
    net: Layers,
    x: BuildValue,
    *,
    depths: Sequence[int] = DEPTHS[16],
    bn: bool = False,
    features: int = 4096,
    classes: int = 1000,
) -> BuildValue:
    """Stacks of ``depths`` 3x3 convolutions, normalised or not; each sees half the image of the one before."""
    for stack, (depth, channels) in enumerate(zip(depths, CHANNELS, strict=False), start=1):
        net.at(f"stack{stack}")
        for _ in range(depth):
            x = net.act(net.bn(net.conv(x, channels, bias=True))) if bn else net.conv_act(x, channels)
        x = x.max_pool(2)
    return classified(net, x, (7, 7), features, classes)


def classified(net: Layers, x: BuildValue, extents: Sequence[int], features: int, classes: int) -> BuildValue:
    """Three fully connected layers behind a pooling to ``extents``."""
    x = adaptive_average_pool(x, extents).flatten()
    net.at("classifier")
    x = net.act(net.linear(x, features))
    x = net.act(net.linear(x, features))
    return net.linear(x, classes)


NETWORKS = {"alexnet": Entry(alexnet)} | {
    f"vgg{n_layers}{'_bn' if bn else ''}": Entry(vgg, IMAGE, {"depths": depths, "bn": bn})
    for n_layers, depths in DEPTHS.items()
    for bn in (False, True)
}
