"""Convolutions channels last and matrix products, in C of our own: weights are fetched while others are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from blocklayout.dnnl import library
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import (
    Implementation,
    addend_name,
    addend_of,
    convolution_descs,
    image_fields,
    is_channels_last,
    is_open_to_recipes,
    lanes_of,
    tail_of,
)
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import itemsize
from blocklayout.layout import MemoryDesc

_IMAGE, _MATRIX = 4, 2
"""Dimensions; a row of a matrix is a pixel here."""

_MOST_SOURCES = 8192
"""Channels of a pixel: ``BL_MOST_SOURCES`` in C."""

_NEAR_NBYTES = 512 << 10
"""Of a source that is read again for each panel: about as much as a core's own cache holds."""

_PIXELS = {16: 14, 8: 6}
"""Pixels that are computed at once, by floats in a vector: ``ROWS`` in C."""

_TAGS = {"convolution": ("OhwI{}o2i", "Ohwi{}o"), "matmul": ("BA16a{}b2a", "BA16a{}b")}
"""Of packed weights: for products of pairs, and of single sources."""

_ROW = "post_op_0_src_1"
"""The argument that is added to each row of a product, as a bias is."""

_SOURCES_AT_ONCE = 1024
"""Of f32, so that their weights in a panel stay near."""

_LEAST_PIXELS = 4
"""With fewer, each product waits for the one before."""

_PEAK_SHARE = 0.98
"""Of a machine's peak, within strips, by comparison with the library's. On Zen 5, as is the next."""

_PRODUCTS_OF_STRIP, _PRODUCTS_OF_TAP = 140, 180
"""Time of what else is done for a strip, in products of a result; and for each tap, where there are several."""

_FLOPS_OF_GATE = 48
"""Floating-point operations in the time of the gate of a result, as of GELU."""

_LEAST_PRODUCTS, _MOST_PIXELS, _FEW_PIXELS = 256, 1024, 64
"""Of a result and of all results, where it is hardly ever slower: many weights for few pixels."""

_PIXELS_OF_PANEL = 2
"""Time of beginning a panel, in pixels."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes f32, and bf16 where the CPU has products of its pairs, without groups; at most an addend as large as the
    result and then a (leaky) ReLU, clip, Swish, GELU or HardSwish behind it, and a linear function last. Of a matrix
    product, a row that is added to each may come first.

    With AMX the library's of bf16 are faster, and nobody has compared those of f32.
    """
    if not _is_of_our_kind(spec):
        return None
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    if not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc):
        return None
    if not is_channels_last(src) or not is_channels_last(dst):
        return None
    in_pairs, single = _TAGS[spec.kind]
    tag = (in_pairs if src.dtype == "bf16" else single).format(2 * lanes_of(spec.impl))
    descs = convolution_descs(spec, src, MemoryDesc(weights.dims, weights.dtype, tag), dst, _n_before(spec))
    row = _row(spec)
    return descs if descs is None or row is None else descs | {_ROW: row}


def multiply_adds(spec: Spec) -> int:
    """One for each tap of each result in each source."""
    return prod(spec.desc("dst").dims) * _of_result(spec)


def _of_result(spec: Spec) -> int:
    return spec.desc("src").dims[1] * prod(_window(spec)[0])


