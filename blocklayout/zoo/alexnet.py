"""AlexNet, in one column.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997;
as in torchvision 0.29.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.zoo._adaptive import adaptive_average_pool
from blocklayout.zoo._network import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers


def alexnet(net: Layers, x: BuildValue, *, features: int = 4096, classes: int = 1000) -> BuildValue:
    """Five convolutions and three fully connected layers, the first two of ``features`` each."""
    net.at("features")
    x = net.conv_act(x, 64, 11, strides=4, pads=2).max_pool(3, 2)
    x = net.conv_act(x, 192, 5).max_pool(3, 2)
    x = net.conv_act(x, 384)
    x = net.conv_act(x, 256)
    x = net.conv_act(x, 256).max_pool(3, 2)
    x = adaptive_average_pool(x, (6, 6)).flatten()
    net.at("classifier")
    x = net.act(net.linear(x, features))
    x = net.act(net.linear(x, features))
    return net.linear(x, classes)


NETWORKS = {"alexnet": Network(alexnet)}
