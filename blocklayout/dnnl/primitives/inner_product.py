"""Inner product: a fully connected layer over whole images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives._rules import (
    FORWARD,
    check_descs,
    check_dims,
    check_dtype,
    check_ndims,
    check_weights_dtype,
    draft,
    finish,
)

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec

ARGUMENTS = ("src", "weights", "bias", "dst", "diff_src", "diff_weights", "diff_bias", "diff_dst")


def inner_product(
    src: Desc,
    weights: Desc,
    dst: Desc | None = None,
    bias: Desc | None = None,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """Sums over all but the first dimension: ``dst[n, o] = bias[o] + sum(src[n] * weights[o])``.

    Args:
        src: Extents (N, IC) or (N, IC, spatial...).
        weights: Extents (OC, IC) or (OC, IC, spatial...).
        dst: Extents (N, OC); ``None`` leaves the layout to the primitive.
        bias: Extents (OC,).
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 512, 7, 7), "f32"), dnnl.AnyDesc((1000, 512, 7, 7), "f32")
        >>> inner_product(src, weights, n_threads=1).desc("dst").dims
        (1, 1000)
    """
    descs = {"src": src, "weights": weights, "bias": bias}
    spec = draft("inner_product", descs, attr=attr, n_threads=n_threads, prop_kind=prop_kind)
    check_ndims(spec, "src", 2, 5)
    check_ndims(spec, "weights", 2, 5)
    return finish(spec, dst, (src.dims[0], weights.dims[0]))


def validate(spec: Spec) -> None:
    """Check an inner product.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    if spec.prop_kind not in FORWARD:
        from blocklayout.dnnl.backward.inner_product import validate as validate_backward

        validate_backward(spec)
        return
    check_descs(spec, ("src", "weights", "dst"), ("bias",))
    check_ndims(spec, "src", 2, 5)
    check_ndims(spec, "weights", 2, 5)
    src, weights = spec.desc("src"), spec.desc("weights")
    check_dims(spec, "weights", (weights.dims[0], *src.dims[1:]), "the source")
    check_dims(spec, "dst", (src.dims[0], weights.dims[0]), "the source's and the weights' first extents")
    check_weights_dtype(spec)
    if spec.has("bias"):
        check_dims(spec, "bias", weights.dims[:1], "one for each channel of the destination")
        check_dtype(spec, "bias", ("f32", spec.desc("dst").dtype, "s32", "s8", "u8"), "inner_product")
