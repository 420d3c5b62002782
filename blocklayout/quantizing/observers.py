"""Ranges and histograms of values in calibration, and the schemes of bytes that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import frexp

import numpy as np
from msgspec import Struct

from blocklayout.errors import InputError
from blocklayout.model.scales import nearest_bytes, numbers_of

N_BINS = 8192
"""Of a histogram, half of them below 0; between an eighth and all of them lie within what was seen."""

_N_CANDIDATES = 128
_LEAST_CANDIDATE = 0.1
"""Of the largest magnitude: no bound is looked at below this."""
_LEAST_PROBABILITY = 1e-6


class Scheme(Struct, frozen=True, eq=False):
    """Bytes that stand for ``scale * (byte - zero_point)``.

    Attributes:
        dtype: ``u8`` or ``s8``.
        scale: One number in f32, or one for each index along dimension 1.
        zero_point: Of all.
    """

    dtype: str
    scale: np.ndarray
    zero_point: int

    def nearest(self, numbers: np.ndarray) -> np.ndarray:
        """The bytes for numbers, as QuantizeLinear rounds and saturates, in f32."""
        return nearest_bytes(numbers, self.dtype, self._spread(numbers), self.zero_point)

    def numbers(self, integers: np.ndarray) -> np.ndarray:
        """The numbers that they stand for."""
        return numbers_of(integers, self._spread(integers), self.zero_point)

    def _spread(self, array: np.ndarray) -> np.ndarray:
        return self.scale.reshape(-1, *(1,) * (array.ndim - 2)) if self.scale.ndim else self.scale


class Seen:
    """Range and histogram of the values that share a scheme, over feeds.

    A histogram lies over ``-limit..limit``, a power of two, which doubles where larger numbers come: two bins then
    become one. So data are looked at once. Zeros, which every scheme has, are not in it.
    """

    def __init__(self, *names: str, has_histogram: bool) -> None:
        self.names, self.has_histogram = names, has_histogram
        self.lows: list[float] = []
        self.highs: list[float] = []
        self.n_elements, self.limit, self.counts = 0, 0.0, np.zeros(N_BINS, np.int64)

    def add(self, values: Mapping[str, np.ndarray], origin: str = "") -> None:
        """Look at the values of one feed, by name; an InputError that names the one that is not finite."""
        arrays = [values[name] for name in self.names if values[name].size]
        ranges = [check_finite(name, values[name], origin) for name in self.names if values[name].size]
        if ranges:
            self.lows.append(min(low for low, _ in ranges))
            self.highs.append(max(high for _, high in ranges))
        self.n_elements += sum(array.size for array in arrays)
        if self.has_histogram and self.largest > 0:
            self._widen(2.0 ** frexp(self.largest)[1])
            for array in arrays:
                scaled = array.ravel() / np.float32(self.limit) * np.float32(N_BINS / 2)
                bins = np.clip(np.floor(scaled).astype(np.int64) + N_BINS // 2, 0, N_BINS - 1)
                self.counts += np.bincount(bins, minlength=N_BINS)
                self.counts[N_BINS // 2] -= array.size - np.count_nonzero(array)

    def _widen(self, limit: float) -> None:
        while self.limit and self.limit < limit:
            self.counts = np.pad(self.counts.reshape(-1, 2).sum(1), N_BINS // 4)
            self.limit *= 2
        self.limit = self.limit or limit

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number."""
        return min(self.lows, default=0.0), max(self.highs, default=0.0)

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(map(abs, self.range))

    @property
    def bins(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers in the middle of bins that are not empty, and how many are there."""
        [filled] = np.nonzero(self.counts)
        return (filled + 0.5 - N_BINS / 2) * (2 * self.limit / N_BINS), self.counts[filled]

    @property
    def magnitudes(self) -> tuple[np.ndarray, float]:
        """Counts of magnitudes in bins from 0 to the largest, and the width of a bin."""
        width = 2 * self.limit / N_BINS
        folded = self.counts[N_BINS // 2 :] + self.counts[N_BINS // 2 - 1 :: -1]
        return folded[: int(self.largest / width) + 1], width


class Channels:
    """The range of each channel, dimension 1, of one value over feeds."""

    def __init__(self, name: str, n_channels: int) -> None:
        self.name = name
        self.lows, self.highs = np.zeros((2, n_channels), np.float32)

    def add(self, values: Mapping[str, np.ndarray], origin: str = "") -> None:
        """Look at the value among those of one feed; an InputError that names it where it is not finite."""
        array = values[self.name]
        if array.size:
            check_finite(self.name, array, origin)
            others = (0, *range(2, array.ndim))
            self.lows, self.highs = np.minimum(self.lows, array.min(others)), np.maximum(self.highs, array.max(others))

    @property
    def scheme(self) -> Scheme:
        """Bytes around 0 that cover each channel; one that is always 0 has the steps of the widest."""
        is_signed = bool((self.lows < 0).any())
        scales = np.maximum(-self.lows, self.highs) / np.float32(127 if is_signed else 255)
        check_scale(self.name, float(scales.max()))
        scales = np.where(scales > np.finfo(np.float32).tiny, scales, scales.max())
        return Scheme("s8" if is_signed else "u8", scales.astype(np.float32), 0)


def check_finite(name: str, array: np.ndarray, origin: str) -> tuple[float, float]:
    """The least and the largest number; an InputError if one is not finite."""
    low, high = float(array.min()), float(array.max())
    if not np.isfinite([low, high]).all():
        what = "NaN" if np.isnan([low, high]).any() else "infinite"
        raise InputError(f"{origin}{name} is {what} somewhere; calibrate with data for which it is finite")
    return low, high


def check_scale(name: str, scale: float) -> None:
    """An InputError if a scale is 0, or so small that numbers in f32 are none any more."""
    if scale < np.finfo(np.float32).tiny:
        said = "is 0 in all calibration data, so that no scale follows"
        raise InputError(f"{name} {said}; give other data, or except the node that reads it: f32")


def scheme_of(low: float, high: float, *, around_zero: bool) -> Scheme:
    """Bytes that cover a range: unsigned where it has nothing below 0, else signed; or unsigned with a zero point."""
    if low >= 0:
        return Scheme("u8", np.asarray(high / 255, np.float32), 0)
    if around_zero:
        return Scheme("s8", np.asarray(max(-low, high) / 127, np.float32), 0)
    scale = np.asarray((max(high, 0.0) - low) / 255, np.float32)
    return Scheme("u8", scale, int(np.rint(-low / scale)))


def observed(seen: Seen, observer: str, percentile: float, *, around_zero: bool) -> Scheme:
    """The scheme that an observer chooses for what was seen; an InputError where that is nothing but 0."""
    check_scale(", ".join(seen.names), seen.largest / 255)
    least, most = seen.range
    if observer == "mean-minmax":
        low, high = float(np.mean(seen.lows)), float(np.mean(seen.highs))
        return scheme_of(low, high, around_zero=around_zero)

    def within(bound: float) -> Scheme:
        return scheme_of(max(least, -bound), min(most, bound), around_zero=around_zero)

    if observer == "percentile":
        return within(_percentile(seen, percentile))
    if observer == "mse":
        return within(_least_squares(seen, within))
    if observer == "entropy":
        return within(_least_divergence(seen, 255 if within(seen.largest).dtype == "u8" else 127))
    return within(seen.largest)


def _percentile(seen: Seen, percentile: float) -> float:
    counts, width = seen.magnitudes
    above = np.cumsum(counts[::-1])[::-1]  # in this bin and those beyond
    n_kept = int(np.count_nonzero(above > seen.n_elements * (1 - percentile / 100)))
    return min(max(n_kept, 1) * width, seen.largest)


def _least_squares(seen: Seen, within: Callable[[float], Scheme]) -> float:
    numbers, counts = seen.bins

    def error(bound: float) -> float:
        scheme = within(bound)
        return float(((scheme.numbers(scheme.nearest(numbers)) - numbers) ** 2 * counts).sum())

    return float(min(seen.largest * np.linspace(1, _LEAST_CANDIDATE, _N_CANDIDATES), key=error))


def _least_divergence(seen: Seen, n_levels: int) -> float:
    """As TensorRT looks for it: what lies beyond a bound is counted at the bound, and levels are spread over bins.

    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017.
    """
    counts, width = seen.magnitudes

    def divergence(n_bins: int) -> float:
        inside = counts[:n_bins].astype(np.float64)
        clipped = inside.copy()
        clipped[-1] += counts[n_bins:].sum()
        edges = np.linspace(0, n_bins, n_levels + 1).astype(int)
        filled = np.add.reduceat((inside > 0).astype(np.float64), edges[:-1])
        level = np.add.reduceat(inside, edges[:-1]) / np.maximum(filled, 1)
        spread = np.repeat(level, np.diff(edges)) * (inside > 0)
        p, q = clipped / clipped.sum(), spread / max(spread.sum(), 1)
        some = p > 0
        return float((p[some] * np.log(p[some] / np.maximum(q[some], _LEAST_PROBABILITY))).sum())

    if counts.size <= n_levels:
        return seen.largest
    candidates = np.unique(np.linspace(counts.size, n_levels, _N_CANDIDATES).astype(int))[::-1]
    return min(float(min(candidates, key=divergence)) * width, seen.largest)


NEED_HISTOGRAM = {"percentile", "mse", "entropy"}
