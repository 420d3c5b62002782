"""Networks of inverted residuals, for small devices: MobileNet v2, MnasNet-B1 and EfficientNet-B0.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", arXiv:1801.04381; M. Tan et al.,
"MnasNet: Platform-Aware Neural Architecture Search for Mobile", arXiv:1807.11626; M. Tan and Q. V. Le, "EfficientNet:
Rethinking Model Scaling for Convolutional Neural Networks", arXiv:1905.11946; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.zoo._catalogue import IMAGE, Network
from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers

MOBILENET_STACKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, number of blocks and strides of each: the paper's t, c, n, s."""

MNASNET_STACKS = (
    (24, 3, 2, 3, 3),
    (40, 5, 2, 3, 3),
    (80, 5, 2, 6, 3),
    (96, 3, 1, 6, 2),
    (192, 5, 2, 6, 4),
    (320, 3, 1, 6, 1),
)
"""Channels, kernel, strides, expansion and number of blocks of each."""

EFFICIENTNET_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Expansion, kernel, strides, channels and number of blocks of each."""


def inverted_residual(
    net: Layers,
    x: BuildValue,
    channels: int,
    kernel: int,
    strides: int,
    *,
    expansion: int,
    act: str,
    squeeze: bool = False,
) -> BuildValue:
    """More channels, a depthwise convolution among them, and fewer again, without an activation.

    Args:
        net: Whose layers it becomes.
        x: What it reads, and is added to where the extents allow it.
        channels: How many there are in the end.
        kernel: Of the depthwise convolution.
        strides: Of the depthwise convolution.
        expansion: How many times the channels of ``x`` there are in between.
        act: Activation.
        squeeze: Whether channels are weighed by squeeze-and-excitation.
    """
    y = net.conv_bn(x, expansion * x.shape[1], 1, act=act) if expansion > 1 else x
    y = net.conv_bn(y, y.shape[1], kernel, strides=strides, group=y.shape[1], act=act)
    if squeeze:
        y = squeeze_and_excite(net, y, x.shape[1] // 4)
    is_residual = strides == 1 and x.shape[1] == channels
    y = net.conv_bn(y, channels, 1, act=None, gain=BRANCH_GAIN if is_residual else 1.0)
    return net.add(y, x) if is_residual else y


def squeeze_and_excite(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """Channels weighed by what their means say.

    Source: J. Hu et al., "Squeeze-and-Excitation Networks", arXiv:1709.01507.
    """
    y = net.act(net.conv(x.global_average_pool(), channels, 1, bias=True), "silu")
    return net.gated(x, net.conv(y, x.shape[1], 1, bias=True))


def rounded(channels: float) -> int:
    """The nearest multiple of 8 that does not take away more than a tenth."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


def stack(
    net: Layers, x: BuildValue, place: str, n_blocks: int, channels: int, strides: int, **block: Any
) -> BuildValue:
    """Inverted residuals, the first of them with the strides; ``block`` is what they have in common."""
    for index in range(n_blocks):
        net.at(f"{place}.{index}")
        x = inverted_residual(net, x, channels, strides=1 if index else strides, **block)
    return x


def mobilenet_v2(
    net: Layers,
    x: BuildValue,
    *,
    width: float = 1.0,
    stacks: Sequence[tuple[int, int, int, int]] = MOBILENET_STACKS,
    classes: int = 1000,
) -> BuildValue:
    """Stacks of inverted residuals with ReLU6; ``width`` multiplies all channels."""
    net.at("stem")
    x = net.conv_bn(x, rounded(32 * width), strides=2, act="relu6")
    for number, (expansion, channels, n_blocks, strides) in enumerate(stacks, start=1):
        wanted = rounded(channels * width)
        x = stack(net, x, f"stack{number}", n_blocks, wanted, strides, kernel=3, expansion=expansion, act="relu6")
    net.at("head")
    x = net.conv_bn(x, rounded(1280 * max(1.0, width)), 1, act="relu6")
    return net.classifier(x, classes)


def mnasnet(
    net: Layers,
    x: BuildValue,
    *,
    width: float = 1.0,
    stacks: Sequence[tuple[int, int, int, int, int]] = MNASNET_STACKS,
    classes: int = 1000,
) -> BuildValue:
    """Stacks of inverted residuals; ``width`` multiplies all channels but the last."""
    net.at("stem")
    x = net.conv_bn(x, rounded(32 * width), strides=2)
    x = net.conv_bn(x, x.shape[1], group=x.shape[1])
    x = net.conv_bn(x, rounded(16 * width), 1, act=None)
    for number, (channels, kernel, strides, expansion, n_blocks) in enumerate(stacks, start=1):
        wanted = rounded(channels * width)
        block = {"kernel": kernel, "expansion": expansion, "act": "relu"}
        x = stack(net, x, f"stack{number}", n_blocks, wanted, strides, **block)
    net.at("head")
    x = net.conv_bn(x, 1280, 1)
    net.at("classifier")
    return net.linear(x.mean((2, 3)), classes)


def efficientnet_b0(
    net: Layers,
    x: BuildValue,
    *,
    stages: Sequence[tuple[int, int, int, int, int]] = EFFICIENTNET_STAGES,
    classes: int = 1000,
) -> BuildValue:
    """Stages of inverted residuals that squeeze and excite."""
    net.at("stem")
    x = net.conv_bn(x, 32, strides=2, act="silu")
    for number, (expansion, kernel, strides, channels, n_blocks) in enumerate(stages, start=1):
        block = {"kernel": kernel, "expansion": expansion, "act": "silu", "squeeze": True}
        x = stack(net, x, f"stage{number}", n_blocks, channels, strides, **block)
    net.at("head")
    x = net.conv_bn(x, 1280, 1, act="silu")
    return net.classifier(x, classes)


_WIDTHS = {"mnasnet0_5": 0.5, "mnasnet0_75": 0.75, "mnasnet1_0": 1.0, "mnasnet1_3": 1.3}
NETWORKS = {
    "mobilenet_v2": Network(mobilenet_v2),
    "efficientnet_b0": Network(efficientnet_b0),
    **{name: Network(mnasnet, IMAGE, {"width": width}) for name, width in _WIDTHS.items()},
}
