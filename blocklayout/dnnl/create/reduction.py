"""Primitive descriptors of reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a reduction."""
    return call.create(
        "dnnl_reduction_primitive_desc_create",
        call.c_algorithm,
        call.c_desc("src"),
        call.c_desc("dst"),
        call.spec.param("p"),
        call.spec.param("eps"),
        call.c_attr,
    )
