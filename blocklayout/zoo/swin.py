"""Swin: a transformer that looks at windows of an image, every other time at shifted ones.

Source: Z. Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", arXiv:2103.14030; as
in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.zoo._catalogue import IMAGE, Network
from blocklayout.zoo.convnext import CHANNELS_LAST
from blocklayout.zoo.transformers import attention, mlp

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

EPSILON = 1e-5
WINDOW = 7
_HIDDEN = -100.0


def swin(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[int],
    heads: Sequence[int],
    features: int = 96,
    classes: int = 1000,
) -> BuildValue:
    """Stages of ``blocks``; each has half the rows and columns, and twice the features, of the one before."""
    net.at("embeddings")
    x = net.conv(x, features, 4, strides=4, pads=0, bias=True).transpose(CHANNELS_LAST)
    x = net.layer_norm(x, EPSILON)
    for stage, (n_blocks, n_heads) in enumerate(zip(blocks, heads, strict=True)):
        if stage:
            net.at(f"merging{stage}")
            x = merged(net, x)
        for index in range(n_blocks):
            net.at(f"stage{stage}.{index}")
            x = x + windowed(net, net.layer_norm(x, EPSILON), n_heads, WINDOW // 2 if index % 2 else 0)
            x = x + mlp(net, net.layer_norm(x, EPSILON), 4 * x.shape[-1])
    net.at("classifier")
    x = net.layer_norm(x, EPSILON).mean((1, 2))
    return net.linear(x, classes)


def merged(net: Layers, x: BuildValue) -> BuildValue:
    """The features of four neighbours side by side, and half of that."""
    _, height, width, features = x.shape
    x = x.pad((0, 0, 0, 0, 0, height % 2, width % 2, 0)) if height % 2 or width % 2 else x
    ends = x.shape[1:3]
    corners = ((0, 0), (1, 0), (0, 1), (1, 1))
    y = x.builder.concat([x.slice(corner, ends, (1, 2), (2, 2)) for corner in corners], 3)
    return net.linear_last(net.layer_norm(y, EPSILON), 2 * features, bias=False)


def windowed(net: Layers, x: BuildValue, heads: int, shift: int) -> BuildValue:
    """Attention within windows, of the image moved up and to the left by ``shift`` where that is not all of it."""
    batch, height, width, features = x.shape
    after = [-extent % WINDOW for extent in (height, width)]
    y = x.pad((0, 0, 0, 0, 0, *after, 0)) if any(after) else x
    extents = y.shape[1:3]
    shifts = [shift if extent > WINDOW else 0 for extent in extents]
    y = rolled(y, shifts)
    apart = (batch, extents[0] // WINDOW, WINDOW, extents[1] // WINDOW, WINDOW, features)
    words = y.reshape(apart).transpose((0, 1, 3, 2, 4, 5)).reshape((-1, WINDOW**2, features))
    bias = places(net, heads)
    if any(shifts):
        bias = bias + np.tile(hidden(extents, shifts), (batch, 1, 1, 1))
    words = attention(net, words, heads, x.builder.constant(bias))
    y = words.reshape([apart[dim] for dim in (0, 1, 3, 2, 4, 5)]).transpose((0, 1, 3, 2, 4, 5)).reshape(y.shape)
    y = rolled(y, [-each for each in shifts])
    return net.same(y.slice((0, 0), (height, width), (1, 2)) if any(after) else y, x)


def rolled(x: BuildValue, shifts: Sequence[int]) -> BuildValue:
    """Rows and columns moved up and left; those that leave come in on the other side."""
    for axis, shift in enumerate(shifts, start=1):
        if shift:
            extent = x.shape[axis]
            parts = [x.slice([shift], [extent], [axis]), x.slice([0], [shift % extent], [axis])]
            x = x.builder.concat(parts, axis)
    return x


def places(net: Layers, heads: int) -> np.ndarray:
    """For each head a learnt number for how two pixels of a window lie to each other: (1, heads, pixels, pixels)."""
    table = np.asarray(net.table((2 * WINDOW - 1) ** 2, heads).value.data)[0]
    rows, columns = (each.ravel() for each in np.mgrid[:WINDOW, :WINDOW])
    apart = [each[:, None] - each[None, :] + WINDOW - 1 for each in (rows, columns)]
    return np.ascontiguousarray(table[apart[0] * (2 * WINDOW - 1) + apart[1]].transpose(2, 0, 1)[None])


def hidden(extents: Sequence[int], shifts: Sequence[int]) -> np.ndarray:
    """Far below zero where two pixels of a window are no neighbours: (windows, 1, pixels, pixels)."""
    bands = [
        np.searchsorted([extent - WINDOW, extent - shift], np.arange(extent), "right") if shift else np.zeros(extent)
        for extent, shift in zip(extents, shifts, strict=True)
    ]
    regions = 3 * bands[0][:, None] + bands[1][None, :]
    windows = regions.reshape(extents[0] // WINDOW, WINDOW, extents[1] // WINDOW, WINDOW).transpose(0, 2, 1, 3)
    of_pixels = windows.reshape(-1, 1, WINDOW**2)
    return np.where(of_pixels[..., None] == of_pixels[:, :, None], 0, _HIDDEN).astype(np.float32)


NETWORKS = {
    "swin_t": Network(swin, IMAGE, {"blocks": (2, 2, 6, 2), "heads": (3, 6, 12, 24)}),
}
