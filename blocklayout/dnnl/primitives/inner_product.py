"""Inner product: a fully connected layer over whole images; and its gradients."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise, Prelu, Sum
from blocklayout.dnnl.primitives import FORWARD, Kind, draft, finish, validate
from blocklayout.dnnl.primitives._checks import (
    MAX_COUNTED,
    check_dims,
    check_dtype,
    check_ndims,
    check_no_attributes,
    check_weights_dtype,
)
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name, peak_share_by_name
from blocklayout.dnnl.primitives._weighted import directions, saturation, side, window_products
from blocklayout.dnnl.spec import Spec

_PEAK_SHARE = 0.28

_STREAMED_NBYTES, _STREAMED_SHARE = 16 << 20, 0.85
"""Of the bandwidth, by brgemm with AVX2, which reads as large weights in its blocks slower than gemm in rows.

Of 4096 outputs and 4096 and 9216 inputs, with 1 and 2 threads on Zen 3; small ones, which caches hold, it reads faster.
"""


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


def inner_product_backward_data(diff_src: Desc, weights: Desc, diff_dst: Desc, *, n_threads: int | None = None) -> Spec:
    """The gradient of an inner product's source, from that of its destination.

    Extents are those of :func:`blocklayout.dnnl.inner_product`.

    Example:
        >>> from blocklayout.dnnl import AnyDesc, multiply_adds
        >>> spec = inner_product_backward_data(AnyDesc((2, 17)), AnyDesc((5, 17)), AnyDesc((2, 5)), n_threads=1)
        >>> multiply_adds(spec)
        170
    """
    descs = {"diff_src": diff_src, "weights": weights, "diff_dst": diff_dst}
    return validate(draft("inner_product", descs, prop_kind="backward_data", n_threads=n_threads))


def inner_product_backward_weights(
    src: Desc, diff_weights: Desc, diff_dst: Desc, diff_bias: Desc | None = None, *, n_threads: int | None = None
) -> Spec:
    """The gradients of an inner product's weights and bias, from that of its destination.

    Extents are those of :func:`blocklayout.dnnl.inner_product`.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights, dst = (dnnl.AnyDesc(dims) for dims in [(2, 16), (32, 16), (2, 32)])
        >>> dnnl.inner_product_backward_weights(src, weights, dst).prop_kind
        'backward_weights'
    """
    descs = {"src": src, "diff_weights": diff_weights, "diff_bias": diff_bias, "diff_dst": diff_dst}
    return validate(draft("inner_product", descs, prop_kind="backward_weights", n_threads=n_threads))


def _validate(spec: Spec) -> None:
    src, weights, dst, bias = (side(spec.prop_kind, name) for name in ("src", "weights", "dst", "bias"))
    is_forward = spec.prop_kind in FORWARD
    for name in (src, weights):
        check_ndims(spec, name, 2, 5)
    given, matrix = spec.desc(src).dims, spec.desc(weights).dims
    check_dims(spec, weights, (matrix[0], *given[1:]), src)
    check_dims(spec, dst, (given[0], matrix[0]), f"the first extents of {src} and {weights}")
    if is_forward:
        check_weights_dtype(spec)
    else:
        check_no_attributes(spec)
    if spec.has(bias):
        check_dims(spec, bias, matrix[:1], f"one for each channel of {dst}")
        quantised = ("s32", "s8", "u8") if is_forward else ()
        check_dtype(spec, bias, ("f32", spec.desc(dst).dtype, *quantised), spec.kind)


def _bandwidth_share(spec: Spec) -> float:
    is_slower = spec.impl == "brgemm:avx2" and spec.side("weights").nbytes > _STREAMED_NBYTES
    return _STREAMED_SHARE if is_slower else bandwidth_share_by_name(spec)


KIND = Kind(
    directions=directions(),
    validate=_validate,
    most=MAX_COUNTED,
    post_ops=(Eltwise, Sum, Binary, Prelu),
    multiply_adds=lambda spec, extents: window_products(spec, "dst", extents),
    peak_share=lambda spec: peak_share_by_name(spec) if spec.impl.startswith("ref") else _PEAK_SHARE,
    bandwidth_share=_bandwidth_share,
    fault=saturation,
)
