"""What calibration sees of a value, and the scheme of bytes that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import frexp
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import to_numpy
from blocklayout.errors import InputError

if TYPE_CHECKING:
    from typing import Self

N_BINS = 8192
"""Of a histogram, half of them below 0; between an eighth and all of them lie within what was seen."""

_N_CANDIDATES = 128
_LEAST_CANDIDATE = 0.1
"""Of the largest magnitude: no bound is looked at below this."""


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
        limits = np.iinfo(to_numpy(self.dtype))
        steps = np.rint(np.asarray(numbers, np.float32) / self._spread(numbers)) + self.zero_point
        nearest: np.ndarray = np.clip(steps, limits.min, limits.max)
        return nearest

    def numbers(self, integers: np.ndarray) -> np.ndarray:
        """The numbers that they stand for."""
        numbers: np.ndarray = (integers - self.zero_point).astype(np.float32) * self._spread(integers)
        return numbers

    def _spread(self, array: np.ndarray) -> np.ndarray:
        return self.scale.reshape(-1, *(1,) * (array.ndim - 2)) if self.scale.ndim else self.scale


class Seen:
    """What was seen of one value, or of several that share a scheme, over feeds.

    A histogram lies over ``-limit..limit``, a power of two, which doubles where larger numbers come: two bins then
    become one. So data are looked at once. Zeros, which every scheme has, are not in it.
    """

    def __init__(self, name: str, *, has_histogram: bool) -> None:
        self.name = name
        self.low, self.high, self.n_elements = np.inf, -np.inf, 0
        self.lows: list[float] = []
        self.highs: list[float] = []
        self.limit = 0.0
        self.has_histogram = has_histogram
        self.counts = np.zeros(N_BINS, np.int64)

    def add(self, array: np.ndarray, origin: str = "") -> None:
        """Look at the value in one feed; an InputError that names it where something is not finite."""
        if not array.size:
            return
        low, high = check_finite(self.name, array, origin)
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.n_elements += array.size
        self.lows.append(low)
        self.highs.append(high)
        largest = max(-low, high)
        if self.has_histogram and largest > 0:
            self.widen(2.0 ** frexp(largest)[1])
            scaled = array.ravel() / np.float32(self.limit) * np.float32(N_BINS / 2)
            bins = np.floor(scaled).astype(np.int64) + N_BINS // 2
            self.counts += np.bincount(np.clip(bins, 0, N_BINS - 1), minlength=N_BINS)
            self.counts[N_BINS // 2] -= array.size - np.count_nonzero(array)

    def widen(self, limit: float) -> None:
        """Let the histogram lie over ``-limit..limit``, a power of two, if it does not reach so far."""
        while self.limit and self.limit < limit:
            merged = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.pad(merged, N_BINS // 4)
            self.limit *= 2
        self.limit = self.limit or limit

    @classmethod
    def together(cls, parts: Iterable[Self]) -> Self:
        """What was seen of values that share a scheme."""
        first, *others = parts
        if not others:
            return first
        every = [first, *others]
        found = cls(first.name, has_histogram=first.has_histogram)
        found.low, found.high = min(part.low for part in every), max(part.high for part in every)
        found.n_elements = sum(part.n_elements for part in every)
        found.lows, found.highs = [min(part.means[0] for part in every)], [max(part.means[1] for part in every)]
        limit = max(part.limit for part in every)
        for part in every:
            part.widen(limit)
            found.counts += part.counts
        found.limit = limit
        return found

    @property
    def means(self) -> tuple[float, float]:
        """The mean over feeds of the least number, and of the largest."""
        return float(np.mean(self.lows)), float(np.mean(self.highs))

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high, 0.0)

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


def scheme_of(low: float, high: float, *, around_zero: bool) -> Scheme:
    """Bytes that cover a range: unsigned where it has nothing below 0, else signed; or unsigned with a zero point."""
    if low >= 0:
        return Scheme("u8", np.asarray(high / 255, np.float32), 0)
    if around_zero:
        return Scheme("s8", np.asarray(max(-low, high) / 127, np.float32), 0)
    scale = np.asarray((max(high, 0.0) - low) / 255, np.float32)
    return Scheme("u8", scale, int(np.rint(-low / scale)))


class Channels:
    """The range of each channel, dimension 1, of one value over feeds."""

    def __init__(self, name: str, n_channels: int) -> None:
        self.name = name
        self.lows, self.highs = np.zeros((2, n_channels), np.float32)

    def add(self, array: np.ndarray, origin: str = "") -> None:
        """Look at the value in one feed; an InputError that names it where something is not finite."""
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


def observed(seen: Seen, observer: str, percentile: float, *, around_zero: bool) -> Scheme:
    """The scheme that an observer chooses for what was seen; an InputError where that is nothing but 0."""
    check_scale(seen.name, seen.largest / 255)
    if observer == "mean-minmax":
        low, high = seen.means
        low, high = (low, high) if max(-low, high) > 0 else (seen.low, seen.high)
        return scheme_of(low, high, around_zero=around_zero)

    def within(bound: float) -> Scheme:
        return scheme_of(max(seen.low, -bound), min(seen.high, bound), around_zero=around_zero)

    return within(BOUNDS[observer](seen, percentile, within))


Within = Callable[[float], Scheme]


def _largest(seen: Seen, percentile: float, within: Within) -> float:
    del percentile, within
    return seen.largest


def _percentile(seen: Seen, percentile: float, within: Within) -> float:
    del within
    counts, width = seen.magnitudes
    above = np.cumsum(counts[::-1])[::-1]  # in this bin and those beyond
    n_kept = int(np.count_nonzero(above > seen.n_elements * (1 - percentile / 100)))
    return min(max(n_kept, 1) * width, seen.largest)


def _least_squares(seen: Seen, percentile: float, within: Within) -> float:
    del percentile
    numbers, counts = seen.bins

    def error(bound: float) -> float:
        scheme = within(bound)
        return float(((scheme.numbers(scheme.nearest(numbers)) - numbers) ** 2 * counts).sum())

    candidates = seen.largest * np.linspace(1, _LEAST_CANDIDATE, _N_CANDIDATES)
    return float(min(candidates, key=error))


def _least_divergence(seen: Seen, percentile: float, within: Within) -> float:
    """As TensorRT looks for it: what lies beyond a bound is counted at the bound, and levels are spread over bins.

    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017.
    """
    del percentile
    counts, width = seen.magnitudes
    n_levels = 255 if within(seen.largest).dtype == "u8" else 127

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


_LEAST_PROBABILITY = 1e-6

BOUNDS: Mapping[str, Callable[[Seen, float, Within], float]] = {
    "minmax": _largest,
    "percentile": _percentile,
    "mse": _least_squares,
    "entropy": _least_divergence,
}
"""Observers that choose a bound of magnitudes, by name."""

NEED_HISTOGRAM = {"percentile", "mse", "entropy"}
