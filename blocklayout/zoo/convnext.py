"""ConvNeXt: a convolutional network with the habits of a transformer.

Source: Z. Liu et al., "A ConvNet for the 2020s", arXiv:2201.03545, as in torchvision 0.29; S. Woo et al., "ConvNeXt
V2: Co-designing and Scaling ConvNets with Masked Autoencoders", arXiv:2301.00808.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import IMAGE, Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

EPSILON = 1e-6
CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def norm(net: Layers, x: BuildValue) -> BuildValue:
    """Normalisation of each pixel's channels."""
    return net.layer_norm(x.transpose(CHANNELS_LAST), EPSILON).transpose(CHANNELS_FIRST)


def block(net: Layers, x: BuildValue, *, is_second: bool) -> BuildValue:
    """A depthwise 7x7 convolution, and two fully connected layers for each pixel."""
    y = net.conv(x, x.shape[1], 7, group=x.shape[1], bias=True).transpose(CHANNELS_LAST)
    y = net.layer_norm(y, EPSILON)
    y = net.act(net.linear_last(y, 4 * x.shape[1]), "gelu")
    if is_second:
        y = net.contrasted(y, EPSILON)
    y = net.linear_last(y, x.shape[1]).transpose(CHANNELS_FIRST)
    return net.add(y if is_second else net.scaled(y, 0.1, 0.5), x)


def convnext(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[int],
    channels: Sequence[int],
    is_second: bool = False,
    classes: int = 1000,
) -> BuildValue:
    """Stages of ``blocks``, with so many ``channels``; of the first or second version."""
    for stage, (n_blocks, wanted) in enumerate(zip(blocks, channels, strict=True)):
        net.at(f"stage{stage}")
        if stage == 0:
            x = norm(net, net.conv(x, wanted, 4, strides=4, pads=0, bias=True))
        else:
            x = net.conv(norm(net, x), wanted, 2, strides=2, pads=0, bias=True)
        for index in range(n_blocks):
            net.at(f"stage{stage}.{index}")
            x = block(net, x, is_second=is_second)
    net.at("classifier")
    return net.linear(norm(net, x.global_average_pool()).flatten(), classes)


_TINY = {"blocks": (3, 3, 9, 3), "channels": (96, 192, 384, 768)}
NETWORKS = {
    "convnext_v2_tiny": Network(convnext, IMAGE, {**_TINY, "is_second": True}),
    "convnext_tiny": Network(convnext, IMAGE, _TINY),
    "convnext_small": Network(convnext, IMAGE, {"blocks": (3, 3, 27, 3), "channels": (96, 192, 384, 768)}),
}
