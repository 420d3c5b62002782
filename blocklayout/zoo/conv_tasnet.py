"""Conv-TasNet: voices that speak at once are told apart by dilated convolutions over sound as it was sampled.

Source: Y. Luo and N. Mesgarani, "Conv-TasNet: Surpassing Ideal Time-Frequency Magnitude Masking for Speech Separation",
arXiv:1809.07454, the best non-causal network of table II; as in torchaudio 2.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import Network
from blocklayout.zoo.raw_waveform import FOUR_SECONDS

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

EPSILON = 1e-8
WINDOW = 16
"""Samples that a feature is made of; the next one begins half of them later."""


def separated(net: Layers, x: BuildValue, channels: int, dilations: int) -> BuildValue:
    """A convolution to more channels, and a depthwise one, each normalised over the whole sound."""
    y = net.global_norm(net.prelu(net.conv(x, channels, 1, bias=True)), EPSILON)
    y = net.conv(y, channels, dilations=dilations, pads=dilations, group=channels, bias=True)
    return net.global_norm(net.prelu(y), EPSILON)


def conv_tasnet(
    net: Layers,
    x: BuildValue,
    *,
    features: int = 512,
    bottleneck: int = 128,
    hidden: int = 512,
    layers: int = 8,
    stacks: int = 3,
    voices: int = 2,
) -> BuildValue:
    """Each voice of a mixture, (batch, voices, samples).

    Args:
        net: Whose layers they become.
        x: Sound; so many samples that a whole number of features covers them.
        features: Of which masks leave those of a voice.
        bottleneck: Channels between the blocks.
        hidden: Channels within them.
        layers: Blocks of a stack, each with twice the dilation of the one before.
        stacks: How many there are.
        voices: How many are told apart.
    """
    batch, _, length = x.shape
    net.at("encoder")
    encoded = net.conv(x, features, WINDOW, strides=WINDOW // 2, pads=WINDOW // 2)
    net.at("bottleneck")
    x = net.conv(net.global_norm(encoded, EPSILON), bottleneck, 1, bias=True)
    skipped = x
    for index in range(stacks * layers):
        net.at(f"block{index}")
        y = separated(net, x, hidden, 1 << index % layers)
        if index < stacks * layers - 1:
            x = net.add(net.conv(y, bottleneck, 1, bias=True), x)
        skip = net.conv(y, bottleneck, 1, bias=True)
        skipped = net.add(skipped, skip) if index else skip
    net.at("masks")
    masks = net.conv(net.prelu(skipped), voices * features, 1, bias=True).reshape((batch, voices, features, -1))
    net.at("decoder")
    chosen = net.gated(encoded.unsqueeze((1,)), masks).reshape((batch * voices, features, -1))
    y = net.conv_transpose(chosen, 1, WINDOW, strides=WINDOW // 2, pads=WINDOW // 2)
    return y.reshape((batch, voices, length))


NETWORKS = {"conv_tasnet": Network(conv_tasnet, FOUR_SECONDS)}
