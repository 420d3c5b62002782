"""Networks of inverted residuals, for small devices: MobileNet v2 and v3, MnasNet-B1, EfficientNet-B0 and v2-S.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", arXiv:1801.04381; M. Tan et al.,
"MnasNet: Platform-Aware Neural Architecture Search for Mobile", arXiv:1807.11626; M. Tan and Q. V. Le, "EfficientNet:
Rethinking Model Scaling for Convolutional Neural Networks", arXiv:1905.11946; A. Howard et al., "Searching for
MobileNetV3", arXiv:1905.02244; M. Tan and Q. V. Le, "EfficientNetV2: Smaller Models and Faster Training",
arXiv:2104.00298; as in torchvision 0.29.
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

Block = tuple[int, int, int, bool, str, int]

MOBILENET_V3_BLOCKS: tuple[Block, ...] = (
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hard_swish", 2),
    (3, 200, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 480, 112, True, "hard_swish", 1),
    (3, 672, 112, True, "hard_swish", 1),
    (5, 672, 160, True, "hard_swish", 2),
    (5, 960, 160, True, "hard_swish", 1),
    (5, 960, 160, True, "hard_swish", 1),
)
"""Kernel, channels in between, channels, whether it squeezes and excites, activation and strides of each."""

EFFICIENTNET_V2_STAGES = (
    (True, 1, 1, 24, 2),
    (True, 4, 2, 48, 4),
    (True, 4, 2, 64, 4),
    (False, 4, 2, 128, 6),
    (False, 6, 1, 160, 9),
    (False, 6, 2, 256, 15),
)
"""Whether a full convolution takes the place of the depthwise one, expansion, strides, channels and blocks of each."""


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


def squeeze_and_excite(
    net: Layers, x: BuildValue, channels: int, act: str = "silu", *, is_hard: bool = False
) -> BuildValue:
    """Channels weighed by what their means say.

    Source: J. Hu et al., "Squeeze-and-Excitation Networks", arXiv:1709.01507.
    """
    y = net.act(net.conv(x.global_average_pool(), channels, 1, bias=True), act)
    return net.gated(x, net.conv(y, x.shape[1], 1, bias=True), is_hard=is_hard)


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


def mobilenet_v3(
    net: Layers,
    x: BuildValue,
    *,
    blocks: Sequence[Block] = MOBILENET_V3_BLOCKS,
    classes: int = 1000,
) -> BuildValue:
    """Inverted residuals of various widths; the later ones have HardSwish."""
    net.epsilon = 1e-3
    net.at("stem")
    x = net.conv_bn(x, 16, strides=2, act="hard_swish")
    for number, block in enumerate(blocks):
        net.at(f"block{number}")
        x = narrowed(net, x, widened(net, x, block), block)
    net.at("head")
    x = net.conv_bn(x, 6 * x.shape[1], 1, act="hard_swish")
    net.at("classifier")
    return net.linear(net.act(net.linear(x.global_average_pool().flatten(), 1280), "hard_swish"), classes)


def widened(net: Layers, x: BuildValue, block: Block) -> BuildValue:
    """The first convolution of a block of MobileNet v3."""
    _, between, _, _, act, _ = block
    return net.conv_bn(x, between, 1, act=act) if between != x.shape[1] else x


def narrowed(net: Layers, x: BuildValue, y: BuildValue, block: Block) -> BuildValue:
    """The rest of a block, which was ``widened`` to ``y``; it is added to ``x`` where the extents allow it."""
    kernel, between, channels, squeezes, act, strides = block
    y = net.conv_bn(y, between, kernel, strides=strides, group=between, act=act)
    if squeezes:
        y = squeeze_and_excite(net, y, rounded(between / 4), "relu", is_hard=True)
    is_residual = strides == 1 and x.shape[1] == channels
    y = net.conv_bn(y, channels, 1, act=None, gain=BRANCH_GAIN if is_residual else 1.0)
    return net.add(y, x) if is_residual else y


def efficientnet_v2(
    net: Layers,
    x: BuildValue,
    *,
    stages: Sequence[tuple[bool, int, int, int, int]] = EFFICIENTNET_V2_STAGES,
    classes: int = 1000,
) -> BuildValue:
    """Stages whose first blocks have full convolutions in place of depthwise ones."""
    net.epsilon = 1e-3
    net.at("stem")
    x = net.conv_bn(x, 24, strides=2, act="silu")
    for number, (is_full, expansion, strides, channels, n_blocks) in enumerate(stages, start=1):
        if is_full:
            for index in range(n_blocks):
                net.at(f"stage{number}.{index}")
                x = full_residual(net, x, channels, 1 if index else strides, expansion)
        else:
            block = {"kernel": 3, "expansion": expansion, "act": "silu", "squeeze": True}
            x = stack(net, x, f"stage{number}", n_blocks, channels, strides, **block)
    net.at("head")
    x = net.conv_bn(x, 1280, 1, act="silu")
    return net.classifier(x, classes)


def full_residual(net: Layers, x: BuildValue, channels: int, strides: int, expansion: int) -> BuildValue:
    """A 3x3 convolution to more channels, and fewer again; without expansion the first alone."""
    is_residual = strides == 1 and x.shape[1] == channels
    gain = BRANCH_GAIN if is_residual else 1.0
    if expansion == 1:
        y = net.conv_bn(x, channels, strides=strides, act="silu", gain=gain)
    else:
        y = net.conv_bn(x, expansion * x.shape[1], strides=strides, act="silu")
        y = net.conv_bn(y, channels, 1, act=None, gain=gain)
    return net.add(y, x) if is_residual else y


_WIDTHS = {"mnasnet0_5": 0.5, "mnasnet0_75": 0.75, "mnasnet1_0": 1.0, "mnasnet1_3": 1.3}
NETWORKS = {
    "mobilenet_v2": Network(mobilenet_v2),
    "mobilenet_v3_large": Network(mobilenet_v3),
    "efficientnet_b0": Network(efficientnet_b0),
    "efficientnet_v2_s": Network(efficientnet_v2, (3, 384, 384)),
    **{name: Network(mnasnet, IMAGE, {"width": width}) for name, width in _WIDTHS.items()},
}
