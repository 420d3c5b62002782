"""U-Net: down to small images of many channels and up again, beside what was there on the way down.

Source: O. Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", arXiv:1505.04597;
O. Cicek et al., "3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation", arXiv:1606.06650.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers


def double(net: Layers, x: BuildValue, channels: int, *, is_padded: bool) -> BuildValue:
    """Two 3x3 convolutions; without padding, each takes a pixel off every side."""
    pads = 1 if is_padded else 0
    return net.conv_act(net.conv_act(x, channels, pads=pads), channels, pads=pads)


def cropped(x: BuildValue, like: BuildValue) -> BuildValue:
    """The middle of ``x``, as large as ``like``."""
    begins = [(extent - wanted) // 2 for extent, wanted in zip(x.shape[2:], like.shape[2:], strict=True)]
    ends = [begin + wanted for begin, wanted in zip(begins, like.shape[2:], strict=True)]
    result: BuildValue = x.builder.op("Slice", x, begins, ends, [*range(2, len(x.shape))])
    return result


def padded(x: BuildValue, like: BuildValue) -> BuildValue:
    """``x`` with zeros below and to the right, as large as ``like``."""
    after = [wanted - extent for extent, wanted in zip(x.shape, like.shape, strict=True)]
    after[1] = 0
    result: BuildValue = x.builder.op("Pad", x, [0, 0, 0, 0, *after]) if any(after) else x
    return result


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


NETWORKS = {"unet": Network(unet, (1, 572, 572)), "unet_3d": Network(unet_3d, (3, 132, 132, 116))}
