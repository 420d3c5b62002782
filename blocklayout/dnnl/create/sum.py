"""Primitive descriptors of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a sum."""
    scales = call.spec.param("scales")
    names = [f"src_{index}" for index in range(len(scales))]
    return call.create(
        "dnnl_sum_primitive_desc_create",
        call.c_desc("dst"),
        len(names),
        call.c_floats(scales),
        call.c_descs(names),
        call.c_attr,
    )
