"""Images read between their pixels: at the points of a grid, and in regions of interest."""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from blocklayout.ir import Facts, NodeInfo, NumpyFunction

Tap = tuple[np.ndarray, np.ndarray]
"""Indices along one dimension, and what is multiplied with the elements there."""
_CUBIC = -0.75


class GridSample(Facts, frozen=True):
    """Elements at points that a grid has for each of the result, in coordinates from -1 to 1."""

    op_types = ("GridSample",)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
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
    weights = {"nearest": _nearest, "linear": _linear, "cubic": _cubic}[mode](t)
    begin = first.astype(np.int64) - (mode == "cubic")
    return [_tap(begin + step, weight, extent, padding, (low, high)) for step, weight in enumerate(weights)]


def _nearest(t: np.ndarray) -> list[np.ndarray]:
    return [np.ones_like(t)]


def _linear(t: np.ndarray) -> list[np.ndarray]:
    return [1 - t, t]


def _cubic(t: np.ndarray) -> list[np.ndarray]:
    """Keys' cubic convolution."""

    def outside(d: np.ndarray) -> Any:
        return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC

    def inside(d: np.ndarray) -> Any:
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1

    return [outside(t + 1), inside(t), inside(1 - t), outside(2 - t)]


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


class AffineGrid(Facts, frozen=True):
    """The grid that an affine map of the image's coordinates makes, for GridSample."""

    op_types = ("AffineGrid",)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        is_aligned = node.flag_attr("align_corners")

        def draw(theta: np.ndarray, size: np.ndarray, out: np.ndarray) -> None:
            del size  # is the result's extents
            dims = out.shape[1:-1]
            ends = [1.0 if is_aligned else 1 - 1 / extent for extent in dims]
            axes = [np.linspace(-end, end, extent) for end, extent in zip(ends, dims, strict=True)]
            points = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(dims)], -1).reshape(-1, len(dims) + 1)
            out[...] = (points @ theta.swapaxes(1, 2)).reshape(out.shape)

        return draw


class RoiAlign(Facts, frozen=True):
    """The mean or the largest of points read in each of the bins of each region."""

    op_types = ("RoiAlign",)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
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
    corners = regions * regions.dtype.type(scale) - regions.dtype.type(0.5 if is_half else 0)
    n_channels, n_bins = out.shape[1], out.shape[2:]
    for result, image, (left, top, right, bottom) in zip(out, images.tolist(), corners.tolist(), strict=True):
        spans = (bottom - top, right - left)
        if not is_half:
            spans = (max(spans[0], 1.0), max(spans[1], 1.0))
        counts = [n_points or int(np.ceil(span / n)) for span, n in zip(spans, n_bins, strict=True)]
        if min(counts) < 1:
            result[...] = 0
            continue
        rows, columns = (
            _points_of(begin, span / n, n, count, extent)
            for begin, span, n, count, extent in zip((top, left), spans, n_bins, counts, x.shape[2:], strict=True)
        )
        read = x[image][:, rows[0][:, None], columns[0]] * rows[1][:, None] * columns[1]
        bins = read.reshape(n_channels, n_bins[0], -1, n_bins[1], 2 * counts[1])
        result[...] = bins.sum((2, 4)) / prod(counts) if is_mean else bins.max((2, 4))


def _points_of(begin: float, size: float, n_bins: int, count: int, extent: int) -> Tap:
    """The two elements beside each point of each bin along one dimension; those far outside count for nothing."""
    at = begin + size * (np.arange(n_bins)[:, None] + (np.arange(count) + 0.5) / count).ravel()
    is_near = (at >= -1) & (at <= extent)
    at = np.clip(at, 0, extent - 1)
    low = np.floor(at).astype(np.int64)
    t = at - low
    index = np.stack([low, np.minimum(low + 1, extent - 1)], 1)
    weight = np.stack([1 - t, t], 1) * is_near[:, None]
    return index.ravel(), weight.ravel().astype(np.float32)
