"""Attributes in C."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from blocklayout.dnnl import arguments, c_desc, enums, status
from blocklayout.dnnl.attr import Attr, Binary, DepthwiseConv, Eltwise, Prelu, Sum
from blocklayout.dnnl.handles import Handle, create
from blocklayout.errors import InvalidArgumentsError

if TYPE_CHECKING:
    from blocklayout.dnnl.attr import PostOp
    from blocklayout.dnnl.spec import Spec


def to_c(attr: Attr, spec: Spec) -> Handle:
    """The C attributes, whose scratchpad is the caller's.

    Args:
        attr: The attributes.
        spec: Whose they are; it numbers the arguments that have scales.

    Raises:
        DnnlError: The library refused one of them.
    """
    handle = create("primitive_attr", "dnnl_primitive_attr_create", subject=spec)
    _set(handle, "scratchpad_mode", enums.value("scratchpad_mode", "user"), subject=spec)
    if attr.fpmath != "strict":
        _set(handle, "fpmath_mode", enums.value("fpmath_mode", attr.fpmath), subject=spec)
    for name, mask in attr.scales:
        _set(handle, "scales_mask", arguments.number(spec, name), mask, subject=spec)
    for name, mask in attr.zero_points:
        _set(handle, "zero_points_mask", arguments.number(spec, name), mask, subject=spec)
    if attr.post_ops:
        post_ops = _post_ops_to_c(attr, spec)
        _set(handle, "post_ops", post_ops.c, subject=spec)
        post_ops.destroy()  # the attributes hold a copy
    return handle


def _set(handle: Handle, what: str, *c_args: Any, subject: Spec) -> None:
    status.call(f"dnnl_primitive_attr_set_{what}", handle.c, *c_args, subject=subject)


def _post_ops_to_c(attr: Attr, spec: Spec) -> Handle:
    handle = create("post_ops", "dnnl_post_ops_create", subject=spec)
    for post_op in attr.post_ops:
        _append(post_op, handle.c, spec)
    return handle


@singledispatch
def _append(post_op: PostOp, c_post_ops: Any, spec: Spec) -> None:
    del c_post_ops
    raise InvalidArgumentsError(f"{spec.kind}: {post_op!r} is no post-op")


@_append.register(Sum)
def _sum(post_op: Sum, c_post_ops: Any, spec: Spec) -> None:
    c_dtype = _dtype(post_op.dtype)
    function = "dnnl_post_ops_append_sum"
    status.call(function, c_post_ops, post_op.scale, post_op.zero_point, c_dtype, subject=spec)


@_append.register(Eltwise)
def _eltwise(post_op: Eltwise, c_post_ops: Any, spec: Spec) -> None:
    c_algorithm = enums.value("alg_kind", post_op.algorithm)
    function = "dnnl_post_ops_append_eltwise"
    status.call(function, c_post_ops, c_algorithm, post_op.alpha, post_op.beta, subject=spec)


@_append.register(Binary)
def _binary(post_op: Binary, c_post_ops: Any, spec: Spec) -> None:
    if post_op.src1 is None:
        rule = "a binary post-op has no src1; give it the descriptor of its second operand"
        raise InvalidArgumentsError(f"{spec.kind}: attr: {rule}")
    c_algorithm = enums.value("alg_kind", post_op.algorithm)
    src_1 = c_desc.to_c(post_op.src1)
    status.call("dnnl_post_ops_append_binary", c_post_ops, c_algorithm, src_1.c, subject=spec)


@_append.register(Prelu)
def _prelu(post_op: Prelu, c_post_ops: Any, spec: Spec) -> None:
    status.call("dnnl_post_ops_append_prelu", c_post_ops, post_op.mask, subject=spec)


@_append.register(DepthwiseConv)
def _depthwise(post_op: DepthwiseConv, c_post_ops: Any, spec: Spec) -> None:
    c_dtypes = (_dtype(dtype) for dtype in (post_op.weights_dtype, post_op.bias_dtype, post_op.dst_dtype))
    geometry = (post_op.kernel, post_op.stride, post_op.padding)
    status.call("dnnl_post_ops_append_dw", c_post_ops, *c_dtypes, *geometry, subject=spec)


def _dtype(dtype: str) -> int:
    return enums.value("data_type", dtype or "data_type_undef")
