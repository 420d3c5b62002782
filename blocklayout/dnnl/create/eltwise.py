"""Primitive descriptors of element-wise functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of an element-wise function."""
    return call.create(
        "dnnl_eltwise_forward_primitive_desc_create",
        call.c_prop_kind,
        call.c_algorithm,
        call.c_desc("src"),
        call.c_desc("dst"),
        call.spec.param("alpha"),
        call.spec.param("beta"),
        call.c_attr,
    )
