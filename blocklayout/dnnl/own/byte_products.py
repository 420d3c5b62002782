"""Products of bytes, exact on CPUs without VNNI, in C of our own beside the executor: the library's saturate there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from msgspec.structs import replace

from blocklayout.dnnl import arguments, library
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary
from blocklayout.dnnl.own import (
    NUMBERS,
    Implementation,
    LongTail,
    addend_name,
    convolution_descs,
    has_known_numbers,
    is_channels_last,
    tail_of,
)
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES, itemsize
from blocklayout.layout import MemoryDesc

_PANEL, _STRIP, _QUAD = 16, 6, 4
"""Channels and results of a row that are computed together, and channels of the source: ``BL_PANEL`` and so on in C."""

_NEAR_NBYTES = 160 << 10
"""Of the source and the results of a task, which a core's own cache holds for one panel after the other."""

_LEAST_OF_TASK = 8 * _STRIP
"""Results of a task for which it is worth looking through the weights."""

_MOST = 1 << 31
"""Neither a sum of products nor a distance in bytes may reach it, which are integers of 32 bits."""

_TAGS = {3: "OwI16o4i", 4: "OhwI16o4i"}
"""Of a convolution's weights, by its dimensions."""

_ARGUMENTS = ("src", "weights", "bias", "dst", "scratchpad", *NUMBERS, "zero_point_weights")

_ZERO_OF_WEIGHTS = ("weights", 0)
"""Of attributes: one zero point of all weights."""

_CHANNELS = {"convolution": 0, "inner_product": 0, "matmul": 1}
"""The dimension of weights that results are counted along."""

_PEAK_SHARE = 1.9
"""Of a machine's peak in f32; twice as many products of bytes are possible. On Zen 3, as are the next two."""

_SORTED_IN_STRIPS = 0.4
"""Time of looking through the weights of a panel, in strips of results."""

_COPIED_PER_NS, _WRITTEN_PER_NS = 12.0, 7.0
"""Bytes of a source that a thread copies, and results that it writes, in a nanosecond."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes products of u8 or s8 by s8 where the CPU has no exact ones: convolutions of one group along one or two
    dimensions, channels last, and products of a matrix of rows by known weights.

    Results are bytes, floats or, with nothing behind them, the sums in 32 bits. Each tensor has one scale and zero
    point at most, weights a scale for each channel or one for all. Behind the sum may come a (leaky) ReLU,
    clip, Swish, GELU or HardSwish, then a linear function, then a factor for each channel.
    """
    if not _is_of_our_kind(spec):
        return None
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    if spec.kind == "convolution":
        tag = "nwc" if len(src.dims) == 3 else "nhwc"
        packed = _TAGS[len(src.dims)]
    else:
        tag, packed = "ab", "AB16a4b" if spec.kind == "inner_product" else "BA16b4a"
    src, dst = (desc if isinstance(desc, MemoryDesc) else MemoryDesc(desc.dims, desc.dtype, tag) for desc in (src, dst))
    if not all(is_channels_last(desc) and not desc.offset0 for desc in (src, dst)):
        return None
    descs = convolution_descs(spec, src, MemoryDesc(weights.dims, weights.dtype, packed), dst)
    if descs is None:
        return None
    return descs | _factors(spec) | dict(arguments.of_attributes(spec, descs))


def _factors(spec: Spec) -> dict[str, Desc]:
    """The argument with a number for each channel that results are multiplied by in the end; none if there is none."""
    *before, last = spec.attr.post_ops or (None,)
    if not isinstance(last, Binary) or last.algorithm != "binary_mul":
        return {}
    _, n_channels, *spatial = spec.desc("dst").dims
    wanted = MemoryDesc((1, n_channels, *(1,) * len(spatial)), "f32")
    return {f"post_op_{len(before)}_src_1": wanted} if last.src1 == wanted else {}


def _tail(spec: Spec) -> LongTail | None:
    """Functions behind the sum; ``None`` where there is no code for them."""
    post_ops = spec.attr.post_ops[:-1] if _factors(spec) else spec.attr.post_ops
    return tail_of(Attr(post_ops))


