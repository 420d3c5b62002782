"""Primitive descriptors of deconvolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.create._weighted import create_weighted

if TYPE_CHECKING:
    from blocklayout.dnnl.create._call import Call
    from blocklayout.dnnl.handles import Handle


def create(call: Call) -> Handle:
    """The primitive descriptor of a deconvolution."""
    return create_weighted(call, call.c_desc("dst"))
