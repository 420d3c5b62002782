"""Primitive descriptors of local response normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a local response normalisation."""
    return call.create(
        "dnnl_lrn_forward_primitive_desc_create",
        call.c_prop_kind,
        call.c_algorithm,
        call.c_desc("src"),
        call.c_desc("dst"),
        *(call.spec.param(name) for name in ("local_size", "alpha", "beta", "k")),
        call.c_attr,
    )
