"""Primitive descriptors of PReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a PReLU."""
    descs = (call.c_desc(name) for name in ("src", "weights", "dst"))
    return call.create("dnnl_prelu_forward_primitive_desc_create", call.c_prop_kind, *descs, call.c_attr)
