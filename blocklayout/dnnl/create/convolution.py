"""Primitive descriptors of convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.any_desc import AnyDesc
from blocklayout.dnnl.create._weighted import create_weighted
from blocklayout.dnnl.primitives.convolution import inner_extents

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.spec import Spec


def create(call: Call) -> Handle:
    """The primitive descriptor of a convolution."""
    if call.spec.attr.depthwise is None:
        return create_weighted(call, call.c_desc("dst"))
    return create_weighted(call, call.c_desc_of(inner_dst(call.spec)))


def inner_dst(spec: Spec) -> Desc:
    """The destination as the library takes it where a depthwise post-op follows: with the extents before that."""
    dst = spec.desc("dst")
    dims = (*dst.dims[:2], *inner_extents(spec))
    if dims == dst.dims or isinstance(dst, AnyDesc):
        return AnyDesc(dims, dst.dtype) if isinstance(dst, AnyDesc) else dst
    return dst.resized(dims)
