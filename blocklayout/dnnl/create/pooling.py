"""Primitive descriptors of pooling, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.create._backward import create_hint

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle

_WINDOWS = ("strides", "kernel", "dilations")


def create(call: Call) -> Handle:
    """The primitive descriptor of a pooling."""
    if call.spec.prop_kind == "backward_data":
        return _create_backward(call)
    return call.create(
        "dnnl_pooling_forward_primitive_desc_create",
        call.c_prop_kind,
        call.c_algorithm,
        call.c_desc("src"),
        call.c_desc("dst"),
        *call.c_windows(*_WINDOWS),
        call.c_attr,
    )


def _create_backward(call: Call) -> Handle:
    hint = create_hint(call.spec, {"src": "diff_src", "dst": "diff_dst"}, create)
    return call.create(
        "dnnl_pooling_backward_primitive_desc_create",
        call.c_algorithm,
        call.c_desc("diff_src"),
        call.c_desc("diff_dst"),
        *call.c_windows(*_WINDOWS),
        hint.c,
        call.c_attr,
        keep=hint,  # asked again when the next implementation is
    )
