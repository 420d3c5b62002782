"""Weighted sums of windows in C, against sums of products in numpy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from blocklayout import dnnl

needs_c = pytest.mark.skipif(not dnnl.has_native_executor(), reason="no compiler built the C part")


class Windows(NamedTuple):
    pixels: np.ndarray
    images: np.ndarray
    begins: tuple[np.ndarray, np.ndarray]
    weights: tuple[np.ndarray, np.ndarray]
    results: np.ndarray


def windows(n_channels: int, n_regions: int = 9) -> Windows:
    """Some reach beyond the lower right corner, where weights are zero."""
    rng = np.random.default_rng(n_channels)
    extents, taps = (11, 9), (4, 5)
    begins = [rng.integers(0, extent, n_regions) for extent in extents]
    is_inside = [
        (begin[:, None] + np.arange(n) < extent)[:, None]
        for begin, n, extent in zip(begins, taps, extents, strict=True)
    ]
    shapes = [(n_regions, n_bins, n) for n_bins, n in zip((3, 2), taps, strict=True)]
    weights = [
        rng.random(shape, np.float32) * (rng.random(shape) < 0.7) * inside
        for shape, inside in zip(shapes, is_inside, strict=True)
    ]
    return Windows(
        rng.standard_normal((2, *extents, n_channels), np.float32),
        rng.integers(0, 2, n_regions),
        (begins[0], begins[1]),
        (weights[0], weights[1]),
        np.full((n_regions, n_channels, 3, 2), np.nan, np.float32),
    )


def expected(given: Windows) -> np.ndarray:
    taps = [weight.shape[2] for weight in given.weights]
    beyond = np.pad(given.pixels, [(0, 0), (0, taps[0]), (0, taps[1]), (0, 0)])
    return np.stack(
        [
            np.einsum("bi,cj,ijk->kbc", rows, columns, beyond[image, top : top + taps[0], left : left + taps[1]])
            for image, top, left, rows, columns in zip(given.images, *given.begins, *given.weights, strict=True)
        ]
    )


@needs_c
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n_channels", [1, 16, 37])
def test_sums_are_those_of_products(n_channels: int, n_threads: int) -> None:
    given = windows(n_channels)
    assert dnnl.run_parallel(lambda: dnnl.write_region_means(*given), n_threads)
    np.testing.assert_allclose(given.results, expected(given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [-1, 2, np.iinfo(np.int64).min])
def test_a_window_that_begins_outside_is_left_alone(wrong: int) -> None:
    given = windows(4)
    given.images[3] = wrong
    assert not dnnl.write_region_means(*given)
    assert np.isnan(given.results).all()


def test_pixels_with_holes_are_left_alone() -> None:
    given = windows(4)
    assert not dnnl.write_region_means(given.pixels[:, :, ::2], *given[1:])
