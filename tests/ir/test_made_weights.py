"""Weights that are made of others when they are packed."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.ir import TapsAsChannels, TapSums, WinogradWeights


def _convolved(x: np.ndarray, weights: np.ndarray, dilations: tuple[int, ...]) -> np.ndarray:
    """All results of windows that touch the image, tap by tap."""
    reach = [(k - 1) * d + 1 for k, d in zip(weights.shape, dilations, strict=True)]
    padded = np.pad(x, [(r - 1, r - 1) for r in reach])
    y = np.zeros([extent + r - 1 for extent, r in zip(x.shape, reach, strict=True)], np.float32)
    for tap in np.ndindex(weights.shape):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        y += weights[tap] * padded[tuple(slice(s, s + n) for s, n in zip(starts, y.shape, strict=True))]
    return y


def _scattered(x: np.ndarray, weights: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """Each element times all weights, added where its strides begin."""
    y = np.zeros([(n - 1) * s + k for n, s, k in zip(x.shape, strides, weights.shape, strict=True)], np.float32)
    for place in np.ndindex(x.shape):
        y[tuple(slice(p * s, p * s + k) for p, s, k in zip(place, strides, weights.shape, strict=True))] += (
            x[place] * weights
        )
    return y


_numbers = st.integers(1, 3)
_axes = st.lists(st.tuples(_numbers, _numbers, _numbers, _numbers), min_size=1, max_size=3)


@settings(max_examples=30)
@given(axes=_axes, seed=st.integers(0, 99))
def test_a_deconvolution_by_the_sums_is_the_convolution_of_repeated_elements(
    axes: list[tuple[int, ...]], seed: int
) -> None:
    extents, kernel, repeats, dilations = zip(*axes, strict=True)
    rng = np.random.default_rng(seed)
    x, weights = (rng.integers(-8, 9, dims).astype(np.float32) for dims in (extents, kernel))
    sums = TapSums(repeats, dilations)
    made = sums.of(weights[None, None])
    assert made.shape == sums.dims((1, 1, *kernel))
    repeated = x
    for axis, n in enumerate(repeats):
        repeated = np.repeat(repeated, n, axis)
    np.testing.assert_array_equal(_scattered(x, made[0, 0], repeats), _convolved(repeated, weights, dilations))


def test_the_channels_in_front_have_sums_of_their_own() -> None:
    weights = np.arange(2 * 3 * 4 * 3 * 5, dtype=np.float32).reshape(2, 3, 4, 3, 5)
    sums = TapSums((2, 3), (1, 2))
    made = sums.of(weights)
    for channels in product(range(2), range(3), range(4)):
        np.testing.assert_array_equal(made[channels], sums.of(weights[channels]))
    assert sums.of(weights.astype(np.float16)).dtype == np.float32


@settings(max_examples=30)
@given(
    stride=st.integers(1, 4),
    channels=st.integers(1, 3),
    kernel=st.integers(1, 6),
    before=st.integers(0, 3),
    more=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_pixels_in_a_row_are_one_with_as_many_channels(
    stride: int, channels: int, kernel: int, before: int, more: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n_taps = -(-(before + kernel) // stride) + more
    made = TapsAsChannels(stride, before, n_taps)
    pixels = rng.integers(-8, 9, (n_taps * stride, channels)).astype(np.float32)  # channels-last
    weights = rng.integers(-8, 9, (5, channels, kernel)).astype(np.float32)
    seen = made.of(weights)
    assert seen.shape == made.dims(weights.shape)
    steps = pixels.reshape(n_taps, stride * channels)
    expected = np.einsum("kc,ock->o", pixels[before : before + kernel], weights)
    np.testing.assert_array_equal(np.einsum("tc,oct->o", steps, seen), expected)


@settings(max_examples=30)
@given(seed=st.integers(0, 99))
def test_products_in_winograds_domain_are_a_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, tile = rng.integers(-8, 9, (3, 2, 3, 3)).astype(np.float32), rng.integers(-8, 9, (2, 4, 4))
    seen = WinogradWeights().of(weights)
    assert seen.shape == WinogradWeights().dims(weights.shape) == (3, 2, 4, 4)
    of_source = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])  # B^T and A^T of the paper
    of_results = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
    products = (seen * (of_source @ tile @ of_source.T)).sum(1)
    windows = np.lib.stride_tricks.sliding_window_view(tile, (3, 3), (1, 2))
    expected = np.einsum("cyxij,ocij->oyx", windows, weights)
    np.testing.assert_array_equal(of_results @ products @ of_results.T, expected)
