"""Convolution: one to three spatial dimensions, groups, dilation, any padding."""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, DepthwiseConv, Eltwise, Prelu, Sum
from blocklayout.dnnl.enums import WINOGRAD_DOMAIN
from blocklayout.dnnl.primitives import Direction, Extents, Kind, _weighted, draft, finish, validate
from blocklayout.dnnl.primitives._checks import MAX_COUNTED, require
from blocklayout.dnnl.primitives._speeds import windowed_peak_share
from blocklayout.dnnl.primitives._windows import Ints, strided_extents, window_params
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc
from blocklayout.layout.ordering import named_format

_DIRECT_1X1_SHARE, _DIRECT_1X1_SHARE_512 = 0.38, 0.66
"""Of the peak, by an implementation for windows of any size that is given one of a single element; with AVX-512.

Half and four fifths of the share of those for single elements, on machines of two kinds; in bf16 it is as much.
"""

_AVX2_1X1_SHARE, _NARROW_1X1_SHARE = 0.77, 0.22
"""Of the peak, by brgemm with AVX2; with weights in blocks of 8 outputs, the library's for 2048 inputs and more.

Medians over nine networks, and over 6 of 2048 to 4096 channels, on Zen 3.
"""

_AVX2_SHARES = {"jit": (0.86, 5), "jit, channels-last": (0.72, 4), "brgconv": (0.85, 2.5)}
"""Of the peak, with AVX2 and windows of several elements: with wide results, and the width at which it is half of that.

A vector of ``jit`` is 8 channels, and where results are channels-last the next pixel's lie far from there. Fitted to
the medians over 3x3 windows in fourteen networks by widths from 7 to 112, with 2 threads on Zen 3.
"""

_MISREADING = ("jit:avx512_core", "jit_bf16:", "x64:gemm:jit")


