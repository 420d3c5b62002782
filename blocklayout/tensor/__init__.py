"""Tensors: a descriptor with its memory, and everything that needs no operator, such as ``reorder``.

Example:
    >>> import blocklayout as bl
    >>> t = bl.zeros((2, 17, 5, 4), memory_format="nChw8c")
    >>> t.shape, t.stride(), t.nbytes
    ((2, 17, 5, 4), (480, 160, 32, 8), 3840)
"""

from __future__ import annotations

from blocklayout.tensor.creating import (
    empty,
    empty_like,
    from_array,
    full,
    full_like,
    ones,
    ones_like,
    rand_like,
    randn_like,
    zeros,
    zeros_like,
)
from blocklayout.tensor.formats import (
    MemoryFormat,
    channels_first,
    channels_last,
    contiguous_format,
    preserve_format,
    tag_of,
)
from blocklayout.tensor.interop import as_array, as_memory, as_tensor
from blocklayout.tensor.reordering import reorder
from blocklayout.tensor.tensor_class import Tensor

__all__ = [
    "MemoryFormat",
    "Tensor",
    "as_array",
    "as_memory",
    "as_tensor",
    "channels_first",
    "channels_last",
    "contiguous_format",
    "empty",
    "empty_like",
    "from_array",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "preserve_format",
    "rand_like",
    "randn_like",
    "reorder",
    "tag_of",
    "zeros",
    "zeros_like",
]
