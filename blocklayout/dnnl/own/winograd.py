"""Convolutions by Winograd's method, in C of our own beside the executor."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from blocklayout.dnnl import library
from blocklayout.dnnl.native import native
from blocklayout.dnnl.own import (
    Implementation,
    OwnPrimitive,
    Tail,
    addend_name,
    addend_of,
    lanes_of,
    place,
    problem,
    tail_of,
)
from blocklayout.dnnl.primitive_desc import Resolved
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
    """What depends on a tile's extents and on the type of its products.

    Attributes:
        tile: Results of a tile along each side.
        dtype: Of transformed sources and weights.
        transformed_per_ns: Elements of sources and results that a thread transforms in a nanosecond.
        transformed_weights_per_ns: The same of weights. These and the share of the peak matter by comparison with the
            library's direct convolutions.
        tiles_of_task: At most; with fewer, transforming the weights takes a larger share.
        weights_in_tiles: Time of transforming a panel of weights, in tiles that are multiplied by it.
    """

    tile: int
    dtype: str
    transformed_per_ns: float
    transformed_weights_per_ns: float
    tiles_of_task: int
    weights_in_tiles: int

    @property
    def n_products(self) -> int:
        """Products of a tile, for each pair of channels."""
        return (self.tile + 2) ** 2


METHODS = {
    # Fitted to 88 convolutions of five networks, on Zen 4, Zen 5 and a Xeon with AMX, by AVX2 and AVX-512.
    "convolution_direct": Method(4, "f32", 3.0, 7.0, 56, 3),
    # Fitted to six convolutions, on Zen 4.
    "convolution_winograd": Method(2, "bf16", 9.0, 10.0, 112, 11),
}
"""By what a Spec asks for: it names the algorithm where that rounds more than a direct convolution does."""


def offer(spec: Spec, impl: str) -> Resolved | None:
    """Takes convolutions of 3x3 windows, stride 1, without dilation, in f32, and in bf16 where the library does, from
    channels-last or blocks of a vector to either; at most an addend as large as the result and then a (leaky) ReLU,
    clip, Swish or HardSwish behind it. Groups have to fill panels of two vectors, several in one or one in several.
    Results differ from those of other implementations by some 1e-6 to 1e-5 of the largest, before they are rounded.

    By tiles of 2x2, whose products are of bf16, it takes those in bf16 that ask for Winograd's algorithm: the error of
    their results has twice to three times the norm of a direct convolution's.
    """
    if not _is_of_our_kind(spec) or tail_of(spec.attr) is None or library.is_sequential():
        return None
    descs = _settled_descs(spec, lanes_of(impl))
    addend = addend_of(spec.attr)
    if not descs or (addend is not None and addend.src1 != descs["dst"]):
        return None
    resolved = spec.settled(descs=tuple(descs.items()), impl=impl)
    code: Any = native()
    return Resolved(resolved, int(code.bl_winograd_scratchpad(_problem(resolved))))


def multiply_adds(spec: Spec) -> int:
    """Multiplications that it does, each with an addition, those by other groups' zeros among them.

    Transformations are not counted.
    """
    products_of_source = METHODS[spec.algorithm].n_products * _n_tiles(spec) * spec.desc("dst").dims[1]
    return products_of_source * _panel_src(spec, lanes_of(spec.impl))


def _transformed(spec: Spec) -> tuple[int, int]:
    """Elements that its transformations write: of tiles of sources and results, and of weights."""
    method, n_src, n_dst = METHODS[spec.algorithm], spec.desc("src").dims[1], spec.desc("dst").dims[1]
    tiles = _n_tiles(spec)
    n_weights = -(-tiles // method.tiles_of_task) * _panel_src(spec, lanes_of(spec.impl)) * n_dst
    return method.n_products * tiles * (n_src + n_dst), method.n_products * n_weights


def compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Products and transformations, one after the other."""
    method, (of_tiles, of_weights) = METHODS[spec.algorithm], _transformed(spec)
    transforms_ns = of_tiles / method.transformed_per_ns + of_weights / method.transformed_weights_per_ns
    n_at_once = 2 if method.dtype == "bf16" else 1
    products_ns = 2 * multiply_adds(spec) / (_PEAK_SHARE * n_at_once * peak_flops)
    return transforms_ns / n_threads + products_ns


