"""Convolutions by Winograd's method, in C of our own beside the executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import (
    Implementation,
    addend_name,
    convolution_descs,
    image_fields,
    is_open_to_recipes,
    lanes_of,
)
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

TILE = 4
"""Results of a tile along each side."""

N_PRODUCTS = (TILE + 2) ** 2
"""Products of a tile, for each pair of channels."""

_NDIMS, _WINDOW = 4, 3
_LEAST_OF_GROUP = 4
"""Results of a group; with fewer, most products are by zeros."""

_NEAR_NBYTES = 512 << 10
"""Of transformed sources, for each thread: about as much as a core's own cache holds."""

_TILES_OF_TASK = 56
"""At most; with fewer, transforming the weights takes a larger share."""

_LEAST_OF_THREAD = 40
"""Tiles for each thread from which on each has its own: it then transforms all weights, but nobody waits."""

_WEIGHTS_IN_TILES = 3
"""Time of transforming a panel of weights, in tiles that are multiplied by it."""

_PEAK_SHARE = 0.9
"""Of a machine's peak, in the products of transformed tiles and weights."""

_TRANSFORMED_PER_NS, _TRANSFORMED_WEIGHTS_PER_NS = 3.0, 7.0
"""Elements that a thread transforms in a nanosecond: of sources and results, and of weights.

These and the share are fitted to 88 convolutions of five networks, on Zen 4, Zen 5 and a Xeon with AMX, by AVX2 and
AVX-512: they matter by comparison with the library's direct ones.
"""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes f32 convolutions of 3x3 windows, stride 1, without dilation, from channels-last or blocks of a vector to
    either; at most an addend as large as the result and then a (leaky) ReLU, clip, Swish or HardSwish behind it. Groups
    have to fill panels of two vectors, several in one or one in several. Results differ from those of other
    implementations by some 1e-6 to 1e-5 of the largest.
    """
    if not _is_of_our_kind(spec):
        return None
    (src, weights, dst), lanes = (spec.desc(name) for name in ("src", "weights", "dst")), lanes_of(spec.impl)
    if not _has_whole_vectors(src, lanes) or not _has_whole_vectors(dst, lanes):
        return None
    if not _fills_panels(weights.dims, 2 * lanes):
        return None
    tag = f"Ohwi{2 * lanes}o" if len(weights.dims) == _NDIMS else "hwigo"
    return convolution_descs(spec, src, MemoryDesc(weights.dims, "f32", tag), dst)


def multiply_adds(spec: Spec) -> int:
    """Multiplications that it does, each with an addition, those by other groups' zeros among them.

    Transformations are not counted.
    """
    return N_PRODUCTS * _n_tiles(spec) * _panel_src(spec, lanes_of(spec.impl)) * spec.desc("dst").dims[1]


def _transformed(spec: Spec) -> tuple[int, int]:
    """Elements that its transformations write: of tiles of sources and results, and of weights."""
    n_src, n_dst, tiles = spec.desc("src").dims[1], spec.desc("dst").dims[1], _n_tiles(spec)
    n_weights = -(-tiles // _TILES_OF_TASK) * _panel_src(spec, lanes_of(spec.impl)) * n_dst
    return N_PRODUCTS * tiles * (n_src + n_dst), N_PRODUCTS * n_weights


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Products and transformations, one after the other."""
    of_tiles, of_weights = _transformed(spec)
    transforms_ns = of_tiles / _TRANSFORMED_PER_NS + of_weights / _TRANSFORMED_WEIGHTS_PER_NS
    products_ns = 2 * multiply_adds(spec) / (_PEAK_SHARE * peak_flops)
    return transforms_ns / n_threads + products_ns