def _is_of_our_kind(spec: Spec) -> bool:
    if not (spec.has("src") and spec.has("weights") and spec.has("dst")):
        return False
    src, weights, dst = (spec.desc(name) for name in ("src", "weights", "dst"))
    if src.dtype not in BYTE_DTYPES or weights.dtype != "s8" or dst.dtype not in (*BYTE_DTYPES, "f32", "s32"):
        return False
    zeros = {*spec.attr.zero_points}
    are_sums = not spec.has("bias") and ("dst", 0) not in zeros and replace(spec.attr, zero_points=()) == NO_ATTR
    if dst.dtype == "s32" and not are_sums:
        return False
    if library.sums_bytes_exactly() or library.is_sequential() or 0 in (*src.dims, *dst.dims):
        return False
    if spec.kind == "convolution":
        is_known = len(src.dims) in _TAGS and len(weights.dims) == len(src.dims)
        is_known = is_known and spec.algorithm == "convolution_direct"
    else:
        is_known = len(src.dims) == len(weights.dims) == 2
    if not is_known or spec.prop_kind not in ("", "forward_inference"):
        return False
    if (
        _tail(spec) is None
        or addend_name(spec.attr)
        or (spec.has("bias") and not _is_of_channels(spec.desc("bias"), dst))
    ):
        return False
    largest = 255 * (255 if _ZERO_OF_WEIGHTS in zeros else 128) * multiply_adds(spec) // prod(dst.dims)
    return has_known_numbers(spec, _ZERO_OF_WEIGHTS) and largest < _MOST > max(prod(src.dims), prod(weights.dims))


def _is_of_channels(bias: Desc, dst: Desc) -> bool:
    return bias.dtype == "f32" and bias.dims[-1] == prod(bias.dims) == dst.dims[1]


