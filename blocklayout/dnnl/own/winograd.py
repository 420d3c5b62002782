"""Convolutions by Winograd's method, in C of our own beside the executor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl import arguments, library
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.enums import WINOGRAD_DOMAIN
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
from blocklayout.dtypes import itemsize
from blocklayout.layout import MemoryDesc

_NDIMS, _WINDOW = 4, 3
_LEAST_OF_GROUP = 4
"""Results of a group; with fewer, most products are by zeros."""

_NEAR_NBYTES = 512 << 10
"""Of transformed sources, for each thread: about as much as a core's own cache holds."""

_LEAST_OF_THREAD = 40
"""Tiles for each thread from which on each has its own: it then transforms all weights, but nobody waits."""

_PEAK_SHARE = 0.9
"""Of a machine's peak, in the products of transformed tiles and weights."""


class Method(Struct, frozen=True):
    """A size of tiles and a type of products, and how fast these are.

    Attributes:
        tile: Results of a tile along each side.
        dtype: Of transformed sources and weights.
        transformed_per_ns: Elements of sources and results that a thread transforms in a nanosecond.
        transformed_weights_per_ns: The same of weights. These and the share of the peak matter by comparison with the
            library's direct convolutions.
        tiles_of_task: At most; with fewer, transforming the weights takes a larger share.
        weights_in_tiles: Time of transforming a panel of weights, in tiles that are multiplied by it.
        at_once: Products in the time of one of f32.
        channels_last: How many times as long it takes there as in blocks.
        in_groups: The same of groups.
    """

    tile: int
    dtype: str
    transformed_per_ns: float
    transformed_weights_per_ns: float
    tiles_of_task: int
    weights_in_tiles: int
    at_once: float
    channels_last: float = 1.0
    in_groups: float = 1.0

    @property
    def n_products(self) -> int:
        """Products of a tile, for each pair of channels."""
        return (self.tile + 2) ** 2


# Fitted to convolutions of five networks, on Zen 4.
_OF_FLOATS = Method(4, "f32", 4.2, 9.0, 56, 3, 1)
_OF_BF16 = Method(2, "bf16", 9.0, 10.0, 112, 11, 2)
_OF_MADE_BF16 = replace(_OF_BF16, transformed_weights_per_ns=inf, weights_in_tiles=0)
_OF_BYTES = Method(4, "s16", 15.0, 30.0, 56, 4, 2)

_OF_FLOATS_AVX2 = Method(4, "f32", 3.415, 7.317, 56, 3, 0.813, 1.073, 1.6)
"""As long as was measured over fourteen networks on Zen 3, 1.23 times that of the other; in groups, over two."""

_OF_BYTES_AVX2 = Method(4, "s16", 5.5, 15.0, 112, 4, 1.6)
"""On Zen 3: without VNNI it takes a second instruction to add products up."""

_ALGORITHMS = ("convolution_direct", "convolution_winograd", WINOGRAD_DOMAIN)
"""Those that a Spec may ask for; by all but the first, results are rounded more."""


