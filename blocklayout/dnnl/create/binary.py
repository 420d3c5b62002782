"""Primitive descriptors of binary operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a binary operation."""
    descs = (call.c_desc("src_0"), call.c_desc("src_1"), call.c_desc("dst"))
    return call.create("dnnl_binary_primitive_desc_create", call.c_algorithm, *descs, call.c_attr)
