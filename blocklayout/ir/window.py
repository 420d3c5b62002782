"""Windows that slide over the spatial dimensions, of convolutions and poolings."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Window(Struct, frozen=True):
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
