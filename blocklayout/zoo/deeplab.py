"""DeepLab v3: what each pixel belongs to, seen through convolutions with holes of several sizes.

Source: L.-C. Chen et al., "Rethinking Atrous Convolution for Semantic Image Segmentation", arXiv:1706.05587; as in
torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import Network
from blocklayout.zoo.resnet import bottleneck

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers


DILATIONS = (1, 1, 2, 4)
"""Of each layer, from its second block on; the first has those of the layer before."""


def deeplab_v3(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[int] = (3, 4, 6, 3),
    width: int = 64,
    rates: Sequence[int] = (12, 24, 36),
    classes: int = 21,
) -> BuildValue:
    """A ResNet that dilates in place of its last two strides, and five views of what it sees."""
    extents = x.shape[2:]
    net.at("stem")
    x = net.conv_bn(x, width, 7, strides=2).max_pool(3, 2, pads=1)
    dilations = 1
    for layer, n_blocks in enumerate(blocks):
        for index in range(n_blocks):
            net.at(f"layer{layer + 1}.{index}")
            strides = 2 if layer == 1 and index == 0 else 1
            x = bottleneck(net, x, width << layer, strides, width=width << layer, dilations=dilations)
            dilations = DILATIONS[layer]
    net.at("views")
    seen = net.same(x.global_average_pool(), x)
    pooled = resized(net, net.conv_bn(seen, 4 * width, 1), x.shape[2:])
    views = [net.conv_bn(x, 4 * width, 1), *(net.conv_bn(x, 4 * width, dilations=rate) for rate in rates), pooled]
    x = net.conv_bn(net.concat(views), 4 * width, 1)
    net.at("scores")
    x = net.conv(net.conv_bn(x, 4 * width), classes, 1, bias=True)
    return resized(net, x, extents)


def resized(net: Layers, x: BuildValue, extents: Sequence[int]) -> BuildValue:
    """Interpolated linearly."""
    sizes = (*x.shape[:2], *extents)
    return net.same(x.resize(sizes=sizes, mode="linear"), x)


NETWORKS = {"deeplab_v3_resnet50": Network(deeplab_v3, (3, 520, 520))}
