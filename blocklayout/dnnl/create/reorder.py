"""Primitive descriptors of reorders."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a reorder, whose both sides are on the CPU."""
    src, dst = call.c_desc("src"), call.c_desc("dst")
    return call.create_anywhere(
        "dnnl_reorder_primitive_desc_create", src, call.c_engine, dst, call.c_engine, call.c_attr
    )
