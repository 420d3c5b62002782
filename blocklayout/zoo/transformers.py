"""Transformers: for text BERT, for images ViT.

Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", arXiv:1810.04805; A. Dosovitskiy et
al., "An Image is Worth 16x16 Words", arXiv:2010.11929, as in torchvision 0.29.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import IMAGE, Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

BERT_EPSILON, VIT_EPSILON = 1e-12, 1e-6


def attention(net: Layers, x: BuildValue, heads: int, bias: BuildValue | None = None) -> BuildValue:
    """Sums of values by how well their keys match each query, for each head on its own.

    Args:
        net: Whose layers it becomes.
        x: (batch, length, features).
        heads: How many parts of the features are looked at.
        bias: Added to how well they match.
    """
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
    net: Layers,
    x: BuildValue,
    *,
    layers: int = 12,
    features: int = 768,
    heads: int = 12,
    words: int = 30522,
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


NETWORKS = {
    "bert_base": Network(bert, (128,), dtype="s64"),
    "vit_b_16": Network(vit, IMAGE),
}
