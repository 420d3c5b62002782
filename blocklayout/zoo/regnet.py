"""RegNet: bottlenecks in groups, their numbers and widths on a line.

Source: I. Radosavovic et al., "Designing Network Design Spaces", arXiv:2003.13678; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import IMAGE, Network
from blocklayout.zoo._layers import BRANCH_GAIN
from blocklayout.zoo.inverted_residuals import squeeze_and_excite
from blocklayout.zoo.resnet import shortcut

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers


def block(net: Layers, x: BuildValue, channels: int, strides: int, in_group: int, *, squeezes: bool) -> BuildValue:
    """A 3x3 convolution of groups of ``in_group`` channels between two of 1x1."""
    y = net.conv_bn(x, channels, 1)
    y = net.conv_bn(y, channels, strides=strides, group=channels // in_group)
    if squeezes:
        y = squeeze_and_excite(net, y, round(x.shape[1] / 4), "relu")
    y = net.conv_bn(y, channels, 1, act=None, gain=BRANCH_GAIN)
    return net.act(net.add(y, shortcut(net, x, channels, strides)))


def regnet(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[int],
    channels: Sequence[int],
    in_group: int,
    squeezes: bool = False,
    classes: int = 1000,
) -> BuildValue:
    """Stages of ``blocks``, with so many ``channels``."""
    net.at("stem")
    x = net.conv_bn(x, 32, strides=2)
    for stage, (n_blocks, wanted) in enumerate(zip(blocks, channels, strict=True), start=1):
        for index in range(n_blocks):
            net.at(f"stage{stage}.{index}")
            x = block(net, x, wanted, 1 if index else 2, in_group, squeezes=squeezes)
    return net.classifier(x, classes)


NETWORKS = {
    "regnet_x_400mf": Network(regnet, IMAGE, {"blocks": (1, 2, 7, 12), "channels": (32, 64, 160, 400), "in_group": 16}),
    "regnet_y_400mf": Network(
        regnet, IMAGE, {"blocks": (1, 3, 6, 6), "channels": (48, 104, 208, 440), "in_group": 8, "squeezes": True}
    ),
}
