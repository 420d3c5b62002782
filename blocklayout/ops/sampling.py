"""Images read between their pixels, at the points of a grid and in regions of interest, or made of windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.ops.resize import Neighbours
from blocklayout.resource_limits import check_affordable

Tap = tuple[np.ndarray, np.ndarray]
"""Indices along one dimension, and the weights of the elements there."""
Points = tuple[np.ndarray, np.ndarray]
"""Of each region, (regions, bins, points): coordinates along one dimension, and whether they count."""
_CUBIC = Neighbours(is_cubic=True)


class GridSample(ir.Facts, frozen=True):
    """Elements at points that a grid has for each of the result, in coordinates from -1 to 1."""

    op_types = ("GridSample",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        mode = node.string_attr("mode", ("linear", "bilinear", "nearest", "cubic", "bicubic")).removeprefix("bi")
        padding = node.string_attr("padding_mode", ("zeros", "border", "reflection"))
        return partial(sample, mode=mode, padding=padding, is_aligned=node.flag_attr("align_corners"))


def sample(x: np.ndarray, grid: np.ndarray, out: np.ndarray, mode: str, padding: str, *, is_aligned: bool) -> None:
    """Elements of ``x`` at the points of ``grid``, as the operator's attributes say."""
    n_images, n_channels, *dims = x.shape
    taps = [
        _taps(grid[..., -1 - dim].reshape(n_images, -1), extent, mode, padding, is_aligned=is_aligned)
        for dim, extent in enumerate(dims)
    ]
    pixels = x.reshape(n_images, n_channels, -1)
    total = np.zeros((n_images, n_channels, prod(out.shape[2:])), np.result_type(x.dtype, np.float32))
    for chosen in product(*taps):
        places = np.ravel_multi_index([index for index, _ in chosen], dims)
        weights: Any = prod(weight for _, weight in chosen)
        for result, source, index, weight in zip(total, pixels, places, weights, strict=True):
            np.add(result, np.take(source, index, axis=1) * weight, out=result)
    np.copyto(out, total.reshape(out.shape), casting="same_kind")


def _taps(points: np.ndarray, extent: int, mode: str, padding: str, *, is_aligned: bool) -> list[Tap]:
    """The elements along one dimension that make up one at each of the points, of -1 to 1."""
    low, high = (0.0, extent - 1.0) if is_aligned else (-0.5, extent - 0.5)
    at = (points + 1) / 2 * (extent - 1) if is_aligned else ((points + 1) * extent - 1) / 2
    if mode == "nearest":
        at = np.rint(at)
    if padding == "border":
        at = np.where((at < low) | (at > high), np.clip(at, 0, extent - 1), at)
    elif padding == "reflection":
        at = _reflected(at, low, high)
    first = np.floor(at)
    t = at - first
    if mode == "cubic":
        weights = [_CUBIC.weights(distance) for distance in (t + 1, t, 1 - t, 2 - t)]
    else:
        weights = [1 - t, t] if mode == "linear" else [np.ones_like(t)]
    begin = first.astype(np.int64) - (mode == "cubic")
    return [_tap(begin + step, weight, extent, padding, (low, high)) for step, weight in enumerate(weights)]


def _tap(index: np.ndarray, weight: np.ndarray, extent: int, padding: str, bounds: tuple[float, float]) -> Tap:
    if padding == "zeros":
        weight = weight * ((index >= 0) & (index < extent))
    elif padding == "reflection":
        index = _reflected(index, *bounds).astype(np.int64)
    return np.clip(index, 0, extent - 1), weight


def _reflected(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Coordinates mirrored at both ends, as often as they need."""
    span = high - low
    if not span:
        return np.full_like(x, low)
    beyond = np.where(x < low, low - x, np.maximum(x - high, 0))
    times = np.floor(beyond / span)
    rest = beyond - times * span
    is_from_low = (x < low) == (times % 2 == 0)
    return np.where((x < low) | (x > high), np.where(is_from_low, low + rest, high - rest), x)


class AffineGrid(ir.Facts, frozen=True):
    """The grid that an affine map of the image's coordinates makes, for GridSample."""

    op_types = ("AffineGrid",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        is_aligned = node.flag_attr("align_corners")

        def draw(theta: np.ndarray, size: np.ndarray, out: np.ndarray) -> None:
            del size  # is the result's extents
            dims = out.shape[1:-1]
            ends = [1.0 if is_aligned else 1 - 1 / extent for extent in dims]
            axes = [np.linspace(-end, end, extent) for end, extent in zip(ends, dims, strict=True)]
            points = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(dims)], -1).reshape(-1, len(dims) + 1)
            out[...] = (points @ theta.swapaxes(1, 2)).reshape(out.shape)

        return draw


class RoiAlign(ir.Facts, frozen=True):
    """The mean or the largest of points read in each of the bins of each region."""

    op_types = ("RoiAlign",)
    channels_last = (0,)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        modes = ("half_pixel", "output_half_pixel") if node.opset >= 16 else ("output_half_pixel",)
        return partial(
            _align,
            is_mean=node.string_attr("mode", ("avg", "max")) == "avg",
            n_points=node.int_attr("sampling_ratio", 0),
            scale=node.float_attr("spatial_scale", 1.0),
            is_half=node.string_attr("coordinate_transformation_mode", modes) == "half_pixel",
        )


