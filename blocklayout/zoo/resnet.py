"""ResNet, wide ResNet and ResNeXt: branches that are added to what they came from.

Source: K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385; S. Zagoruyko and
N. Komodakis, "Wide Residual Networks", arXiv:1605.07146; S. Xie et al., "Aggregated Residual Transformations for
Deep Neural Networks", arXiv:1611.05431; as in torchvision 0.29, where the 3x3 convolution has the stride.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.zoo._catalogue import IMAGE, Network
from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers


def basic(net: Layers, x: BuildValue, channels: int, strides: int) -> BuildValue:
    """Two 3x3 convolutions."""
    y = net.conv_bn(x, channels, strides=strides)
    y = net.conv_bn(y, channels, act=None, gain=BRANCH_GAIN)
    return net.act(net.add(y, shortcut(net, x, channels, strides)))


def bottleneck(
    net: Layers, x: BuildValue, channels: int, strides: int, *, width: int, group: int = 1, dilations: int = 1
) -> BuildValue:
    """Fewer channels, ``width`` of them, a 3x3 convolution in groups, and four times ``channels`` again."""
    y = net.conv_bn(x, width, 1)
    y = net.conv_bn(y, width, strides=strides, group=group, dilations=dilations)
    y = net.conv_bn(y, 4 * channels, 1, act=None, gain=BRANCH_GAIN)
    return net.act(net.add(y, shortcut(net, x, 4 * channels, strides)))


def shortcut(net: Layers, x: BuildValue, channels: int, strides: int) -> BuildValue:
    """Shortcut of a residual branch: ``x`` itself, or a projection of it to other extents."""
    if strides == 1 and x.shape[1] == channels:
        return x
    return net.conv_bn(x, channels, 1, strides=strides, act=None)


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
    """The result of each layer of ``blocks``.

    Bottlenecks of the first layer are ``width`` channels wide, of each further layer twice as many.
    """
    net.at("stem")
    x = net.conv_bn(x, 64, 7, strides=2).max_pool(3, 2, pads=1)
    for layer, n_blocks in enumerate(blocks):
        channels = 64 << layer
        for index in range(n_blocks):
            net.at(f"layer{layer + 1}.{index}")
            strides = 2 if layer > 0 and index == 0 else 1
            if has_bottlenecks:
                x = bottleneck(net, x, channels, strides, width=width << layer, group=group)
            else:
                x = basic(net, x, channels, strides)
        yield x


VARIANTS: dict[str, dict[str, Any]] = {
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
NETWORKS = {name: Network(resnet, IMAGE, variant) for name, variant in VARIANTS.items()}
