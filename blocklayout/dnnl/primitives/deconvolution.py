"""Deconvolution (transposed convolution): one to three spatial dimensions, groups, dilation, any padding."""

from __future__ import annotations

from math import prod

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise, Prelu, Sum
from blocklayout.dnnl.primitives import Kind, _weighted, draft, finish
from blocklayout.dnnl.primitives._checks import MAX_COUNTED, require
from blocklayout.dnnl.primitives._speeds import windowed_peak_share
from blocklayout.dnnl.primitives._windows import Ints, strided_extents, transposed_extents, window_params
from blocklayout.dnnl.spec import Spec

MAX_SOUND_SUM = 2048
"""Products in a sum up to which a strided deconvolution was never found wrong; on this side of 7000 with margin."""


def deconvolution(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    weights: Desc,
    dst: Desc | None = None,
    bias: Desc | None = None,
    *,
    strides: Ints = 1,
    pads: Ints = 0,
    dilations: Ints = 0,
    algorithm: str = "deconvolution_direct",
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """A forward deconvolution.

    Args:
        src: Extents (N, IC, spatial...).
        weights: Extents (OC, IC, kernel...), or (G, OC/G, IC/G, kernel...); ONNX has OC and IC the other way round.
        dst: Extents (N, OC, spatial...), where a convolution with the same strides, pads and dilations
            would give the source's; ``None`` is the smallest such, its layout left to the primitive.
        bias: Extents (OC,).
        strides: One integer, or one for each spatial dimension.
        pads: One integer, or ``(begin..., end...)``, cut off the result. ONNX's output_padding is so
            much less pad behind.
        dilations: Elements skipped between taps; 0 is dense (ONNX's 1).
        algorithm: ``direct``, ``winograd`` or ``auto``.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 8, 4, 4), "f32"), dnnl.AnyDesc((3, 8, 2, 2), "f32")
        >>> deconvolution(src, weights, strides=2, n_threads=1).desc("dst").dims
        (1, 3, 8, 8)
    """
    params = window_params("deconvolution", src, strides=strides, dilations=dilations, pads=pads)
    descs = {"src": src, "weights": weights, "bias": bias}
    spec = draft(
        "deconvolution", descs, params, algorithm=algorithm, prop_kind=prop_kind, attr=attr, n_threads=n_threads
    )
    n_spatial = _weighted.check_operands(spec, "weights", "src")
    return finish(spec, dst, (src.dims[0], _weighted.channels(weights, n_spatial)[1], *_smallest(spec)))


def _validate(spec: Spec) -> None:
    require(spec.attr.depthwise is None, spec, "attr", "has a depthwise post-op; only convolutions take one")
    _weighted.check(spec, _dst_extents)


def _smallest(spec: Spec) -> tuple[int, ...]:
    src, weights = _weighted.operands(spec, "src", "weights")
    return transposed_extents(src.dims[2:], _weighted.window(spec, weights), spec.param("strides"), spec.param("pads"))


def _dst_extents(spec: Spec) -> tuple[int, ...]:
    """Those of the destination itself where a convolution takes them back to the source's."""
    src, weights, dst = _weighted.operands(spec, "src", "weights", "dst")
    strides, pads = spec.param("strides"), spec.param("pads")
    given = tuple(dst.dims[2:])
    back = len(given) == len(strides) and strided_extents(given, _weighted.window(spec, weights), strides, pads)
    return given if back == tuple(src.dims[2:]) else _smallest(spec)


def _fault(spec: Spec) -> str | None:
    """Some may give wrong results.

    A strided deconvolution by brgemm that takes the rows of its kernel one by one, which it does to large ones by
    the sizes of the caches, applies bias, scales and post-ops to partial sums.

    Source: ``src/cpu/x64/jit_brgemm_conv_bwd_strided.cpp``, oneDNN v3.2, and comparison with its other
    implementations: with AVX2 it is wrong from 448 channels and 4x4 kernels, or 256 channels and 6x6 ones.
    """
    if "brgconv_strided" not in spec.impl:
        return _weighted.saturation(spec)
    if not spec.has("bias") and not spec.attr.post_ops and not spec.attr.scales:
        return None
    weights = spec.memory_desc("weights").dims
    n_spatial = spec.memory_desc("src").ndims - 2
    steps_over = all(k <= s for k, s in zip(weights[-n_spatial:], spec.param("strides"), strict=True))
    is_sound = steps_over or prod(weights[-n_spatial - 1 :]) <= MAX_SOUND_SUM
    return None if is_sound else f"{spec.impl} may give wrong results here"


KIND = Kind(
    directions=_weighted.WINDOWED,
    validate=_validate,
    most=MAX_COUNTED,
    post_ops=(Eltwise, Sum, Binary, Prelu),
    multiply_adds=lambda spec, extents: _weighted.window_products(spec, "src", extents),
    peak_share=windowed_peak_share,
    fault=_fault,
)
