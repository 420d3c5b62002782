"""Primitive descriptors of concatenation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a concatenation."""
    names = [name for name, _ in call.spec.descs if name.startswith("src_")]
    return call.create(
        "dnnl_concat_primitive_desc_create",
        call.c_desc("dst"),
        len(names),
        call.spec.param("axis"),
        call.c_descs(names),
        call.c_attr,
    )
