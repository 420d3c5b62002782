"""Primitive descriptors of element-wise functions, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.backward.eltwise import data_name
from blocklayout.dnnl.create._backward import create_hint

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of an element-wise function."""
    if call.spec.prop_kind == "backward_data":
        return _create_backward(call)
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


def _create_backward(call: Call) -> Handle:
    data = data_name(call.spec.algorithm)
    hint = create_hint(call.spec, {"src": data, "dst": data}, create)
    return call.create(
        "dnnl_eltwise_backward_primitive_desc_create",
        call.c_algorithm,
        call.c_desc("diff_src"),
        call.c_desc("diff_dst"),
        call.c_desc(data),
        call.spec.param("alpha"),
        call.spec.param("beta"),
        hint.c,
        call.c_attr,
        keep=hint,  # asked again when the next implementation is
    )