def _n_tiles(spec: Spec) -> int:
    n_images, _, height, width = spec.desc("dst").dims
    tile = METHODS[spec.algorithm].tile
    return n_images * -(-height // tile) * -(-width // tile)


def _create(spec: Spec) -> OwnPrimitive:
    arguments = "src", "weights", "bias", addend_name(spec.attr), "dst", "scratchpad"
    return OwnPrimitive("bl_winograd", _problem(spec), arguments)


def _is_of_our_kind(spec: Spec) -> bool:
    method = METHODS.get(spec.algorithm)
    if method is None or spec.prop_kind != "forward_inference":
        return False
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    is_square = len(src.dims) == _NDIMS and weights.dims[-2:] == (_WINDOW, _WINDOW)
    is_dense = is_square and set(spec.param("strides")) == {1} and set(spec.param("dilations")) == {0}
    dtypes = {src.dtype, weights.dtype, dst.dtype}
    is_known = dtypes == {method.dtype} or (dtypes == {"bf16"} and library.has_bf16())
    has_bias_in_f32 = not spec.has("bias") or spec.desc("bias").dtype == "f32"
    has_elements = 0 not in (*src.dims, *dst.dims)
    is_exact = not spec.attr.scales and not spec.attr.zero_points
    return is_dense and is_known and has_bias_in_f32 and has_elements and is_exact


def _settled_descs(spec: Spec, lanes: int) -> dict[str, MemoryDesc]:
    """Of every argument; none where one lies as the code cannot read or write it."""
    descs = {name: spec.desc(name) for name in ("src", "weights", "bias", "dst") if spec.has(name)}
    if "bias" in descs:
        descs["bias"] = MemoryDesc(descs["bias"].dims, "f32")
    if not _fills_panels(descs["weights"].dims, 2 * lanes):
        return {}
    is_grouped = len(descs["weights"].dims) > _NDIMS
    if is_grouped and METHODS[spec.algorithm].dtype == "bf16" and _panel_src(spec, lanes) % 2:
        return {}  # sources are read by twos, the last with one of another group, which may be infinite
    packed = MemoryDesc(descs["weights"].dims, descs["weights"].dtype, "hwigo" if is_grouped else f"Ohwi{2 * lanes}o")
    if not isinstance(descs["weights"], MemoryDesc):
        descs["weights"] = packed
    found = {name: desc for name, desc in descs.items() if isinstance(desc, MemoryDesc) and desc.offset0 == 0}
    if len(found) < len(descs) or found["weights"] != packed:
        return {}
    if not all(_has_whole_vectors(found[name], lanes) for name in ("src", "dst")):
        return {}
    return found | ({"post_op_0_src_1": found["dst"]} if addend_of(spec.attr) else {})


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


def _has_whole_vectors(desc: MemoryDesc, lanes: int) -> bool:
    if desc.inner_blks:
        return desc.inner_blks == (lanes,) and desc.inner_idxs == (1,)
    return desc.strides[1] == 1 and desc.dims[1] % lanes == 0


def _problem(spec: Spec) -> Any:
    src, weights, dst = (spec.memory_desc(name) for name in ("src", "weights", "dst"))
    *_, group_dst, group_src, _, _ = weights.dims
    *_, panel, weights_src, _, tap = weights.strides
    lanes = lanes_of(spec.impl)
    tail = tail_of(spec.attr) or Tail()
    n_panels = -(-dst.dims[1] // (2 * lanes))
    n_tiles = _n_tiles(spec)
    is_apart = n_tiles >= _LEAST_OF_THREAD * spec.n_threads
    of_thread = _even_part(-(-n_tiles // spec.n_threads), METHODS[spec.algorithm].tiles_of_task)
    n_at_once = of_thread if is_apart else _tiles_at_once(spec, lanes)
    return problem(
        "bl_winograd_t",
        {
            "lanes": lanes,
            "tile": METHODS[spec.algorithm].tile,
            "is_bf16": src.dtype == "bf16",
            "n_threads": spec.n_threads,
            "n_images": src.dims[0],
            "n_src": src.dims[1],
            "n_dst": dst.dims[1],
            "group_src": group_src,
            "group_dst": group_dst,
            "panel_src": _panel_src(spec, lanes),
            "height": src.dims[2],
            "width": src.dims[3],
            "dst_height": dst.dims[2],
            "dst_width": dst.dims[3],
            "pad_top": spec.param("pads")[0],
            "pad_left": spec.param("pads")[1],
            "src": place(src),
            "dst": place(dst),
            "weights_tap": tap,
            "weights_src": weights_src,
            "weights_panel": panel if weights.inner_blks else 2 * lanes,
            "is_apart": is_apart,
            "tiles_at_once": n_at_once,
            "tiles_of_task": n_at_once if is_apart else _tiles_of_task(spec, n_at_once, n_panels),
            **asdict(tail),
        },
    )


def _tiles_at_once(spec: Spec, lanes: int) -> int:
    """As many tiles as have their transformed sources in near caches, if that is enough for a task, in even parts."""
    method, n_channels = METHODS[spec.algorithm], -(-spec.desc("src").dims[1] // lanes) * lanes
    tile_nbytes = method.n_products * n_channels * itemsize(method.dtype)
    most = max(method.tiles_of_task, spec.n_threads * _NEAR_NBYTES // tile_nbytes)
    return _even_part(_n_tiles(spec), most)


def _even_part(total: int, most: int) -> int:
    """The size of parts that are as even as can be, and none larger than ``most``."""
    return -(-total // -(-total // most))


def _tiles_of_task(spec: Spec, n_at_once: int, n_panels: int) -> int:
    """The parts in which all threads are done soonest: each has a panel of weights to transform first."""
    method, n_threads = METHODS[spec.algorithm], spec.n_threads

    def work(n_parts: int) -> int:
        return -(-n_panels * n_parts // n_threads) * (-(-n_at_once // n_parts) + method.weights_in_tiles)

    least = -(-n_at_once // method.tiles_of_task)
    n_parts = min(range(least, min(least + 2 * n_threads, n_at_once) + 1), key=work)
    return -(-n_at_once // n_parts)


OURS = Implementation(
    kinds=("convolution",),
    isas=("avx512_core", "avx2"),
    isas_for={"convolution_winograd": ("avx512_core_bf16",)},
    offer=offer,
    create=_create,
    compute_ns=compute_ns,
    multiply_adds=multiply_adds,
)
