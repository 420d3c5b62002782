"""Primitive descriptors of convolution and deconvolution, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocklayout.dnnl.create._call import Call
from blocklayout.dnnl.primitives._weighted import side

if TYPE_CHECKING:
    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.spec import Spec

_WINDOWS = ("strides", "dilations")


def create_weighted(call: Call, c_dst: Any) -> Handle:
    """The primitive descriptor in any direction.

    Args:
        call: The Spec's fields.
        c_dst: Descriptor of the destination or its gradient.
    """
    if call.spec.prop_kind == "backward_data":
        return _create_backward(call, ("diff_src", "weights", "diff_dst"))
    if call.spec.prop_kind == "backward_weights":
        return _create_backward(call, ("src", "diff_weights", "diff_bias", "diff_dst"))
    return call.create(
        f"dnnl_{call.spec.kind}_forward_primitive_desc_create",
        call.c_prop_kind,
        call.c_algorithm,
        *(call.c_desc(name) for name in ("src", "weights", "bias")),
        c_dst,
        *call.c_windows(*_WINDOWS),
        call.c_attr,
    )


def _create_backward(call: Call, names: tuple[str, ...]) -> Handle:
    hint = create_forward_hint(call.spec)
    return call.create(
        f"dnnl_{call.spec.kind}_{call.spec.prop_kind}_primitive_desc_create",
        call.c_algorithm,
        *(call.c_desc(name) for name in names),
        *call.c_windows(*_WINDOWS),
        hint.c,
        call.c_attr,
        keep=hint,  # asked again when the next implementation is
    )


def create_forward_hint(spec: Spec) -> Handle:
    """The forward primitive descriptor a backward one is derived from."""
    roles = ("src", "weights", "bias", "dst")
    named = [(role, side(spec.prop_kind, role)) for role in roles]
    descs = tuple((role, spec.desc(name)) for role, name in named if spec.has(name))
    forward = Call(spec.replace(descs=descs, prop_kind="forward_training", impl=""))
    return create_weighted(forward, forward.c_desc("dst"))
