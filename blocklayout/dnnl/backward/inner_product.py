"""The gradients of inner products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.backward._rules import backward_spec, check_no_attributes
from blocklayout.dnnl.primitives._rules import check_choice, check_descs, check_dims, check_dtype, check_ndims
from blocklayout.dnnl.primitives._weighted import side

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec


def inner_product_backward_data(diff_src: Desc, weights: Desc, diff_dst: Desc, *, n_threads: int | None = None) -> Spec:
    """The gradient of an inner product's source, from that of its destination.

    Args:
        diff_src: Extents (N, IC) or (N, IC, spatial...).
        weights: Extents (OC, IC) or (OC, IC, spatial...).
        diff_dst: Extents (N, OC).
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout.dnnl import AnyDesc
        >>> spec = inner_product_backward_data(AnyDesc((2, 17)), AnyDesc((5, 17)), AnyDesc((2, 5)), n_threads=1)
        >>> spec.multiply_adds()
        170
    """
    descs = {"diff_src": diff_src, "weights": weights, "diff_dst": diff_dst}
    return backward_spec("inner_product", descs, prop_kind="backward_data", n_threads=n_threads)


def inner_product_backward_weights(
    src: Desc, diff_weights: Desc, diff_dst: Desc, diff_bias: Desc | None = None, *, n_threads: int | None = None
) -> Spec:
    """The gradients of an inner product's weights and bias, from that of its destination.

    Args:
        src: Extents (N, IC) or (N, IC, spatial...).
        diff_weights: Extents (OC, IC) or (OC, IC, spatial...).
        diff_dst: Extents (N, OC).
        diff_bias: Extents (OC,).
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.
    """
    descs = {"src": src, "diff_weights": diff_weights, "diff_bias": diff_bias, "diff_dst": diff_dst}
    return backward_spec("inner_product", descs, prop_kind="backward_weights", n_threads=n_threads)


def validate(spec: Spec) -> None:
    """Check a gradient of an inner product.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    check_choice(spec, "prop_kind", spec.prop_kind, ("backward_data", "backward_weights"))
    src, weights, dst, bias = (side(spec.prop_kind, name) for name in ("src", "weights", "dst", "bias"))
    has_bias = spec.prop_kind == "backward_weights"
    check_descs(spec, (src, weights, dst), (bias,) if has_bias else ())
    check_no_attributes(spec)
    check_ndims(spec, src, 2, 5)
    check_ndims(spec, weights, 2, 5)
    given, matrix = spec.desc(src).dims, spec.desc(weights).dims
    check_dims(spec, weights, (matrix[0], *given[1:]), src)
    check_dims(spec, dst, (given[0], matrix[0]), f"the first extents of {src} and {weights}")
    if has_bias and spec.has(bias):
        check_dims(spec, bias, matrix[:1], f"one for each channel of {dst}")
        check_dtype(spec, bias, ("f32", spec.desc(dst).dtype), "inner_product")
