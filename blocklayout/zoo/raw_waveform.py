"""Networks that hear: one-dimensional convolutions over sound as it was sampled.

Source: W. Dai et al., "Very Deep Convolutional Neural Networks for Raw Waveforms", arXiv:1610.00087, table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.zoo._catalogue import Network
from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

FOUR_SECONDS = (1, 32_000)
"""One channel at 8 kHz."""

N_POOLS = 4


def residual_block(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """Two convolutions, added to what they came from."""
    y = net.conv_bn(net.conv_bn(x, channels), channels, act=None, gain=BRANCH_GAIN)
    shortcut = x if x.shape[1] == channels else net.conv_bn(x, channels, 1, act=None)
    return net.act(net.add(y, shortcut))


def raw_waveform(
    net: Layers,
    x: BuildValue,
    *,
    stem: int,
    stages: Sequence[tuple[int, int]],
    is_residual: bool = False,
    classes: int = 10,
) -> BuildValue:
    """A convolution of 80 samples at every fourth, and stages of convolutions of 3.

    Args:
        net: Whose layers they become.
        x: Sound.
        stem: Channels of the first convolution.
        stages: Channels and number of layers of each; a layer is a convolution, or a residual block of two.
        is_residual: Whether layers are residual blocks.
        classes: How many scores there are for a sound.
    """
    net.at("stem")
    x = net.conv_bn(x, stem, 80, strides=4, pads=(38, 38)).max_pool(4, ceil_mode=True)
    for stage, (channels, n_layers) in enumerate(stages, start=1):
        for index in range(n_layers):
            net.at(f"stage{stage}.{index}")
            x = residual_block(net, x, channels) if is_residual else net.conv_bn(x, channels)
        x = x.max_pool(4, ceil_mode=True) if stage < N_POOLS else x
    return net.classifier(x, classes)


VARIANTS: dict[str, dict[str, Any]] = {
    "m3": {"stem": 256, "stages": ((256, 1),)},
    "m5": {"stem": 128, "stages": ((128, 1), (256, 1), (512, 1))},
    "m11": {"stem": 64, "stages": ((64, 2), (128, 2), (256, 3), (512, 2))},
    "m18": {"stem": 64, "stages": ((64, 4), (128, 4), (256, 4), (512, 4))},
    "m34_res": {"stem": 48, "stages": ((48, 3), (96, 4), (192, 6), (384, 3)), "is_residual": True},
}
NETWORKS = {name: Network(raw_waveform, FOUR_SECONDS, variant) for name, variant in VARIANTS.items()}
