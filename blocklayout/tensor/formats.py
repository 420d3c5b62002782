"""Memory formats: the names for layouts that a Tensor is brought into, and is called by."""

from __future__ import annotations

from typing import TypeAlias

from blocklayout import dnnl
from blocklayout.errors import LayoutError
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.ordering import as_tag

contiguous_format = "contiguous_format"
"""Row-major in logical order, of any rank."""

channels_first = "channels_first"
"""The same, of the ranks 3 to 5 that have channels: NCW, NCHW, NCDHW."""

channels_last = "channels_last"
"""Channels side by side, of ranks 3 to 5: NWC, NHWC, NDHWC in memory."""

preserve_format = "preserve_format"
"""That of the tensor at hand."""

blocked = "blocked"
"""Blocks of channels of this machine's size, of ranks 3 to 5: nChw16c with AVX-512, else nChw8c."""

MemoryFormat: TypeAlias = "str | FormatTag | MemoryDesc"
"""One of these names, a oneDNN tag such as ``nChw16c``, a FormatTag, or a descriptor, whose order and blocks count."""


def tag_of(memory_format: MemoryFormat, desc: MemoryDesc) -> FormatTag:
    """The tag that a memory format means for a tensor, whose rank decides, or its own tag where that is preserved.

    Raises:
        LayoutError: No such format, or none of this rank.

    Example:
        >>> md = MemoryDesc((2, 3, 4, 5), "f32", "chwn")
        >>> tag_of("channels_last", md).text, tag_of("preserve_format", md).text
        ('nhwc', 'chwn')
    """
    if isinstance(memory_format, MemoryDesc):
        return memory_format.format_tag
    if not isinstance(memory_format, str | FormatTag):
        raise LayoutError(f"a memory format is a name, a FormatTag or a MemoryDesc, not {memory_format!r}")
    if memory_format == preserve_format:
        return desc.format_tag
    return _blocked_tag(desc.ndims) if memory_format == blocked else as_tag(memory_format, desc.ndims)


def placed(desc: MemoryDesc, memory_format: MemoryFormat, dtype: str | None = None) -> MemoryDesc:
    """The dense descriptor of the same extents in a memory format, and in another data type where one is given.

    A LayoutError where there is no such format at this rank.
    """
    return MemoryDesc(desc.dims, dtype or desc.dtype, tag_of(memory_format, desc))


def _blocked_tag(ndims: int) -> FormatTag:
    if not 3 <= ndims <= 5:
        raise LayoutError(f"blocked exists for 3 to 5 dimensions, not for {ndims}; give a tag such as aB16b")
    size = dnnl.channel_blocks(dnnl.isa())[0]
    return FormatTag.parse(FormatTag(tuple(range(ndims)), (size,), (1,)).named("src"))
