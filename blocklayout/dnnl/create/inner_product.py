"""Primitive descriptors of inner products."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of an inner product."""
    descs = (call.c_desc(name) for name in ("src", "weights", "bias", "dst"))
    return call.create("dnnl_inner_product_forward_primitive_desc_create", call.c_prop_kind, *descs, call.c_attr)
