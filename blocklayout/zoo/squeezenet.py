"""SqueezeNet: few channels between layers of many.

Source: F. N. Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size",
arXiv:1602.07360; 1.1 from the authors' repository; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import IMAGE, Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels that each module squeezes into, and that each of its two branches expands to."""


def fire(net: Layers, x: BuildValue, squeezed: int, expanded: int) -> BuildValue:
    """A 1x1 convolution, and 1x1 beside 3x3."""
    y = net.conv_act(x, squeezed, 1)
    return net.concat([net.conv_act(y, expanded, 1), net.conv_act(y, expanded)])


def squeezenet(
    net: Layers, x: BuildValue, *, stem: tuple[int, int], pools: Collection[int], classes: int = 1000
) -> BuildValue:
    """Eight modules.

    Args:
        net: Whose layers they become.
        x: Images.
        stem: Channels and kernel of the first convolution.
        pools: Modules with a pooling before them; they count from 2, as in the paper.
        classes: How many scores there are for an image.
    """
    net.at("stem")
    x = net.conv_act(x, *stem, strides=2, pads=0)
    for module, (squeezed, expanded) in enumerate(FIRES, start=2):
        net.at(f"fire{module}")
        x = x.max_pool(3, 2, ceil_mode=True) if module in pools else x
        x = fire(net, x, squeezed, expanded)
    net.at("classifier")
    return net.conv_act(x, classes, 1).global_average_pool().flatten()


NETWORKS = {
    "squeezenet1_0": Network(squeezenet, IMAGE, {"stem": (96, 7), "pools": (2, 5, 9)}),
    "squeezenet1_1": Network(squeezenet, IMAGE, {"stem": (64, 3), "pools": (2, 4, 6)}),
}
