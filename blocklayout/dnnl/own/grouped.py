"""Convolutions of groups of few channels, channels last, in C of our own: the library leaves most of a vector idle."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, TypeGuard

from msgspec.structs import asdict

from blocklayout.dnnl import library
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Attr
from blocklayout.dnnl.own import (
    Implementation,
    LongTail,
    Tail,
    addend_name,
    convolution_descs,
    is_open_to_recipes,
    lanes_of,
    tail_of,
)
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_NDIMS, _MAX_KERNEL = 4, 7

_MAX_GROUP = {16: 32, 8: 8}
"""Channels of a group, by floats in a vector."""

_TILE = 7
"""Results that are computed at once: ``BL_NARROW`` in C; what they see is there, though it may be of no use."""

_STRIDES = (("image", 0), ("row", 2), ("pixel", 3))
"""Distances in C, and their dimensions."""

_PEAK_SHARES = {"f32": {4: 0.66, 8: 0.65, 16: 0.62, 32: 0.8}, "bf16": {4: 1.0, 8: 0.96, 16: 1.2, 32: 1.5}}
"""Of a machine's peak in f32, by data type and the channels of a group: those for which the library is slower.

By comparison with the library's shares, on Zen 5.
"""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes f32, and bf16 where the CPU has products of its pairs: as many results as sources in each group, windows of
    at most 7x7 without dilation, and at most a (leaky) ReLU or clip behind the sum.
    """
    if not _is_of_our_kind(spec) or _tail(spec.attr) is None:
        return None
    (src, weights, dst), lanes = (spec.desc(name) for name in ("src", "weights", "dst")), lanes_of(spec.impl)
    if not _is_channels_last(src) or not _is_channels_last(dst):
        return None
    least = 2 * lanes if src.dtype == "bf16" else lanes
    if src.dims[1] % least or weights.dims[1] > _MAX_GROUP[lanes]:
        return None
    tag = _packed(weights.dims[1], weights.dtype, lanes)
    return convolution_descs(spec, src, MemoryDesc(weights.dims, weights.dtype, tag), dst)


def multiply_adds(spec: Spec) -> int:
    """One for each tap of each result in each source of its group."""
    return spec.memory_desc("dst").n_elements * prod(spec.desc("weights").dims[2:])


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:  # noqa: ARG001 - the peak is of all threads
    """The share of the peak that it reaches, whatever the extents."""
    share = _PEAK_SHARES[spec.desc("src").dtype][spec.desc("weights").dims[2]]
    return 2 * multiply_adds(spec) / (share * peak_flops)


def _is_of_our_kind(spec: Spec) -> bool:
    if not is_open_to_recipes(spec):
        return False
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    if len(src.dims) != _NDIMS or len(weights.dims) == _NDIMS or any(spec.param("dilations")):
        return False
    if spec.attr.scales or spec.attr.zero_points:
        return False
    _, n_dst, n_src, *kernel = weights.dims
    if n_dst != n_src or n_src not in _PEAK_SHARES.get(src.dtype, ()) or max(kernel) > _MAX_KERNEL:
        return False
    if src.dtype == "bf16" and not library.has_isa("avx512_core_bf16"):
        return False
    return weights.dtype == src.dtype and dst.dtype in ("f32", src.dtype)


def _tail(attr: Attr) -> Tail | None:
    """The post-ops; ``None`` where there is no code for them."""
    found = tail_of(attr)
    if found is None or addend_name(attr):
        return None
    short = Tail(found.slope, found.low, found.high)
    return short if found == LongTail(**asdict(short)) else None


def _is_channels_last(desc: Desc) -> TypeGuard[MemoryDesc]:
    return isinstance(desc, MemoryDesc) and not desc.inner_blks and desc.strides[1] == 1


def _packed(group: int, dtype: str, lanes: int) -> str:
    """By tap, then by source, or pair of them in bf16, for the results of a group side by side."""
    if dtype == "bf16":
        return f"gOIhw{group // 2}i{group}o2i" if group < lanes else f"gOhwI{lanes}o2i"
    return f"gOIhw{group}i{group}o" if group < lanes else f"gOhwi{lanes}o"


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, weights, dst = (spec.memory_desc(name) for name in ("src", "weights", "dst"))
    n_results = max(dst.dims[3], _TILE)
    return {
        "n_threads": spec.n_threads,
        "lanes": lanes_of(spec.impl),
        "is_bf16": src.dtype == "bf16",
        "dst_is_bf16": dst.dtype == "bf16",
        "group": weights.dims[1],
        "n_images": src.dims[0],
        "n_channels": src.dims[1],
        "extents": src.dims[2:],
        "results": dst.dims[2:],
        "kernel": weights.dims[3:],
        "strides": spec.param("strides"),
        "pads": spec.param("pads")[:2],
        "n_columns": n_results + (weights.dims[4] - 1) // spec.param("strides")[1],
        **{f"{name}_{at}": desc.strides[dim] for name, desc in (("src", src), ("dst", dst)) for at, dim in _STRIDES},
        **asdict(_tail(spec.attr) or Tail()),
    }


OURS = Implementation(
    kinds=("convolution",),
    isas=lambda _: ("avx512_core", "avx2"),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "weights", "bias", "dst", "scratchpad"),
    compute_ns=_compute_ns,
    total_ns=max,
    multiply_adds=multiply_adds,
    is_favourite=lambda _: True,
)
