"""CRNN: lines of text are read by convolutions, column by column, and by LSTMs in both directions.

Source: B. Shi et al., "An End-to-End Trainable Neural Network for Image-based Sequence Recognition", arXiv:1507.05717,
table 1; with the normalisations, and the layer between the two LSTMs, of https://github.com/meijieru/crnn.pytorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

HEIGHT = 32
"""Pixels of a line, of which convolutions and poolings leave one."""

HALF_ROWS = ((2, 2), (2, 1), (0, 1))
"""Kernel, strides and pads of a pooling that leaves half the rows, and the columns as they are."""


def crnn(
    net: Layers,
    x: BuildValue,
    *,
    channels: Sequence[int] = (64, 128, 256, 512),
    states: int = 256,
    classes: int = 37,
) -> BuildValue:
    """Scores of characters for each column of the last convolution: (columns, batch, classes).

    Args:
        net: Whose layers they become.
        x: Lines of text, in grey.
        channels: Of the convolutions before each halving of the rows.
        states: Of each LSTM in each direction.
        classes: Characters, and the blank between them.
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


NETWORKS = {"crnn": Network(crnn, (1, HEIGHT, 100))}
