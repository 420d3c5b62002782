"""The rules attributes obey, whatever the kind of primitive."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import Binary, DepthwiseConv, Eltwise, PostOp, Prelu, Sum
from blocklayout.dnnl.primitives._rules import require
from blocklayout.dtypes import itemsize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec


_POST_OPS: dict[str, tuple[type, ...]] = {
    "convolution": (Eltwise, Sum, Binary, Prelu, DepthwiseConv),
    "deconvolution": (Eltwise, Sum, Binary, Prelu),
    "inner_product": (Eltwise, Sum, Binary, Prelu),
    "matmul": (Eltwise, Sum, Binary, Prelu),
    "binary": (Eltwise, Sum, Binary),
    "reduction": (Eltwise, Sum, Binary),
    "resampling": (Eltwise, Sum, Binary),
    "pooling": (Eltwise, Binary),
    "softmax": (Eltwise, Binary),
    "eltwise": (Binary,),
    "batch_normalization": (Eltwise,),
    "reorder": (Sum,),
}
"""Post-ops by kind. The library accepts some others and computes something else: a sum behind a pooling is lost.

Source: "Post-ops and Attributes" of each primitive, oneDNN developer guide, v3.2.
"""


def check_attributes(spec: Spec) -> None:
    """Refuse scales of arguments it has not, and post-ops that its kind or its destination does not take.

    Raises:
        InvalidArgumentsError: The message names the attribute, the rule and what would be right.
    """
    for what, masks in (("scales", spec.attr.scales), ("zero_points", spec.attr.zero_points)):
        for name, mask in masks:
            names = ", ".join(argument for argument, _ in spec.descs)
            require(spec.has(name), spec, f"attr.{what}", f"names {name!r}; its arguments are {names}")
            _check_mask(spec, f"attr.{what}", mask, spec.desc(name).dims)
    if not spec.attr.post_ops:
        return
    require(spec.has("dst"), spec, "attr.post_ops", "are given; only forward primitives, which write dst, take them")
    taken = _POST_OPS.get(spec.kind, ())
    names = ", ".join(kind.__name__ for kind in taken) or "none"
    for index, post_op in enumerate(spec.attr.post_ops):
        where = f"attr.post_ops[{index}]"
        require(isinstance(post_op, taken), spec, where, f"is {type(post_op).__name__}; {spec.kind} takes {names}")
    if spec.attr.depthwise is None:  # behind one, the destination has other extents until it is resolved
        for index, post_op in enumerate(spec.attr.post_ops):
            _check(post_op, spec, f"attr.post_ops[{index}]", spec.desc("dst"))


def _check_mask(spec: Spec, where: str, mask: int, dims: Sequence[int]) -> None:
    below = 1 << len(dims)
    require(mask < below, spec, where, f"has mask {mask}; {len(dims)} dimensions make it below {below}")


@singledispatch
def _check(post_op: PostOp, spec: Spec, where: str, dst: Desc) -> None:
    """Nothing depends on the destination."""


@_check.register(Sum)
def _check_sum(post_op: Sum, spec: Spec, where: str, dst: Desc) -> None:
    fits = itemsize(post_op.dtype or dst.dtype) == itemsize(dst.dtype)
    require(fits, spec, where, f"reads dst as {post_op.dtype}; a type as wide as its {dst.dtype} would be right")


@_check.register(Binary)
def _check_binary(post_op: Binary, spec: Spec, where: str, dst: Desc) -> None:
    if post_op.src1 is None:
        return
    dims = post_op.src1.dims
    fits = len(dims) == len(dst.dims) and all(d in (1, right) for d, right in zip(dims, dst.dims, strict=True))
    require(fits, spec, where, f"has src1 of extents {dims}; each must be the destination's {dst.dims}, or 1")


@_check.register(Prelu)
def _check_prelu(post_op: Prelu, spec: Spec, where: str, dst: Desc) -> None:
    _check_mask(spec, where, post_op.mask, dst.dims)