def _n_tiles(spec: Spec) -> int:
    n_images, _, height, width = spec.desc("dst").dims
    return n_images * -(-height // TILE) * -(-width // TILE)


def _is_of_our_kind(spec: Spec) -> bool:
    if not is_open_to_recipes(spec):
        return False
    is_square = len(spec.desc("src").dims) == _NDIMS and spec.desc("weights").dims[-2:] == (_WINDOW, _WINDOW)
    is_dense = is_square and set(spec.param("strides")) == {1} and set(spec.param("dilations")) == {0}
    is_f32 = all(desc.dtype == "f32" for _, desc in spec.descs)
    return is_dense and is_f32 and not spec.attr.scales and not spec.attr.zero_points


def _fills_panels(weights: tuple[int, ...], panel: int) -> bool:
    if len(weights) == _NDIMS:
        return True
    n_groups, group_dst, *_ = weights
    several_in_one = group_dst >= _LEAST_OF_GROUP and panel % group_dst == 0 == n_groups * group_dst % panel
    return several_in_one or group_dst % panel == 0


def _panel_src(spec: Spec, lanes: int) -> int:
    """Sources that a panel of results depends on."""
    *_, group_dst, group_src, _, _ = spec.desc("weights").dims
    is_grouped = len(spec.desc("weights").dims) > _NDIMS
    return group_src * max(1, 2 * lanes // group_dst) if is_grouped else group_src


def _has_whole_vectors(desc: Desc, lanes: int) -> TypeGuard[MemoryDesc]:
    if not isinstance(desc, MemoryDesc):
        return False
    if desc.inner_blks:
        return desc.inner_blks == (lanes,) and desc.inner_idxs == (1,)
    return desc.strides[1] == 1 and desc.dims[1] % lanes == 0


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, weights, dst = (spec.memory_desc(name) for name in ("src", "weights", "dst"))
    *_, group_dst, group_src, _, _ = weights.dims
    *_, panel, weights_src, _, tap = weights.strides
    lanes = lanes_of(spec.impl)
    n_panels = -(-dst.dims[1] // (2 * lanes))
    n_tiles = _n_tiles(spec)
    is_apart = n_tiles >= _LEAST_OF_THREAD * spec.n_threads
    of_thread = _even_part(-(-n_tiles // spec.n_threads), _TILES_OF_TASK)
    n_at_once = of_thread if is_apart else _tiles_at_once(spec, lanes)
    return image_fields(spec) | {
        "n_src": src.dims[1],
        "n_dst": dst.dims[1],
        "group_src": group_src,
        "group_dst": group_dst,
        "panel_src": _panel_src(spec, lanes),
        "weights_tap": tap,
        "weights_src": weights_src,
        "weights_panel": panel if weights.inner_blks else 2 * lanes,
        "is_apart": is_apart,
        "tiles_at_once": n_at_once,
        "tiles_of_task": n_at_once if is_apart else _tiles_of_task(n_at_once, n_panels, spec.n_threads),
    }


def _tiles_at_once(spec: Spec, lanes: int) -> int:
    """As many tiles as have their transformed sources in near caches, if that is enough for a task, in even parts."""
    n_channels = -(-spec.desc("src").dims[1] // lanes) * lanes
    most = max(_TILES_OF_TASK, spec.n_threads * _NEAR_NBYTES // (N_PRODUCTS * n_channels * 4))
    return _even_part(_n_tiles(spec), most)


def _even_part(total: int, most: int) -> int:
    """The size of parts that are as even as can be, and none larger than ``most``."""
    return -(-total // -(-total // most))


def _tiles_of_task(n_at_once: int, n_panels: int, n_threads: int) -> int:
    """The parts in which all threads are done soonest: each has a panel of weights to transform first."""

    def work(n_parts: int) -> int:
        return -(-n_panels * n_parts // n_threads) * (-(-n_at_once // n_parts) + _WEIGHTS_IN_TILES)

    least = -(-n_at_once // _TILES_OF_TASK)
    n_parts = min(range(least, min(least + 2 * n_threads, n_at_once) + 1), key=work)
    return -(-n_at_once // n_parts)


OURS = Implementation(
    kinds=("convolution",),
    isas=("avx512_core", "avx2"),
    offer=_offer,
    fields=_fields,
    arguments=lambda spec: ("src", "weights", "bias", addend_name(spec.attr), "dst", "scratchpad"),
    compute_ns=_compute_ns,
    multiply_adds=multiply_adds,
)
