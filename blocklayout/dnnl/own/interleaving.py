"""Bytes of images from planes to pixels, in C of our own beside the executor: the library takes four times as long."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Attr
from blocklayout.dnnl.own import Implementation
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.layout import MemoryDesc

_CHANNELS = 3


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes bytes of three channels, row-major to channels-last, both dense, as they are."""
    src, dst = spec.desc("src"), spec.desc("dst")
    if not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc) or spec.attr != Attr():
        return None
    if src.dtype not in BYTE_DTYPES or src.ndims < 3 or src.dims[1] != _CHANNELS or 0 in src.dims:
        return None
    spatial = "cdef"[: src.ndims - 2]
    planes, pixels = (MemoryDesc(src.dims, src.dtype, tag) for tag in (f"ab{spatial}", f"a{spatial}b"))
    return {"src": src, "dst": dst} if (src, dst) == (planes, pixels) else None


def _fields(spec: Spec) -> Mapping[str, Any]:
    n_images, _, *extents = spec.desc("src").dims
    return {"n_threads": spec.n_threads, "n_images": n_images, "n_pixels": prod(extents)}


OURS = Implementation(
    kinds=("reorder",),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "dst"),
    is_favourite=lambda _: True,
)