def _align(
    x: np.ndarray,
    regions: np.ndarray,
    images: np.ndarray,
    out: np.ndarray,
    n_points: int,
    scale: float,
    *,
    is_mean: bool,
    is_half: bool,
) -> None:
    corners = (regions * regions.dtype.type(scale) - regions.dtype.type(0.5 if is_half else 0)).astype(float)
    begins, spans = corners[:, 1::-1], corners[:, 3:1:-1] - corners[:, 1::-1]  # rows, columns
    spans = spans if is_half else np.maximum(spans, 1)
    sizes = spans / out.shape[2:]
    counts = np.full(spans.shape, n_points) if n_points else np.ceil(sizes).astype(np.int64)
    read = _means if is_mean else _maxima
    for count in np.unique(counts, axis=0):
        [chosen] = np.nonzero((counts == count).all(1))
        if count.min() < 1:
            out[chosen] = 0
            continue
        lines = zip(begins[chosen].T, sizes[chosen].T, out.shape[2:], count, x.shape[2:], strict=True)
        points = [_points(*line) for line in lines]
        results = np.empty((len(chosen), *out.shape[1:]), out.dtype)
        read(x.transpose(0, 2, 3, 1), images[chosen], points, results)
        out[chosen] = results


def _points(begin: np.ndarray, size: np.ndarray, n_bins: int, count: int, extent: int) -> Points:
    """Of each region, where the points of each bin lie along one dimension, and whether they count: not far outside."""
    steps = np.arange(n_bins)[:, None] + (np.arange(count) + 0.5) / count
    at = begin[:, None, None] + size[:, None, None] * steps
    return np.clip(at, 0, extent - 1), (at >= -1) & (at <= extent)


def _means(pixels: np.ndarray, images: np.ndarray, points: Sequence[Points], results: np.ndarray) -> None:
    """Weighted sums of the rows and of the columns that each region's points lie between."""
    (top, rows), (left, columns) = (_means_of(*each) for each in points)
    if dnnl.write_region_means(pixels, images, (top, left), (rows, columns), results):
        return
    n_columns, n_channels = pixels.shape[2:]
    lines = pixels.reshape(*pixels.shape[:2], -1)
    for index, (image, first, begin) in enumerate(zip(images.tolist(), top.tolist(), left.tolist(), strict=True)):
        end = min(begin + columns.shape[2], n_columns)
        window = lines[image, first : first + rows.shape[2], begin * n_channels : end * n_channels]
        across = rows[index, :, : len(window)] @ window
        bins = columns[index, :, : end - begin] @ across.reshape(len(across), -1, n_channels)
        results[index] = bins.transpose(2, 0, 1)


def _means_of(at: np.ndarray, is_near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each region the first element that is read, and the matrix (bins, elements) that makes means of them."""
    first = np.floor(at.min((1, 2))).astype(np.int64)
    n = int(np.ceil(at.max((1, 2)) - first).max()) + 1
    apart = np.abs(at[..., None] - first[:, None, None, None] - np.arange(n))
    weights = np.maximum(1 - apart, 0) * is_near[..., None]
    return first, weights.mean(2).astype(np.float32)


def _maxima(pixels: np.ndarray, images: np.ndarray, points: Sequence[Points], results: np.ndarray) -> None:
    """The largest of the products that each point is the sum of: four elements, times their weights."""
    lines = zip(points, pixels.shape[1:3], strict=True)
    (rows, of_rows), (columns, of_columns) = (_taps_of(*each, extent) for each, extent in lines)
    for index, image in enumerate(images.tolist()):
        read = pixels[image][rows[index].ravel()[:, None], columns[index].ravel()]
        read = read * of_rows[index].reshape(-1, 1, 1) * of_columns[index].reshape(1, -1, 1)
        n_rows, n_columns = rows.shape[1], columns.shape[1]
        bins = read.reshape(n_rows, -1, n_columns, columns[index].size // n_columns, read.shape[-1])
        results[index] = bins.max((1, 3)).transpose(2, 0, 1)


def _taps_of(at: np.ndarray, is_near: np.ndarray, extent: int) -> Tap:
    """The two elements beside each point, (regions, bins, points, 2), and their weights."""
    low = np.floor(at).astype(np.int64)
    t = at - low
    index = np.stack([low, np.minimum(low + 1, extent - 1)], -1)
    return index, (np.stack([1 - t, t], -1) * is_near[..., None]).astype(np.float32)


class Col2Im(ir.Facts, frozen=True):
    """Each column is a window; where windows overlap, their elements are added."""

    op_types = ("Col2Im",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        n = len(node.result.shape) - 2
        strides, dilations = (node.ints_attr(name, n, 1, at_least=1) for name in ("strides", "dilations"))
        pads = node.ints_attr("pads", 2 * n, 0, at_least=0)
        padded = [extent + pads[i] + pads[i + n] for i, extent in enumerate(node.result.shape[2:])]

        def add(columns: np.ndarray, extents: np.ndarray, block: np.ndarray, out: np.ndarray) -> None:
            del extents  # are the result's
            kernel = block.tolist()
            counts = [(padded[i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(n)]
            windows = columns.reshape(*out.shape[:2], *kernel, *counts)
            shape = (*out.shape[:2], *padded)
            check_affordable(shape, out.itemsize, f"node {node.name!r}: its image with pads")
            image = np.zeros(shape, out.dtype)
            for place in product(*map(range, kernel)):
                window: Any = (slice(None), slice(None), *place)
                begins = [at * dilation for at, dilation in zip(place, dilations, strict=True)]
                lines = zip(begins, strides, counts, strict=True)
                index: Any = (slice(begin, begin + step * count, step) for begin, step, count in lines)
                image[(..., *index)] += windows[window]
            inside: Any = (slice(pads[i], pads[i] + extent) for i, extent in enumerate(out.shape[2:]))
            out[...] = image[(..., *inside)]

        return add