def multiply_adds(spec: Spec) -> int:
    """One for each tap of each result in each channel of the source."""
    weights = spec.desc("weights").dims
    return prod(spec.desc("dst").dims) * prod(weights) // weights[_CHANNELS[spec.kind]]


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Products, those by what fills the last quad and the last panel among them, and what is copied and written."""
    n_src, n_dst = (spec.desc(name).dims[1] for name in ("src", "dst"))
    src, dst = prod(spec.desc("src").dims), prod(spec.desc("dst").dims)
    products = multiply_adds(spec) * -(-n_src // _QUAD) * _QUAD / n_src * -(-n_dst // _PANEL) * _PANEL / n_dst
    moved_ns = src / _COPIED_PER_NS + dst / _WRITTEN_PER_NS
    return 2 * products / (_PEAK_SHARE * peak_flops) + moved_ns / n_threads


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    window: Mapping[str, tuple[int, ...]] = dict.fromkeys(("kernel", "strides", "dilations"), (1, 1)) | {"pads": (0, 0)}
    if spec.kind == "convolution":
        n_dims = len(src.dims) - 2
        window = {
            "kernel": _two(spec.desc("weights").dims[2:]),
            "strides": _two(spec.param("strides")),
            "dilations": _two([each + 1 for each in spec.param("dilations")]),
            "pads": _two(spec.param("pads")[:n_dims], 0),
        }
    images = [_image(desc) for desc in (src, dst)]
    is_pointwise = window == {"kernel": (1, 1), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0)}
    if is_pointwise and images[0][:3] == images[1][:3] and all(map(_is_dense, images)):
        images = [_as_one_row(image) for image in images]
    n_images, *extents = images[0][:3]
    results = images[1][1:3]
    is_padded = any(window["pads"]) or any(
        (n - 1) * stride + (kernel - 1) * dilation >= extent
        for n, extent, kernel, stride, dilation in zip(
            results, extents, window["kernel"], window["strides"], window["dilations"], strict=True
        )
    )
    is_dense = window["kernel"][1] == 1 or images[0][-1] == src.dims[1]
    is_read_in_place = is_dense and not is_padded and src.dtype == "u8" and src.dims[1] % _QUAD == 0
    of_task, panels = _task(spec, n_images, results)
    return {
        **window,
        "n_threads": spec.n_threads,
        "src_is_signed": src.dtype == "s8",
        "dst_is_signed": dst.dtype == "s8",
        "dst_is_f32": dst.dtype == "f32",
        "dst_is_s32": dst.dtype == "s32",
        "has_weights_zero": _ZERO_OF_WEIGHTS in spec.attr.zero_points,
        "has_scales": dict(spec.attr.scales).get("weights", 0) != 0,
        "n_images": n_images,
        "n_src": src.dims[1],
        "n_dst": dst.dims[1],
        "extents": extents,
        "results": results,
        **{f"src_{at}": step for at, step in zip(("image", "row", "pixel"), images[0][3:], strict=True)},
        **{f"dst_{at}": step for at, step in zip(("image", "row", "pixel"), images[1][3:], strict=True)},
        "is_read_in_place": is_read_in_place,
        "results_of_task": of_task,
        "panels_of_task": panels,
        "tail": (_tail(spec) or LongTail()).in_c,
    }


def _two(of_each: Sequence[int], other: int = 1) -> tuple[int, ...]:
    """Of height and width, where a line is an image one pixel high."""
    return (*(other,) * (2 - len(of_each)), *of_each)


def _image(desc: MemoryDesc) -> tuple[int, ...]:
    """Images, height and width, and the distances of images, rows and pixels; of a matrix, each row is an image."""
    (n_images, _, *extents), (image, _, *steps) = desc.dims, desc.strides
    *_, height, width = (1, 1, *extents)
    pixel = steps[-1] if steps else desc.dims[1]
    return n_images, height, width, image, steps[0] if len(steps) > 1 else width * pixel, pixel


def _is_dense(image: Sequence[int]) -> bool:
    n_images, height, width, of_image, of_row, of_pixel = image
    return (height == 1 or of_row == width * of_pixel) and (n_images == 1 or of_image == height * width * of_pixel)


def _as_one_row(image: Sequence[int]) -> tuple[int, ...]:
    n_images, height, width, _, _, of_pixel = image
    n_pixels = n_images * height * width
    return 1, 1, n_pixels, n_pixels * of_pixel, n_pixels * of_pixel, of_pixel


def _task(spec: Spec, n_images: int, results: Sequence[int]) -> tuple[tuple[int, int], int]:
    """Rows and columns of results, and panels, of a task at most: with these all threads are done soonest.

    Images are cut by rows, those of one row by columns. Where these are few, threads share out panels.
    """
    rows, columns = results
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    n, n_panels = (columns if rows == 1 else rows), -(-dst.dims[1] // _PANEL)
    nbytes = (prod(src.dims) + prod(dst.dims) * itemsize(dst.dtype)) // n_images
    least = max(1, min(n, -(-nbytes // _NEAR_NBYTES), rows * columns // _LEAST_OF_TASK))

    def work(parts: tuple[int, int]) -> float:
        of_task = -(-n // parts[0])
        strips = of_task / _STRIP if rows == 1 else of_task * columns / _STRIP
        return (
            -(-n_images * parts[0] * parts[1] // spec.n_threads)
            * -(-n_panels // parts[1])
            * (strips + _SORTED_IN_STRIPS)
        )

    ways = [(cuts, 1) for cuts in range(least, min(n, least + 2 * spec.n_threads) + 1)]
    ways += [(least, min(spec.n_threads, n_panels))]
    cuts, shares = min(ways, key=work)
    of_task = -(-n // cuts)
    return (1, of_task) if rows == 1 else (of_task, columns), -(-n_panels // shares)


OURS = Implementation(
    kinds=("convolution", "inner_product", "matmul"),
    isas=lambda _: ("avx2",),
    offer=_offer,
    fields=_fields,
    arguments=lambda spec: (*_ARGUMENTS, *_factors(spec)),
    compute_ns=_compute_ns,
    multiply_adds=multiply_adds,
    is_favourite=lambda _: True,
    rule="the zero point of the source or the weights is none of their bytes",
)
