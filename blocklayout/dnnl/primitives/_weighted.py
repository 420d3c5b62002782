"""Primitives with weights: convolution, deconvolution and, in part, inner product."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.library import sums_bytes_exactly
from blocklayout.dnnl.primitives import FORWARD, Direction, Extents
from blocklayout.dnnl.primitives._checks import (
    check_dims,
    check_dtype,
    check_ndims,
    check_weights_dtype,
    invalid,
    require,
)
from blocklayout.dnnl.primitives._windows import check_window, window_extents
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES


def directions(first: str = "", last: str = "") -> dict[str, Direction]:
    """Forward and both gradients; C takes some parameters before the descriptors, and some behind them."""
    return {
        "forward": Direction(
            c_order=f"engine prop_kind {first} src weights bias dst {last} attr",
            arguments=("src", "weights", "bias", "dst"),
            optional=("bias",),
            laid_out=(),
        ),
        "backward_data": Direction(
            c_order=f"engine {first} diff_src weights diff_dst {last} hint attr",
            arguments=("weights", "diff_src", "diff_dst"),
            results=("diff_src",),
            laid_out=(),
            prop_kinds=("backward_data",),
        ),
        "backward_weights": Direction(
            c_order=f"engine {first} src diff_weights diff_bias diff_dst {last} hint attr",
            arguments=("src", "diff_weights", "diff_bias", "diff_dst"),
            results=("diff_weights", "diff_bias"),
            optional=("diff_bias",),
            laid_out=(),
            prop_kinds=("backward_weights",),
        ),
    }


WINDOWED = directions("algorithm", "strides dilations pads")
"""Of convolution and deconvolution."""


def side(prop_kind: str, name: str) -> str:
    """The argument's name, which is its gradient's in the passes that compute or read that."""
    gradients = {"backward_data": ("src", "dst"), "backward_weights": ("weights", "bias", "dst")}
    return f"diff_{name}" if name in gradients.get(prop_kind, ()) else name


def operands(spec: Spec, *names: str) -> list[Desc]:
    """Descriptors of arguments, or of their gradients in the passes that compute or read those."""
    return [spec.desc(side(spec.prop_kind, name)) for name in names]


def check_operands(spec: Spec, weights: str, image: str) -> int:
    """Refuse an image, weights and windows that do not fit one another; the number of spatial dimensions.

    The names are those of the weights or their gradient, and of the source or destination that is known.
    """
    ndims = check_ndims(spec, image, 3, 5)
    given = len(spec.desc(weights).dims)
    rule = f"has {given} dimensions; {image} of {ndims} makes it {ndims}, or {ndims + 1} with groups in front"
    require(given in {ndims, ndims + 1}, spec, weights, rule)
    check_window(spec, ndims - 2)
    kernel = spec.desc(weights).dims[given - ndims + 2 :]
    require(min(kernel) >= 1, spec, weights, f"has a kernel of {tuple(kernel)}; each extent must be at least 1")
    return ndims - 2


def channels(weights: Desc, n_spatial: int) -> tuple[int, int]:
    """``(source, destination)`` channels that weights connect, all groups together.

    Example:
        >>> from blocklayout.dnnl import AnyDesc
        >>> channels(AnyDesc((32, 1, 4, 3, 3), "f32"), 2)
        (128, 32)
    """
    dims = weights.dims
    groups = dims[0] if len(dims) == n_spatial + 3 else 1
    dst, src = dims[len(dims) - n_spatial - 2 : len(dims) - n_spatial]
    return groups * src, groups * dst


def window(spec: Spec, weights: Desc) -> tuple[int, ...]:
    """The extents that the kernel spans, dilation included."""
    dilations = spec.param("dilations")
    return window_extents(weights.dims[len(weights.dims) - len(dilations) :], dilations)


def check(spec: Spec, dst_extents: Callable[[Spec], tuple[int, ...]]) -> None:
    """Check a whole convolution or deconvolution, ``dst_extents`` being its rule."""
    src, weights, dst, bias = (side(spec.prop_kind, name) for name in ("src", "weights", "dst", "bias"))
    n_spatial = check_operands(spec, weights, src)
    n_src, n_dst = channels(spec.desc(weights), n_spatial)
    given = spec.desc(src).dims[1]
    require(given == n_src, spec, weights, f"{spec.desc(weights).dims} take {n_src} channels; {src} has {given}")
    extents = dst_extents(spec)
    require(min(extents) >= 1, spec, dst, f"would have extents {extents}; the kernel spans more than the padded {src}")
    check_dims(spec, dst, (spec.desc(src).dims[0], n_dst, *extents), f"{src}, {weights}, strides and pads")
    if spec.prop_kind in FORWARD:
        check_weights_dtype(spec, src, weights)
    dtype, depthwise = spec.desc(dst).dtype, spec.attr.depthwise
    if depthwise and dtype != depthwise.dst_dtype:
        rule = f"is {dtype}; the depthwise post-op's dst_dtype makes it {depthwise.dst_dtype}"
        raise invalid(spec.kind, dst, rule)
    if spec.has(bias):
        check_dims(spec, bias, (n_dst,), "one for each channel of the destination")
        check_dtype(spec, bias, ("f32", dtype, "s32", "s8", "u8"), spec.kind)


def window_products(spec: Spec, moving: str, extents: Extents) -> int:
    """Multiplications where all weights meet every place of the moving side: ``dst``, or a deconvolution's ``src``.

    ``jit_int8`` leaves out groups of four source channels that are padding, though weights may have blocks of 16.
    """
    image, weights = operands(spec, moving, "weights")
    counted = list(extents(weights))
    if spec.impl.startswith("jit_int8"):
        channels_at = len(counted) - len(image.dims) + 1
        counted[channels_at] = min(counted[channels_at], 4 * ceil(weights.dims[channels_at] / 4))
    return image.dims[0] * prod(image.dims[2:]) * prod(counted)


def saturation(spec: Spec) -> str | None:
    """Why an implementation of products of bytes is passed over: it saturates sums of two at 16 bits.

    So do those for CPUs without VNNI, or they halve weights; references, and depthwise convolutions of u8, do not.
    """
    if not spec.has("src") or not spec.has("weights"):
        return None
    src, weights = (spec.memory_desc(name) for name in ("src", "weights"))
    if src.dtype not in BYTE_DTYPES or weights.dtype != "s8":
        return None
    isas = {name.rpartition(":")[2] for name in spec.impl.split("+")}
    if isas == {"any"}:  # references
        return None
    is_depthwise = weights.dims[1:3] == (1, 1) and len(weights.dims) > len(src.dims) and src.dtype == "u8"
    is_exact = isas.isdisjoint(("sse41", "avx2", "avx512_core")) if sums_bytes_exactly() else is_depthwise
    return None if is_exact else f"{spec.impl} saturates sums of two products at 16 bits"
