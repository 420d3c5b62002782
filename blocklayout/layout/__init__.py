"""Layouts as values: plain, strided and blocked descriptors, their padding and their addresses.

Pure Python and numpy: nothing here needs the oneDNN library.

Example:
    >>> from blocklayout.layout import MemoryDesc
    >>> md = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    >>> md.padded_dims, md.strides, md.nbytes
    ((2, 24, 5, 4), (480, 160, 32, 8), 3840)
"""

from __future__ import annotations

from blocklayout.layout.desc import MemoryDesc
from blocklayout.layout.geometry import Extra, Layout
from blocklayout.layout.packing import pack, unpack
from blocklayout.layout.tag import FormatTag

__all__ = ["Extra", "FormatTag", "Layout", "MemoryDesc", "pack", "unpack"]
