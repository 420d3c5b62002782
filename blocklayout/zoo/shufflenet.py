"""ShuffleNet v2: half of the channels pass by, then all are shuffled.

Source: N. Ma et al., "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design",
arXiv:1807.11164; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import IMAGE, Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

CHANNELS = {
    "x0_5": (24, 48, 96, 192, 1024),
    "x1_0": (24, 116, 232, 464, 1024),
    "x1_5": (24, 176, 352, 704, 1024),
    "x2_0": (24, 244, 488, 976, 2048),
}
"""Of the stem, the three stages, and the head."""


def shuffled(net: Layers, x: BuildValue, groups: int = 2) -> BuildValue:
    """The first channel of each group, then the second of each, and so on."""
    batch, channels, height, width = x.shape
    y = x.reshape((batch, groups, channels // groups, height, width)).transpose((0, 2, 1, 3, 4))
    return net.same(y.reshape(x.shape), x)


def branch(net: Layers, x: BuildValue, channels: int, strides: int) -> BuildValue:
    """1x1, depthwise 3x3 and 1x1 convolutions."""
    y = net.conv_bn(x, channels, 1)
    y = net.conv_bn(y, channels, strides=strides, group=channels, act=None)
    return net.conv_bn(y, channels, 1)


def downsampling_unit(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """Half the image: two branches, of half the channels each."""
    first = net.conv_bn(x, x.shape[1], strides=2, group=x.shape[1], act=None)
    first = net.conv_bn(first, channels // 2, 1)
    return shuffled(net, net.concat([first, branch(net, x, channels // 2, 2)]))


def unit(net: Layers, x: BuildValue) -> BuildValue:
    """A branch for the second half of the channels, nothing for the first."""
    half = x.shape[1] // 2
    first, second = (net.same(part, x) for part in x.split((half, half)))
    return shuffled(net, net.concat([first, branch(net, second, half, 1)]))


def shufflenet_v2(
    net: Layers, x: BuildValue, *, channels: Sequence[int], units: Sequence[int] = (4, 8, 4), classes: int = 1000
) -> BuildValue:
    """Stages of so many ``units``; ``channels`` of the stem, the stages, and the head."""
    stem, *stages, head = channels
    net.at("stem")
    x = net.conv_bn(x, stem, strides=2).max_pool(3, 2, pads=1)
    for stage, (n_units, wanted) in enumerate(zip(units, stages, strict=True), start=2):
        for index in range(n_units):
            net.at(f"stage{stage}.{index}")
            x = unit(net, x) if index else downsampling_unit(net, x, wanted)
    net.at("head")
    x = net.conv_bn(x, head, 1)
    net.at("classifier")
    return net.linear(x.mean((2, 3)), classes)


NETWORKS = {
    f"shufflenet_v2_{width}": Network(shufflenet_v2, IMAGE, {"channels": channels})
    for width, channels in CHANNELS.items()
}
