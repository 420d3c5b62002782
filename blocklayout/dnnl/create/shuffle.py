"""Primitive descriptors of shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a shuffle."""
    return call.create(
        "dnnl_shuffle_forward_primitive_desc_create",
        call.c_prop_kind,
        call.c_desc("src"),
        call.c_desc("dst"),
        call.spec.param("axis"),
        call.spec.param("group_size"),
        call.c_attr,
    )
