"""Convolutions channels last, in C of our own: weights are fetched while others are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from blocklayout.dnnl import library
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import (
    Implementation,
    addend_name,
    convolution_descs,
    image_fields,
    is_channels_last,
    is_open_to_recipes,
    lanes_of,
)
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import itemsize
from blocklayout.layout import MemoryDesc

_NDIMS = 4

_MOST_SOURCES = 8192
"""Channels of a pixel: ``BL_MOST_SOURCES`` in C."""

_NEAR_NBYTES = 512 << 10
"""Of a source that is read again for each panel: about as much as a core's own cache holds."""

_ROWS = {16: 14, 8: 6}
"""Pixels that are computed at once, by floats in a vector: ``ROWS`` in C."""

_LEAST_PIXELS = 4
"""With fewer, each product waits for the one before."""

_PEAK_SHARE = 0.98
"""Of a machine's peak, within strips, by comparison with the library's. On Zen 5, as is the next."""

_PRODUCTS_OF_STRIP, _PRODUCTS_OF_TAP = 140, 180
"""Time of what else is done for a strip, in products of a result; and for each tap, where there are several."""

_LEAST_PRODUCTS, _MOST_PIXELS, _FEW_PIXELS = 256, 1024, 64
"""Of a result and of all results, where it is hardly ever slower: many weights for few pixels."""

_PIXELS_OF_PANEL = 2
"""Time of beginning a panel, in pixels."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes f32, and bf16 where the CPU has products of its pairs, without groups; at most an addend as large as the
    result and then a (leaky) ReLU, clip, Swish or HardSwish behind it, and a linear function last.

    With AMX the library's of bf16 are faster, and nobody has compared those of f32.
    """
    if not _is_of_our_kind(spec):
        return None
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    if not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc):
        return None
    if not is_channels_last(src) or not is_channels_last(dst):
        return None
    panel = 2 * lanes_of(spec.impl)
    tag = f"OhwI{panel}o2i" if src.dtype == "bf16" else f"Ohwi{panel}o"
    return convolution_descs(spec, src, MemoryDesc(weights.dims, weights.dtype, tag), dst)


def multiply_adds(spec: Spec) -> int:
    """One for each tap of each result in each source."""
    return prod(spec.desc("dst").dims) * prod(spec.desc("weights").dims[1:])


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Products, those by what fills the last panel among them, of the thread that has most of them."""
    lanes, (n_parts, n_panels, n_pixels) = lanes_of(spec.impl), _tasks(spec)
    n_strips, of_result = -(-n_pixels // _ROWS[lanes]), prod(spec.desc("weights").dims[1:])
    n_taps = prod(spec.desc("weights").dims[2:])
    of_strip = _PRODUCTS_OF_STRIP + (n_taps * _PRODUCTS_OF_TAP if n_taps > 1 else 0)
    of_task = 2 * lanes * (max(n_pixels, _LEAST_PIXELS) * of_result + n_strips * of_strip)
    n_tasks = -(-n_parts * n_panels // n_threads)
    at_once = 4 // itemsize(spec.desc("src").dtype)
    return 2 * n_tasks * n_threads * of_task / (_PEAK_SHARE * at_once * peak_flops)


def _is_of_our_kind(spec: Spec) -> bool:
    if not is_open_to_recipes(spec) or library.has_isa("avx512_core_amx"):
        return False
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    if src.dtype not in ("f32", "bf16") or {src.dtype} != {weights.dtype, dst.dtype}:
        return False
    if src.dtype == "bf16" and src.dims[1] % 2:
        return False  # products are of pairs of sources
    is_known = len(src.dims) == len(weights.dims) == _NDIMS and src.dims[1] <= _MOST_SOURCES
    return is_known and not spec.attr.scales and not spec.attr.zero_points


def _is_favourite(spec: Spec) -> bool:
    n_images, _, *extents = spec.desc("dst").dims
    _, n_src, *taps = spec.desc("weights").dims
    most = _MOST_PIXELS if n_src >= _LEAST_PRODUCTS else _FEW_PIXELS
    return n_src * prod(taps) >= _LEAST_PRODUCTS and n_images * prod(extents) <= most


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, dst = (spec.memory_desc(name) for name in ("src", "dst"))
    return {
        **image_fields(spec),
        "is_bf16": src.dtype == "bf16",
        "n_src": src.dims[1],
        "n_dst": dst.dims[1],
        "kernel": spec.desc("weights").dims[2:],
        "strides": spec.param("strides"),
        "steps": [1 + dilation for dilation in spec.param("dilations")],
        "pixels_at_once": _tasks(spec)[2],
    }


def _tasks(spec: Spec) -> tuple[int, int, int]:
    """Parts of the pixels, panels, and pixels of a part: those in which all threads are done soonest."""
    src, dst = spec.desc("src"), spec.desc("dst")
    n_pixels, n_panels = prod(dst.dims) // dst.dims[1], -(-dst.dims[1] // (2 * lanes_of(spec.impl)))
    pixel_nbytes = src.dims[1] * itemsize(src.dtype) * prod(spec.param("strides"))
    least = min(-(-n_pixels * pixel_nbytes // _NEAR_NBYTES), n_pixels)

    def work(n_parts: int) -> int:
        return -(-n_panels * n_parts // spec.n_threads) * (-(-n_pixels // n_parts) + _PIXELS_OF_PANEL)

    n_parts = min(range(least, min(least + 2 * spec.n_threads, n_pixels) + 1), key=work)
    return n_parts, n_panels, -(-n_pixels // n_parts)


def _isas(spec: Spec) -> tuple[str, ...]:
    has_bf16 = any(desc.dtype == "bf16" for _, desc in spec.descs)
    return ("avx512_core_bf16",) if has_bf16 else ("avx512_core", "avx2")


OURS = Implementation(
    kinds=("convolution",),
    isas=_isas,
    offer=_offer,
    fields=_fields,
    arguments=lambda spec: ("src", "weights", "bias", addend_name(spec.attr), "dst", "scratchpad"),
    compute_ns=_compute_ns,
    total_ns=max,
    multiply_adds=multiply_adds,
    is_favourite=_is_favourite,
)
