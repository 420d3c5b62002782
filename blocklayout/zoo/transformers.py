"""Transformers, for text BERT, for images ViT and Swin; and ConvNeXt, a convolutional network with their habits.

Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", arXiv:1810.04805; A. Dosovitskiy et
al., "An Image is Worth 16x16 Words", arXiv:2010.11929; Z. Liu et al., "Swin Transformer: Hierarchical Vision
Transformer using Shifted Windows", arXiv:2103.14030; Z. Liu et al., "A ConvNet for the 2020s", arXiv:2201.03545; as in
torchvision 0.29; S. Woo et al., "ConvNeXt V2: Co-designing and Scaling ConvNets with Masked Autoencoders",
arXiv:2301.00808.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.zoo import IMAGE, CatalogueEntry

if TYPE_CHECKING:
    from blocklayout.model import BuildValue
    from blocklayout.zoo._layers import Layers

BERT_EPSILON, VIT_EPSILON, SWIN_EPSILON, CONVNEXT_EPSILON = 1e-12, 1e-6, 1e-5, 1e-6
CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def attention(net: Layers, x: BuildValue, heads: int, bias: BuildValue | None = None) -> BuildValue:
    """Sums of values by how well their keys match each query, plus ``bias``; for each head on its own."""
    batch, length, features = x.shape
    apart = (batch, length, heads, features // heads)
    query, key, value = (net.linear_last(x, features).reshape(apart) for _ in range(3))
    scores = query.transpose((0, 2, 1, 3)).matmul(key.transpose((0, 2, 3, 1))) * (features // heads) ** -0.5
    if bias is not None:
        scores = scores + bias
    seen = scores.softmax().matmul(value.transpose((0, 2, 1, 3)))
    return net.linear_last(seen.transpose((0, 2, 1, 3)).reshape(x.shape), features)


def mlp(net: Layers, x: BuildValue, features: int) -> BuildValue:
    """So many features in between."""
    return net.linear_last(net.act(net.linear_last(x, features), "gelu"), x.shape[-1])


def bert(
    net: Layers, x: BuildValue, *, layers: int = 12, features: int = 768, heads: int = 12, words: int = 30522
) -> BuildValue:
    """Features of words in their context, from the words' numbers: normalisations behind sums; no classifier."""
    net.at("embeddings")
    length = x.shape[1]
    x = net.rows(words, features, x) + net.table(length, features) + net.table(1, features)
    x = net.layer_norm(x, BERT_EPSILON)
    for layer in range(layers):
        net.at(f"layer{layer}")
        x = net.layer_norm(attention(net, x, heads) + x, BERT_EPSILON)
        x = net.layer_norm(mlp(net, x, 4 * features) + x, BERT_EPSILON)
    return x


def vit(
    net: Layers,
    x: BuildValue,
    *,
    layers: int = 12,
    features: int = 768,
    heads: int = 12,
    patch: int = 16,
    classes: int = 1000,
) -> BuildValue:
    """Patches of images as words, behind one that stands for the whole: normalisations before each branch."""
    net.at("embeddings")
    x = net.conv(x, features, patch, strides=patch, pads=0, bias=True)
    batch = x.shape[0]
    words = x.reshape((batch, features, -1)).transpose((0, 2, 1))
    whole = net.table(1, features).expand((batch, 1, features))
    x = x.builder.concat([whole, words], 1)
    x = x + net.table(x.shape[1], features)
    for layer in range(layers):
        net.at(f"layer{layer}")
        x = x + attention(net, net.layer_norm(x, VIT_EPSILON), heads)
        x = x + mlp(net, net.layer_norm(x, VIT_EPSILON), 4 * features)
    net.at("classifier")
    x = net.layer_norm(x, VIT_EPSILON).slice([0], [1], [1])
    return net.linear(x.reshape((batch, features)), classes)


# --- Swin: looks at windows of an image, every other time at shifted ones

WINDOW = 7
_HIDDEN = -100.0


def swin(
    net: Layers, x: BuildValue, *, blocks: Sequence[int], heads: Sequence[int], features: int = 96, classes: int = 1000
) -> BuildValue:
    """Stages of ``blocks``; each has half the rows and columns, and twice the features, of the one before."""
    net.at("embeddings")
    x = net.conv(x, features, 4, strides=4, pads=0, bias=True).transpose(CHANNELS_LAST)
    x = net.layer_norm(x, SWIN_EPSILON)
    for stage, (n_blocks, n_heads) in enumerate(zip(blocks, heads, strict=True)):
        if stage:
            net.at(f"merging{stage}")
            x = merged(net, x)
        for index in net.parts(f"stage{stage}", n_blocks):
            x = x + windowed(net, net.layer_norm(x, SWIN_EPSILON), n_heads, WINDOW // 2 if index % 2 else 0)
            x = x + mlp(net, net.layer_norm(x, SWIN_EPSILON), 4 * x.shape[-1])
    net.at("classifier")
    return net.linear(net.layer_norm(x, SWIN_EPSILON).mean((1, 2)), classes)


def merged(net: Layers, x: BuildValue) -> BuildValue:
    """The features of four neighbours side by side, and half of that."""
    _, height, width, features = x.shape
    x = x.pad((0, 0, 0, 0, 0, height % 2, width % 2, 0)) if height % 2 or width % 2 else x
    ends = x.shape[1:3]
    corners = ((0, 0), (1, 0), (0, 1), (1, 1))
    y = x.builder.concat([x.slice(corner, ends, (1, 2), (2, 2)) for corner in corners], 3)
    return net.linear_last(net.layer_norm(y, SWIN_EPSILON), 2 * features, bias=False)


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


# --- ConvNeXt


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
        for _ in net.parts(f"stage{stage}", n_blocks):
            x = convnext_block(net, x, is_second=is_second)
    net.at("classifier")
    return net.linear(norm(net, x.global_average_pool()).flatten(), classes)


def norm(net: Layers, x: BuildValue) -> BuildValue:
    """Normalisation of each pixel's channels."""
    return net.layer_norm(x.transpose(CHANNELS_LAST), CONVNEXT_EPSILON).transpose(CHANNELS_FIRST)


def convnext_block(net: Layers, x: BuildValue, *, is_second: bool) -> BuildValue:
    """A depthwise 7x7 convolution, and two fully connected layers for each pixel."""
    y = net.conv(x, x.shape[1], 7, group=x.shape[1], bias=True).transpose(CHANNELS_LAST)
    y = net.layer_norm(y, CONVNEXT_EPSILON)
    y = net.act(net.linear_last(y, 4 * x.shape[1]), "gelu")
    if is_second:
        y = net.contrasted(y, CONVNEXT_EPSILON)
    y = net.linear_last(y, x.shape[1]).transpose(CHANNELS_FIRST)
    return net.add(y if is_second else net.scaled(y, 0.1, 0.5), x)


_TINY = {"blocks": (3, 3, 9, 3), "channels": (96, 192, 384, 768)}
NETWORKS = {
    "bert_base": CatalogueEntry(bert, (128,), dtype="s64"),
    "vit_b_16": CatalogueEntry(vit),
    "swin_t": CatalogueEntry(swin, IMAGE, {"blocks": (2, 2, 6, 2), "heads": (3, 6, 12, 24)}),
    "convnext_v2_tiny": CatalogueEntry(convnext, IMAGE, {**_TINY, "is_second": True}),
    "convnext_tiny": CatalogueEntry(convnext, IMAGE, _TINY),
    "convnext_small": CatalogueEntry(convnext, IMAGE, {**_TINY, "blocks": (3, 3, 27, 3)}),
}
