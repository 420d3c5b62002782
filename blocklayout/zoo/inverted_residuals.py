"""Networks of inverted residuals, for small devices: MobileNet v2 and v3, MnasNet-B1, EfficientNet-B0 and v2-S.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", arXiv:1801.04381; M. Tan et al.,
"MnasNet: Platform-Aware Neural Architecture Search for Mobile", arXiv:1807.11626; M. Tan and Q. V. Le, "EfficientNet:
Rethinking Model Scaling for Convolutional Neural Networks", arXiv:1905.11946; A. Howard et al., "Searching for
MobileNetV3", arXiv:1905.02244; M. Tan and Q. V. Le, "EfficientNetV2: Smaller Models and Faster Training",
arXiv:2104.00298; as in torchvision 0.29.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.zoo import IMAGE, CatalogueEntry
from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model import BuildValue
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
    *[(5, 120, 40, True, "relu", 1)] * 2,
    (3, 240, 80, False, "hard_swish", 2),
    (3, 200, 80, False, "hard_swish", 1),
    *[(3, 184, 80, False, "hard_swish", 1)] * 2,
    (3, 480, 112, True, "hard_swish", 1),
    (3, 672, 112, True, "hard_swish", 1),
    (5, 672, 160, True, "hard_swish", 2),
    *[(5, 960, 160, True, "hard_swish", 1)] * 2,
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


def widened(net: Layers, x: BuildValue, channels: int, act: str) -> BuildValue:
    """The first convolution of an inverted residual: to more channels, unless it has so many."""
    return x if x.shape[1] == channels else net.conv_bn(x, channels, 1, act=act)


def narrowed(
    net: Layers,
    x: BuildValue,
    y: BuildValue,
    channels: int,
    kernel: int,
    strides: int,
    act: str,
    squeeze: Mapping[str, Any] | None = None,
) -> BuildValue:
    """The rest of an inverted residual of ``x``, widened to ``y``; ``squeeze``: options of squeeze_and_excite."""
    y = net.conv_bn(y, y.shape[1], kernel, strides=strides, group=y.shape[1], act=act)
    y = net.squeeze_and_excite(y, **squeeze) if squeeze else y
    return projected(net, x, y, channels, is_residual=strides == 1 and x.shape[1] == channels, act=None)


def projected(
    net: Layers, x: BuildValue, y: BuildValue, channels: int, kernel: int = 1, *, is_residual: bool, **options: Any
) -> BuildValue:
    """The last convolution of a branch ``y``, which is added to its source ``x`` if it is residual."""
    y = net.conv_bn(y, channels, kernel, gain=BRANCH_GAIN if is_residual else 1.0, **options)
    return net.add(y, x) if is_residual else y


def inverted_residual(
    net: Layers,
    x: BuildValue,
    channels: int,
    strides: int,
    expansion: int,
    act: str,
    *,
    kernel: int = 3,
    squeezes: bool = False,
) -> BuildValue:
    """``expansion`` times as many channels, a depthwise convolution among them, and fewer again."""
    squeeze = {"channels": x.shape[1] // 4, "act": "silu"} if squeezes else None
    return narrowed(net, x, widened(net, x, expansion * x.shape[1], act), channels, kernel, strides, act, squeeze)


def full_residual(net: Layers, x: BuildValue, channels: int, strides: int, expansion: int) -> BuildValue:
    """A 3x3 convolution to more channels, and fewer again; without expansion the first of both alone."""
    is_residual = strides == 1 and x.shape[1] == channels
    if expansion == 1:
        return projected(net, x, x, channels, 3, is_residual=is_residual, strides=strides, act="silu")
    y = net.conv_bn(x, expansion * x.shape[1], strides=strides, act="silu")
    return projected(net, x, y, channels, is_residual=is_residual, act=None)


def rounded(channels: float) -> int:
    """The nearest multiple of 8 that does not take away more than a tenth."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


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
        for index in net.parts(f"stack{number}", n_blocks):
            x = inverted_residual(net, x, wanted, 1 if index else strides, expansion, "relu6")
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
        for index in net.parts(f"stack{number}", n_blocks):
            x = inverted_residual(net, x, wanted, 1 if index else strides, expansion, "relu", kernel=kernel)
    net.at("head")
    x = net.conv_bn(x, 1280, 1)
    net.at("classifier")
    return net.linear(x.mean((2, 3)), classes)


def mobilenet_v3(
    net: Layers, x: BuildValue, *, blocks: Sequence[Block] = MOBILENET_V3_BLOCKS, classes: int = 1000
) -> BuildValue:
    """Inverted residuals of various widths; the later ones have HardSwish."""
    *_, (x, _) = mobilenet_v3_blocks(net, x, blocks)
    net.at("head")
    x = net.conv_bn(x, 6 * x.shape[1], 1, act="hard_swish")
    net.at("classifier")
    return net.linear(net.act(net.linear(x.global_average_pool().flatten(), 1280), "hard_swish"), classes)


def mobilenet_v3_blocks(net: Layers, x: BuildValue, blocks: Sequence[Block]) -> Iterator[tuple[BuildValue, BuildValue]]:
    """The result of each block behind the stem, and of its first convolution."""
    net.epsilon = 1e-3
    net.at("stem")
    x = net.conv_bn(x, 16, strides=2, act="hard_swish")
    for number, (kernel, between, channels, squeezes, act, strides) in enumerate(blocks):
        net.at(f"block{number}")
        squeeze = {"channels": rounded(between / 4), "act": "relu", "is_hard": True} if squeezes else None
        y = widened(net, x, between, act)
        x = narrowed(net, x, y, channels, kernel, strides, act, squeeze)
        yield x, y


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
        for index in net.parts(f"stage{number}", n_blocks):
            steps = 1 if index else strides
            x = inverted_residual(net, x, channels, steps, expansion, "silu", kernel=kernel, squeezes=True)
    net.at("head")
    return net.classifier(net.conv_bn(x, 1280, 1, act="silu"), classes)


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
        for index in net.parts(f"stage{number}", n_blocks):
            steps = 1 if index else strides
            if is_full:
                x = full_residual(net, x, channels, steps, expansion)
            else:
                x = inverted_residual(net, x, channels, steps, expansion, "silu", squeezes=True)
    net.at("head")
    return net.classifier(net.conv_bn(x, 1280, 1, act="silu"), classes)


_WIDTHS = {"mnasnet0_5": 0.5, "mnasnet0_75": 0.75, "mnasnet1_0": 1.0, "mnasnet1_3": 1.3}
NETWORKS = {
    "mobilenet_v2": CatalogueEntry(mobilenet_v2),
    "mobilenet_v3_large": CatalogueEntry(mobilenet_v3),
    "efficientnet_b0": CatalogueEntry(efficientnet_b0),
    "efficientnet_v2_s": CatalogueEntry(efficientnet_v2, (3, 384, 384)),
    **{name: CatalogueEntry(mnasnet, IMAGE, {"width": width}) for name, width in _WIDTHS.items()},
}