def _method(spec: Spec) -> Method:
    has_avx2 = spec.impl.endswith(":avx2")
    if spec.has("weights") and spec.desc("weights").dtype == "s8":
        return _OF_BYTES_AVX2 if has_avx2 else _OF_BYTES
    if _has_transformed_weights(spec):
        return _OF_MADE_BF16
    if spec.algorithm == "convolution_winograd":
        return _OF_BF16
    return _OF_FLOATS_AVX2 if has_avx2 else _OF_FLOATS


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes convolutions of 3x3 windows, stride 1, without dilation, in f32, and in bf16 where the library does, from
    channels-last or blocks of a vector to either; at most an addend as large as the result and then a (leaky) ReLU,
    clip, Swish or HardSwish behind it, and a linear function last. Groups have to fill panels of two vectors, several
    in one or one in several.
    Results differ from those of other implementations by some 1e-6 to 1e-5 of the largest, before they are rounded.

    Bytes it takes channels-last, without groups or an addend; their sums are exact. With AMX direct convolutions of
    bf16 and of bytes are faster.

    By tiles of 2x2, whose products are of bf16, it takes those in bf16 that ask for Winograd's algorithm: the error of
    their results has twice to three times the norm of a direct convolution's. Their weights may be transformed, without
    groups.
    """
    if not _is_of_our_kind(spec):
        return None
    (src, weights, dst), lanes = (spec.desc(name) for name in ("src", "weights", "dst")), lanes_of(spec.impl)
    if not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc):
        return None
    is_known = is_channels_last if weights.dtype == "s8" else partial(_has_whole_vectors, lanes=lanes)
    if not is_known(src) or not is_known(dst):
        return None
    if not _fills_panels(weights.dims, 2 * lanes):
        return None
    is_grouped = _is_grouped(spec)
    if is_grouped and _method(spec).dtype == "bf16" and _panel_src(spec, lanes) % 2:
        return None  # sources are read by twos, the last with one of another group, which may be infinite
    has_pairs = weights.dtype == "s8" or _has_transformed_weights(spec)
    tag = "hwigo" if is_grouped else f"OhwI{2 * lanes}o2i" if has_pairs else f"Ohwi{2 * lanes}o"
    descs = convolution_descs(spec, src, MemoryDesc(weights.dims, weights.dtype, tag), dst)
    return None if descs is None else descs | dict(arguments.of_attributes(spec, descs))


def multiply_adds(spec: Spec) -> int:
    """Multiplications that it does, each with an addition, those by other groups' zeros among them.

    Transformations are not counted.
    """
    products_of_source = _method(spec).n_products * _n_tiles(spec) * spec.desc("dst").dims[1]
    return products_of_source * _panel_src(spec, lanes_of(spec.impl))


def _transformed(spec: Spec) -> tuple[int, int]:
    """Elements that its transformations write: of tiles of sources and results, and of weights."""
    method, n_src, n_dst = _method(spec), spec.desc("src").dims[1], spec.desc("dst").dims[1]
    tiles = _n_tiles(spec)
    n_weights = -(-tiles // method.tiles_of_task) * _panel_src(spec, lanes_of(spec.impl)) * n_dst
    return method.n_products * tiles * (n_src + n_dst), method.n_products * n_weights


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Products and transformations, one after the other."""
    method, (of_tiles, of_weights) = _method(spec), _transformed(spec)
    transforms_ns = of_tiles / method.transformed_per_ns + of_weights / method.transformed_weights_per_ns
    products_ns = 2 * multiply_adds(spec) / (_PEAK_SHARE * method.at_once * peak_flops)
    slower = 1.0 if spec.memory_desc("src").inner_blks else method.channels_last
    if _is_grouped(spec):
        slower *= method.in_groups
    return slower * (transforms_ns / n_threads + products_ns)


