"""Sliding windows of convolution and pooling: strides, pads, dilations and auto_pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout import ir

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def read_window(node: ir.NodeInfo, kernel: tuple[int, ...], spatial: tuple[int, ...]) -> ir.Window:
    """The window of a convolution or pooling node: ``kernel`` over the source's extents behind batch and channels."""
    ndims = len(kernel)
    strides = node.ints_attr("strides", ndims, 1, at_least=1)
    dilations = node.ints_attr("dilations", ndims, 1, at_least=1)
    auto_pad = node.string_attr("auto_pad", AUTO_PADS)
    begin, end = (0,) * ndims, (0,) * ndims
    if auto_pad == "NOTSET":
        pads = node.ints_attr("pads", 2 * ndims, 0, at_least=0)
        begin, end = pads[:ndims], pads[ndims:]
    window = ir.Window(kernel, strides, begin, end, dilations)
    if not auto_pad.startswith("SAME"):
        return window
    # As many windows as strides begin inside the source.
    lines = zip(spatial, strides, window.reach, strict=True)
    totals = [max((-(-extent // stride) - 1) * stride + reach - extent, 0) for extent, stride, reach in lines]
    begin = pads_before(totals, auto_pad)
    end = tuple(total - before for total, before in zip(totals, begin, strict=True))
    return ir.Window(kernel, strides, begin, end, dilations)


def pads_before(totals: Sequence[int], auto_pad: str) -> tuple[int, ...]:
    """Half of all pads; of an odd number the smaller half where ``auto_pad`` is SAME_UPPER, else the larger."""
    return tuple(total // 2 if auto_pad == "SAME_UPPER" else total - total // 2 for total in totals)


def sliding(window: ir.Window) -> dict[str, Any]:
    """Arguments of a primitive: how a window slides."""
    return {"strides": window.strides, "pads": window.pads, "dilations": window.dnnl_dilations}


def read_kernel_shape(node: ir.NodeInfo, ndims: int) -> tuple[int, ...]:
    """The attribute ``kernel_shape``, where it is required."""
    if "kernel_shape" not in node.attrs:
        raise node.wrong("attribute kernel_shape is missing", "it is required")
    return node.ints_attr("kernel_shape", ndims, 1, at_least=1)


def check_extents(node: ir.NodeInfo, extents: tuple[int, ...]) -> None:
    """Compare a window's extents with the model's."""
    if min(extents, default=1) < 1:
        raise node.wrong(f"the window gives extents {list(extents)}", "it must fit into the padded source")
    node.check_result((*node.result.shape[:2], *extents), f"the window gives {list(extents)}")


def combined(x: np.ndarray, window: ir.Window, extents: tuple[int, ...], combine: np.ufunc, start: float) -> np.ndarray:
    """Each of ``extents`` windows reduced by a function of two, ``start`` of no elements; pads have no elements."""
    for d, n_windows in enumerate(extents):
        source = np.moveaxis(x, 2 + d, 0)
        found = np.full((n_windows, *source.shape[1:]), start, x.dtype)
        stride = window.strides[d]
        for place in range(window.kernel[d]):
            first = place * window.dilations[d] - window.pads_begin[d]  # the first window's element in this place
            begin = max(0, -(first // stride))
            end = min(n_windows, (len(source) - 1 - first) // stride + 1)
            if begin < end:
                seen = source[first + begin * stride : first + (end - 1) * stride + 1 : stride]
                combine(found[begin:end], seen, out=found[begin:end])
        x = np.moveaxis(found, 0, 2 + d)
    return x


def n_seen(window: ir.Window, d: int, n_windows: int, end: int, begin: int = 0) -> np.ndarray:
    """How many elements of each window lie from ``begin`` to before ``end`` along a dimension, counted from its pads.

    Example:
        >>> n_seen(ir.Window((3,), (2,), (1,), (1,), (1,)), 0, 3, end=6, begin=1)
        array([2, 3, 2])
    """
    starts = np.arange(n_windows) * window.strides[d]
    reached = (-((starts - limit) // window.dilations[d]) for limit in (end, begin))
    before_end, before = (np.clip(each, 0, window.kernel[d]) for each in reached)
    return before_end - before


def padded_window(node: ir.NodeInfo, padding: ir.Padding) -> dict[str, Any] | None:
    """The attributes of a node whose window also covers padding of its source; ``None`` if it computes its own pads."""
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    own = tuple(node.attrs.get("pads", ())) or (0,) * len(padding.pads)
    pads = tuple(int(a) + int(b) for a, b in zip(padding.pads, own, strict=True))
    return {**{name: value for name, value in node.attrs.items() if name != "auto_pad"}, "pads": pads}
