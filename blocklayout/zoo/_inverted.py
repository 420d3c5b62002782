"""Inverted residuals, the blocks of networks for small devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.zoo._layers import BRANCH_GAIN

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers


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


def rounded(channels: float, multiple: int = 8) -> int:
    """The nearest multiple that does not take away more than a tenth."""
    nearest = max(multiple, int(channels + multiple / 2) // multiple * multiple)
    return nearest if nearest >= 0.9 * channels else nearest + multiple