def _n_tiles(spec: Spec) -> int:
    n_images, _, height, width = spec.desc("dst").dims
    tile = _method(spec).tile
    return n_images * -(-height // tile) * -(-width // tile)


def _is_of_our_kind(spec: Spec) -> bool:
    if not is_open_to_recipes(spec, _ALGORITHMS):
        return False
    dtypes = {spec.desc(name).dtype for name in ("src", "weights", "dst")}
    if dtypes != {"f32"} and library.has_isa("avx512_core_amx"):
        return False  # it adds 8 times as many products of bf16 at once, and 16 times as many of bytes
    side = _WINDOW + _has_transformed_weights(spec)
    is_square = len(spec.desc("src").dims) == _NDIMS and spec.desc("weights").dims[-2:] == (side, side)
    if not is_square or set(spec.param("strides")) != {1} or set(spec.param("dilations")) != {0}:
        return False
    if "s8" in dtypes:
        return not _is_grouped(spec) and spec.algorithm == "convolution_direct" and are_known_bytes(spec)
    if _is_grouped(spec) and _has_transformed_weights(spec):
        return False
    is_known = dtypes == {_method(spec).dtype} or (dtypes == {"bf16"} and library.has_bf16())
    return is_known and not spec.attr.scales and not spec.attr.zero_points


def _has_transformed_weights(spec: Spec) -> bool:
    return spec.algorithm == WINOGRAD_DOMAIN


def _is_grouped(spec: Spec) -> bool:
    return len(spec.desc("weights").dims) > _NDIMS


def _fills_panels(weights: tuple[int, ...], panel: int) -> bool:
    if len(weights) == _NDIMS:
        return True
    n_groups, group_dst, *_ = weights
    several_in_one = group_dst >= _LEAST_OF_GROUP and panel % group_dst == 0 == n_groups * group_dst % panel
    return several_in_one or group_dst % panel == 0


def _panel_src(spec: Spec, lanes: int) -> int:
    """Sources that a panel of results depends on."""
    *_, group_dst, group_src, _, _ = spec.desc("weights").dims
    return group_src * max(1, 2 * lanes // group_dst) if _is_grouped(spec) else group_src


def _has_whole_vectors(desc: MemoryDesc, lanes: int) -> bool:
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
    of_thread = _even_part(-(-n_tiles // spec.n_threads), _method(spec).tiles_of_task)
    n_at_once = of_thread if is_apart else _tiles_at_once(spec, lanes)
    return {
        **image_fields(spec),
        **fields_of_bytes(spec),
        "tile": _method(spec).tile,
        "is_bf16": src.dtype == "bf16",
        "n_src": src.dims[1],
        "n_dst": dst.dims[1],
        "group_src": group_src,
        "group_dst": group_dst,
        "panel_src": _panel_src(spec, lanes),
        "are_transformed": _has_transformed_weights(spec),
        "weights_tap": tap,
        "weights_src": weights_src,
        "weights_panel": panel if weights.inner_blks else 2 * lanes,
        "is_apart": is_apart,
        "tiles_at_once": n_at_once,
        "tiles_of_task": n_at_once if is_apart else _tiles_of_task(spec, n_at_once, n_panels),
    }


def _tiles_at_once(spec: Spec, lanes: int) -> int:
    """As many tiles as have their transformed sources in near caches, if that is enough for a task, in even parts."""
    method, n_channels = _method(spec), -(-spec.desc("src").dims[1] // lanes) * lanes
    tile_nbytes = method.n_products * n_channels * itemsize(method.dtype)
    most = max(method.tiles_of_task, spec.n_threads * _NEAR_NBYTES // tile_nbytes)
    return _even_part(_n_tiles(spec), most)


def _even_part(total: int, most: int) -> int:
    """The size of parts that are as even as can be, and none larger than ``most``."""
    return -(-total // -(-total // most))


def _tiles_of_task(spec: Spec, n_at_once: int, n_panels: int) -> int:
    """The parts in which all threads are done soonest: each has a panel of weights to transform first."""
    method, n_threads = _method(spec), spec.n_threads

    def work(n_parts: int) -> int:
        return -(-n_panels * n_parts // n_threads) * (-(-n_at_once // n_parts) + method.weights_in_tiles)

    least = -(-n_at_once // method.tiles_of_task)
    n_parts = min(range(least, min(least + 2 * n_threads, n_at_once) + 1), key=work)
    return -(-n_at_once // n_parts)


def _isas(spec: Spec) -> tuple[str, ...]:
    of_dtype = {"s16": ("avx512_core_vnni", "avx2"), "bf16": ("avx512_core_bf16",), "f32": ("avx512_core", "avx2")}
    return of_dtype[_method(spec).dtype]


OURS = Implementation(
    kinds=("convolution",),
    isas=_isas,
    offer=_offer,
    fields=_fields,
    arguments=lambda spec: ("src", "weights", "bias", addend_name(spec.attr), "dst", "scratchpad", *NUMBERS),
    compute_ns=_compute_ns,
    multiply_adds=multiply_adds,
)
