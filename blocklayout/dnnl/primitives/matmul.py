"""Matmul: products of matrices, or of batches of them."""

from __future__ import annotations

from math import prod

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise, Prelu, Sum
from blocklayout.dnnl.primitives import Direction, Extents, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import (
    MAX_COUNTED,
    broadcast,
    check_broadcast,
    check_dims,
    check_ndims,
    check_weights_dtype,
    require,
)
from blocklayout.dnnl.primitives._speeds import is_gemm, peak_share_by_name
from blocklayout.dnnl.primitives._weighted import saturation
from blocklayout.dnnl.spec import Spec

_GEMM_SHARE = 0.9
"""Of the peak."""

_BRGEMM_HALF_SPEED_ROWS = 16
"""Rows of a matrix at which a product by brgemm is half as fast, in a batch: each matrix is a product of its own."""


def matmul(
    src: Desc,
    weights: Desc,
    dst: Desc | None = None,
    bias: Desc | None = None,
    *,
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """``dst = src @ weights + bias`` over the last two dimensions.

    Args:
        src: Extents (batch..., M, K).
        weights: Extents (batch..., K, N), of the same rank; batches are equal, or 1 on one side.
        dst: Extents (batch..., M, N); ``None`` leaves the layout to the primitive.
        bias: Each extent the destination's, or 1.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((8, 5, 17), "f32"), dnnl.AnyDesc((1, 17, 3), "f32")
        >>> matmul(src, weights, n_threads=1).desc("dst").dims
        (8, 5, 3)
    """
    spec = draft("matmul", {"src": src, "weights": weights, "bias": bias}, attr=attr, n_threads=n_threads)
    return finish(spec, dst, _dst_dims(spec))


def _validate(spec: Spec) -> None:
    dims = _dst_dims(spec)
    check_dims(spec, "dst", dims, "src @ weights")
    check_weights_dtype(spec)
    if spec.has("bias"):
        check_broadcast(spec, "bias", spec.desc("bias").dims, dims, "destination")


def _dst_dims(spec: Spec) -> tuple[int, ...]:
    ndims = check_ndims(spec, "src", 2, 12)
    check_ndims(spec, "weights", ndims, ndims)
    src, weights = spec.desc("src").dims, spec.desc("weights").dims
    rule = f"has {weights[-2]} rows; the source has {src[-1]} columns and the two must be equal"
    require(src[-1] == weights[-2], spec, "weights", rule)
    return (*broadcast("matmul", "weights", src[:-2], weights[:-2]), src[-2], weights[-1])


def _multiply_adds(spec: Spec, extents: Extents) -> int:
    src, weights, dst = (extents(spec.desc(name)) for name in ("src", "weights", "dst"))
    rows, columns = max(src[-2], dst[-2]), max(weights[-1], dst[-1])
    return prod(dst[:-2]) * rows * columns * max(src[-1], weights[-2])


def _peak_share(spec: Spec) -> float:
    if is_gemm(spec):
        return _GEMM_SHARE
    share = peak_share_by_name(spec)
    *batch, rows, _ = spec.memory_desc("dst").dims
    is_slower = spec.impl.startswith("br") and prod(batch) > 1
    return share * rows / (rows + _BRGEMM_HALF_SPEED_ROWS) if is_slower else share


KIND = Kind(
    directions={
        "": Direction(
            c_order="engine src weights bias dst attr",
            arguments=("src", "weights", "bias", "dst"),
            optional=("bias",),
            laid_out=(),
        )
    },
    validate=_validate,
    most=MAX_COUNTED,
    post_ops=(Eltwise, Sum, Binary, Prelu),
    multiply_adds=_multiply_adds,
    peak_share=_peak_share,
    fault=saturation,
)
