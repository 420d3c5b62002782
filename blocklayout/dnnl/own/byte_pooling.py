"""Max pooling of bytes, channels last, in C of our own beside the executor: the library takes three times as long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import Implementation, is_channels_last, lanes_of
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.layout import MemoryDesc

_NDIMS = 4

_LEAST = 16
"""Channels; with fewer most of a vector is idle."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes bytes, as inference asks for them: images of 16 channels and more, which lie last without padding."""
    if (spec.algorithm, spec.prop_kind) != ("pooling_max", "forward_inference") or spec.attr.post_ops:
        return None
    src, dst = spec.desc("src"), spec.desc("dst")
    if src.dtype not in BYTE_DTYPES or len(src.dims) != _NDIMS:
        return None
    if not isinstance(src, MemoryDesc) or 0 in (*src.dims, *dst.dims):
        return None
    if not isinstance(dst, MemoryDesc):
        dst = src.resized(dst.dims)
    are_known = all(is_channels_last(desc) and not desc.offset0 for desc in (src, dst))
    return {"src": src, "dst": dst} if are_known and src.dims[1] >= _LEAST and src.dtype == dst.dtype else None


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    places = {
        f"{name}_{at}": desc.strides[dim]
        for name, desc in (("src", src), ("dst", dst))
        for at, dim in (("image", 0), ("row", 2), ("pixel", 3))
    }
    return places | {
        "lanes": lanes_of(spec.impl),
        "is_signed": src.dtype == "s8",
        "n_threads": spec.n_threads,
        "n_images": src.dims[0],
        "n_channels": src.dims[1],
        "extents": src.dims[2:],
        "results": dst.dims[2:],
        "kernel": spec.param("kernel"),
        "strides": spec.param("strides"),
        "dilations": [each + 1 for each in spec.param("dilations")],
        "pads": spec.param("pads")[:2],
    }


OURS = Implementation(
    kinds=("pooling",),
    isas=lambda _: ("avx512_core", "avx2"),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "dst"),
    is_favourite=lambda _: True,
)
