"""Sliding windows: what strides, pads, dilations and auto_pad mean for convolution and pooling."""

from __future__ import annotations

from typing import Any

from blocklayout.ir import NodeInfo, Padding, Window

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def read_window(node: NodeInfo, kernel: tuple[int, ...], spatial: tuple[int, ...]) -> Window:
    """The window of a convolution or pooling node: ``kernel`` over the source's extents behind batch and channels."""
    ndims = len(kernel)
    strides = node.ints_attr("strides", ndims, 1, at_least=1)
    dilations = node.ints_attr("dilations", ndims, 1, at_least=1)
    auto_pad = node.string_attr("auto_pad", AUTO_PADS)
    begin, end = (0,) * ndims, (0,) * ndims
    if auto_pad == "NOTSET":
        pads = node.ints_attr("pads", 2 * ndims, 0, at_least=0)
        begin, end = pads[:ndims], pads[ndims:]
    window = Window(kernel, strides, begin, end, dilations)
    if auto_pad.startswith("SAME"):
        return _same(window, spatial, is_upper=auto_pad == "SAME_UPPER")
    return window


def _same(window: Window, spatial: tuple[int, ...], *, is_upper: bool) -> Window:
    """As many windows as strides begin inside the source; an odd pad goes behind it, or before."""
    totals = [
        max((-(-extent // stride) - 1) * stride + reach - extent, 0)
        for extent, stride, reach in zip(spatial, window.strides, window.reach, strict=True)
    ]
    smaller = tuple(total // 2 for total in totals)
    larger = tuple(total - total // 2 for total in totals)
    begin, end = (smaller, larger) if is_upper else (larger, smaller)
    return Window(window.kernel, window.strides, begin, end, window.dilations)


def read_kernel_shape(node: NodeInfo, ndims: int) -> tuple[int, ...]:
    """The attribute ``kernel_shape``, where it is required."""
    if "kernel_shape" not in node.attrs:
        raise node.wrong("attribute kernel_shape is missing", "it is required")
    return node.ints_attr("kernel_shape", ndims, 1, at_least=1)


def check_extents(node: NodeInfo, extents: tuple[int, ...]) -> None:
    """Compare a window's extents with the model's."""
    if min(extents, default=1) < 1:
        raise node.wrong(f"the window gives extents {list(extents)}", "it must fit into the padded source")
    node.check_result((*node.result.shape[:2], *extents), f"the window gives {list(extents)}")


def padded_window(node: NodeInfo, padding: Padding) -> dict[str, Any] | None:
    """The attributes of a node whose window also covers padding of its source; ``None`` if it computes its own pads."""
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    own = tuple(node.attrs.get("pads", ())) or (0,) * len(padding.pads)
    pads = tuple(int(a) + int(b) for a, b in zip(padding.pads, own, strict=True))
    return {**{name: value for name, value in node.attrs.items() if name != "auto_pad"}, "pads": pads}
