"""Primitive descriptors of resampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a resampling; the factors follow from the extents unless given."""
    return call.create(
        "dnnl_resampling_forward_primitive_desc_create",
        call.c_prop_kind,
        call.c_algorithm,
        call.c_floats(call.spec.param("factors")),
        call.c_desc("src"),
        call.c_desc("dst"),
        call.c_attr,
    )
