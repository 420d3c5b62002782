"""DenseNet: every layer reads what all layers before it wrote.

Source: G. Huang et al., "Densely Connected Convolutional Networks", arXiv:1608.06993; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import IMAGE, Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

BOTTLENECK = 4
"""How many times the growth a layer's 3x3 convolution reads."""


def dense_layer(net: Layers, x: BuildValue, growth: int) -> BuildValue:
    """``growth`` more channels; normalisations come before convolutions."""
    y = net.conv(net.act(net.bn(x)), BOTTLENECK * growth, 1)
    return net.conv(net.act(net.bn(y)), growth)


def transition(net: Layers, x: BuildValue) -> BuildValue:
    """Half the channels, and half the image."""
    return net.conv(net.act(net.bn(x)), x.shape[1] // 2, 1).average_pool(2)


def densenet(
    net: Layers, x: BuildValue, *, blocks: Sequence[int], growth: int = 32, stem: int = 64, classes: int = 1000
) -> BuildValue:
    """Blocks of so many layers each, with transitions between them."""
    net.at("stem")
    x = net.conv_bn(x, stem, 7, strides=2).max_pool(3, 2, pads=1)
    for block, n_layers in enumerate(blocks, start=1):
        features = [x]
        for layer in range(1, n_layers + 1):
            net.at(f"block{block}.{layer}")
            features.append(dense_layer(net, net.concat(features) if layer > 1 else x, growth))
        x = net.concat(features)
        if block < len(blocks):
            net.at(f"transition{block}")
            x = transition(net, x)
    return net.classifier(net.act(net.bn(x)), classes)


NETWORKS = {
    "densenet121": Network(densenet, IMAGE, {"blocks": (6, 12, 24, 16)}),
    "densenet161": Network(densenet, IMAGE, {"blocks": (6, 12, 36, 24), "growth": 48, "stem": 96}),
    "densenet169": Network(densenet, IMAGE, {"blocks": (6, 12, 32, 32)}),
    "densenet201": Network(densenet, IMAGE, {"blocks": (6, 12, 48, 32)}),
}
