"""Depthwise convolutions, each channel by its own window, in C of our own beside the executor."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any

from blocklayout.dnnl import arguments
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.library import has_bf16, has_isa
from blocklayout.dnnl.own import (
    NUMBERS,
    Implementation,
    addend_name,
    are_known_bytes,
    convolution_descs,
    fields_of_bytes,
    image_fields,
    is_channels_last,
    is_open_to_recipes,
    lanes_of,
)
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_WIDTHS, _STRIDES, _LARGEST = (3, 5, 7), (1, 2), 7
"""Of windows, along a row; and rows at most."""

_SMALL = 9
"""Elements of a window."""

_BLOCKS = {8: 8, 16: 32}
"""Channels that are computed at once, by lanes of a vector; of bytes always the most."""

_LIKED = {8: "nChw8c", 16: "nhwc"}
"""Layout of floats where it is left to us, by lanes; with 8, channels-last would read half a cache line at a time."""

_AT_ONCE = 7
"""``BL_AT_ONCE`` in C."""

_WEIGHTS_IN_ROWS = 0.25
"""Time of preparing a block's weights, in rows of results."""

_SHARES, _PAIRED_SHARE, _WIDE_PAIRED_SHARE = {8: 0.44, 16: 0.6}, 0.65, 1.0
"""Of the peak in f32: by products one by one, by lanes; by pairs of bf16 in windows of 3x3, and in larger ones.

On Zen 4, of 32 channels of 28x28; of 8 lanes, over those of networks on Zen 3.
"""

_BYTES_SHARES = {8: (0.38, 0.62), 16: (0.5, 0.75)}
"""The same of bytes, by lanes, in windows of 3x3 and in larger ones; on Zen 3 and Zen 4."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes f32, and bf16 where the library does, in blocks of a vector or, with AVX-512, channels-last.

    Windows are 3, 5 or 7 wide and at most 7 high, with stride 1 or 2 along rows and no dilation. Behind them may come
    an addend as large as the result, then a (leaky) ReLU, clip, Swish or HardSwish, and then a linear function.

    Bytes it takes channels-last, with AVX2 or where AVX-512 adds products of theirs, without an addend: each tensor
    with one scale and zero point, weights with one scale for all or one for each channel.
    """
    if not _is_of_our_kind(spec):
        return None
    (src, weights, dst), lanes = (spec.desc(name) for name in ("src", "weights", "dst")), lanes_of(spec.impl)
    are_bytes = weights.dtype == "s8"
    liked = "nhwc" if are_bytes else _LIKED[lanes]
    if not isinstance(src, MemoryDesc):
        found = MemoryDesc(src.dims, src.dtype, liked)
        src = dst.resized(src.dims).with_dtype(src.dtype) if isinstance(dst, MemoryDesc) else found
    if not isinstance(dst, MemoryDesc):
        dst = src.resized(dst.dims).with_dtype(dst.dtype)
    is_blocked = _is_blocked(src, lanes)
    is_known = not is_blocked if are_bytes else is_blocked or liked == "nhwc"
    if is_blocked is None or _is_blocked(dst, lanes) != is_blocked or not is_known:
        return None
    block = 16 if are_bytes else lanes
    descs = convolution_descs(spec, src, MemoryDesc(weights.dims, weights.dtype, f"Abcde{block}a"), dst)
    return None if descs is None else descs | dict(arguments.of_attributes(spec, descs))


