"""ResNets for video: convolutions in space and time.

Source: D. Tran et al., "A Closer Look at Spatiotemporal Convolutions for Action Recognition", arXiv:1711.11248; as
in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from blocklayout.zoo._catalogue import Network
from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

    Convolve: TypeAlias = Callable[[Layers, BuildValue, int, int, int], BuildValue]

CLIP = (3, 16, 112, 112)


def in_space_and_time(net: Layers, x: BuildValue, channels: int, strides: int, between: int) -> BuildValue:
    """3x3x3."""
    del between
    return net.conv(x, channels, 3, strides=strides)


def in_space(net: Layers, x: BuildValue, channels: int, strides: int, between: int) -> BuildValue:
    """1x3x3."""
    del between
    return net.conv(x, channels, (1, 3, 3), strides=(1, strides, strides))


def in_space_then_time(net: Layers, x: BuildValue, channels: int, strides: int, between: int) -> BuildValue:
    """1x3x3 to ``between`` channels, which make up for it in number, and 3x1x1."""
    y = net.conv_bn(x, between, (1, 3, 3), strides=(1, strides, strides))
    return net.conv(y, channels, (3, 1, 1), strides=(strides, 1, 1))


CONVOLUTIONS: dict[str, tuple[Convolve, ...]] = {
    "r3d": (in_space_and_time,) * 4,
    "mc3": (in_space_and_time, in_space, in_space, in_space),
    "r2plus1d": (in_space_then_time,) * 4,
}
"""Of each layer, by the paper's names."""


def block(net: Layers, x: BuildValue, channels: int, strides: int, convolve: Convolve) -> BuildValue:
    """Two convolutions, added to what they came from."""
    fan_in = 9 * x.shape[1]
    between = 3 * fan_in * channels // (fan_in + 3 * channels)
    y = net.act(net.bn(convolve(net, x, channels, strides, between)))
    y = net.bn(convolve(net, y, channels, 1, between), BRANCH_GAIN)
    if x.shape[1] != channels:
        steps = (1, strides, strides) if convolve is in_space else strides
        x = net.conv_bn(x, channels, 1, strides=steps, act=None)
    return net.act(net.add(y, x))


def video_resnet(net: Layers, x: BuildValue, *, kind: str, layers: int = 4, classes: int = 400) -> BuildValue:
    """Four layers of two blocks each, or fewer; ``kind`` is ``r3d``, ``mc3`` or ``r2plus1d``."""
    net.at("stem")
    if kind == "r2plus1d":
        x = net.conv_bn(net.conv_bn(x, 45, (1, 7, 7), strides=(1, 2, 2)), 64, (3, 1, 1))
    else:
        x = net.conv_bn(x, 64, (3, 7, 7), strides=(1, 2, 2))
    for layer, convolve in enumerate(CONVOLUTIONS[kind][:layers]):
        for index in range(2):
            net.at(f"layer{layer + 1}.{index}")
            x = block(net, x, 64 << layer, 2 if layer > 0 and index == 0 else 1, convolve)
    return net.classifier(x, classes)


NETWORKS = {f"{kind}_18": Network(video_resnet, CLIP, {"kind": kind}) for kind in CONVOLUTIONS}