def convolution(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    weights: Desc,
    dst: Desc | None = None,
    bias: Desc | None = None,
    *,
    strides: Ints = 1,
    pads: Ints = 0,
    dilations: Ints = 0,
    algorithm: str = "convolution_direct",
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """A forward convolution.

    Args:
        src: Extents (N, IC, spatial...).
        weights: Extents (OC, IC, kernel...), or (G, OC/G, IC/G, kernel...) for groups.
        dst: Extents (N, OC, spatial...), *before* a depthwise post-op; ``None`` leaves the layout
            to the primitive, in the source's data type.
        bias: Extents (OC,).
        strides: One integer, or one for each spatial dimension.
        pads: One integer, or ``(begin..., end...)``.
        dilations: Elements skipped between taps; 0 is dense (ONNX's 1).
        algorithm: ``direct``, ``winograd`` or ``auto``, or ``winograd_domain`` of weights that
            :class:`blocklayout.ir.WinogradWeights` makes.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 3, 224, 224), "f32"), dnnl.AnyDesc((64, 3, 7, 7), "f32")
        >>> convolution(src, weights, strides=2, pads=3, n_threads=1).desc("dst").dims
        (1, 64, 112, 112)
    """
    params = window_params("convolution", src, strides=strides, dilations=dilations, pads=pads)
    descs = {"src": src, "weights": weights, "bias": bias, "dst": dst}
    spec = draft("convolution", descs, params, algorithm=algorithm, prop_kind=prop_kind, attr=attr, n_threads=n_threads)
    if dst is not None:
        return validate(spec)
    n_spatial = _weighted.check_operands(spec, "weights", "src")
    dims = (src.dims[0], _weighted.channels(weights, n_spatial)[1], *_inner_extents(spec))
    return finish(spec, dst, dims, dtype=attr.depthwise.dst_dtype if attr.depthwise else "")


def convolution_backward_data(  # noqa: PLR0913 - the primitive's own parameters
    diff_src: Desc,
    weights: Desc,
    diff_dst: Desc,
    *,
    strides: Ints = 1,
    pads: Ints = 0,
    dilations: Ints = 0,
    algorithm: str = "convolution_direct",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """The gradient of a convolution's source, from that of its destination.

    Extents, windows and algorithms are those of :func:`blocklayout.dnnl.convolution`.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights, dst = (dnnl.AnyDesc(dims) for dims in [(1, 16, 8, 8), (32, 16, 3, 3), (1, 32, 8, 8)])
        >>> dnnl.convolution_backward_data(src, weights, dst, pads=1).prop_kind
        'backward_data'
    """
    params = window_params("convolution", diff_src, strides=strides, dilations=dilations, pads=pads)
    descs = {"diff_src": diff_src, "weights": weights, "diff_dst": diff_dst}
    spec = draft(
        "convolution", descs, params, algorithm=algorithm, prop_kind="backward_data", attr=attr, n_threads=n_threads
    )
    return validate(spec)


def convolution_backward_weights(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    diff_weights: Desc,
    diff_dst: Desc,
    diff_bias: Desc | None = None,
    *,
    strides: Ints = 1,
    pads: Ints = 0,
    dilations: Ints = 0,
    algorithm: str = "convolution_direct",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """The gradients of a convolution's weights and bias, from that of its destination.

    Extents, windows and algorithms are those of :func:`blocklayout.dnnl.convolution`.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights, dst = (dnnl.AnyDesc(dims) for dims in [(1, 16, 8, 8), (32, 16, 3, 3), (1, 32, 8, 8)])
        >>> dnnl.convolution_backward_weights(src, weights, dst, pads=1).prop_kind
        'backward_weights'
    """
    params = window_params("convolution", src, strides=strides, dilations=dilations, pads=pads)
    descs = {"src": src, "diff_weights": diff_weights, "diff_bias": diff_bias, "diff_dst": diff_dst}
    spec = draft(
        "convolution", descs, params, algorithm=algorithm, prop_kind="backward_weights", attr=attr, n_threads=n_threads
    )
    return validate(spec)


def _inner_extents(spec: Spec) -> tuple[int, ...]:
    """Spatial extents of the convolution itself, before a depthwise post-op."""
    src, weights = _weighted.operands(spec, "src", "weights")
    window = _weighted.window(spec, weights)
    if spec.algorithm == WINOGRAD_DOMAIN:
        window = tuple(extent - 1 for extent in window)
    return strided_extents(src.dims[2:], window, spec.param("strides"), spec.param("pads"))


def _adjusted(spec: Spec, direction: Direction) -> Direction:
    """Without the library's function for an algorithm that is ours alone."""
    return replace(direction, c_order="") if spec.algorithm == WINOGRAD_DOMAIN else direction


def _validate(spec: Spec) -> None:
    if spec.attr.depthwise:
        src, weights = spec.desc("src"), spec.desc("weights")
        fits = len(src.dims) == 4 and set(weights.dims[-2:]) == {1} and len(weights.dims) == 4
        require(fits, spec, "attr", "has a depthwise post-op; that takes a 2-D 1x1 convolution without groups")
    _weighted.check(spec, _dst_extents)


def _dst_extents(spec: Spec) -> tuple[int, ...]:
    """Extents of a right destination: behind the depthwise post-op once resolved."""
    extents = _inner_extents(spec)
    if spec.attr.depthwise is None or not spec.impl:
        return extents
    return tuple(spec.attr.depthwise.dst_extent(extent) for extent in extents)


def _multiply_adds(spec: Spec, extents: Extents) -> int:
    depthwise = spec.attr.depthwise
    if depthwise is None:
        return _weighted.window_products(spec, "dst", extents)
    dst, weights = _weighted.operands(spec, "dst", "weights")
    inner = _inner_extents(spec)
    before, behind = prod(inner), prod(depthwise.dst_extent(extent) for extent in inner)
    return dst.dims[0] * (before * prod(extents(weights)) + behind * extents(dst)[1] * depthwise.kernel**2)


def _for_c(spec: Spec) -> Spec:
    """With the destination as the library takes it where a depthwise post-op follows: with the extents before that."""
    if spec.attr.depthwise is None:
        return spec
    dst = spec.desc("dst")
    dims = (*dst.dims[:2], *_inner_extents(spec))
    if dims == dst.dims:
        return spec
    inner = AnyDesc(dims, dst.dtype) if isinstance(dst, AnyDesc) else dst.resized(dims)
    return spec.replace(descs=tuple((name, inner if name == "dst" else desc) for name, desc in spec.descs))


def _fault(spec: Spec) -> str | None:
    """Some are offered only as long as they may choose the layouts, and not once they are given.

    A tensor with one channel and one pixel has the same strides with channels first and last. These implementations
    take it for channels last, and then want both sources and results so.

    Source: creating all that oneDNN v3.2 offers for 1 to 32 channels, 1 to 4 pixels a side and 1 to 3 spatial
    dimensions: it fails for all of these, and for no other.
    """
    if not spec.impl.startswith(_MISREADING) or not (spec.has("src") and spec.has("dst")):
        return _weighted.saturation(spec)
    src, dst = (_could_be_channels_last(spec.memory_desc(name)) for name in ("src", "dst"))
    return None if src == dst else f"{spec.impl} is offered only where it may choose the layouts"


def _could_be_channels_last(desc: MemoryDesc) -> bool:
    channels_last = named_format("channels_last", desc.ndims)
    return not desc.inner_blks and desc.strides == MemoryDesc(desc.dims, desc.dtype, channels_last).strides


def _peak_share(spec: Spec) -> float:
    n_spatial = spec.side("src").ndims - 2
    if spec.impl == "brgconv_1x1:avx2":
        return _NARROW_1X1_SHARE if spec.side("weights").inner_blks == (8,) else _AVX2_1X1_SHARE
    if spec.impl.startswith("jit:") and {*spec.side("weights").dims[-n_spatial:]} == {1}:
        return _DIRECT_1X1_SHARE_512 if "avx512" in spec.impl else _DIRECT_1X1_SHARE
    is_grouped = spec.side("weights").ndims > n_spatial + 2
    if spec.impl in ("jit:avx2", "brgconv:avx2") and spec.side("src").dtype == "f32" and not is_grouped:
        name, dst = spec.impl.partition(":")[0], spec.side("dst")
        is_apart = name == "jit" and not dst.inner_blks
        share, half_speed = _AVX2_SHARES["jit, channels-last" if is_apart else name]
        return share * dst.dims[-1] / (dst.dims[-1] + half_speed)
    return windowed_peak_share(spec)


KIND = Kind(
    directions=_weighted.WINDOWED,
    validate=_validate,
    most=MAX_COUNTED,
    post_ops=(Eltwise, Sum, Binary, Prelu, DepthwiseConv),
    multiply_adds=_multiply_adds,
    peak_share=_peak_share,
    adjusted=_adjusted,
    fault=_fault,
    for_c=_for_c,
)
