"""Primitive descriptors of matmul."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a matmul."""
    descs = (call.c_desc(name) for name in ("src", "weights", "bias", "dst"))
    return call.create("dnnl_matmul_primitive_desc_create", *descs, call.c_attr)
