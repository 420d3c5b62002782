"""VGG: stacks of 3x3 convolutions, each stack half as large and twice as deep as the one before.

Source: K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
arXiv:1409.1556; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._adaptive import adaptive_average_pool
from blocklayout.zoo._network import IMAGE, Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

CHANNELS = (64, 128, 256, 512, 512)
DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions of each stack, by how many layers there are with weights."""


def vgg(
    net: Layers,
    x: BuildValue,
    *,
    depths: Sequence[int] = DEPTHS[16],
    bn: bool = False,
    features: int = 4096,
    classes: int = 1000,
) -> BuildValue:
    """Stacks of ``depths`` convolutions, normalised or not, and three fully connected layers."""
    for stack, (depth, channels) in enumerate(zip(depths, CHANNELS, strict=False), start=1):
        net.at(f"stack{stack}")
        for _ in range(depth):
            x = net.act(net.bn(net.conv(x, channels, bias=True))) if bn else net.conv_act(x, channels)
        x = x.max_pool(2)
    x = adaptive_average_pool(x, (7, 7)).flatten()
    net.at("classifier")
    x = net.act(net.linear(x, features))
    x = net.act(net.linear(x, features))
    return net.linear(x, classes)


NETWORKS = {
    f"vgg{n_layers}{'_bn' if bn else ''}": Network(vgg, IMAGE, {"depths": depths, "bn": bn})
    for n_layers, depths in DEPTHS.items()
    for bn in (False, True)
}
