"""Sliding windows: what strides, pads, dilations and auto_pad mean for convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blocklayout.kernels import NodeInfo
from blocklayout.ops._reading import ints_attr, result, string_attr, wrong

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Window:
    """A window that slides over the spatial dimensions.

    Attributes:
        kernel: Extents, in elements of the source that are looked at.
        strides: Steps between two windows.
        pads_begin: Zeros before the source.
        pads_end: Zeros behind it.
        dilations: Distance between two elements of a window; 1 is dense.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def pads(self) -> tuple[int, ...]:
        """Beginnings, then ends: how both ONNX and :mod:`blocklayout.dnnl` write them."""
        return self.pads_begin + self.pads_end

    @property
    def dnnl_dilations(self) -> tuple[int, ...]:
        """Elements skipped between two of a window; 0 is dense."""
        return tuple(dilation - 1 for dilation in self.dilations)

    @property
    def reach(self) -> tuple[int, ...]:
        """Extents of the window including what it skips.

        Example:
            >>> Window((3,), (1,), (0,), (0,), (2,)).reach
            (5,)
        """
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def extents(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """How many windows fit into a source of these spatial extents.

        Example:
            >>> Window((3,), (2,), (1,), (1,), (1,)).extents((8,))
            (4,)
        """
        padded = (sum(ends) for ends in zip(spatial, self.pads_begin, self.pads_end, strict=True))
        return tuple((p - r) // s + 1 for p, r, s in zip(padded, self.reach, self.strides, strict=True))


def read_window(node: NodeInfo, kernel: tuple[int, ...], spatial: tuple[int, ...]) -> Window:
    """The window of a convolution or pooling node.

    Args:
        node: Its attributes.
        kernel: The window's extents.
        spatial: The source's extents behind batch and channels.

    Raises:
        ModelError: An attribute is wrong.
    """
    ndims = len(kernel)
    strides = ints_attr(node, "strides", ndims, 1, at_least=1)
    dilations = ints_attr(node, "dilations", ndims, 1, at_least=1)
    auto_pad = string_attr(node, "auto_pad", AUTO_PADS)
    begin, end = (0,) * ndims, (0,) * ndims
    if auto_pad == "NOTSET":
        pads = ints_attr(node, "pads", 2 * ndims, 0, at_least=0)
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
    """The attribute ``kernel_shape``, where it is required.

    Raises:
        ModelError: It is absent or wrong.
    """
    if "kernel_shape" not in node.attrs:
        raise wrong(node, "attribute kernel_shape is missing", "it is required")
    return ints_attr(node, "kernel_shape", ndims, 1, at_least=1)


def check_extents(node: NodeInfo, extents: tuple[int, ...]) -> None:
    """Compare what a window gives with what the model says.

    Raises:
        ModelError: They differ, or no window fits.
    """
    if min(extents, default=1) < 1:
        raise wrong(node, f"the window gives extents {list(extents)}", "it must fit into the padded source")
    said = result(node).shape[2:]
    if said != extents:
        raise wrong(node, f"output {result(node).name} has extents {list(said)}", f"the window gives {list(extents)}")