def _window(spec: Spec) -> tuple[tuple[int, ...], ...]:
    """Taps, and pixels from one result and from one tap to the next, along each side."""
    if spec.kind == "matmul":
        return (1, 1), (1, 1), (1, 1)
    return spec.desc("weights").dims[2:], spec.param("strides"), tuple(1 + each for each in spec.param("dilations"))


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Products, those by what fills the last panel among them, of the thread that has most of them."""
    lanes, (n_parts, n_panels, n_pixels) = lanes_of(spec.impl), _tasks(spec)
    n_strips, of_result, n_taps = -(-n_pixels // _PIXELS[lanes]), _of_result(spec), prod(_window(spec)[0])
    of_strip = _PRODUCTS_OF_STRIP + (n_taps * _PRODUCTS_OF_TAP if n_taps > 1 else 0)
    again = _PIXELS_OF_PANEL if n_parts > 1 else 0  # each part reads all weights
    of_task = 2 * lanes * ((max(n_pixels, _LEAST_PIXELS) + again) * of_result + n_strips * of_strip)
    n_tasks = -(-n_parts * n_panels // n_threads)
    at_once = 4 // itemsize(spec.desc("src").dtype)
    tail = tail_of(spec.attr, _n_before(spec))
    gates_flops = _FLOPS_OF_GATE * prod(spec.desc("dst").dims) if tail is not None and tail.gate else 0
    return (2 * n_tasks * n_threads * of_task / (_PEAK_SHARE * at_once) + gates_flops) / peak_flops


def _row(spec: Spec) -> MemoryDesc | None:
    """The descriptor of a row that a post-op adds to each row of a product first, as a bias is added."""
    first, (n_rows, n_columns, *others) = addend_of(spec.attr), spec.desc("dst").dims
    if spec.kind != "matmul" or first is None or n_rows == 1 or others:
        return None
    known = (MemoryDesc((1, n_columns), dtype) for dtype in ("f32", spec.desc("dst").dtype))
    return next((desc for desc in known if desc == first.src1), None)


def _n_before(spec: Spec) -> int:
    """Post-ops before the addend."""
    return int(_row(spec) is not None)


def _is_product(spec: Spec) -> bool:
    """Whether it is a product of matrices with some elements, and there is code for what is behind it."""
    if spec.kind != "matmul" or spec.has("bias") or library.is_sequential():
        return False
    src, dst = spec.desc("src").dims, spec.desc("dst").dims
    return len(dst) == _MATRIX and 0 not in (*src, *dst) and tail_of(spec.attr, _n_before(spec)) is not None


def _is_of_our_kind(spec: Spec) -> bool:
    if library.has_isa("avx512_core_amx") or not (_is_product(spec) or is_open_to_recipes(spec)):
        return False
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    if src.dtype not in ("f32", "bf16") or {src.dtype} != {weights.dtype, dst.dtype}:
        return False
    if src.dtype == "bf16" and src.dims[1] % 2:
        return False  # products are of pairs of sources
    is_known = len(src.dims) == len(weights.dims) in (_MATRIX, _IMAGE) and src.dims[1] <= _MOST_SOURCES
    return is_known and not spec.attr.scales and not spec.attr.zero_points


def _is_favourite(spec: Spec) -> bool:
    most = _MOST_PIXELS if spec.desc("src").dims[1] >= _LEAST_PRODUCTS else _FEW_PIXELS
    return _of_result(spec) >= _LEAST_PRODUCTS and prod(spec.desc("dst").dims) // spec.desc("dst").dims[1] <= most


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, dst, row, (kernel, strides, steps) = (
        spec.memory_desc("src"),
        spec.memory_desc("dst"),
        _row(spec),
        _window(spec),
    )
    return {
        **image_fields(spec, _n_before(spec)),
        "is_bf16": src.dtype == "bf16",
        "has_bf16_bias": row is not None and row.dtype == "bf16",
        "n_src": src.dims[1],
        "n_dst": dst.dims[1],
        "kernel": kernel,
        "strides": strides,
        "steps": steps,
        "weights_panel": spec.memory_desc("weights").strides[spec.kind == "matmul"],
        "pixels_at_once": _tasks(spec)[2],
        "sources_at_once": _sources_at_once(spec),
    }


def _sources_at_once(spec: Spec) -> int:
    """Sums of some of many sources are kept in the result meanwhile, where it is as exact and holds nothing else."""
    n_src, has_place = spec.desc("src").dims[1], spec.desc("dst").dtype == "f32" and not spec.attr.has_sum
    n_blocks = -(-n_src // _SOURCES_AT_ONCE) if has_place and prod(_window(spec)[0]) == 1 else 1
    return -(-n_src // n_blocks // 16) * 16 if n_blocks > 1 else n_src


def _tasks(spec: Spec) -> tuple[int, int, int]:
    """Parts of the pixels, panels, and pixels of a part: those in which all threads are done soonest."""
    src, dst = spec.desc("src"), spec.desc("dst")
    n_pixels, n_panels = prod(dst.dims) // dst.dims[1], -(-dst.dims[1] // (2 * lanes_of(spec.impl)))
    pixel_nbytes = _sources_at_once(spec) * itemsize(src.dtype) * prod(_window(spec)[1])
    least = min(-(-n_pixels * pixel_nbytes // _NEAR_NBYTES), n_pixels)

    def work(n_parts: int) -> int:
        return -(-n_panels * n_parts // spec.n_threads) * (-(-n_pixels // n_parts) + _PIXELS_OF_PANEL)

    n_parts = min(range(least, min(least + 2 * spec.n_threads, n_pixels) + 1), key=work)
    return n_parts, n_panels, -(-n_pixels // n_parts)


def _isas(spec: Spec) -> tuple[str, ...]:
    has_bf16 = any(desc.dtype == "bf16" for _, desc in spec.descs)
    return ("avx512_core_bf16",) if has_bf16 else ("avx512_core", "avx2")


def _arguments(spec: Spec) -> tuple[str, ...]:
    n_before = _n_before(spec)
    return ("src", "weights", _ROW if n_before else "bias", addend_name(spec.attr, n_before), "dst", "scratchpad")


OURS = Implementation(
    kinds=("convolution", "matmul"),
    isas=_isas,
    offer=_offer,
    fields=_fields,
    arguments=_arguments,
    compute_ns=_compute_ns,
    total_ns=max,
    multiply_adds=multiply_adds,
    is_favourite=_is_favourite,
)
