"""Residual networks: ResNet, wide ResNet, ResNeXt, RegNet, and ResNets for video. Branches are added to their source.

Source: K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385; S. Zagoruyko and
N. Komodakis, "Wide Residual Networks", arXiv:1605.07146; S. Xie et al., "Aggregated Residual Transformations for
Deep Neural Networks", arXiv:1611.05431; I. Radosavovic et al., "Designing Network Design Spaces", arXiv:2003.13678;
D. Tran et al., "A Closer Look at Spatiotemporal Convolutions for Action Recognition", arXiv:1711.11248; as in
torchvision 0.29, where the 3x3 convolution of a bottleneck has the stride.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.zoo import IMAGE, CatalogueEntry
from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model import BuildValue
    from blocklayout.operators import Extents
    from blocklayout.zoo._layers import Layers

CLIP = (3, 16, 112, 112)


def shortcut(net: Layers, x: BuildValue, channels: int, strides: Extents) -> BuildValue:
    """Shortcut of a residual branch: ``x`` itself, or a projection of it to other extents."""
    if strides == 1 and x.shape[1] == channels:
        return x
    return net.conv_bn(x, channels, 1, strides=strides, act=None)


def basic(net: Layers, x: BuildValue, channels: int, strides: int) -> BuildValue:
    """Two 3x3 convolutions."""
    y = net.conv_bn(x, channels, strides=strides)
    y = net.conv_bn(y, channels, act=None, gain=BRANCH_GAIN)
    return net.act(net.add(y, shortcut(net, x, channels, strides)))


def bottleneck(
    net: Layers,
    x: BuildValue,
    channels: int,
    strides: int,
    *,
    width: int,
    group: int = 1,
    dilations: int = 1,
    squeezes: bool = False,
) -> BuildValue:
    """A 3x3 convolution in groups, of ``width`` channels, between two of 1x1; it may squeeze and excite."""
    y = net.conv_bn(x, width, 1)
    y = net.conv_bn(y, width, strides=strides, group=group, dilations=dilations)
    if squeezes:
        y = net.squeeze_and_excite(y, round(x.shape[1] / 4), "relu")
    y = net.conv_bn(y, channels, 1, act=None, gain=BRANCH_GAIN)
    return net.act(net.add(y, shortcut(net, x, channels, strides)))


def resnet(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[int],
    has_bottlenecks: bool = True,
    width: int = 64,
    group: int = 1,
    classes: int = 1000,
) -> BuildValue:
    """Four layers of ``blocks`` each, and a classifier."""
    *_, last = layers(net, x, blocks=blocks, has_bottlenecks=has_bottlenecks, width=width, group=group)
    return net.classifier(last, classes)


def layers(
    net: Layers, x: BuildValue, *, blocks: Sequence[int], has_bottlenecks: bool = True, width: int = 64, group: int = 1
) -> Iterator[BuildValue]:
    """The result of each layer of ``blocks``; bottlenecks are ``width`` channels wide, twice as wide in each next."""
    net.at("stem")
    x = net.conv_bn(x, 64, 7, strides=2).max_pool(3, 2, pads=1)
    for layer, n_blocks in enumerate(blocks):
        channels = 64 << layer
        for index in net.parts(f"layer{layer + 1}", n_blocks):
            strides = 2 if layer > 0 and index == 0 else 1
            if has_bottlenecks:
                x = bottleneck(net, x, 4 * channels, strides, width=width << layer, group=group)
            else:
                x = basic(net, x, channels, strides)
        yield x


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
    """Stages of ``blocks`` bottlenecks in groups of ``in_group`` channels, with so many ``channels``."""
    net.at("stem")
    x = net.conv_bn(x, 32, strides=2)
    for stage, (n_blocks, wanted) in enumerate(zip(blocks, channels, strict=True), start=1):
        for index in net.parts(f"stage{stage}", n_blocks):
            strides, group = 1 if index else 2, wanted // in_group
            x = bottleneck(net, x, wanted, strides, width=wanted, group=group, squeezes=squeezes)
    return net.classifier(x, classes)


CONVOLUTIONS = {
    "r3d": ("whole",) * 4,
    "mc3": ("whole", "space", "space", "space"),
    "r2plus1d": ("space, then time",) * 4,
}
"""Of each layer, by the paper's names."""


