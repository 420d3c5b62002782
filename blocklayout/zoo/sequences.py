"""Networks over sequences: sound as it was sampled, and lines of text.

M3 to M34-res name sounds, Conv-TasNet tells apart voices that speak at once, CRNN reads a line column by column.

Source: W. Dai et al., "Very Deep Convolutional Neural Networks for Raw Waveforms", arXiv:1610.00087, table 1; Y. Luo
and N. Mesgarani, "Conv-TasNet: Surpassing Ideal Time-Frequency Magnitude Masking for Speech Separation",
arXiv:1809.07454, the best non-causal network of table II, as in torchaudio 2.8; B. Shi et al., "An End-to-End Trainable
Neural Network for Image-based Sequence Recognition", arXiv:1507.05717, table 1, with the normalisations, and the layer
between the two LSTMs, of https://github.com/meijieru/crnn.pytorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.zoo import CatalogueEntry
from blocklayout.zoo.residual import basic

if TYPE_CHECKING:
    from blocklayout.model import BuildValue
    from blocklayout.zoo._layers import Layers

FOUR_SECONDS = (1, 32_000)
"""One channel at 8 kHz."""

N_POOLS = 4


def raw_waveform(
    net: Layers,
    x: BuildValue,
    *,
    stem: int,
    stages: Sequence[tuple[int, int]],
    is_residual: bool = False,
    classes: int = 10,
) -> BuildValue:
    """A convolution of 80 samples, and ``stages``: channels and number of layers, convolutions or residual blocks."""
    net.at("stem")
    x = net.conv_bn(x, stem, 80, strides=4, pads=(38, 38)).max_pool(4, ceil_mode=True)
    for stage, (channels, n_layers) in enumerate(stages, start=1):
        for _ in net.parts(f"stage{stage}", n_layers):
            x = basic(net, x, channels, 1) if is_residual else net.conv_bn(x, channels)
        x = x.max_pool(4, ceil_mode=True) if stage < N_POOLS else x
    return net.classifier(x, classes)


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
    """Each voice of a mixture, (batch, voices, samples); a whole number of features covers the samples.

    Each of ``stacks`` has ``layers`` blocks of ``hidden`` channels, each with twice the dilation of the one before, and
    ``bottleneck`` channels between them.
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


HEIGHT = 32
"""Pixels of a line, of which convolutions and poolings leave one."""

HALF_ROWS = ((2, 2), (2, 1), (0, 1))
"""Kernel, strides and pads of a pooling that leaves half the rows, and the columns as they are."""


def crnn(
    net: Layers, x: BuildValue, *, channels: Sequence[int] = (64, 128, 256, 512), states: int = 256, classes: int = 37
) -> BuildValue:
    """Scores of characters for each column of the last convolution: (columns, batch, classes).

    One of the classes is the blank between characters. Lines are in grey; ``channels`` are those before each halving of
    the rows.
    """
    first, second, third, fourth = channels
    net.at("convolutions")
    x = net.conv_act(x, first).max_pool(2)
    x = net.conv_act(x, second).max_pool(2)
    x = net.conv_bn(x, third, bias=True)
    x = net.conv_act(x, third).max_pool(*HALF_ROWS)
    x = net.conv_bn(x, fourth, bias=True)
    x = net.conv_act(x, fourth).max_pool(*HALF_ROWS)
    x = net.conv_bn(x, fourth, 2, pads=0, bias=True)
    columns = net.same(x.squeeze((2,)).transpose((2, 0, 1)), x)
    net.at("sequence")
    y = net.linear_last(net.lstm(columns, states), states)
    return net.linear_last(net.lstm(y, states), classes)


VARIANTS: dict[str, dict[str, Any]] = {
    "m3": {"stem": 256, "stages": ((256, 1),)},
    "m5": {"stem": 128, "stages": ((128, 1), (256, 1), (512, 1))},
    "m11": {"stem": 64, "stages": ((64, 2), (128, 2), (256, 3), (512, 2))},
    "m18": {"stem": 64, "stages": ((64, 4), (128, 4), (256, 4), (512, 4))},
    "m34_res": {"stem": 48, "stages": ((48, 3), (96, 4), (192, 6), (384, 3)), "is_residual": True},
}
NETWORKS = {
    **{name: CatalogueEntry(raw_waveform, FOUR_SECONDS, variant) for name, variant in VARIANTS.items()},
    "conv_tasnet": CatalogueEntry(conv_tasnet, FOUR_SECONDS),
    "crnn": CatalogueEntry(crnn, (1, HEIGHT, 100)),
}
