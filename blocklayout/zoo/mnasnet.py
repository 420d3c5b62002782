"""MnasNet-B1, found by a search for what is fast on a telephone.

Source: M. Tan et al., "MnasNet: Platform-Aware Neural Architecture Search for Mobile", arXiv:1807.11626; as in
torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._inverted import inverted_residual, rounded
from blocklayout.zoo._network import IMAGE, Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

# Channels, kernel, strides, expansion and number of blocks of each stack.
STACKS = ((24, 3, 2, 3, 3), (40, 5, 2, 3, 3), (80, 5, 2, 6, 3), (96, 3, 1, 6, 2), (192, 5, 2, 6, 4), (320, 3, 1, 6, 1))


def mnasnet(
    net: Layers,
    x: BuildValue,
    *,
    width: float = 1.0,
    stacks: Sequence[tuple[int, int, int, int, int]] = STACKS,
    classes: int = 1000,
) -> BuildValue:
    """Stacks of inverted residuals; ``width`` multiplies all channels but the last."""
    net.at("stem")
    x = net.conv_bn(x, rounded(32 * width), strides=2)
    x = net.conv_bn(x, x.shape[1], group=x.shape[1])
    x = net.conv_bn(x, rounded(16 * width), 1, act=None)
    for stack, (channels, kernel, strides, expansion, n_blocks) in enumerate(stacks, start=1):
        for index in range(n_blocks):
            net.at(f"stack{stack}.{index}")
            stride = strides if index == 0 else 1
            x = inverted_residual(net, x, rounded(channels * width), kernel, stride, expansion=expansion, act="relu")
    net.at("head")
    x = net.conv_bn(x, 1280, 1)
    net.at("classifier")
    return net.linear(x.mean((2, 3)), classes)


NETWORKS = {
    name: Network(mnasnet, IMAGE, {"width": width})
    for name, width in {"mnasnet0_5": 0.5, "mnasnet0_75": 0.75, "mnasnet1_0": 1.0, "mnasnet1_3": 1.3}.items()
}