def convolved(net: Layers, x: BuildValue, channels: int, strides: int, between: int, kind: str) -> BuildValue:
    """3x3x3, 1x3x3, or 1x3x3 to ``between`` channels, which make up for it in number, and 3x1x1."""
    if kind == "whole":
        return net.conv(x, channels, 3, strides=strides)
    in_space: dict[str, Any] = {"kernel": (1, 3, 3), "strides": (1, strides, strides)}
    if kind == "space":
        return net.conv(x, channels, **in_space)
    return net.conv(net.conv_bn(x, between, **in_space), channels, (3, 1, 1), strides=(strides, 1, 1))


def basic_of_video(net: Layers, x: BuildValue, channels: int, strides: int, kind: str) -> BuildValue:
    """Two convolutions."""
    fan_in = 9 * x.shape[1]
    between = 3 * fan_in * channels // (fan_in + 3 * channels)
    y = net.act(net.bn(convolved(net, x, channels, strides, between, kind)))
    y = net.bn(convolved(net, y, channels, 1, between, kind), BRANCH_GAIN)
    steps = (1, strides, strides) if strides > 1 and kind == "space" else strides
    return net.act(net.add(y, shortcut(net, x, channels, steps)))


def video_resnet(net: Layers, x: BuildValue, *, kind: str, layers: int = 4, classes: int = 400) -> BuildValue:
    """Four layers of two blocks each, or fewer; ``kind`` is ``r3d``, ``mc3`` or ``r2plus1d``."""
    net.at("stem")
    if kind == "r2plus1d":
        x = net.conv_bn(net.conv_bn(x, 45, (1, 7, 7), strides=(1, 2, 2)), 64, (3, 1, 1))
    else:
        x = net.conv_bn(x, 64, (3, 7, 7), strides=(1, 2, 2))
    for layer, convolution in enumerate(CONVOLUTIONS[kind][:layers]):
        for index in net.parts(f"layer{layer + 1}", 2):
            x = basic_of_video(net, x, 64 << layer, 2 if layer > 0 and index == 0 else 1, convolution)
    return net.classifier(x, classes)


RESNETS: dict[str, dict[str, Any]] = {
    "resnet18": {"blocks": (2, 2, 2, 2), "has_bottlenecks": False},
    "resnet34": {"blocks": (3, 4, 6, 3), "has_bottlenecks": False},
    "resnet50": {"blocks": (3, 4, 6, 3)},
    "resnet101": {"blocks": (3, 4, 23, 3)},
    "resnet152": {"blocks": (3, 8, 36, 3)},
    "wide_resnet50_2": {"blocks": (3, 4, 6, 3), "width": 128},
    "wide_resnet101_2": {"blocks": (3, 4, 23, 3), "width": 128},
    "resnext50_32x4d": {"blocks": (3, 4, 6, 3), "width": 32 * 4, "group": 32},
    "resnext101_32x8d": {"blocks": (3, 4, 23, 3), "width": 32 * 8, "group": 32},
}
REGNETS: dict[str, dict[str, Any]] = {
    "regnet_x_400mf": {"blocks": (1, 2, 7, 12), "channels": (32, 64, 160, 400), "in_group": 16},
    "regnet_y_400mf": {"blocks": (1, 3, 6, 6), "channels": (48, 104, 208, 440), "in_group": 8, "squeezes": True},
}
NETWORKS = {
    **{name: CatalogueEntry(resnet, IMAGE, variant) for name, variant in RESNETS.items()},
    **{name: CatalogueEntry(regnet, IMAGE, variant) for name, variant in REGNETS.items()},
    **{f"{kind}_18": CatalogueEntry(video_resnet, CLIP, {"kind": kind}) for kind in CONVOLUTIONS},
}