def multiply_adds(spec: Spec) -> int:
    """One for each tap of each result."""
    return prod(spec.desc("dst").dims) * prod(spec.desc("weights").dims[3:])


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Products."""
    del n_threads
    dtype, is_large = spec.desc("weights").dtype, prod(spec.desc("weights").dims[3:]) > _SMALL
    share = _BYTES_SHARES[lanes_of(spec.impl)][is_large]
    if dtype == "bf16" and has_isa("avx512_core_bf16"):
        share = _WIDE_PAIRED_SHARE if is_large else _PAIRED_SHARE
    elif dtype != "s8":
        share = _SHARES[lanes_of(spec.impl)]
    return 2 * multiply_adds(spec) / (share * peak_flops)


def _is_of_our_kind(spec: Spec) -> bool:
    if not is_open_to_recipes(spec):
        return False
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    is_depthwise = len(weights.dims) == 5 and weights.dims[:3] == (src.dims[1], 1, 1) != (1, 1, 1)
    if not is_depthwise:
        return False
    (height, width), (*_, stride) = weights.dims[3:], spec.param("strides")
    is_small = height <= _LARGEST and width in _WIDTHS and stride in _STRIDES and set(spec.param("dilations")) == {0}
    if weights.dtype == "s8":
        return is_small and are_known_bytes(spec)
    are_alike = {src.dtype} == {weights.dtype, dst.dtype}
    is_known = src.dtype == "f32" or (src.dtype == "bf16" and has_bf16())
    return is_small and are_alike and is_known and not spec.attr.scales and not spec.attr.zero_points


def _is_blocked(desc: MemoryDesc, lanes: int) -> bool | None:
    """Whether channels lie in blocks of a vector; else they are last, or there is no code for the layout: ``None``."""
    n, c, *spatial = desc.dims
    if (desc.inner_blks, desc.inner_idxs) == ((lanes,), (1,)):
        return True if desc.padded_dims == (n, -(-c // lanes) * lanes, *spatial) else None
    return False if is_channels_last(desc) else None


def _is_favourite(spec: Spec) -> bool:
    """In f32 with stride 2 and small windows both wait for memory; channels-last the library has another kernel."""
    is_blocked, is_f32 = spec.memory_desc("src").inner_blks, spec.desc("src").dtype == "f32"
    return not is_f32 or bool(
        is_blocked and (spec.param("strides")[1] == 1 or prod(spec.desc("weights").dims[3:]) > _SMALL)
    )


def _rows_of_task(spec: Spec) -> int:
    """Those with which all threads are done soonest; half a block, the last, takes half the time."""
    n_images, n_channels, n_rows, _ = spec.desc("dst").dims
    lanes, n_threads = lanes_of(spec.impl), spec.n_threads
    block = _BLOCKS[16 if spec.desc("weights").dtype == "s8" else lanes]
    n_blocks, spared = -(-n_channels // block), 0.5 if 0 < n_channels % block <= block // 2 >= lanes else 0.0

    def work(n_parts: int) -> float:
        ends = [n_images * n_parts * n_blocks * thread // n_threads for thread in range(n_threads + 1)]
        blocks = [end - begin - spared * (end // n_blocks - begin // n_blocks) for begin, end in pairwise(ends)]
        return max(blocks) * (-(-n_rows // n_parts) + _WEIGHTS_IN_ROWS)

    n_parts = min(range(1, min(4 * n_threads, n_rows) + 1), key=work)
    return -(-n_rows // n_parts)


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    n_parts = -(-dst.dims[3] // _AT_ONCE)
    return {
        **image_fields(spec),
        **fields_of_bytes(spec),
        "is_bf16": src.dtype == "bf16",
        "has_bf16": has_isa("avx512_core_bf16"),
        "n_channels": src.dims[1],
        "kernel": spec.desc("weights").dims[3:],
        "strides": spec.param("strides"),
        "rows_of_task": _rows_of_task(spec),
        "n_parts": n_parts,
        "part": dst.dims[3] // n_parts,
        "n_longer": dst.dims[3] % n_parts,
    }


def _isas(spec: Spec) -> tuple[str, ...]:
    are_bytes = spec.has("weights") and spec.desc("weights").dtype == "s8"
    return "avx512_core_vnni" if are_bytes else "avx512_core", "avx2"


OURS = Implementation(
    kinds=("convolution",),
    isas=_isas,
    offer=_offer,
    fields=_fields,
    arguments=lambda spec: ("src", "weights", "bias", addend_name(spec.attr), "dst", *NUMBERS),
    compute_ns=_compute_ns,
    total_ns=max,  # the arithmetic goes on while bytes are moved
    multiply_adds=multiply_adds,
    is_favourite=_is_favourite,
)
