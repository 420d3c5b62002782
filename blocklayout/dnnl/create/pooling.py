"""Primitive descriptors of pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a pooling."""
    return call.create(
        "dnnl_pooling_forward_primitive_desc_create",
        call.c_prop_kind,
        call.c_algorithm,
        call.c_desc("src"),
        call.c_desc("dst"),
        *call.c_windows("strides", "kernel", "dilations"),
        call.c_attr,
    )
