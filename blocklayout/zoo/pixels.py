"""Networks whose results are images: U-Net and DeepLab v3, which tell each pixel's class, and the generator of DCGAN.

Source: O. Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", arXiv:1505.04597;
O. Cicek et al., "3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation", arXiv:1606.06650; L.-C. Chen
et al., "Rethinking Atrous Convolution for Semantic Image Segmentation", arXiv:1706.05587, as in torchvision 0.29;
A. Radford, L. Metz and S. Chintala, "Unsupervised Representation Learning with Deep Convolutional Generative
Adversarial Networks", arXiv:1511.06434, with kernels and channels of the third author's own program,
https://github.com/soumith/dcgan.torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo import CatalogueEntry
from blocklayout.zoo.residual import bottleneck

if TYPE_CHECKING:
    from blocklayout.model import BuildValue
    from blocklayout.zoo._layers import Layers


def double(net: Layers, x: BuildValue, channels: int, *, is_padded: bool) -> BuildValue:
    """Two 3x3 convolutions; without padding, each takes a pixel off every side."""
    pads = 1 if is_padded else 0
    return net.conv_act(net.conv_act(x, channels, pads=pads), channels, pads=pads)


def cropped(x: BuildValue, like: BuildValue) -> BuildValue:
    """The middle of ``x``, as large as ``like``."""
    begins = [(extent - wanted) // 2 for extent, wanted in zip(x.shape[2:], like.shape[2:], strict=True)]
    ends = [begin + wanted for begin, wanted in zip(begins, like.shape[2:], strict=True)]
    return x.slice(begins, ends, [*range(2, len(x.shape))])


def padded(x: BuildValue, like: BuildValue) -> BuildValue:
    """``x`` with zeros below and to the right, as large as ``like``."""
    after = [wanted - extent for extent, wanted in zip(x.shape, like.shape, strict=True)]
    after[1] = 0
    return x.pad((0, 0, 0, 0, *after)) if any(after) else x


def unet(
    net: Layers, x: BuildValue, *, width: int = 64, depth: int = 4, is_padded: bool = False, classes: int = 2
) -> BuildValue:
    """Down and up ``depth`` times.

    Without padding, as in the paper, the result is smaller than the image (388 pixels of 572), which must have
    188 pixels at least. With padding it is as large as the image, which may have any extents from 16 on.
    """
    skipped = []
    for level in range(depth):
        net.at(f"down{level}")
        skipped.append(double(net, x, width << level, is_padded=is_padded))
        x = skipped[-1].max_pool(2)
    net.at("bottom")
    x = double(net, x, width << depth, is_padded=is_padded)
    for level in reversed(range(depth)):
        net.at(f"up{level}")
        x = net.conv_transpose(x, width << level, 2, strides=2, bias=True)
        skip = skipped[level]
        if is_padded:
            x = net.same(padded(x, skip), x)
        else:
            skip = net.same(cropped(skip, x), skip)
        x = double(net, net.concat([skip, x]), width << level, is_padded=is_padded)
    net.at("scores")
    return net.conv(x, classes, 1, bias=True)


def unet_3d(net: Layers, x: BuildValue, *, width: int = 32, depth: int = 3, classes: int = 3) -> BuildValue:
    """The same with volumes: normalised, without padding, and twice the channels before each pooling."""
    skipped = []
    for level in range(depth + 1):
        net.at(f"down{level}")
        x = x.max_pool(2) if level else x
        for channels in (width << level, width << level + 1):
            x = net.conv_bn(x, channels, pads=0, bias=True)
        skipped.append(x)
    for level in reversed(range(depth)):
        net.at(f"up{level}")
        x = net.conv_transpose(x, x.shape[1], 2, strides=2)
        x = net.concat([net.same(cropped(skipped[level], x), skipped[level]), x])
        for _ in range(2):
            x = net.conv_bn(x, width << level + 1, pads=0, bias=True)
    net.at("scores")
    return net.conv(x, classes, 1, bias=True)


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
    """A ResNet that dilates in place of its last two strides, and five views of its result."""
    extents = x.shape[2:]
    net.at("stem")
    x = net.conv_bn(x, width, 7, strides=2).max_pool(3, 2, pads=1)
    dilations = 1
    for layer, n_blocks in enumerate(blocks):
        for index in net.parts(f"layer{layer + 1}", n_blocks):
            strides = 2 if layer == 1 and index == 0 else 1
            x = bottleneck(net, x, 4 * width << layer, strides, width=width << layer, dilations=dilations)
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


def dcgan_generator(net: Layers, x: BuildValue, *, width: int = 64, channels: int = 3) -> BuildValue:
    """Transposed convolutions, each of which doubles the image; one pixel of noise becomes 64x64."""
    net.at("project")
    x = net.act(net.bn(net.conv_transpose(x, 8 * width, 4)))
    for times in (4, 2, 1):
        net.at(f"up{times}")
        x = net.act(net.bn(net.conv_transpose(x, times * width, 4, strides=2, pads=1)))
    net.at("image")
    return net.conv_transpose(x, channels, 4, strides=2, pads=1).tanh()


NETWORKS = {
    "unet": CatalogueEntry(unet, (1, 572, 572)),
    "unet_3d": CatalogueEntry(unet_3d, (3, 132, 132, 116)),
    "deeplab_v3_resnet50": CatalogueEntry(deeplab_v3, (3, 520, 520)),
    "dcgan_generator": CatalogueEntry(dcgan_generator, (100, 1, 1)),
}
